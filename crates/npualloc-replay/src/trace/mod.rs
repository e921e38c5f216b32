//! The trace format, version 1: text, one event a line, gzip-compressed or plain.
//!
//! | line | meaning |
//! |---|---|
//! | `# npualloc-trace v1`, `# capacity <bytes>`, `# workload <text>` | header |
//! | `a <id> <bytes> <stream> [<stack> [<pool>]]` | allocation, bytes as the caller asked for; 0: stack unknown, default pool |
//! | `k <frame>[<tab><frame>…]` | the next stack, the innermost frame first; counted from 1 |
//! | `p <first> <second>` | the next private pool by its id; counted from 1 |
//! | `d <pool>` | the pool has no user any more |
//! | `f <id>` | free |
//! | `u <id> <stream>` | the block is also used on that stream |
//! | `s <stream>`, `s *` | a stream, or the device, is synchronised |
//! | `w <stream> <back>` | what the stream had been given `<back>` events ago was waited for |
//! | `e` | cached memory is given back |
//! | `m <label>` | marker |
//!
//! Ids increase from 0; streams are small integers, 0 the default stream.
//!
//! A request that failed in the recorded run is three lines in a row: the marker
//! `m out of memory: <bytes> bytes`, its allocation, and its free. See [`Trace::failed`].

mod members;
mod parser;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use members::Members;
use parser::Parser;

/// First byte of a gzip file, and of no text. A pipe may give no second one yet.
const GZIP_MAGIC: u8 = 0x1f;
/// The longest line that is read, bytes.
const MAX_LINE: u64 = 64 << 10;
/// The longest description of what is wrong with a line, characters: it quotes the line.
const MAX_PROBLEM: usize = 200;

/// One event. Blocks are named by their position among the allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The next block of this many bytes.
    Alloc {
        /// Bytes asked for.
        bytes: u64,
        /// On which stream.
        stream: u32,
        /// From which pool: 0, or the position in [`Trace::pools`] + 1.
        pool: u16,
    },
    /// A private pool lost its last user: what is idle in it may go back to the driver.
    ReleasePool {
        /// As in an allocation.
        pool: u16,
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
    /// The host waited for an event of the device: for what a stream had been given before.
    WaitStream {
        /// Which.
        stream: u32,
        /// How many events before this one.
        back: u32,
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
    /// Private pools by the ids the program has for them.
    pub pools: Vec<(u64, u64)>,
    /// Number of streams (the highest number + 1).
    pub streams: u32,
    /// Number of allocations.
    pub blocks: u32,
    /// The most bytes alive at once; requests that failed never were.
    pub peak_live: u64,
    /// Blocks, in order, that the recorded run asked for and did not get. Each is freed by the event after
    /// its allocation.
    pub failed: Vec<u32>,
    /// Whether the compressed file was cut in the middle, as when the process that wrote it was killed. What
    /// is here came before that.
    pub torn: bool,
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
    #[error("{path}: not an npualloc trace of version 1 ({})", begins(.first))]
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

/// What a file that is no trace begins with.
fn begins(first: &str) -> String {
    if first.is_empty() {
        return "it is empty, or begins with an empty line".to_owned();
    }
    format!("its first line is {first:?}")
}

impl Trace {
    /// Reads a trace file, compressed or not.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let io = |error| TraceError::Io {
            path: path.to_owned(),
            error,
        };
        Self::read_from(path, BufReader::new(File::open(path).map_err(io)?))
    }

    /// Reads a trace, compressed or not; `path` is named in errors. Of a compressed one that was cut, what came
    /// before is read: see [`Trace::torn`].
    pub fn read_from(path: &Path, mut input: impl BufRead) -> Result<Self, TraceError> {
        let begin = input.fill_buf().map_err(|error| TraceError::Io {
            path: path.to_owned(),
            error,
        })?;
        if begin.starts_with(&[GZIP_MAGIC]) {
            Self::parse(path, BufReader::new(Members::new(input)))
        } else {
            Self::parse(path, input)
        }
    }

    /// Reads a trace from text; `path` is named in errors.
    pub fn parse(path: &Path, mut input: impl BufRead) -> Result<Self, TraceError> {
        let mut parser = Parser::default();
        let mut text = Vec::new();
        let mut number = 0;
        loop {
            text.clear();
            let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut text);
            let read = match read {
                Ok(read) => read,
                // The line that was being read is cut too.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && number > 0 => {
                    parser.tear();
                    break;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(TraceError::Truncated {
                        path: path.to_owned(),
                        line: number,
                    });
                }
                Err(error) => {
                    return Err(TraceError::Io {
                        path: path.to_owned(),
                        error,
                    });
                }
            };
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
            let wrong = |problem: String| TraceError::Line {
                path: path.to_owned(),
                line: number,
                problem: shortened(problem),
            };
            if !text.ends_with(b"\n") {
                if text.len() as u64 == MAX_LINE {
                    return Err(wrong(format!("longer than {MAX_LINE} bytes")));
                }
                if number > 1 {
                    return Err(TraceError::Truncated {
                        path: path.to_owned(),
                        line: number - 1,
                    });
                }
            }
            parser.line(line).map_err(wrong)?;
        }
        if number == 0 {
            return Err(TraceError::Foreign {
                path: path.to_owned(),
                first: String::new(),
            });
        }
        Ok(parser.trace)
    }

    /// The failed request that no other one follows, as a block: what the recorded run ended with. It went on
    /// after every other failed request.
    pub fn fatal(&self) -> Option<u32> {
        let last = self.failed.last().copied();
        last.filter(|block| block + 1 == self.blocks)
    }

    /// How many events there are up to the last allocation. A cache emptied after that is emptied because the program
    /// ends, as torch_npu does: a replay leaves it out, since no program waits for the driver calls it takes.
    pub fn end_of_work(&self) -> usize {
        let is_alloc = |event: &Event| matches!(event, Event::Alloc { .. });
        let last = self.events.iter().rposition(is_alloc);
        last.map_or(0, |last| last + 1)
    }

    /// What [`Event::WaitStream`]s are for: each time, what a stream had been given before an event. By that event's
    /// position and the stream, how often.
    pub fn waited_for(&self) -> BTreeMap<(usize, u32), usize> {
        let mut waits = BTreeMap::new();
        for (at, event) in self.events.iter().enumerate() {
            if let Event::WaitStream { stream, back } = *event {
                *waits.entry((at - back as usize, stream)).or_default() += 1;
            }
        }
        waits
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_PROBLEM) {
        text.truncate(end);
        text.push('…');
    }
    text
}
