//! Files to recordings.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use npualloc_replay::trace::Trace;

use crate::cli::Source;
use crate::error::{Error, Result};
use crate::output::complain;
use crate::{pickle, snapshot};

/// With which a pickle of protocol 2 or later begins.
const PICKLE_MAGIC: u8 = 0x80;

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
    pub fn read(source: &Source) -> Result<Self> {
        let path = &source.trace;
        let unreadable = |source| unreadable(path, source);
        // Opened once: what was taken from a pipe is gone.
        let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
        let is_pickle = input.fill_buf().map_err(unreadable)?.first() == Some(&PICKLE_MAGIC);
        let recording = if is_pickle {
            Self::read_snapshot(path, input, source.device)?
        } else {
            if let Some(device) = source.device {
                return Err(Error::OneDevice {
                    path: path.to_owned(),
                    device,
                });
            }
            let mut trace = Trace::read_from(path, input)?;
            if trace.torn {
                complain(format_args!(
                    "warning: {}: the file was cut; the {} events before that are read",
                    path.display(),
                    trace.events.len()
                ));
            }
            Self {
                stacks: std::mem::take(&mut trace.stacks),
                stack_of: std::mem::take(&mut trace.stack_of),
                trace,
            }
        };
        if recording.trace.events.is_empty() {
            return Err(Error::Empty {
                path: path.to_owned(),
            });
        }
        Ok(recording)
    }

    fn read_snapshot(path: &Path, input: BufReader<File>, device: Option<usize>) -> Result<Self> {
        let mut bytes = Vec::new();
        let too_large = || Error::TooLarge {
            path: path.to_owned(),
            most: pickle::MAX_FILE,
        };
        // What it is now; a pipe has no length, and a file may grow.
        let now = input.get_ref().metadata();
        if now.is_ok_and(|it| it.len() > pickle::MAX_FILE) {
            return Err(too_large());
        }
        input
            .take(pickle::MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| unreadable(path, source))?;
        if bytes.len() as u64 > pickle::MAX_FILE {
            return Err(too_large());
        }
        let (heap, top) = pickle::read(&bytes).map_err(|source| Error::Pickle {
            path: path.to_owned(),
            source,
        })?;
        drop(bytes);
        let converted =
            snapshot::convert(&heap, top, device).map_err(|source| Error::Snapshot {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            trace: converted.trace,
            stacks: converted.stacks,
            stack_of: converted.stack_of,
        })
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}
