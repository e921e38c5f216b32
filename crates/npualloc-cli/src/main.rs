//! `npualloc`: replays allocation traces under other settings, finds better ones, and draws where the
//! memory went. Needs no NPU: the device is simulated.
//!
//! | module | what lives there |
//! |---|---|
//! | `cli` | the command line |
//! | `commands` | one file for each command |
//! | `input` | files to recordings, whatever their format |
//! | `output` | tables, JSON, progress |
//! | `pickle`, `snapshot` | memory snapshots of torch, read without running anything |
//! | `report` | the page |
//! | `runs` | replays side by side, with a progress bar |
//! | `search` | settings that fit a trace better |
//! | `target` | where a page goes: files written whole or not at all |
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo))]

mod cli;
mod commands;
mod error;
mod input;
mod output;
mod pickle;
mod report;
mod runs;
mod search;
mod snapshot;
mod target;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::commands::Verdict;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Command::Replay(arguments) => commands::replay::run(arguments, cli.output()),
        Command::Advise(arguments) => commands::advise::run(arguments, cli.output()),
        Command::Fit(arguments) => commands::fit::run(arguments, cli.output()),
        Command::Report(arguments) => commands::report::run(arguments, cli.output()),
    };
    match outcome {
        Ok(Verdict::Done) => ExitCode::SUCCESS,
        Ok(Verdict::DoesNotFit) => ExitCode::from(1),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
