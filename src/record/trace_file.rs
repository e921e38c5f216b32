//! One device's trace: the text of its lines, and the numbers things have in it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::recorder::Request;
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
    /// Events written.
    pub events: u64,
    /// Private pools with users by their ids, numbered from 1 as they appear.
    pools: HashMap<(u64, u64), usize>,
    next_pool: usize,
    /// Streams by their handles, numbered as they appear.
    pub streams: HashMap<usize, usize>,
    /// Numbers of the stacks in this file, by their numbers in the recording; 0 = not in it yet.
    stacks: Vec<u32>,
    next_stack: u32,
}

impl TraceFile {
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let writer = Writer::create(path).map_err(|source| RecordError {
            path: path.to_owned(),
            source,
        })?;
        let mut file = Self {
            path: path.to_owned(),
            writer,
            text: Vec::with_capacity(PIECE + 256),
            next: 0,
            events: 0,
            pools: HashMap::new(),
            next_pool: 0,
            streams: HashMap::new(),
            stacks: Vec::new(),
            next_stack: 0,
        };
        file.line(format_args!("# npualloc-trace v1"));
        Ok(file)
    }

    /// The device's bytes, where they are known.
    pub fn capacity(&mut self, bytes: u64) {
        if bytes > 0 {
            self.line(format_args!("# capacity {bytes}"));
        }
    }

    /// A line that the reader counts.
    pub fn event(&mut self, text: std::fmt::Arguments<'_>) {
        self.events += 1;
        self.line(text);
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = writeln!(self.text, "{text}");
    }

    pub fn stream(&mut self, handle: usize) -> usize {
        let next = self.streams.len();
        *self.streams.entry(handle).or_insert(next)
    }

    pub fn allocated(&mut self, request: &Request, stack: u32) -> u32 {
        let number = self.next;
        self.next += 1;
        let stream = self.stream(request.stream);
        let bytes = request.bytes;
        match (self.pool_number(request.pool), stack) {
            (0, 0) => self.event(format_args!("a {number} {bytes} {stream}")),
            (0, _) => self.event(format_args!("a {number} {bytes} {stream} {stack}")),
            (pool, _) => self.event(format_args!("a {number} {bytes} {stream} {stack} {pool}")),
        }
        number
    }

    /// The number here of a private pool, which is written when it is new here; 0 for the default pool.
    fn pool_number(&mut self, id: (u64, u64)) -> usize {
        if id == (0, 0) {
            return 0;
        }
        if let Some(number) = self.pools.get(&id) {
            return *number;
        }
        self.next_pool += 1;
        self.pools.insert(id, self.next_pool);
        self.line(format_args!("p {} {}", id.0, id.1));
        self.next_pool
    }

    /// A private pool lost its last user. When its id is used again, that is another pool.
    pub fn pool_released(&mut self, id: (u64, u64)) {
        if let Some(number) = self.pools.remove(&id) {
            self.event(format_args!("d {number}"));
        }
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
