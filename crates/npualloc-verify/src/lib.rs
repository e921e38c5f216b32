//! What checks the allocator's core from outside: random programs over the driver without a device, a
//! reference model that says what must hold after each step, and the long runs.
//!
//! | module | what lives there | depends on |
//! |---|---|---|
//! | [`op`] | the operations, and programs read from bytes | nothing |
//! | [`watch`] | the driver, watched: who uses which memory, and until when | the core |
//! | [`world`], `pools` | runs a program on the core and on the model | `op`, `watch` |
//! | [`check`] | what must hold after each step | `world` |
//! | [`churn`] | random programs at full speed, checked at intervals | the core |
//! | [`soak`] | made-up training for millions of steps, watched for drift | the core |
//! | [`stress`] | threads on one device | the core |
//!
//! A broken rule is a panic that names it: this crate is for tests.

pub mod check;
pub mod churn;
pub mod op;
mod pools;
mod random;
pub mod soak;
pub mod stress;
pub mod watch;
pub mod world;

pub use random::Random;
