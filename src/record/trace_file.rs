//! One device's trace: the text of its lines, and the numbers things have in it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::writer::{PIECE, Writer};

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct RecordError {
    /// Which file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

#[derive(Debug)]
pub struct TraceFile {
    pub path: PathBuf,
    pub writer: Writer,
    pub text: Vec<u8>,
    next: u32,
    /// Streams by their handles, numbered as they appear.
    pub streams: HashMap<usize, usize>,
    /// Numbers of the stacks in this file, by their numbers in the recording; 0 = not in it yet.
    stacks: Vec<u32>,
    next_stack: u32,
}

impl TraceFile {
    pub fn create(path: &Path, capacity: u64) -> Result<Self, RecordError> {
        let writer = Writer::create(path).map_err(|source| RecordError {
            path: path.to_owned(),
            source,
        })?;
        let mut file = Self {
            path: path.to_owned(),
            writer,
            text: Vec::with_capacity(PIECE + 256),
            next: 0,
            streams: HashMap::new(),
            stacks: Vec::new(),
            next_stack: 0,
        };
        file.line(format_args!("# npualloc-trace v1"));
        if capacity > 0 {
            file.line(format_args!("# capacity {capacity}"));
        }
        Ok(file)
    }

    pub fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = writeln!(self.text, "{text}");
    }

    pub fn stream(&mut self, handle: usize) -> usize {
        let next = self.streams.len();
        *self.streams.entry(handle).or_insert(next)
    }

    pub fn allocated(&mut self, bytes: usize, stream: usize, stack: u32) -> u32 {
        let number = self.next;
        self.next += 1;
        let stream = self.stream(stream);
        if stack == 0 {
            self.line(format_args!("a {number} {bytes} {stream}"));
        } else {
            self.line(format_args!("a {number} {bytes} {stream} {stack}"));
        }
        number
    }

    /// The number here of the recording's stack, which is written when it is new here.
    pub fn stack_number(&mut self, stack: u32, frames: &str) -> u32 {
        let index = stack as usize;
        if self.stacks.len() <= index {
            self.stacks.resize(index + 1, 0);
        }
        if self.stacks[index] == 0 {
            self.next_stack += 1;
            self.stacks[index] = self.next_stack;
            self.line(format_args!("k {frames}"));
        }
        self.stacks[index]
    }
}
