//! `cargo xtask bench`: one module for each benchmark, with its own arguments.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

mod hot;

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
}

pub fn main(arguments: &BenchArgs) -> Result<ExitCode> {
    match &arguments.command {
        BenchCommand::Hot(arguments) => hot::main(arguments),
    }
}
