//! What goes back to the driver: idle segments and pages, whole or as much as is needed. Depends on `blocks`, and on `streams` and `paging` for
//! what nobody uses any more.

mod asleep;
mod gc;
mod give_back;
