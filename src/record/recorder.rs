//! Turns calls into the lines of a trace: one file for each device that is used.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::trace_file::{RecordError, TraceFile};
use super::writer::PIECE;

/// Bytes of a stack's frames that are kept: a line must be shorter than the reader's longest.
const LONGEST_STACK: usize = 16 << 10;

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
    /// By device. The first to be used has the path itself.
    files: Vec<(i32, TraceFile)>,
    /// Blocks alive by address: device's position in `files`, number.
    alive: HashMap<usize, (usize, u32)>,
    /// Frames of the stacks, separated by tabs; number 0 is the one that is unknown.
    stacks: Vec<String>,
    failure: Option<RecordError>,
    finished: bool,
}

impl Recorder {
    /// Makes the file. Files of further devices follow when they are used: `path.npu<device>`.
    ///
    /// # Errors
    /// When the file can't be made.
    pub fn start(path: &Path, device: i32, capacity: u64) -> Result<Self, RecordError> {
        let first = TraceFile::create(path, capacity)?;
        Ok(Self {
            state: Mutex::new(State {
                path: path.to_owned(),
                files: vec![(device, first)],
                alive: HashMap::new(),
                stacks: vec![String::new()],
                failure: None,
                finished: false,
            }),
        })
    }

    /// Makes a stack known: frames separated by tabs, the innermost first. Gives its number.
    pub fn add_stack(&self, frames: &str) -> u32 {
        let mut state = self.state.lock();
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

    /// A block was handed out, to the owner of the stack of that number (0: not known). `capacity` is asked when the device is used for the first time.
    pub fn allocated(
        &self,
        device: i32,
        addr: usize,
        bytes: usize,
        stream: usize,
        stack: u32,
        capacity: impl FnOnce() -> u64,
    ) {
        let mut state = self.state.lock();
        if let Some(file) = state.file(device, capacity) {
            let stack = state.stack_in(file, stack);
            let number = state.files[file].1.allocated(bytes, stream, stack);
            if addr != 0 {
                state.alive.insert(addr, (file, number));
            }
            state.flush(file, false);
        }
    }

    /// A request failed: it is in the trace as an allocation freed at once, after a marker.
    pub fn failed(
        &self,
        device: i32,
        bytes: usize,
        stream: usize,
        stack: u32,
        capacity: impl FnOnce() -> u64,
    ) {
        let mut state = self.state.lock();
        if let Some(file) = state.file(device, capacity) {
            let stack = state.stack_in(file, stack);
            let trace = &mut state.files[file].1;
            trace.line(format_args!("m out of memory: {bytes} bytes"));
            let number = trace.allocated(bytes, stream, stack);
            trace.line(format_args!("f {number}"));
            state.flush(file, true);
        }
    }

    /// A block is about to be given back.
    pub fn freed(&self, addr: usize) {
        let mut state = self.state.lock();
        if let Some((file, number)) = state.alive.remove(&addr) {
            state.files[file].1.line(format_args!("f {number}"));
            state.flush(file, false);
        }
    }

    /// A block is used on another stream.
    pub fn used(&self, addr: usize, stream: usize) {
        let mut state = self.state.lock();
        if let Some((file, number)) = state.alive.get(&addr).copied() {
            let trace = &mut state.files[file].1;
            let stream = trace.stream(stream);
            trace.line(format_args!("u {number} {stream}"));
            state.flush(file, false);
        }
    }

    /// A stream, or everything, was waited for.
    pub fn synchronized(&self, stream: Option<usize>) {
        let mut state = self.state.lock();
        for file in 0..state.files.len() {
            let trace = &mut state.files[file].1;
            match stream {
                None => trace.line(format_args!("s *")),
                Some(handle) => {
                    // A stream that allocated nothing says nothing.
                    if let Some(number) = trace.streams.get(&handle).copied() {
                        trace.line(format_args!("s {number}"));
                    }
                }
            }
            state.flush(file, false);
        }
    }

    /// Cached memory was given back.
    pub fn emptied(&self, device: i32) {
        let mut state = self.state.lock();
        if let Some(file) = state.files.iter().position(|(known, _)| *known == device) {
            state.files[file].1.line(format_args!("e"));
            state.flush(file, false);
        }
    }

    /// A step or a phase begins.
    pub fn mark(&self, label: &str) {
        let label: String = label
            .chars()
            .take(200)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let mut state = self.state.lock();
        for file in 0..state.files.len() {
            state.files[file].1.line(format_args!("m {label}"));
            state.flush(file, false);
        }
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
        let mut total = 0;
        for (_, file) in std::mem::take(&mut state.files) {
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
    /// The position of the device's file.
    fn file(&mut self, device: i32, capacity: impl FnOnce() -> u64) -> Option<usize> {
        if self.finished {
            return None;
        }
        let known = self.files.iter().position(|(known, _)| *known == device);
        if known.is_some() {
            return known;
        }
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".npu{device}"));
        match TraceFile::create(Path::new(&path), capacity()) {
            Ok(file) => {
                self.files.push((device, file));
                Some(self.files.len() - 1)
            }
            Err(error) => {
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
        if trace.text.len() >= PIECE || (all && !trace.text.is_empty()) {
            let piece = std::mem::replace(&mut trace.text, Vec::with_capacity(PIECE + 256));
            // A failure is told by `finish`.
            trace.writer.send(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::MultiGzDecoder;
    use std::io::Read;

    fn text(path: &Path) -> String {
        let mut text = String::new();
        MultiGzDecoder::new(std::fs::File::open(path).expect("there"))
            .read_to_string(&mut text)
            .expect("readable");
        text
    }

    fn directory() -> PathBuf {
        let unique = std::thread::current()
            .name()
            .unwrap_or("t")
            .replace(':', "_");
        let path = std::env::temp_dir().join(format!("{unique}_{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    #[test]
    fn calls_become_lines() {
        let directory = directory();
        let path = directory.join("t.gz");
        let recorder = Recorder::start(&path, 0, 4096).expect("started");
        recorder.mark("step\n0");
        recorder.allocated(0, 0x1000, 512, 77, 0, || 0);
        recorder.allocated(0, 0x2000, 100, 88, 0, || 0);
        recorder.used(0x1000, 88);
        recorder.used(0x9000, 88);
        recorder.freed(0x1000);
        recorder.freed(0x1000);
        recorder.synchronized(Some(88));
        recorder.synchronized(Some(99));
        recorder.synchronized(None);
        recorder.allocated(1, 0x3000, 7, 88, 0, || 99);
        recorder.emptied(0);
        recorder.failed(0, 1 << 40, 77, 0, || 0);
        assert!(recorder.finish().expect("written") > 0);
        recorder.allocated(0, 0x4000, 1, 77, 0, || 0);
        assert_eq!(
            text(&path),
            "# npualloc-trace v1\n# capacity 4096\nm step 0\na 0 512 0\na 1 100 1\nu 0 1\nf 0\ns 1\n\
             s *\ne\nm out of memory: 1099511627776 bytes\na 2 1099511627776 0\nf 2\n"
        );
        assert_eq!(
            text(&directory.join("t.gz.npu1")),
            "# npualloc-trace v1\n# capacity 99\na 0 7 0\n"
        );
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn a_stack_is_written_once_to_each_file_that_needs_it() {
        let directory = directory();
        let path = directory.join("t.gz");
        let recorder = Recorder::start(&path, 0, 0).expect("started");
        let (one, two) = (
            recorder.add_stack("f a.py:1\tg\nb.py:2"),
            recorder.add_stack("h"),
        );
        recorder.allocated(0, 0x1000, 1, 7, two, || 0);
        recorder.allocated(0, 0x2000, 2, 7, one, || 0);
        recorder.allocated(0, 0x3000, 3, 7, two, || 0);
        recorder.allocated(1, 0x4000, 4, 7, one, || 0);
        recorder.allocated(1, 0x5000, 5, 7, 99, || 0);
        recorder.finish().expect("written");
        assert_eq!(
            text(&path),
            "# npualloc-trace v1\nk h\na 0 1 0 1\nk f a.py:1\tg b.py:2\na 1 2 0 2\na 2 3 0 1\n"
        );
        assert_eq!(
            text(&directory.join("t.gz.npu1")),
            "# npualloc-trace v1\nk f a.py:1\tg b.py:2\na 0 4 0 1\na 1 5 0\n"
        );
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn threads_lose_nothing_when_the_buffers_are_full() {
        let directory = directory();
        let path = directory.join("t.gz");
        let recorder = Recorder::start(&path, 0, 0).expect("started");
        const EACH: usize = 300_000;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for round in 0..EACH {
                        let addr = 16 * (1 + thread * EACH + round);
                        recorder.allocated(0, addr, 512, 7, 0, || 0);
                        recorder.freed(addr);
                    }
                });
            }
        });
        recorder.finish().expect("written");
        let text = text(&path);
        assert_eq!(
            text.lines().filter(|line| line.starts_with("a ")).count(),
            2 * EACH
        );
        assert_eq!(
            text.lines().filter(|line| line.starts_with("f ")).count(),
            2 * EACH
        );
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        let error = Recorder::start(Path::new("/no/such/place"), 0, 0).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/place: "));
        let path = expand("a.%r.%p", Some("3"));
        assert_eq!(path, PathBuf::from(format!("a.3.{}", std::process::id())));
    }
}
