//! `cargo xtask bench regret`: what online allocation costs against placement that knows the future.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table};
use npualloc_replay::cases::Case;
use npualloc_replay::packing::{conflict, lower_bound, pack};
use npualloc_replay::trace::Trace;
use serde::Serialize;

use super::input::{Extent, Input};
use super::replay::configuration::Configuration;
use super::replay::measure::{Servers, measure};
use super::replay::report::At;
use super::replay::{CommonArgs, chosen, prepare};
use crate::apt;
use crate::env::Project;
use crate::plugin::CMakeTree;
use crate::process::say;
use crate::python::Python;

/// Peak of live bytes that cases are scaled to: pages of 2 MiB are then a ten-thousandth of it.
const PEAK: u64 = 16 << 30;

#[derive(Args)]
pub struct RegretArgs {
    /// Cases as CSV files with the columns lower, upper and size, for example benchmarks/challenging of
    /// google/minimalloc; a number in a file's name (A.1048576.csv) is the memory known to be enough
    /// [default: made-up cases whose optimum is known]
    #[arg(value_name = "CSV")]
    pub cases: Vec<PathBuf>,

    /// Measure only this configuration; may be given several times [default: all]
    #[arg(long = "config", value_name = "NAME", value_enum)]
    pub configurations: Vec<Configuration>,

    /// Time to look for a good offline placement of a case
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub budget: u64,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// One case. Sizes are in its own unit.
#[derive(Serialize)]
struct Row {
    name: String,
    blocks: usize,
    /// The most alive at once.
    lower_bound: u64,
    /// The best placement found here.
    packed: u64,
    /// Memory known to be enough, from elsewhere.
    known: Option<u64>,
    /// Bytes to a unit in the replays.
    scale: u64,
    /// Least capacity at which each configuration completes, in bytes; none when it does nowhere.
    least: BTreeMap<Configuration, Option<u64>>,
}

impl Row {
    /// The best offline result.
    fn best(&self) -> u64 {
        self.known.unwrap_or(u64::MAX).min(self.packed)
    }

