//! Pages: physical memory apart from addresses. Which handle backs which page of a range, and which
//! handles back none. Bookkeeping only: pure.

mod numbers;
mod pool;
mod table;

pub use numbers::{NumberSet, PageNumbers};
pub use pool::{LastUse, PagePool};
pub use table::{PageTable, Stale};
