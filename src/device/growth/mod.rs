//! New memory for a request: mapped into a window of virtual segments, or a fixed segment of the driver's. Depends on
//! `blocks`, `policy`, `streams`, `paging`, and on `reclaim` to give ranges back where addresses are short.

mod segment;
mod virtual_memory;
