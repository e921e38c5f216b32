//! Files to recordings.

use std::path::Path;

use npualloc_replay::trace::Trace;

use crate::error::{Error, Result};

/// A trace and what is known beyond it.
#[derive(Debug)]
pub struct Recording {
    /// What happened.
    pub trace: Trace,
    /// Stacks of allocations, a frame a line, the innermost first.
    pub stacks: Vec<String>,
    /// Position in `stacks` for each allocation; empty where none are known.
    pub stack_of: Vec<u32>,
}

impl Recording {
    /// Reads a file of any known format.
    ///
    /// # Errors
    /// When it is damaged, foreign, or holds no event.
    pub fn read(path: &Path) -> Result<Self> {
        let recording = Self {
            trace: Trace::read(path)?,
            stacks: Vec::new(),
            stack_of: Vec::new(),
        };
        if recording.trace.events.is_empty() {
            return Err(Error::Empty {
                path: path.to_owned(),
            });
        }
        Ok(recording)
    }
}
