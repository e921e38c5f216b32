//! `cargo xtask test rust`: what needs no Python and no torch.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Result, anyhow};

use crate::apt::{self, Need};
use crate::bench::counts;
use crate::deny::{self, Verdict};
use crate::env::Project;
use crate::fuzz;
use crate::models;
use crate::summary::Summary;

const POLICY: &str = "cargo deny";

/// Formatting, lints, documents, instruction counts, dependencies, tests, models, fuzz targets.
pub fn test(project: &Project, rest: &[OsString], summary: &mut Summary) -> Result<()> {
    // cxx-build compiles C++.
    apt::ensure(&[Need::Cxx])?;
    if let Err(reason) = apt::ensure(&[Need::Chromium]) {
        summary.skip("reports in a browser", reason.to_string());
    }
    if rest.is_empty() {
        lint_and_count(project, summary)?;
        match deny::find(project) {
            Ok(program) => dependencies(project, &program, summary)?,
            Err(error) => summary.skip(POLICY, format!("{error:#}")),
        }
    } else {
        lint(project, summary)?;
    }
    if apt::in_path("cargo-nextest") {
        let mut tests = cargo(
            project,
            &["nextest", "run", "--workspace", "--no-fail-fast"],
        );
        tests.args(rest);
        // Tests that fail are named again below the totals.
        let mut totals = false;
        let closing = |line: &str| {
            totals |= line.contains("tests run:");
            totals && !line.starts_with("error")
        };
        summary.run("cargo nextest", &mut tests, closing)?;
        let mut docs = cargo(project, &["test", "--workspace", "--doc"]);
        summary.run("cargo test --doc", &mut docs, is_cargo_result)?;
    } else {
        let mut tests = cargo(project, &["test", "--workspace", "--no-fail-fast"]);
        tests.args(rest);
        summary.run("cargo test", &mut tests, is_cargo_result)?;
    }
    if rest.is_empty() {
        let (lines, success) = models::run(project, None)?;
        summary.add("models", success, lines);
        let (lines, success) = fuzz::short(project)?;
        summary.add("fuzzing, 3 s each", success, lines);
    }
    Ok(())
}

fn cargo(project: &Project, arguments: &[&str]) -> Command {
    let mut command = Command::new(Project::cargo());
    command.current_dir(&project.root).args(arguments);
    command
}

/// Both at the same time: the program that is counted is optimised as a whole, which keeps one processor busy for
/// minutes, and counts are the same whatever else runs.
fn lint_and_count(project: &Project, summary: &mut Summary) -> Result<()> {
    const NAME: &str = "callgrind counts";
    // Before the other thread is there: packages are installed by one at a time.
    let valgrind = apt::ensure(&[Need::Valgrind]);
    thread::scope(|scope| {
        let counting = valgrind.map(|()| scope.spawn(|| counts::check(project)));
        lint(project, summary)?;
        match counting {
            Ok(counting) => {
                let counted = counting.join().map_err(|_| anyhow!("the count panicked"))?;
                let (closing, mut lines) = counted?;
                let success = lines.is_empty();
                lines.push(closing);
                summary.add(NAME, success, lines);
            }
            Err(reason) => summary.skip(NAME, reason.to_string()),
        }
        Ok(())
    })
}

fn lint(project: &Project, summary: &mut Summary) -> Result<()> {
    summary.run(
        "rustfmt",
        &mut cargo(project, &["fmt", "--all", "--check"]),
        |_| false,
    )?;
    // Workspaces of their own.
    for member in ["fuzz", "models"] {
        let manifest = format!("{member}/Cargo.toml");
        let mut format = cargo(project, &["fmt", "--manifest-path", &manifest, "--check"]);
        summary.run(&format!("rustfmt, {member}"), &mut format, |_| false)?;
    }
    let lint = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    summary.run("clippy", &mut cargo(project, &lint), |_| false)?;
    summary.run("clippy, fuzz", &mut fuzz::lint(project), |_| false)?;
    summary.run("clippy, models", &mut models::lint(project), |_| false)?;
    // Libraries only: the command-line tool has the core's name.
    let mut docs = cargo(
        project,
        &["doc", "--workspace", "--lib", "--no-deps", "--quiet"],
    );
    docs.env("RUSTDOCFLAGS", "-D warnings");
    summary.run("cargo doc", &mut docs, |_| false)?;
    Ok(())
}

/// What the crates used are allowed to be, asked of `program`.
pub fn dependencies(project: &Project, program: &Path, summary: &mut Summary) -> Result<()> {
    for workspace in &deny::WORKSPACES {
        let policy = deny::policy(project, program, workspace)?;
        let advisories = deny::advisories(project, program, workspace)?;
        for (name, verdict) in [(POLICY, policy), ("cargo deny, advisories", advisories)] {
            let name = workspace.named(name);
            match verdict {
                Verdict::Ok(text) => summary.add(&name, true, vec![text]),
                Verdict::Skipped(reason) => summary.skip(&name, reason),
                Verdict::Failed(lines) => summary.add(&name, false, lines),
            }
        }
    }
    Ok(())
}

fn is_cargo_result(line: &str) -> bool {
    line.starts_with("test result:")
}
