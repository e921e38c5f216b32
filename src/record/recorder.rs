//! Turns calls into the lines of a trace: one file for each device that is used.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::trace_file::{RecordError, TraceFile};
use super::writer::{PIECE, tell};

/// A request for memory, as the program made it.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Of which device.
    pub device: i32,
    /// How many.
    pub bytes: usize,
    /// The stream's handle.
    pub stream: usize,
    /// The private pool's id; zeros for the default pool.
    pub pool: (u64, u64),
    /// Number of the stack (0: not known).
    pub stack: u32,
}

/// What the marker before a request that failed begins with.
pub(super) const FAILED: &str = "out of memory: ";
/// Bytes of a stack's frames that are kept: a line must be shorter than the reader's longest.
const LONGEST_STACK: usize = 16 << 10;

/// Events of the device that are kept in mind. A program uses a few again and again; more are forgotten.
const MOST_EVENTS: usize = 1 << 16;

/// The path meant by a text: `%p` is the process, `%r` its rank (`RANK`, else 0).
pub fn expand(text: &str, rank: Option<&str>) -> PathBuf {
    let process = std::process::id().to_string();
    PathBuf::from(
        text.replace("%p", &process)
            .replace("%r", rank.unwrap_or("0")),
    )
}

/// A recording under way. Thread-safe; the order of a block's allocation and free is that of the calls,
/// provided a free is told before it happens and an allocation after.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    path: PathBuf,
    /// By device. The first to be used has the path itself; that file is there before its device is known.
    files: Vec<(Option<i32>, TraceFile)>,
    /// Blocks alive by address: device's position in `files`, number.
    alive: HashMap<usize, (usize, u32)>,
    /// By the device's events that were recorded: position in `files`, stream, events written before.
    events: HashMap<usize, (usize, usize, u64)>,
    /// Frames of the stacks, separated by tabs; number 0 is the one that is unknown.
    stacks: Vec<String>,
    failure: Option<RecordError>,
    /// Devices whose file could not be made.
    refused: Vec<i32>,
    finished: bool,
}

impl Recorder {
    /// Makes the file of a device. Files of further devices follow when they are used: `path.npu<device>`.
    ///
    /// # Errors
    /// When the file can't be made.
    pub fn start(path: &Path, device: i32, capacity: u64) -> Result<Self, RecordError> {
        let recorder = Self::open(path)?;
        recorder.state.lock().file(device, || capacity);
        Ok(recorder)
    }

