//! `cargo xtask mutate`: plants faults in a copy of the core, one after another, and sees whether the tests
//! find them.
//!
//! The faults are in `tests/mutations`. A fault that does not compile is an error of that list. One that no
//! test finds within the time is a survivor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use comfy_table::Table;
use serde::Deserialize;

use crate::apt::{self, Need};
use crate::cli::MutateArgs;
use crate::env::Project;
use crate::process::{self, say};

/// The share of faults that the tests must find.
const LEAST: f64 = 0.9;
/// After so many seconds a test run is stopped: a fault that makes it endless is found.
const PATIENCE: &str = "600";
/// Random programs beside the model.
const PROGRAMS: &str = "--package npualloc-verify --test kept --test programs";
/// Every driver call fails once.
const FAILURES: &str = "--package npualloc-verify --test faults";
/// The core's own tests.
const UNIT: &str = "--package npualloc --lib --test device --test hot_path";

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

/// How a fault ended.
enum Fate {
    FoundBy(String),
    Endless,
    Survived,
}

pub fn main(arguments: &MutateArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&[Need::Cxx])?;
    let faults = read(&project)?;
    let copy = Copy::make(&project)?;
    copy.check_sound()?;
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::ASCII_MARKDOWN)
        .set_header(["fault", "file", "found by", "s"]);
    let (mut planted, mut found) = (0, 0);
    for (number, fault) in faults.iter().enumerate() {
        let name = format!("{} {}", fault.file, fault.what);
        if arguments
            .only
            .as_ref()
            .is_some_and(|text| !name.contains(text))
        {
            continue;
        }
        say(&format!("{} of {}: {name}", number + 1, faults.len()));
        let begin = Instant::now();
        let fate = copy.try_fault(fault)?;
        planted += 1;
        found += usize::from(!matches!(fate, Fate::Survived));
        let by = match fate {
            Fate::FoundBy(test) => test,
            Fate::Endless => "does not end".into(),
            Fate::Survived => "SURVIVED".into(),
        };
        process::echo(&format!("    {by}"));
        table.add_row([
            &fault.what,
            &fault.file,
            &by,
            &begin.elapsed().as_secs().to_string(),
        ]);
    }
    ensure!(planted > 0, "no fault has that in its name");
    let rate = found as f64 / planted as f64;
    println!("{table}");
    println!("{found} of {planted} faults found: {:.0} %", rate * 100.0);
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
    fn make(project: &Project) -> Result<Self> {
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
        for name in process::output(&mut list)?.lines() {
            let (from, to) = (project.root.join(name), root.join(name));
            let Ok(bytes) = fs::read(&from) else {
                continue;
            };
            // Test programs need no static library, and tests of the core no other workspace member.
            let bytes = if name == "Cargo.toml" {
                let text = String::from_utf8(bytes).context("Cargo.toml is not UTF-8")?;
                text.replace(r#"["rlib", "staticlib"]"#, r#"["rlib"]"#)
                    .into()
            } else {
                bytes
            };
            write_if_changed(&to, &bytes)?;
        }
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

    /// Without a fault every test passes, or finding one would mean nothing.
    fn check_sound(&self) -> Result<()> {
        say("the tests without a fault");
        for suite in [PROGRAMS, UNIT, FAILURES] {
            let sound = self.builds(suite)? && matches!(self.run(suite)?, Fate::Survived);
            ensure!(sound, "cargo test {suite} fails without a fault");
        }
        Ok(())
    }

    fn try_fault(&self, fault: &Fault) -> Result<Fate> {
        let path = self.root.join(&fault.file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        fs::write(&path, text.replace(&fault.from, &fault.to))
            .with_context(|| format!("write {}", path.display()))?;
        let fate = self.judge(fault);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        fate
    }

    fn judge(&self, fault: &Fault) -> Result<Fate> {
        let suites = match fault.first {
            First::Programs => [PROGRAMS, UNIT, FAILURES],
            First::Unit => [UNIT, PROGRAMS, FAILURES],
        };
        for suite in suites {
            ensure!(self.builds(suite)?, "{}: does not compile", fault.what);
            let fate = self.run(suite)?;
            if !matches!(fate, Fate::Survived) {
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

    fn run(&self, suite: &str) -> Result<Fate> {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", PATIENCE])
            .arg(Project::cargo());
        let mut command = self.prepare(command);
        command.arg("test").args(suite.split(' '));
        let (mut by, mut stopped) = (None, false);
        let success = process::lines(&mut command, |line| {
            let rest = line.strip_prefix("test ");
            if let Some(name) = rest.and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                by.get_or_insert(name.to_owned());
            }
            stopped |= line.contains("has been running for over 60 seconds");
        })?;
        Ok(match (success, by) {
            (true, _) => Fate::Survived,
            (false, Some(test)) => Fate::FoundBy(test),
            (false, None) if stopped => Fate::Endless,
            (false, None) => Fate::FoundBy("an abort".into()),
        })
    }
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let parent = path.parent().context("a file without a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}
