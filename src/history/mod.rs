//! What happened: trace entries in a ring, and the contexts (stacks) of the client. Pure; depends on ids
//! and pool names.

mod context;
mod ring;

pub use context::{Context, DropContext};
pub use ring::{Action, History, RecordContext, TraceEntry};