    /// As [`Self::start`], for the device that is used first.
    ///
    /// # Errors
    /// When the file can't be made.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let first = TraceFile::create(path)?;
        Ok(Self {
            state: Mutex::new(State {
                path: path.to_owned(),
                files: vec![(None, first)],
                alive: HashMap::new(),
                events: HashMap::new(),
                stacks: vec![String::new()],
                failure: None,
                refused: Vec::new(),
                finished: false,
            }),
        })
    }

    /// Makes a stack known: frames separated by tabs, the innermost first. Gives its number.
    pub fn add_stack(&self, frames: &str) -> u32 {
        let mut state = self.state.lock();
        if state.finished {
            return 0;
        }
        let mut frames: String = frames
            .chars()
            .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
            .collect();
        while frames.len() > LONGEST_STACK {
            frames.pop();
        }
        state.stacks.push(frames);
        (state.stacks.len() - 1) as u32
    }

    /// A block was handed out. `capacity` is asked when the device is used for the first time.
    pub fn allocated(&self, addr: usize, request: &Request, capacity: impl FnOnce() -> u64) {
        let mut state = self.state.lock();
        if let Some(file) = state.file(request.device, capacity) {
            // Its free came between the look at what was live and the beginning of the recording.
            if let Some((file, number)) = state.alive.remove(&addr) {
                state.files[file].1.event(format_args!("f {number}"));
            }
            let stack = state.stack_in(file, request.stack);
            let number = state.files[file].1.allocated(request, stack);
            if let Some(number) = number.filter(|_| addr != 0) {
                state.alive.insert(addr, (file, number));
            }
            state.flush(file, false);
        }
    }

    /// A request failed: it is in the trace as an allocation freed at once, after a marker that says so.
    pub fn failed(&self, request: &Request, capacity: impl FnOnce() -> u64) {
        let mut state = self.state.lock();
        if let Some(file) = state.file(request.device, capacity) {
            let stack = state.stack_in(file, request.stack);
            state.files[file].1.failed(request, stack);
            state.flush(file, true);
        }
    }

    /// A block is about to be given back.
    pub fn freed(&self, addr: usize) {
        let mut state = self.state.lock();
        if let Some((file, number)) = state.alive.remove(&addr) {
            state.files[file].1.event(format_args!("f {number}"));
            state.flush(file, false);
        }
    }

    /// A block is used on another stream.
    pub fn used(&self, addr: usize, stream: usize) {
        let mut state = self.state.lock();
        if let Some((file, number)) = state.alive.get(&addr).copied() {
            let trace = &mut state.files[file].1;
            if let Some(stream) = trace.stream(stream) {
                trace.event(format_args!("u {number} {stream}"));
            }
            state.flush(file, false);
        }
    }

    /// A device was waited for.
    pub fn device_waited(&self, device: i32) {
        let mut state = self.state.lock();
        if let Some(file) = state.known(device) {
            state.files[file].1.event(format_args!("s *"));
            state.flush(file, false);
        }
    }

    /// A stream was waited for. One that allocated nothing says nothing.
    pub fn stream_waited(&self, stream: usize) {
        let mut state = self.state.lock();
        if let Some((file, number)) = state.stream(stream) {
            state.files[file].1.event(format_args!("s {number}"));
            state.flush(file, false);
        }
    }

    /// An event of the device was recorded on a stream.
    pub fn event_recorded(&self, event: usize, stream: usize) {
        let mut state = self.state.lock();
        if state.events.len() >= MOST_EVENTS {
            state.events.clear();
        }
        match state.stream(stream) {
            Some((file, number)) => {
                let written = state.files[file].1.events;
                state.events.insert(event, (file, number, written));
            }
            None => drop(state.events.remove(&event)),
        }
    }

    /// An event of the device was waited for.
    pub fn event_waited(&self, event: usize) {
        let mut state = self.state.lock();
        if let Some((file, stream, written)) = state.events.get(&event).copied()
            && let Some((_, trace)) = state.files.get_mut(file)
        {
            let back = trace.events - written;
            trace.event(format_args!("w {stream} {back}"));
            state.flush(file, false);
        }
    }

    /// A private pool lost its last user.
    pub fn pool_released(&self, device: i32, pool: (u64, u64)) {
        let mut state = self.state.lock();
        if let Some(file) = state.known(device) {
            state.files[file].1.pool_released(pool);
            state.flush(file, false);
        }
    }

    /// Cached memory was given back.
    pub fn emptied(&self, device: i32) {
        let mut state = self.state.lock();
        if let Some(file) = state.known(device) {
            state.files[file].1.event(format_args!("e"));
            state.flush(file, false);
        }
    }

    /// A step or a phase begins. False once the recording is over.
    pub fn mark(&self, label: &str) -> bool {
        let mut label: String = label
            .chars()
            .take(200)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        if label.starts_with(FAILED) {
            // What only says so must not make the next block one that never was.
            label.insert_str(0, "marked: ");
        }
        let mut state = self.state.lock();
        for file in 0..state.files.len() {
            state.files[file].1.mark(&label);
            state.flush(file, false);
        }
        !state.finished
    }

    /// Writes what is left; further calls have no effect. The files' sizes together, bytes.
    ///
    /// # Errors
    /// The first failure since the start: what was written before it is readable.
    pub fn finish(&self) -> Result<u64, RecordError> {
        let mut state = self.state.lock();
        state.finished = true;
        for file in 0..state.files.len() {
            state.flush(file, true);
        }
        state.alive = HashMap::new();
        state.events = HashMap::new();
        state.stacks = Vec::new();
        let mut total = 0;
        for (_, file) in std::mem::take(&mut state.files) {
            if let Some(reason) = file.ended {
                let path = file.path.clone();
                let source = io::Error::other(format!("{reason}; the recording ended there"));
                state.failure.get_or_insert(RecordError { path, source });
            }
            match file.writer.finish() {
                Ok(bytes) => total += bytes,
                Err(source) => {
                    let path = file.path;
                    state.failure = Some(RecordError { path, source });
                }
            }
        }
        state.failure.take().map_or(Ok(total), Err)
    }
}

impl State {
    /// The position of the file of a device that was used already.
    fn known(&self, device: i32) -> Option<usize> {
        self.files
            .iter()
            .position(|(known, _)| *known == Some(device))
    }

    /// A stream's file, and its number there.
    fn stream(&self, handle: usize) -> Option<(usize, usize)> {
        let mut files = self.files.iter().enumerate();
        files.find_map(|(file, (_, trace))| Some((file, *trace.streams.get(&handle)?)))
    }

    /// The position of the device's file.
    fn file(&mut self, device: i32, capacity: impl FnOnce() -> u64) -> Option<usize> {
        if self.finished {
            return None;
        }
        let known = self.known(device);
        if known.is_some() || self.refused.contains(&device) {
            return known;
        }
        if let Some((first @ None, file)) = self.files.first_mut() {
            *first = Some(device);
            file.capacity(capacity());
            return Some(0);
        }
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".npu{device}"));
        match TraceFile::create(Path::new(&path)) {
            Ok(mut file) => {
                file.capacity(capacity());
                self.files.push((Some(device), file));
                Some(self.files.len() - 1)
            }
            Err(error) => {
                tell(&error.path, &error.source.to_string());
                self.refused.push(device);
                self.failure.get_or_insert(error);
                None
            }
        }
    }

    /// The number of a stack in a file, which it is written to when it is new there.
    fn stack_in(&mut self, file: usize, stack: u32) -> u32 {
        match self.stacks.get(stack as usize) {
            Some(frames) if stack != 0 => self.files[file].1.stack_number(stack, frames),
            _ => 0,
        }
    }

    /// Hands the text over where there is a piece of it, or `all` of it.
    fn flush(&mut self, file: usize, all: bool) {
        let trace = &mut self.files[file].1;
        let all = all || trace.ended.is_some();
        if trace.text.len() >= PIECE || (all && !trace.text.is_empty()) {
            let piece = std::mem::replace(&mut trace.text, Vec::with_capacity(PIECE + 256));
            // A failure is told by `finish`.
            trace.writer.send(piece);
        }
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
