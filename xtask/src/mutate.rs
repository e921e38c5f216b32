//! `cargo xtask mutate`: plants faults in a copy of the core, and sees whether the tests find them.
//!
//! The faults are in `tests/mutations`. All are compiled in at once, each behind a question to the
//! environment, so that the tests are built once and run for each fault.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use comfy_table::Table;
use serde::Deserialize;
use syn::{Block, Expr, Pat, Stmt};

use crate::apt::{self, Need};
use crate::cli::MutateArgs;
use crate::env::Project;
use crate::process::{self, say};

mod fate;

use fate::{Fate, Said};

/// The share of faults that the tests must find.
const LEAST: f64 = 0.9;
/// A test run is stopped after this time, or after [`LONGER`] times what it took without a fault where that is more:
/// a fault that makes it endless is found.
const PATIENCE: Duration = Duration::from_secs(600);
const LONGER: u32 = 20;
/// Random programs beside the model.
const PROGRAMS: &str = "--package npualloc-verify --test kept --test programs";
/// Every driver call fails once.
const FAILURES: &str = "--package npualloc-verify --test faults";
/// The core's own tests.
const UNIT: &str = "--package npualloc --lib --test device --test hot_path --test registry";

#[derive(Deserialize)]
struct Faults {
    mutation: Vec<Fault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    what: String,
    file: String,
    from: String,
    to: String,
    #[serde(default)]
    first: First,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum First {
    /// Random programs beside the model.
    #[default]
    Programs,
    /// The core's own tests.
    Unit,
}

impl Fault {
    fn is_statement(&self) -> bool {
        self.from.ends_with(';')
    }

    /// Whether both texts can be a branch of the choice: an expression, or statements that leave no name behind.
    fn has_two_branches(&self) -> bool {
        let names = |statement: &Stmt| matches!(statement, Stmt::Local(local) if !matches!(local.pat, Pat::Wild(_)));
        [&self.from, &self.to].into_iter().all(|text| {
            if self.is_statement() {
                let block = syn::parse_str::<Block>(&format!("{{ {text} }}"));
                block.is_ok_and(|block| !block.stmts.iter().any(names))
            } else {
                syn::parse_str::<Expr>(text).is_ok()
            }
        })
    }

    /// What stands in the place of `from`.
    fn switch(&self, number: usize) -> String {
        let (from, to) = (&self.from, &self.to);
        let choice = format!("if crate::size::planted({number}) {{ {to} }} else {{ {from} }}");
        if self.is_statement() {
            choice
        } else {
            format!("({choice})")
        }
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

pub fn main(arguments: &MutateArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&[Need::Cxx])?;
    let faults = read(&project)?;
    let chosen: Vec<(usize, &Fault)> = (1..)
        .zip(&faults)
        .filter(|(_, fault)| {
            let name = format!("{} {}", fault.file, fault.what);
            arguments.only.is_empty() || arguments.only.iter().any(|text| name.contains(text))
        })
        .collect();
    ensure!(!chosen.is_empty(), "no fault has that in its name");
    let copy = Copy::make(&project, &faults)?;
    let sound = copy.check_sound()?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // Runs side by side take turns on the processors.
    let share = usize::from(arguments.jobs).div_ceil(cpus).max(1) as u32;
    let limit = PATIENCE.max(sound * LONGER * share);
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs)
            .map(|_| {
                scope.spawn(|| {
                    while let Some((number, fault)) =
                        chosen.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let begin = Instant::now();
                        let fate = copy.judge(*number, fault, limit)?;
                        let shown = fate.text();
                        process::echo(&format!("{number} {}: {}: {shown}", fault.file, fault.what));
                        let row = (fate, begin.elapsed().as_secs());
                        fates
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .insert(*number, row);
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker failed"))?)
    })?;
    let fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::ASCII_MARKDOWN)
        .set_header(["fault", "file", "found by", "s"]);
    for (number, (fate, seconds)) in &fates {
        let fault = &faults[number - 1];
        table.add_row([&fault.what, &fault.file, fate.text(), &seconds.to_string()]);
    }
    let count = |wanted: fn(&Fate) -> bool| fates.values().filter(|(fate, _)| wanted(fate)).count();
    let found = count(|fate| *fate != Fate::Survived);
    let endless = count(|fate| *fate == Fate::Endless);
    let rate = found as f64 / fates.len() as f64;
    println!("{table}");
    println!(
        "{found} of {} faults found: {:.0} % ({endless} of them as a test did not end in {} s)",
        fates.len(),
        rate * 100.0,
        limit.as_secs()
    );
    Ok(if rate >= LEAST {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Reads the list and checks that each fault can be planted.
fn read(project: &Project) -> Result<Vec<Fault>> {
    let path = project.root.join("tests/mutations/core.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let faults: Faults =
        toml::from_str(&text).with_context(|| format!("understand {}", path.display()))?;
    for fault in &faults.mutation {
        let file = project.root.join(&fault.file);
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let count = text.matches(&fault.from).count();
        ensure!(
            count == 1,
            "{}: the text to replace occurs {count} times in {}",
            fault.what,
            fault.file
        );
        ensure!(
            fault.has_two_branches(),
            "{}: both texts must be expressions, or statements that leave no name behind",
            fault.what
        );
    }
    Ok(faults.mutation)
}

/// A copy of the source tree with a target directory of its own.
struct Copy {
    root: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Copies what has changed since the last time, so that only that is compiled again.
    fn make(project: &Project, faults: &[Fault]) -> Result<Self> {
        let root = project.target.join("mutate/tree");
        let mut list = Command::new("git");
        list.current_dir(&project.root).args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
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
        ]);
        let mut kept = HashSet::new();
        for name in process::output(&mut list)?.lines() {
            let (from, to) = (project.root.join(name), root.join(name));
            let Ok(mut bytes) = fs::read(&from) else {
                continue;
            };
            kept.insert(to.clone());
            if name == "Cargo.toml" || name.starts_with("src/") && name.ends_with(".rs") {
                let mut text =
                    String::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
                // Test programs need no static library.
                text = text.replace(r#"["rlib", "staticlib"]"#, r#"["rlib"]"#);
                for (number, fault) in (1..).zip(faults).filter(|(_, fault)| fault.file == name) {
                    text = text.replace(&fault.from, &fault.switch(number));
                }
                for (number, fault) in (1..).zip(faults).filter(|(_, fault)| fault.file == name) {
                    ensure!(
                        text.contains(&format!("planted({number})")),
                        "{}: another fault of {name} replaces the text",
                        fault.what
                    );
                }
                if name == "src/size.rs" {
                    text += PLANTED;
                }
                bytes = text.into();
            }
            write_if_changed(&to, &bytes)?;
        }
        remove_others(&root, &kept)?;
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

    /// Without a fault every test passes, or finding one would mean nothing. Returns the time of the suite that takes
    /// longest.
    fn check_sound(&self) -> Result<Duration> {
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

    /// The test that finds the fault.
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

/// Removes files of an earlier copy that the tree does not have any more.
fn remove_others(directory: &Path, kept: &HashSet<PathBuf>) -> Result<()> {
    let listed = || format!("list {}", directory.display());
    for entry in fs::read_dir(directory).with_context(listed)? {
        let path = entry.with_context(listed)?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
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

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let parent = path.parent().context("a file without a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests;
