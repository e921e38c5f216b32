//! Programs that repeat themselves: when the same large blocks come and go in the same order again, where each of them is
//! to lie so that no memory has to move any more. Pure; depends on `ids` and `mix`.

mod cycle;
mod item;
mod packing;
mod placed;
mod timetable;

#[cfg(test)]
pub use cycle::Tenancy;
pub use cycle::{Cycle, LONG, MOST_STEPS, Period};
pub use item::Obstacle;
pub use packing::GOOD_ENOUGH;
pub use timetable::{Place, Timetable};
