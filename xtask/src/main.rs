//! `cargo xtask`: the project's own commands, from an empty machine to a
//! finished run. Every command reports progress on standard error and writes
//! only its result to standard output.
//!
//! Layout: `cli` (arguments) → one module for each command (`demo`, `run`,
//! `test`, `bench`, `fuzz`, `models`, `sanitize`, `mutate`, `plugin`, `package`, `sim`) → what they share (`env`, `apt`,
//! `python`, `device`, `process`, `report`, `counts`, `deny`, `summary`). The allocator's own crate is not used here.

use std::process::ExitCode;

use clap::Parser;

mod apt;
mod bench;
mod cargo;
mod cli;
mod counts;
mod demo;
mod deny;
mod device;
mod env;
mod fuzz;
#[cfg(test)]
mod layers;
mod models;
mod mutate;
mod package;
mod plugin;
mod process;
mod python;
mod report;
mod run;
mod sanitize;
mod sim;
mod sources;
mod summary;
mod surroundings;
mod test;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Demo(args) => demo::main(&args),
        cli::Command::Test(args) => test::main(&args),
        cli::Command::Deny => test::deny_main(),
        cli::Command::Bench(args) => bench::main(&args),
        cli::Command::Fuzz(args) => fuzz::main(&args),
        cli::Command::Soak(args) => fuzz::soak(&args),
        cli::Command::Mutate(args) => mutate::main(&args),
        cli::Command::Models(args) => models::main(&args),
        cli::Command::Sanitize(args) => sanitize::main(&args),
        cli::Command::Sim => sim_main(),
        cli::Command::Plugin(args) => plugin::main(&args),
        cli::Command::Run(args) => run::main(&args),
        cli::Command::Package(args) => package::main(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn sim_main() -> anyhow::Result<ExitCode> {
    let project = env::Project::locate()?;
    let sim = device::build_simulator(&project)?;
    println!("{}", sim.lib_dir.display());
    Ok(ExitCode::SUCCESS)
}
