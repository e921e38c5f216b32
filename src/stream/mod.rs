//! Streams and time: which streams use a block, and the events that must complete before it may be
//! reused. Bookkeeping only: no driver; depends on ids, pages and the driver's value types.

mod fences;
mod pending;
mod traffic;
mod uses;

pub use fences::Fences;
pub use pending::{PendingEvents, PendingUse};
pub use traffic::{Pace, Traffic};
pub use uses::{StreamUses, Use};
