//! The report: one page of HTML with the whole replay in it, that needs nothing else.
//!
//! `collect` watches a replay, `ranges` follows the memory held, `pack` makes its tables small, `page` puts them into the page. The page
//! itself is in `assets`: it rebuilds the state of memory at any event from the two tables of blocks and
//! ranges.

mod collect;
mod pack;
mod page;
mod ranges;

pub use collect::Collector;
pub use page::{Facts, page};
