//! One device's trace: the text of its lines, and the numbers things have in it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::limits::Limits;
use super::recorder::{FAILED, Request};
use super::writer::{FIRST_LINE, PIECE, Writer, tell};

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
    /// Bytes of markers and stacks, as the limits count them.
    texts: usize,
    pub limits: Limits,
    /// Why nothing more is written.
    pub ended: Option<String>,
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
            texts: 0,
            limits: Limits::READER,
            ended: None,
        };
        file.line(format_args!("{FIRST_LINE}"));
        Ok(file)
    }

    /// The device's bytes, where they are known.
    pub fn capacity(&mut self, bytes: u64) {
        if bytes > 0 {
            self.line(format_args!("# capacity {bytes}"));
        }
    }

    /// Whether there is room for so many events; the recording ends where there is none.
    fn has_room(&mut self, events: u64) -> bool {
        if self.events + events > self.limits.events {
            self.end(format!("more than {} events", self.limits.events));
        }
        self.ended.is_none()
    }

    fn end(&mut self, reason: String) {
        if self.ended.is_none() {
            tell(&self.path, &format!("{reason}; the recording ends here"));
            self.ended = Some(reason);
        }
    }

    /// A line that the reader counts.
    pub fn event(&mut self, text: std::fmt::Arguments<'_>) {
        if self.has_room(1) {
            self.events += 1;
            self.line(text);
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = writeln!(self.text, "{text}");
    }

    pub fn mark(&mut self, label: &str) {
        let texts = self.texts + label.len() + Limits::TEXT_COST;
        if texts > self.limits.text {
            self.end(format!("more than {} bytes of markers", self.limits.text));
        }
        if self.has_room(1) {
            self.texts = texts;
            self.event(format_args!("m {label}"));
        }
    }

    /// `None` where the recording has ended.
    pub fn stream(&mut self, handle: usize) -> Option<usize> {
        let next = self.streams.len();
        if let Some(number) = self.streams.get(&handle) {
            return Some(*number);
        }
        if next >= self.limits.streams {
            self.end(format!("more than {next} streams"));
            return None;
        }
        self.streams.insert(handle, next);
        Some(next)
    }

    /// The block's number; `None` where the recording has ended.
    pub fn allocated(&mut self, request: &Request, stack: u32) -> Option<u32> {
        let stream = self.stream(request.stream)?;
        let pool = self.pool_number(request.pool)?;
        if !self.has_room(1) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let bytes = request.bytes;
        match (pool, stack) {
            (0, 0) => self.event(format_args!("a {number} {bytes} {stream}")),
            (0, _) => self.event(format_args!("a {number} {bytes} {stream} {stack}")),
            _ => self.event(format_args!("a {number} {bytes} {stream} {stack} {pool}")),
        }
        Some(number)
    }

    /// Three events in a row, by which the reader knows it.
    pub fn failed(&mut self, request: &Request, stack: u32) {
        if !self.has_room(3) {
            return;
        }
        self.mark(&format!("{FAILED}{} bytes", request.bytes));
        if let Some(number) = self.allocated(request, stack) {
            self.event(format_args!("f {number}"));
        }
    }

    /// The number here of a private pool, which is written when it is new here; 0 for the default pool.
    fn pool_number(&mut self, id: (u64, u64)) -> Option<usize> {
        if id == (0, 0) {
            return Some(0);
        }
        if let Some(number) = self.pools.get(&id) {
            return Some(*number);
        }
        if self.next_pool >= self.limits.pools {
            self.end(format!("more than {} private pools", self.limits.pools));
        }
        if self.ended.is_some() {
            return None;
        }
        self.next_pool += 1;
        self.pools.insert(id, self.next_pool);
        self.line(format_args!("p {} {}", id.0, id.1));
        Some(self.next_pool)
    }

    /// A private pool lost its last user. When its id is used again, that is another pool.
    pub fn pool_released(&mut self, id: (u64, u64)) {
        if let Some(number) = self.pools.remove(&id) {
            self.event(format_args!("d {number}"));
        }
    }

    /// The number here of the recording's stack, which is written when it is new here; 0 where there are too
    /// many. Half of the text is left to markers.
    pub fn stack_number(&mut self, stack: u32, frames: &str) -> u32 {
        let index = stack as usize;
        if self.stacks.len() <= index {
            self.stacks.resize(index + 1, 0);
        }
        if self.stacks[index] == 0 {
            let texts = self.texts + frames.len() + Limits::TEXT_COST;
            let full = self.next_stack >= self.limits.stacks || texts > self.limits.text / 2;
            if full || self.ended.is_some() {
                return 0;
            }
            self.texts = texts;
            self.next_stack += 1;
            self.stacks[index] = self.next_stack;
            self.line(format_args!("k {frames}"));
        }
        self.stacks[index]
    }
}