    /// How much more than the best offline result a configuration needs, as a share of it.
    fn regret(&self, configuration: Configuration) -> Option<f64> {
        let least = (*self.least.get(&configuration)?)?;
        Some(least as f64 / (self.best() * self.scale) as f64 - 1.0)
    }
}

pub fn main(arguments: &RegretArgs) -> Result<ExitCode> {
    let cases = read(&arguments.cases)?;
    let project = Project::locate()?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let directory = arguments.common.directory(&project)?;
    let mut rows: Vec<Row> = Vec::new();
    for case in &cases {
        say(&format!("placing {} offline", case.name));
        rows.push(offline(case, Duration::from_secs(arguments.budget))?);
    }
    let python = Python::find(&project, &arguments.common.interpreter)?;
    let launcher = prepare(&project, &python, &directory)?;
    let traces = cases.iter().zip(&rows).map(|(case, row)| {
        let path = PathBuf::from(&case.name);
        let trace = Trace::parse(&path, case.trace(row.scale).as_bytes())?;
        Ok((case.name.clone(), trace))
    });
    let traces = traces.collect::<Result<_>>()?;
    let inputs = Input::write_all(traces, launcher.scratch(), Extent::Whole)?;
    let configurations = chosen(&arguments.configurations);
    let tasks: Vec<(usize, Configuration)> = (0..rows.len())
        .flat_map(|row| configurations.iter().map(move |one| (row, *one)))
        .collect();
    let servers = Servers::new(&launcher, arguments.common.jobs());
    let found = servers.each("measuring", &tasks, |server, &(row, configuration)| {
        let measured = measure(server, &inputs[row], configuration, true)?;
        Ok(measured.least.map(|At { capacity, .. }| capacity))
    })?;
    for ((row, configuration), least) in tasks.into_iter().zip(found) {
        rows[row].least.insert(configuration, least);
    }
    println!(
        "{}",
        table(&rows, &configurations, arguments.common.preset())
    );
    println!(
        "Least capacity of each configuration beyond the best offline placement: found here or known. An \
         allocator that maps pages can need less than that, but never less than the bound."
    );
    let path = directory.join("regret.json");
    let text = serde_json::to_string_pretty(&rows).context("encode the figures")?;
    fs::write(&path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    println!("Figures: {}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn read(paths: &[PathBuf]) -> Result<Vec<Case>> {
    if paths.is_empty() {
        let made = (0..6).map(|index| {
            let blocks = 50 << (index / 2);
            Case::cut(
                &format!("cut-{blocks}-{index}"),
                blocks,
                100_000,
                1 << 20,
                index,
            )
        });
        return Ok(made.collect());
    }
    let cases: Vec<Case> = paths
        .iter()
        .map(|path| Ok(Case::read(path)?))
        .collect::<Result<_>>()?;
    for (index, case) in cases.iter().enumerate() {
        let again = cases[..index].iter().any(|other| other.name == case.name);
        ensure!(!again, "two cases are called {}", case.name);
    }
    Ok(cases)
}

fn offline(case: &Case, budget: Duration) -> Result<Row> {
    let placed = pack(&case.buffers, budget, 1);
    let wrong = conflict(&case.buffers, &placed.offsets);
    ensure!(
        wrong.is_none(),
        "the placement of {} overlaps: {wrong:?}",
        case.name
    );
    let bound = lower_bound(&case.buffers);
    if let Some(known) = case.known {
        ensure!(
            known >= bound,
            "{} has {bound} alive at once, more than the {known} said to be enough",
            case.name
        );
    }
    Ok(Row {
        name: case.name.clone(),
        blocks: case.buffers.len(),
        lower_bound: bound,
        packed: placed.height,
        known: case.known,
        scale: case.scale(PEAK),
        least: BTreeMap::new(),
    })
}

fn table(rows: &[Row], configurations: &[Configuration], preset: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(preset);
    let fixed = ["case", "blocks", "bound", "packed ÷ bound", "known ÷ bound"];
    let names = configurations.iter().map(|one| one.name());
    table.set_header(fixed.into_iter().chain(names));
    for row in rows {
        let bound = row.lower_bound as f64;
        let mut cells = vec![
            row.name.clone(),
            row.blocks.to_string(),
            row.lower_bound.to_string(),
            format!("{:.4}", row.packed as f64 / bound),
            row.known
                .map_or("-".into(), |known| format!("{:.4}", known as f64 / bound)),
        ];
        cells.extend(configurations.iter().map(|one| percent(row.regret(*one))));
        table.add_row(cells);
    }
    let mut means = vec!["mean".to_owned()];
    means.resize(fixed.len(), String::new());
    means.extend(configurations.iter().map(|one| {
        let all: Option<Vec<f64>> = rows.iter().map(|row| row.regret(*one)).collect();
        percent(all.map(|all| all.iter().sum::<f64>() / all.len().max(1) as f64))
    }));
    table.add_row(means);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:+.1} %", 100.0 * share))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Configuration, Row, read};

    #[test]
    fn regret_is_measured_against_the_better_of_what_is_known_and_found() {
        let mut row = Row {
            name: "x".into(),
            blocks: 3,
            lower_bound: 90,
            packed: 110,
            known: Some(100),
            scale: 10,
            least: BTreeMap::from([
                (Configuration::StockDefault, Some(1250)),
                (Configuration::NpuallocFixed, None),
            ]),
        };
        assert_eq!(row.regret(Configuration::StockDefault), Some(0.25));
        assert_eq!(row.regret(Configuration::NpuallocFixed), None);
        assert_eq!(row.regret(Configuration::NpuallocDefault), None);
        row.known = None;
        assert_eq!(row.best(), 110);
    }

    #[test]
    fn made_up_cases_have_names_of_their_own() {
        let cases = read(&[]).unwrap();
        let mut names: Vec<_> = cases.iter().map(|case| &case.name).collect();
        names.dedup();
        assert_eq!(names.len(), 6);
        assert!(read(&["/no/such.csv".into()]).is_err());
    }
}
