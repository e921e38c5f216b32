//! `cargo xtask bench`: one module for each benchmark, with its own arguments.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

pub mod counts;
mod hot;
mod input;
mod record;
mod regret;
pub mod replay;

#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Compare the host time of the stock allocator and npualloc, call by call
    ///
    /// Both live in one process, on the simulated device or a real one, and
    /// take turns at the same calls of torch_npu's allocator interface. Prints
    /// the median nanoseconds of an operation of each, their ratio (stock /
    /// npualloc) with its spread over the rounds, and the 99.9th percentile of
    /// operations that made no driver call; writes target/bench/hot.json.
    Hot(hot::HotArgs),

    /// Count the instructions of an operation of the Rust core with callgrind
    ///
    /// Compares them with benches/core/counts.tsv and fails when one is off by
    /// more than 5 %. Unlike times, counts repeat.
    Counts(counts::CountsArgs),

    /// Record the programs of examples/workloads, for `bench replay`
    ///
    /// Runs each on the simulated device, with every request and free written
    /// to a file: the recordings of which docs/memory.md has the figures. All
    /// of them take some two minutes.
    Record(record::RecordArgs),

    /// Replay allocation traces and compare what the allocators need for them
    ///
    /// Each trace goes through torch_npu's allocator interface on the simulated
    /// device, in a process of its own for each configuration and capacity.
    /// Prints how much memory is reserved, the least capacity at which the trace
    /// completes, driver calls and waits, with ample memory and under pressure;
    /// writes replay.json and a picture (SVG) of each trace to target/bench.
    /// docs/memory.md says what each figure means.
    Replay(replay::ReplayArgs),

    /// Compare online allocation with offline placement
    ///
    /// Replays small problems whose lifetimes are known and prints how much more
    /// memory than the best offline placement each configuration needs; writes
    /// target/bench/regret.json.
    Regret(regret::RegretArgs),
}

pub fn main(arguments: &BenchArgs) -> Result<ExitCode> {
    match &arguments.command {
        BenchCommand::Hot(arguments) => hot::main(arguments),
        BenchCommand::Counts(arguments) => counts::main(arguments),
        BenchCommand::Record(arguments) => record::main(arguments),
        BenchCommand::Replay(arguments) => replay::main(arguments),
        BenchCommand::Regret(arguments) => regret::main(arguments),
    }
}
