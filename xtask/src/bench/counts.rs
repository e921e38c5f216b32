//! `cargo xtask bench counts`: instructions of the core's operations, by callgrind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};

use crate::apt::{self, Need};
use crate::cargo;
use crate::env::Project;
use crate::process::{self, say};

/// What is expected, below the root of the tree.
const EXPECTED: &str = "benches/core/counts.tsv";
/// How far a count may be off, as a share of it. Compilers of one version agree; different versions of
/// the C library do not matter, because the code counted calls none of it.
const TOLERANCE: f64 = 0.05;
/// Steps before counting, and steps counted; a step is two operations.
const WARM: u32 = 20_000;
/// The same where so many blocks are alive that most would still be the first ones.
const WARM_OF_MANY: u32 = 200_000;
const STEPS: u32 = 20_000;

#[derive(Args)]
pub struct CountsArgs {
    /// Write what is counted to benches/core/counts.tsv
    #[arg(long)]
    pub update: bool,
}

pub fn main(arguments: &CountsArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&[Need::Cxx, Need::Valgrind])?;
    let counted = count(&project)?;
    if arguments.update {
        let path = project.root.join(EXPECTED);
        fs::write(&path, to_text(&counted)).with_context(|| format!("write {}", path.display()))?;
    }
    let comparison = Comparison::new(&project, counted)?;
    println!("{}", comparison.table());
    Ok(if comparison.failures().is_empty() {
        ExitCode::SUCCESS
    } else {
        for failure in comparison.failures() {
            println!("FAILED: {failure}");
        }
        ExitCode::FAILURE
    })
}

/// Counts and compares, for `cargo xtask test`: what to say of it, and what is wrong.
///
/// # Errors
/// When the program can't be built or run.
pub fn check(project: &Project) -> Result<(String, Vec<String>)> {
    let comparison = Comparison::new(project, count(project)?)?;
    let closing = format!(
        "instructions of {} workloads compared with {EXPECTED}",
        comparison.rows.len()
    );
    Ok((closing, comparison.failures()))
}

/// Instructions of an operation, by workload.
type Counts = BTreeMap<String, f64>;

fn count(project: &Project) -> Result<Counts> {
    let program = build(project)?;
    let names = process::output(Command::new(&program).arg("--list"))?;
    let mut counted = Counts::new();
    for name in names.lines() {
        say(&format!("counting instructions: {name}"));
        let before = instructions(&program, name, 0)?;
        let after = instructions(&program, name, STEPS)?;
        let operations = f64::from(2 * STEPS);
        let each = (after - before) as f64 / operations;
        // Counts are kept with one decimal.
        counted.insert(name.to_owned(), (each * 10.0).round() / 10.0);
    }
    Ok(counted)
}

/// Builds the program that is counted.
fn build(project: &Project) -> Result<PathBuf> {
    say("building benches/core/counts.rs");
    let mut command = Command::new(Project::cargo());
    command
        .current_dir(&project.root)
        .args(["bench", "--quiet", "--package", "npualloc"])
        .args(["--bench", "counts", "--no-run"]);
    cargo::built(&mut command, "counts")
}

/// Instructions of a whole run.
fn instructions(program: &Path, name: &str, steps: u32) -> Result<i64> {
    let many = name.contains("0,000 live");
    let warm = if many { WARM_OF_MANY } else { WARM };
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([name, &warm.to_string(), &steps.to_string()]);
    let output = command
        .output()
        .with_context(|| format!("start {}", process::display(&command)))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {}\n{}",
        process::display(&command),
        output.status,
        text.trim_end()
    );
    collected(&text).with_context(|| format!("no count in the output of callgrind:\n{text}"))
}

/// The number of callgrind's line `==1== Collected : 123`.
fn collected(text: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

fn to_text(counts: &Counts) -> String {
    let mut text = String::from(
        "# Instructions of an operation; `cargo xtask bench counts --update` writes this file.\n",
    );
    for (name, count) in counts {
        text += &format!("{name}\t{count:.1}\n");
    }
    text
}

fn from_text(text: &str) -> Result<Counts> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line
                .split_once('\t')
                .with_context(|| format!("no tab in {line:?}"))?;
            let count = count
                .parse()
                .with_context(|| format!("no number in {line:?}"))?;
            Ok((name.to_owned(), count))
        })
        .collect()
}

struct Row {
    name: String,
    expected: Option<f64>,
    counted: Option<f64>,
}

struct Comparison {
    rows: Vec<Row>,
}

impl Comparison {
    fn new(project: &Project, counted: Counts) -> Result<Self> {
        let path = project.root.join(EXPECTED);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let expected =
            from_text(&text).with_context(|| format!("understand {}", path.display()))?;
        Ok(Self::of(&expected, &counted))
    }

    fn of(expected: &Counts, counted: &Counts) -> Self {
        let mut names: Vec<&String> = expected.keys().chain(counted.keys()).collect();
        names.sort();
        names.dedup();
        let row = |name: &String| Row {
            name: name.clone(),
            expected: expected.get(name).copied(),
            counted: counted.get(name).copied(),
        };
        Self {
            rows: names.into_iter().map(row).collect(),
        }
    }

    /// What is wrong, one line each.
    fn failures(&self) -> Vec<String> {
        let wrong = |row: &Row| {
            let name = &row.name;
            match (row.expected, row.counted) {
                (Some(expected), Some(counted)) => {
                    let off = counted / expected - 1.0;
                    (off.abs() > TOLERANCE).then(|| {
                        format!(
                            "{name}: {counted:.1} instructions, {expected:.1} expected ({:+.1} %)",
                            100.0 * off
                        )
                    })
                }
                (None, _) => Some(format!("{name}: not in {EXPECTED}")),
                (_, None) => Some(format!("{name}: in {EXPECTED}, but no longer there")),
            }
        };
        self.rows.iter().filter_map(wrong).collect()
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(["instructions of an operation", "expected", "counted"]);
        let show = |count: Option<f64>| count.map_or("-".into(), |count| format!("{count:.1}"));
        for row in &self.rows {
            table.add_row([row.name.clone(), show(row.expected), show(row.counted)]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Counts, collected, from_text, to_text};

    fn counts(rows: &[(&str, f64)]) -> Counts {
        let rows = rows.iter();
        rows.map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn a_count_is_read_from_callgrinds_output() {
        let text = "==7== Events    : Ir\n==7== Collected : 110045852\n==7==\n";
        assert_eq!(collected(text), Some(110_045_852));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = counts(&[("one size, 512 B", 210.5), ("random", 300.0)]);
        assert_eq!(from_text(&to_text(&written)).unwrap(), written);
        assert!(from_text("one size 210\n").is_err());
    }

    #[test]
    fn counts_beyond_the_tolerance_and_missing_ones_fail() {
        let expected = counts(&[("a", 100.0), ("b", 100.0), ("c", 100.0), ("gone", 1.0)]);
        let counted = counts(&[("a", 104.9), ("b", 105.2), ("c", 94.0), ("new", 1.0)]);
        let failures = Comparison::of(&expected, &counted).failures();
        let names: Vec<_> = failures
            .iter()
            .map(|failure| failure.split(':').next().unwrap())
            .collect();
        assert_eq!(names, ["b", "c", "gone", "new"]);
    }
}
