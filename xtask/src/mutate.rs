//! `cargo xtask mutate`: plants faults in a copy of a layer, and sees whether the tests find them.
//!
//! The faults are in `tests/mutations`. All of a layer are compiled in at once, each behind a question to the
//! environment, so that the tests are built once and run for each fault.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use comfy_table::Table;
use serde::Deserialize;

use crate::apt::{self, Need};
use crate::cli::{MutateArgs, MutatedLayer};
use crate::env::Project;
use crate::process;

mod copy;
mod core;
mod fate;
mod shim;

use fate::Fate;

/// The share of faults that the tests must find.
const LEAST: f64 = 0.9;
/// A test run is stopped after this time, or after [`LONGER`] times what it took without a fault where that is more:
/// a fault that makes it endless is found.
const PATIENCE: Duration = Duration::from_secs(600);
const LONGER: u32 = 20;

/// A fault of a list.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Fault {
    what: String,
    file: String,
    /// The text that is replaced, and by what.
    from: String,
    to: String,
    /// Of the core: the suite that is likely to find it.
    #[serde(default)]
    first: core::First,
    /// Of the C++ layer, where it is to be found: files of pytest, and `ctest:` with a pattern.
    #[serde(default)]
    tests: Vec<String>,
}

/// A copy of the tree with all faults of a layer in it, each for its number.
trait Planted: Sync {
    /// The list, below `tests/mutations`.
    const LIST: &str;

    /// Whether the layer's code can have the fault.
    fn check(fault: &Fault) -> Result<()>;

    /// Without a fault every test passes, or finding one would mean nothing. Returns the time of the suite that takes
    /// longest.
    fn check_sound(&self, chosen: &[(usize, &Fault)]) -> Result<Duration>;

    /// The test that finds the fault, each suite stopped at the limit.
    fn judge(&self, number: usize, fault: &Fault, limit: Duration) -> Result<Fate>;
}

pub fn main(arguments: &MutateArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&[Need::Cxx])?;
    match arguments.layer {
        MutatedLayer::Core => try_all(arguments, &project, core::Copy::make),
        MutatedLayer::Shim => try_all(arguments, &project, |project, faults| {
            shim::Copy::make(project, faults, arguments.jobs)
        }),
    }
}

/// Tries each fault of a layer that was asked for.
fn try_all<C: Planted>(
    arguments: &MutateArgs,
    project: &Project,
    make: impl FnOnce(&Project, &[Fault]) -> Result<C>,
) -> Result<ExitCode> {
    let faults: Vec<Fault> = read::<C>(project)?;
    let chosen: Vec<(usize, &Fault)> = (1..)
        .zip(&faults)
        .filter(|(_, fault)| {
            let name = format!("{} {}", &fault.file, &fault.what);
            arguments.only.is_empty() || arguments.only.iter().any(|text| name.contains(text))
        })
        .collect();
    ensure!(!chosen.is_empty(), "no fault has that in its name");
    let copy = make(project, &faults)?;
    let sound = copy.check_sound(&chosen)?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // Runs side by side take turns on the processors.
    let share = usize::from(arguments.jobs).div_ceil(cpus).max(1) as u32;
    let limit = PATIENCE.max(sound * LONGER * share);
    let fates = Mutex::new(BTreeMap::new());
    side_by_side(arguments.jobs, &chosen, |&(number, fault)| {
        let begin = Instant::now();
        let fate = copy.judge(number, fault, limit)?;
        let shown = fate.text();
        process::echo(&format!(
            "{number} {}: {}: {shown}",
            &fault.file, &fault.what
        ));
        let row = (fate, begin.elapsed().as_secs());
        fates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, row);
        Ok(())
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

/// Does the same with each item, with some at a time.
fn side_by_side<T: Sync>(
    jobs: u8,
    items: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                        work(item)?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker failed"))?)
    })
}

/// Reads a list and checks that each fault can be planted.
fn read<C: Planted>(project: &Project) -> Result<Vec<Fault>> {
    #[derive(Deserialize)]
    struct Faults {
        mutation: Vec<Fault>,
    }
    let path = project.root.join("tests/mutations").join(C::LIST);
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
            &fault.what,
            &fault.file
        );
        C::check(fault).with_context(|| fault.what.clone())?;
    }
    Ok(faults.mutation)
}

#[cfg(test)]
mod tests;
