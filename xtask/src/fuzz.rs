//! `cargo xtask fuzz` and `cargo xtask soak`: random input for everything that reads input, and the long
//! runs of the core.
//!
//! The targets are in `fuzz/`, a workspace of its own. libFuzzer comes with the crate `libfuzzer-sys`;
//! what it needs from the compiler is an LLVM pass that the stable rustc has, so neither a nightly
//! toolchain nor cargo-fuzz is needed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::apt::{self, Need};
use crate::cargo;
use crate::cli::{FuzzArgs, FuzzTarget, SoakArgs};
use crate::env::Project;
use crate::process::{self, say};

/// Only one triple is supported; naming it keeps build scripts free of the instrumentation.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Coverage of edges by counters, and of comparisons, as libFuzzer reads them.
const INSTRUMENT: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

impl FuzzTarget {
    fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Ipc => "ipc",
            Self::Program => "program",
            Self::Snapshot => "snapshot",
            Self::Trace => "trace",
        }
    }

    /// The longest input worth trying, bytes.
    fn longest(self) -> u32 {
        match self {
            Self::Config => 256,
            Self::Ipc | Self::Program => 1024,
            Self::Snapshot | Self::Trace => 8192,
        }
    }
}

pub fn main(arguments: &FuzzArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    if let Some(operations) = arguments.operations {
        let operations = operations.to_string();
        let seed = arguments.seed.unwrap_or(1).to_string();
        return long_run(
            &project,
            &["churn", "--operations", &operations, "--seed", &seed],
        );
    }
    let targets = match arguments.target {
        Some(target) => vec![target],
        None => FuzzTarget::value_variants().to_vec(),
    };
    let built = build(&project)?;
    let mut code = ExitCode::SUCCESS;
    for target in targets {
        let limit = match (arguments.runs, arguments.seconds) {
            (Some(runs), _) => format!("-runs={runs}"),
            (None, seconds) => format!("-max_total_time={}", seconds.unwrap_or(10)),
        };
        match run(&project, &built, target, &limit)? {
            Ok(figures) => println!("{}: ok, {figures}", target.name()),
            Err(found) => {
                println!("{}: FAILED, {found}", target.name());
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Every target for a few seconds: for `cargo xtask test`. Returns what each came to, and whether all is well.
pub fn short(project: &Project) -> Result<(Vec<String>, bool)> {
    let built = build(project)?;
    let (mut lines, mut success) = (Vec::new(), true);
    for target in FuzzTarget::value_variants() {
        let outcome = run(project, &built, *target, "-max_total_time=3")?;
        success &= outcome.is_ok();
        let text = outcome.unwrap_or_else(|found| format!("FAILED, {found}"));
        lines.push(format!("{}: {text}", target.name()));
    }
    Ok((lines, success))
}

pub fn soak(arguments: &SoakArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    let steps = arguments.steps.to_string();
    let mut words = vec!["soak", "--steps", &steps];
    for config in &arguments.config {
        words.extend(["--config", config]);
    }
    long_run(&project, &words)
}

/// Builds the targets; returns where they are.
fn build(project: &Project) -> Result<PathBuf> {
    apt::ensure(&[Need::Cxx])?;
    say("building the fuzz targets");
    process::check(&mut cargo_on_targets(project, "build"))?;
    Ok(project.target.join("fuzz").join(TRIPLE).join("release"))
}

/// Clippy on the targets, as they are built: what is compiled for the one serves the other.
pub fn lint(project: &Project) -> Command {
    let mut command = cargo_on_targets(project, "clippy");
    command.args(["--", "-D", "warnings"]);
    command
}

fn cargo_on_targets(project: &Project, verb: &str) -> Command {
    let mut command = Command::new(Project::cargo());
    command
        .args([verb, "--release", "--target", TRIPLE, "--manifest-path"])
        .arg(project.root.join("fuzz/Cargo.toml"))
        // As a variable for the sake of the bridge's headers, see `models`.
        .env("CARGO_TARGET_DIR", project.target.join("fuzz"))
        .env("RUSTFLAGS", INSTRUMENT);
    command
}

/// Runs a target on what it has collected and on the seeds: the figures, or what was found.
fn run(
    project: &Project,
    built: &std::path::Path,
    target: FuzzTarget,
    limit: &str,
) -> Result<std::result::Result<String, String>> {
    let name = target.name();
    say(&format!("fuzzing {name}"));
    let corpus = project.target.join("fuzz/corpus").join(name);
    let findings = project.target.join("fuzz/findings").join(name);
    for directory in [&corpus, &findings] {
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    let mut command = Command::new(built.join(name));
    command
        .arg(&corpus)
        // What an earlier run found may be there still.
        .arg(&findings)
        .arg(project.root.join("fuzz/seeds").join(name))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .arg(format!("-max_len={}", target.longest()))
        .args([
            limit,
            "-timeout=30",
            "-rss_limit_mb=4096",
            "-print_final_stats=1",
        ])
        .env("RUST_BACKTRACE", "1");
    let (mut units, mut covered, mut found) = (None, None, None);
    let success = process::lines(&mut command, |line| {
        process::echo(line);
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            units = Some(count.trim().to_owned());
        }
        if let Some(rest) = line.split(" cov: ").nth(1) {
            covered = rest.split(' ').next().map(str::to_owned);
        }
        if let Some(path) = line.split("Test unit written to ").nth(1) {
            found = Some(path.to_owned());
        }
    })?;
    if !success {
        return Ok(Err(
            found.unwrap_or_else(|| "the target ended with an error".into())
        ));
    }
    let (Some(units), Some(covered)) = (units, covered) else {
        bail!("{name} did not say what it ran");
    };
    Ok(Ok(format!("{units} inputs, {covered} edges covered")))
}

/// Builds the long runs with optimisation and assertions, and runs one.
fn long_run(project: &Project, arguments: &[&str]) -> Result<ExitCode> {
    apt::ensure(&[Need::Cxx])?;
    let mut build = Command::new(Project::cargo());
    build
        .current_dir(&project.root)
        .args(["build", "--profile", "long"])
        .args(["--package", "npualloc-verify"])
        .env("CARGO_TARGET_DIR", &project.target);
    let mut command = Command::new(cargo::built(&mut build, "npualloc-verify")?);
    command.args(arguments);
    let status = command
        .status()
        .with_context(|| format!("start {}", process::display(&command)))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
