//! `npualloc-verify`: the long runs. `cargo xtask fuzz --operations` and `cargo xtask soak` build and run it.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use npualloc_verify::churn::{Tally, churn};
use npualloc_verify::soak::{PERIOD, STEP_SECONDS, Sample, soak};
use npualloc_verify::stress::{KINDS, stress};

/// Long runs of the allocator's core over a driver without a device
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random programs until so many operations are done
    Churn {
        /// Allocations, frees and recorded uses
        #[arg(long, default_value_t = 100_000_000)]
        operations: u64,
        /// Another seed, other programs
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Threads on one device that is nearly full
    Stress {
        /// How many, besides one that recounts
        #[arg(long, default_value_t = 4)]
        threads: u64,
        /// Steps of each
        #[arg(long, default_value_t = 20_000)]
        steps: usize,
    },
    /// Made-up training, watched for drift
    Soak {
        /// Training steps, rounded up to 10,000s; at least 30,000
        #[arg(long, default_value_t = 200_000)]
        steps: u64,
        /// Settings of the allocator, none: as for users, the driver decides; may be given several times
        #[arg(long, default_values = ["", "expandable_segments:False", "expandable_segments:True"])]
        config: Vec<String>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Churn { operations, seed } => {
            let total = churn(operations, seed, |tally, took| {
                if tally.rounds.is_multiple_of(5) || tally.rounds < 5 {
                    eprintln!("{}", describe(tally, took));
                }
            });
            println!("{total:?}");
            ExitCode::SUCCESS
        }
        Command::Stress { threads, steps } => {
            for kind in KINDS {
                let recounts = stress(kind, threads, steps);
                println!("{kind:?}: {threads} threads of {steps} steps, {recounts} recounts");
            }
            ExitCode::SUCCESS
        }
        Command::Soak { steps, config } => {
            let mut code = ExitCode::SUCCESS;
            for config in &config {
                code = if train(steps, config) {
                    code
                } else {
                    ExitCode::FAILURE
                };
            }
            code
        }
    }
}

fn describe(tally: &Tally, took: Duration) -> String {
    let speed = tally.operations as f64 / took.as_secs_f64() / 1e6;
    format!(
        "{:>13} operations, {} rounds, {} recounts, {} out of memory, {} faults, {:.0} s, {speed:.1} M/s",
        tally.operations,
        tally.rounds,
        tally.recounts,
        tally.out_of_memory,
        tally.faults,
        took.as_secs_f64()
    )
}

/// Prints ten samples and the verdict; true when nothing drifted.
fn train(steps: u64, config: &str) -> bool {
    let every = (steps.div_ceil(PERIOD) / 10).max(1) * PERIOD;
    println!("settings: {config:?}");
    println!(
        "     steps  hours  reserved MiB  blocks  bookkeeping KiB  resident MiB  driver calls  ns/operation"
    );
    let mut operations = 0;
    let outcome = soak(steps, config, |sample: &Sample| {
        operations += sample.operations;
        if sample.steps.is_multiple_of(every) || sample.steps <= 2 * PERIOD {
            println!(
                "{:>10} {:>6.0} {:>13.1} {:>7} {:>16.1} {:>13.1} {:>13} {:>13.1}",
                sample.steps,
                sample.steps as f64 * STEP_SECONDS / 3600.0,
                sample.reserved as f64 / 1048576.0,
                sample.blocks,
                sample.bookkeeping as f64 / 1024.0,
                sample.resident as f64 / 1048576.0,
                sample.driver_calls,
                sample.nanoseconds
            );
        }
    });
    match &outcome {
        Ok(_) => println!("{operations} operations, no drift"),
        Err(error) => println!("FAILED: {error}"),
    }
    outcome.is_ok()
}
