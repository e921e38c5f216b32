//! `cargo xtask models`: the core's atomics and locks under loom. The models are in `models`, a workspace of
//! its own, so that loom gets into nothing else.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::apt::{self, Need};
use crate::cli::ModelsArgs;
use crate::env::Project;
use crate::process;

pub fn main(arguments: &ModelsArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    let (lines, success) = run(&project, arguments.preemptions)?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs every model, with as many preemptions as it asks for or as given. Returns what each came to, and
/// whether all is well.
pub fn run(project: &Project, preemptions: Option<u32>) -> Result<(Vec<String>, bool)> {
    apt::ensure(&[Need::Cxx])?;
    let mut command = cargo_on_models(project, "test");
    command.args(["--", "--nocapture"]);
    if let Some(preemptions) = preemptions {
        command.env("MODEL_PREEMPTIONS", preemptions.to_string());
    }
    let mut lines = Vec::new();
    let success = process::lines(&mut command, |line| {
        process::echo(line);
        // The name of a test may stand before it.
        let told = line.rsplit(" ... ").next().unwrap_or(line);
        if told.ends_with(" orders") || line.starts_with("test result:") {
            lines.push(told.to_owned());
        }
    })?;
    Ok((lines, success))
}

/// Clippy on the models. The core's own tests are left out: they are not for loom.
pub fn lint(project: &Project) -> Command {
    let mut command = cargo_on_models(project, "clippy");
    command.args(["--tests", "--", "-D", "warnings"]);
    command
}

fn cargo_on_models(project: &Project, verb: &str) -> Command {
    let mut command = Command::new(Project::cargo());
    command
        .current_dir(&project.root)
        .args([verb, "--manifest-path", "models/Cargo.toml"])
        // Not as an option: the bridge's headers would go to the directory that the variable names, where other
        // versions of them belong.
        .env("CARGO_TARGET_DIR", project.target.join("models"));
    command
}
