//! Why a command failed. Each of them ends the program with status 2.

use std::path::PathBuf;

use npualloc::config::ConfigError;
use npualloc::error::AllocError;
use npualloc_replay::quantity::show_size;
use npualloc_replay::trace::TraceError;

use crate::pickle::PickleError;
use crate::snapshot::SnapshotError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input is no trace, or a damaged one.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// The input could not be read.
    #[error("{path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The input is larger than what is read.
    #[error("{path}: larger than {most} bytes")]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// What is read at most.
        most: u64,
    },
    /// The input is a pickle that is not read.
    #[error("{path}: {source}")]
    Pickle {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: PickleError,
    },
    /// The input is a pickle, but no usable snapshot.
    #[error("{path}: {source}")]
    Snapshot {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: SnapshotError,
    },
    /// A device was chosen of an input that has one.
    #[error(
        "{path}: --device is for memory snapshots; a recording has a file for each further device ({path}.npu{device})"
    )]
    OneDevice {
        /// Which file.
        path: PathBuf,
        /// The one that was chosen.
        device: usize,
    },
    /// The input holds nothing to replay.
    #[error("{path}: the trace holds no event")]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// Settings that the allocator refuses.
    #[error("--conf {text:?}: {source}")]
    Config {
        /// As given.
        text: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// A variable of the environment that the allocator refuses.
    #[error("{0}")]
    Environment(ConfigError),
    /// A capacity that no device has.
    #[error(
        "a capacity of {bytes} bytes{origin} is outside {} to {}",
        show_size(*least),
        show_size(*most)
    )]
    Capacity {
        /// As given.
        bytes: u64,
        /// Where it is from, if that was not the command line.
        origin: &'static str,
        /// The least the simulated device can have.
        least: u64,
        /// The most.
        most: u64,
    },
    /// The allocator failed for another reason than want of memory.
    #[error("the replay with {conf:?} failed: {source}")]
    Replay {
        /// The settings.
        conf: String,
        /// What failed.
        source: AllocError,
    },
    /// The file to write is the one that is read.
    #[error("{path} is the input: what is written needs a name of its own")]
    OverInput {
        /// Which file, as the output is named.
        path: PathBuf,
    },
    /// The driver failed with all of the settings there are.
    #[error("the replay with {conf:?} failed: {failure}")]
    Driver {
        /// The settings.
        conf: String,
        /// What failed, and where.
        failure: String,
    },
    /// A file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The standard output could not be written.
    #[error("standard output: {0}")]
    Output(std::io::Error),
    /// A result could not be expressed as JSON.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;
