//! Faults in the core: the Rust crate `npualloc`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use syn::{Block, Expr, Pat, Stmt};

use super::copy;
use super::fate::{Fate, Said};
use super::{Fault, LONGER, PATIENCE, Planted};
use crate::env::Project;
use crate::process::{self, say};

/// Random programs beside the model.
const PROGRAMS: &str = "--package npualloc-verify --test kept --test programs";
/// Every driver call fails once.
const FAILURES: &str = "--package npualloc-verify --test faults";
/// The core's own tests.
const UNIT: &str = "--package npualloc --lib --test device --test hot_path --test registry";

/// What is copied.
const PARTS: [&str; 11] = [
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    "rust-toolchain.toml",
    "src",
    "crates",
    "xtask",
    "include",
    "cpp",
    "benches/core",
    "tests/rust",
];

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
pub enum First {
    /// Random programs beside the model.
    #[default]
    Programs,
    /// The core's own tests.
    Unit,
}

/// Whether a fault's text is statements, not an expression.
fn is_statement(fault: &Fault) -> bool {
    fault.from.ends_with(';')
}

/// Whether both texts can be a branch of the choice: an expression, or statements that leave no name behind.
fn has_two_branches(fault: &Fault) -> bool {
    let names = |statement: &Stmt| matches!(statement, Stmt::Local(local) if !matches!(local.pat, Pat::Wild(_)));
    [&fault.from, &fault.to].into_iter().all(|text| {
        if is_statement(fault) {
            let block = syn::parse_str::<Block>(&format!("{{ {text} }}"));
            block.is_ok_and(|block| !block.stmts.iter().any(names))
        } else {
            syn::parse_str::<Expr>(text).is_ok()
        }
    })
}

/// What stands in the place of `from`.
fn switch(number: usize, fault: &Fault) -> String {
    let (from, to) = (&fault.from, &fault.to);
    let choice = format!("if crate::size::planted({number}) {{ {to} }} else {{ {from} }}");
    if is_statement(fault) {
        choice
    } else {
        format!("({choice})")
    }
}

/// Added to `src/size.rs` of the copy.
const PLANTED: &str = r#"
/// Whether this fault was chosen.
pub fn planted(number: usize) -> bool {
    static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let chosen = || std::env::var("NPUALLOC_FAULT").ok()?.parse().ok();
    *CHOSEN.get_or_init(|| chosen().unwrap_or(0)) == number
}
"#;

/// A copy of the source tree with a target directory of its own.
pub struct Copy {
    root: PathBuf,
    target: PathBuf,
}

impl Copy {
    pub fn make(project: &Project, faults: &[Fault]) -> Result<Self> {
        let root = project.target.join("mutate/tree");
        copy::tree(project, &root, &PARTS, |name, bytes| {
            let source = name.starts_with("src/") && name.ends_with(".rs");
            if name != "Cargo.toml" && !source {
                return Ok(None);
            }
            let text =
                std::str::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
            // Test programs need no static library.
            let text = text.replace(r#"["rlib", "staticlib"]"#, r#"["rlib"]"#);
            let mut text = copy::plant(name, text, faults, switch)?;
            if name == "src/size.rs" {
                text += PLANTED;
            }
            Ok(Some(text))
        })?;
        let target = project.target.join("mutate/target");
        Ok(Self { root, target })
    }

    fn prepare(&self, mut command: Command) -> Command {
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "1")
            .env("PROPTEST_CASES", "400")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0");
        command
    }

    /// Compiles a suite.
    fn builds(&self, suite: &str) -> Result<bool> {
        let mut command = self.prepare(Command::new(Project::cargo()));
        command
            .args(["test", "--quiet", "--no-run"])
            .args(suite.split(' '));
        process::lines(&mut command, process::echo)
    }

    /// Runs a suite with a fault.
    ///
    /// # Errors
    /// When it breaks down for another reason than a test: nothing is known of the fault then.
    fn run(&self, suite: &str, fault: usize, limit: Duration) -> Result<Fate> {
        // Programs that found another fault are not tried again: each must be found from nothing.
        forget_failures(&self.root)?;
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", &limit.as_secs().to_string()])
            .arg(Project::cargo());
        let mut command = self.prepare(command);
        command
            .arg("test")
            .args(suite.split(' '))
            .env("NPUALLOC_FAULT", fault.to_string());
        let (mut said, mut last) = (Said::default(), String::new());
        let status = process::lines_to_end(&mut command, |line| {
            said.line(line);
            if !line.trim().is_empty() {
                line.clone_into(&mut last);
            }
        })?;
        match said.fate(status.code()) {
            Some(fate) => Ok(fate),
            None => bail!("cargo test {suite}, with fault {fault}, broke down ({status}): {last}"),
        }
    }
}

impl Planted for Copy {
    const LIST: &str = "core.toml";

    fn check(fault: &Fault) -> Result<()> {
        ensure!(
            has_two_branches(fault),
            "both texts must be expressions, or statements that leave no name behind"
        );
        Ok(())
    }

    fn check_sound(&self, _: &[(usize, &Fault)]) -> Result<Duration> {
        say("the tests without a fault");
        for suite in [PROGRAMS, UNIT, FAILURES] {
            ensure!(self.builds(suite)?, "cargo test {suite} does not compile");
        }
        let mut longest = Duration::ZERO;
        for suite in [PROGRAMS, UNIT, FAILURES] {
            let begin = Instant::now();
            let fate = self.run(suite, 0, PATIENCE * LONGER)?;
            ensure!(
                fate == Fate::Survived,
                "cargo test {suite} fails without a fault: {}",
                fate.text()
            );
            longest = longest.max(begin.elapsed());
        }
        Ok(longest)
    }

    fn judge(&self, number: usize, fault: &Fault, limit: Duration) -> Result<Fate> {
        let suites = match fault.first {
            First::Programs => [PROGRAMS, UNIT, FAILURES],
            First::Unit => [UNIT, PROGRAMS, FAILURES],
        };
        for suite in suites {
            let fate = self.run(suite, number, limit)?;
            if fate != Fate::Survived {
                return Ok(fate);
            }
        }
        Ok(Fate::Survived)
    }
}

/// Removes what proptest wrote below a directory to begin with the next time.
fn forget_failures(directory: &Path) -> Result<()> {
    let listed = || format!("list {}", directory.display());
    for entry in fs::read_dir(directory).with_context(listed)? {
        let path = entry.with_context(listed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let removed = if name == "proptest-regressions" {
            fs::remove_dir_all(&path)
        } else if path.is_dir() {
            forget_failures(&path)?;
            Ok(())
        } else if name.ends_with("regressions") {
            fs::remove_file(&path)
        } else {
            Ok(())
        };
        // Another worker may have been first.
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_branch_is_refused() {
        let fault = |from: &str, to: &str| Fault {
            from: from.into(),
            to: to.into(),
            ..Fault::default()
        };
        let check = |from, to| Copy::check(&fault(from, to));
        assert!(check("a < b", "true").is_ok());
        assert!(check("let _ = a(); b = c;", "").is_ok());
        for (from, to) in [
            ("let kept = a;", "let kept = false;"),
            ("if a {", "if true {"),
            ("On if a => B,", "On => B,"),
            ("a || b ||", "a ||"),
            ("a", "b ||"),
        ] {
            assert!(check(from, to).is_err(), "{from} {to}");
        }
    }
}
