//! The trace format, version 1: text, one event a line, gzip-compressed or plain.
//!
//! | line | meaning |
//! |---|---|
//! | `# npualloc-trace v1`, `# capacity <bytes>`, `# workload <text>` | header |
//! | `a <id> <bytes> <stream> [<stack>]` | allocation, bytes as the caller asked for; 0: stack unknown |
//! | `k <frame>[<tab><frame>…]` | the next stack, the innermost frame first; counted from 1 |
//! | `f <id>` | free |
//! | `u <id> <stream>` | the block is also used on that stream |
//! | `s <stream>`, `s *` | a stream, or the device, is synchronised |
//! | `e` | cached memory is given back |
//! | `m <label>` | marker |
//!
//! Ids increase from 0; streams are small integers, 0 the default stream.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

/// More streams than a device has.
const MAX_STREAMS: u32 = 1024;
/// First two bytes of a gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The longest line that is read, bytes.
const MAX_LINE: u64 = 64 << 10;
/// The most events that are read: 1.5 GiB of memory.
const MAX_EVENTS: usize = 1 << 26;
/// The most stacks that are read.
const MAX_STACKS: usize = 1 << 20;
/// The longest label that is kept, characters.
const MAX_LABEL: usize = 200;

/// One event. Blocks are named by their position among the allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The next block of this many bytes.
    Alloc {
        /// Bytes asked for.
        bytes: u64,
        /// On which stream.
        stream: u32,
    },
    /// A block is freed.
    Free {
        /// Which.
        block: u32,
    },
    /// A block is used on another stream too.
    Use {
        /// Which.
        block: u32,
        /// Where.
        stream: u32,
    },
    /// A stream is synchronised.
    SyncStream {
        /// Which.
        stream: u32,
    },
    /// The device is synchronised.
    SyncDevice,
    /// Cached memory is given back.
    EmptyCache,
    /// A marker: index into [`Trace::labels`].
    Mark {
        /// Which.
        label: u32,
    },
}

/// A whole trace, checked: every free and use names a live block.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Capacity of the device it was recorded on, bytes; 0 = not given.
    pub capacity: u64,
    /// What ran.
    pub workload: String,
    /// What happened.
    pub events: Vec<Event>,
    /// Texts of the markers.
    pub labels: Vec<String>,
    /// Stacks, a frame a line, the innermost first. The first is empty: unknown.
    pub stacks: Vec<String>,
    /// Position in `stacks` for each allocation; empty where none has one.
    pub stack_of: Vec<u32>,
    /// Number of streams (the highest number + 1).
    pub streams: u32,
    /// Number of allocations.
    pub blocks: u32,
    /// The most bytes alive at once.
    pub peak_live: u64,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read or decompressed.
    #[error("{path}: {error}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file ends in the middle.
    #[error("{path}: the file ends in the middle, after line {line}")]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// The last complete line.
        line: u64,
    },
    /// The file is not a trace of this version.
    #[error("{path}: not an npualloc trace of version 1 (its first line is {first:?})")]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Its first line, shortened.
        first: String,
    },
    /// A line makes no sense.
    #[error("{path}:{line}: {problem}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
}

impl Trace {
    /// Reads a trace file, compressed or not.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let io = |error| TraceError::Io {
            path: path.to_owned(),
            error,
        };
        let mut file = BufReader::new(File::open(path).map_err(io)?);
        let compressed = file.fill_buf().map_err(io)?.starts_with(&GZIP_MAGIC);
        if compressed {
            Self::parse(path, BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Self::parse(path, file)
        }
    }

    /// Reads a trace from text; `path` is named in errors.
    pub fn parse(path: &Path, mut input: impl BufRead) -> Result<Self, TraceError> {
        let mut parser = Parser::default();
        let mut text = Vec::new();
        let mut number = 0;
        loop {
            text.clear();
            let read = (&mut input)
                .take(MAX_LINE)
                .read_until(b'\n', &mut text)
                .map_err(|error| match error.kind() {
                    ErrorKind::UnexpectedEof => TraceError::Truncated {
                        path: path.to_owned(),
                        line: number,
                    },
                    _ => TraceError::Io {
                        path: path.to_owned(),
                        error,
                    },
                })?;
            if read == 0 {
                break;
            }
            number += 1;
            let line = String::from_utf8_lossy(&text);
            let line = line.trim_end_matches(['\n', '\r']);
            if number == 1 && line.trim_end() != "# npualloc-trace v1" {
                return Err(TraceError::Foreign {
                    path: path.to_owned(),
                    first: line.chars().take(60).collect(),
                });
            }
            if number > 1 && !text.ends_with(b"\n") && (text.len() as u64) < MAX_LINE {
                return Err(TraceError::Truncated {
                    path: path.to_owned(),
                    line: number - 1,
                });
            }
            parser.line(line).map_err(|problem| TraceError::Line {
                path: path.to_owned(),
                line: number,
                problem,
            })?;
        }
        if number == 0 {
            return Err(TraceError::Foreign {
                path: path.to_owned(),
                first: String::new(),
            });
        }
        Ok(parser.trace)
    }
}

