//! What a program asks of the allocator, written to a file as it happens. Depends on nothing of the
//! allocator; called by the bridge with no lock held.
//!
//! The file is a trace of version 1 (text, see the trace reader), compressed with gzip in pieces that are
//! complete in themselves: when the process is killed, what was written before stays readable.

mod limits;
mod lock;
mod recorder;
mod trace_file;
mod writer;

pub use limits::Limits;
pub use recorder::{Recorder, Request, expand};
pub use trace_file::RecordError;
