//! Pickles of plain data, read without running anything: no opcode that names, makes or calls a Python
//! object is known here. Pure.

mod reader;
mod value;

pub use reader::{MAX_FILE, PickleError, read};
pub use value::{Heap, Value};
