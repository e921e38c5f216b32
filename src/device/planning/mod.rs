//! Programs that repeat themselves while memory moves for them: from then on each large block lies at a place of its own,
//! where no other is at that time, and no memory moves any more. Depends on `blocks`, `policy`, `streams` for whose use of a
//! place must be over, and `paging` to map memory there.

pub(super) mod course;
mod place;
mod serve;
mod site;
