//! Pages: physical memory apart from addresses. Which handle backs which page of a range, and which
//! handles back none. Bookkeeping only: pure.

mod number_set;
mod numbers;
mod pool;
mod table;

pub use number_set::NumberSet;
pub use numbers::PageNumbers;
pub use pool::{LastUse, PagePool};
pub use table::{PageTable, Stale};
