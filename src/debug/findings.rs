//! What was found and not yet raised.

use std::io::{self, Write};

use parking_lot::Mutex;

use crate::error::{AllocError, Result};

/// How many are kept for the error; all are written to standard error.
const MOST_KEPT: usize = 16;

/// Writes to standard error, which may be closed.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "npualloc: {text}");
}

/// Thread-safe.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Mutex<(usize, Vec<String>)>,
}

impl Findings {
    /// Tells of damage: at once on standard error, and by the next call that can fail.
    pub fn add(&self, text: String) {
        say(&text);
        let (count, kept) = &mut *self.kept.lock();
        *count += 1;
        if kept.len() < MOST_KEPT {
            kept.push(text);
        }
    }

    /// Fails when there are findings; they are forgotten with that.
    pub fn raise(&self) -> Result<()> {
        let (count, kept) = std::mem::take(&mut *self.kept.lock());
        if count == 0 {
            return Ok(());
        }
        let mut text = kept.join("\n");
        if count > kept.len() {
            text += &format!("\n… and {} more", count - kept.len());
        }
        Err(AllocError::Damage { text })
    }
}