#[derive(Default)]
struct Parser {
    trace: Trace,
    /// Bytes of each block while it is alive; `None` once freed.
    live: Vec<Option<u64>>,
    bytes: u64,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or("");
        let mut number = |what: &str| -> Result<u64, String> {
            let word = words.next().ok_or_else(|| format!("{what} is missing"))?;
            word.parse()
                .map_err(|_| format!("{what} {word:?} is no number"))
        };
        let event = match kind {
            "a" => {
                let (id, bytes) = (number("the block's id")?, number("the size")?);
                let stream = self.stream(number("the stream")?)?;
                self.allocated_by(words.next())?;
                if id != self.live.len() as u64 || id >= u64::from(u32::MAX) {
                    return Err(format!("block {id} should be {}", self.live.len()));
                }
                self.live.push(Some(bytes));
                self.bytes = self
                    .bytes
                    .checked_add(bytes)
                    .filter(|bytes| *bytes < 1 << 60)
                    .ok_or("more than 1 EiB is alive")?;
                self.trace.peak_live = self.trace.peak_live.max(self.bytes);
                self.trace.blocks += 1;
                Event::Alloc { bytes, stream }
            }
            "f" => {
                let id = number("the block's id")?;
                let block = self.block(id)?;
                self.bytes -= self.live[block as usize].take().unwrap_or(0);
                Event::Free { block }
            }
            "u" => {
                let id = number("the block's id")?;
                let block = self.block(id)?;
                let stream = self.stream(number("the stream")?)?;
                Event::Use { block, stream }
            }
            "s" if line == "s *" => return self.push(Event::SyncDevice),
            "s" => {
                let stream = self.stream(number("the stream")?)?;
                Event::SyncStream { stream }
            }
            "e" => Event::EmptyCache,
            "m" => {
                let label = line[1..].trim().chars().take(MAX_LABEL).collect();
                self.trace.labels.push(label);
                let label = (self.trace.labels.len() - 1) as u32;
                return self.push(Event::Mark { label });
            }
            "k" => return self.add_stack(&line[1..]),
            "#" => {
                self.header(line[1..].trim())?;
                return Ok(());
            }
            "" if line.is_empty() => return Ok(()),
            _ => return Err(format!("unknown event {kind:?}")),
        };
        if let Some(more) = words.next() {
            return Err(format!("{more:?} is too much"));
        }
        self.push(event)
    }

    fn push(&mut self, event: Event) -> Result<(), String> {
        if self.trace.events.len() >= MAX_EVENTS {
            return Err(format!("more than {MAX_EVENTS} events"));
        }
        self.trace.events.push(event);
        Ok(())
    }

    fn add_stack(&mut self, frames: &str) -> Result<(), String> {
        let stacks = &mut self.trace.stacks;
        if stacks.is_empty() {
            stacks.push(String::new());
        }
        if stacks.len() > MAX_STACKS {
            return Err(format!("more than {MAX_STACKS} stacks"));
        }
        stacks.push(frames.trim().replace('\t', "\n"));
        Ok(())
    }

    /// The next block's stack, by its number.
    fn allocated_by(&mut self, word: Option<&str>) -> Result<(), String> {
        let stack = match word {
            None => 0,
            Some(word) => word
                .parse()
                .map_err(|_| format!("the stack {word:?} is no number"))?,
        };
        if stack != 0 && stack as usize >= self.trace.stacks.len() {
            return Err(format!("stack {stack} is not there"));
        }
        let stack_of = &mut self.trace.stack_of;
        if stack != 0 || !stack_of.is_empty() {
            // The ones before the first that has one.
            stack_of.resize(self.live.len(), 0);
            stack_of.push(stack);
        }
        Ok(())
    }

    fn header(&mut self, text: &str) -> Result<(), String> {
        if let Some(capacity) = text.strip_prefix("capacity ") {
            self.trace.capacity = capacity
                .parse()
                .map_err(|_| format!("capacity {capacity:?} is no number"))?;
        } else if let Some(workload) = text.strip_prefix("workload ") {
            self.trace.workload = workload.to_owned();
        }
        Ok(())
    }

    fn stream(&mut self, stream: u64) -> Result<u32, String> {
        if stream >= u64::from(MAX_STREAMS) {
            return Err(format!("stream {stream} is not below {MAX_STREAMS}"));
        }
        self.trace.streams = self.trace.streams.max(stream as u32 + 1);
        Ok(stream as u32)
    }

    fn block(&self, id: u64) -> Result<u32, String> {
        match self.live.get(id as usize) {
            Some(Some(_)) => Ok(id as u32),
            Some(None) => Err(format!("block {id} is not alive any more")),
            None => Err(format!("block {id} was never allocated")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Trace, String> {
        Trace::parse(Path::new("t"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_every_kind_of_line() {
        let trace = parse(
            "# npualloc-trace v1\n# capacity 4096\n# workload a b\nm step 0\na 0 512 0\n\
             a 1 100 2\nu 0 1\nf 0\ns 1\ns *\ne\n",
        )
        .expect("a good trace");
        assert_eq!((trace.capacity, trace.workload.as_str()), (4096, "a b"));
        assert_eq!((trace.streams, trace.blocks, trace.peak_live), (3, 2, 612));
        assert_eq!(trace.labels, ["step 0"]);
        assert_eq!(trace.events.len(), 8);
        assert_eq!(
            trace.events[3],
            Event::Use {
                block: 0,
                stream: 1
            }
        );
    }

    #[test]
    fn stacks_are_those_of_their_allocations() {
        let trace = parse(
            "# npualloc-trace v1\na 0 1 0\nk inner a.py:1\touter b.py:2\na 1 1 0 1\na 2 1 0 0\na 3 1 0\n",
        )
        .expect("a good trace");
        assert_eq!(trace.stacks, ["", "inner a.py:1\nouter b.py:2"]);
        assert_eq!(trace.stack_of, [0, 1, 0, 0]);
        assert_eq!(trace.events.len(), 4);
        let without = parse("# npualloc-trace v1\na 0 1 0\n").expect("a good trace");
        assert!(without.stacks.is_empty() && without.stack_of.is_empty());
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        let head = "# npualloc-trace v1\n";
        for (line, problem) in [
            ("a 1 512 0", "t:2: block 1 should be 0"),
            ("a 0 x 0", "t:2: the size \"x\" is no number"),
            ("a 0 512", "t:2: the stream is missing"),
            ("a 0 512 0 7", "t:2: stack 7 is not there"),
            ("a 0 512 0 0 7", "t:2: \"7\" is too much"),
            ("a 0 512 0 x", "t:2: the stack \"x\" is no number"),
            ("a 0 512 5000", "t:2: stream 5000 is not below 1024"),
            ("f 0", "t:2: block 0 was never allocated"),
            ("a 0 9 0\nf 0\nf 0", "t:4: block 0 is not alive any more"),
            ("a 0 2000000000000000000 0", "t:2: more than 1 EiB is alive"),
            ("x 1", "t:2: unknown event \"x\""),
        ] {
            assert_eq!(parse(&format!("{head}{line}\n")).unwrap_err(), problem);
        }
        assert_eq!(
            parse(&format!("{head}a 0 512 0\nf")).unwrap_err(),
            "t: the file ends in the middle, after line 2"
        );
        for text in ["", "hello\n", "# npualloc-trace v2\n"] {
            assert!(parse(text).unwrap_err().contains("not an npualloc trace"));
        }
    }
}
