//! Files to recordings.

use std::path::Path;

use npualloc_replay::trace::Trace;

use crate::error::{Error, Result};

/// A trace and what is known beyond it.
#[derive(Debug)]
pub struct Recording {
    /// What happened.
    pub trace: Trace,
}

impl Recording {
    /// Reads a file of any known format.
    ///
    /// # Errors
    /// When it is damaged, foreign, or holds no event.
    pub fn read(path: &Path) -> Result<Self> {
        let recording = Self {
            trace: Trace::read(path)?,
        };
        if recording.trace.events.is_empty() {
            return Err(Error::Empty {
                path: path.to_owned(),
            });
        }
        Ok(recording)
    }
}
