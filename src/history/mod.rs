//! What happened: trace entries in a ring, and the contexts (stacks) of the client. Pure, but that each thread knows the
//! context of the call that it is in; depends on ids and pool names.

mod caller;
mod context;
mod ring;

pub use caller::{Caller, caller};
pub use context::{Context, DropContext};
pub use ring::{Action, History, RecordContext, TraceEntry};
