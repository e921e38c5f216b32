//! `cargo xtask bench hot`: builds what is measured, runs `benches/hot/hot.py`, shows its figures.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use npualloc_replay::synthetic;
use npualloc_replay::trace::Trace;
use serde::Deserialize;

use super::input::{self, Extent, Input};
use crate::apt;
use crate::cli::Interpreter;
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::plugin::{CMakeTree, Plugin, Tests};
use crate::process::{self, say};
use crate::python::Python;
use crate::surroundings;

const TARGET: &str = "npualloc_bench_hot";
/// Where CMake puts the benchmark's library, below its build directory.
const LIBRARY: &str = "benches/hot/libnpualloc_bench_hot.so";

/// Each simulated device: room for 100,000 live blocks of up to 256 MB.
const CAPACITY: u64 = 512 << 30;
/// The same where the stock allocator reserves addresses for an eighth more than the device has, at most 128 GiB at once.
const CAPACITY_EXPANDABLE: u64 = 112 << 30;
/// Two for each allocator.
const DEVICES: &str = "4";
/// The name of the trace that is always replayed.
const BUILT_IN: &str = "synthetic";

#[derive(Args)]
pub struct HotArgs {
    /// Run only the cases whose name contains TEXT; may be given several times
    #[arg(long = "case", value_name = "TEXT")]
    pub cases: Vec<String>,

    /// Fewer and shorter rounds: shows that it works, not how fast it is
    #[arg(long)]
    pub quick: bool,

    /// Traces to replay besides a small built-in one, plain or gzip'ed
    #[arg(long = "trace", value_name = "FILE", num_args = 1..)]
    pub traces: Vec<PathBuf>,

    /// Settings of both allocators, as in PYTORCH_NPU_ALLOC_CONF
    #[arg(long, value_name = "TEXT")]
    pub config: Option<String>,

    #[command(flatten)]
    pub interpreter: Interpreter,
}

pub fn main(arguments: &HotArgs) -> Result<ExitCode> {
    // Before anything is built: a trace that can't be read is said at once.
    let traces = traces(&arguments.traces)?;
    let project = Project::locate()?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let python = Python::find(&project, &arguments.interpreter)?;
    let device = Device::find(&project)?;
    let plugin = Plugin::build(&project, &python)?;
    let tree = CMakeTree::configure(&project, &python, Tests::Leave)?;
    tree.build(&[TARGET])?;

    let output = project.target.join("bench/hot.json");
    if let Some(directory) = output.parent() {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    if output.exists() {
        fs::remove_file(&output).with_context(|| format!("remove {}", output.display()))?;
    }
    let scratch = project.target.join("bench-hot");
    fs::create_dir_all(&scratch).with_context(|| format!("create {}", scratch.display()))?;
    let inputs = Input::write_all(traces, &scratch, Extent::Served)?;
    let mut command = python.command();
    surroundings::leave_out(&mut command);
    let config = arguments.config.as_deref().unwrap_or_default();
    let capacity = if is_expandable(config) {
        CAPACITY_EXPANDABLE
    } else {
        CAPACITY
    };
    let knobs = Knobs {
        capacity: matches!(device, Device::Simulated(_)).then_some(capacity),
        ..Knobs::default()
    };
    device.prepare(&mut command, &knobs);
    command
        .env("CANN_SIM_DEVICES", DEVICES)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // The plug-in is loaded by the benchmark itself, after it has kept the stock allocator; an installed wheel
        // would be loaded with torch.
        .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0");
    if let Some(text) = &arguments.config {
        command.env("PYTORCH_NPU_ALLOC_CONF", text);
    }
    command
        .arg(project.root.join("benches/hot/hot.py"))
        .arg("--bench")
        .arg(tree.directory.join(LIBRARY))
        .arg("--plugin")
        .arg(&plugin.library)
        .arg("--output")
        .arg(&output);
    if arguments.quick {
        command.arg("--quick");
    }
    for case in &arguments.cases {
        command.arg("--case").arg(case);
    }
    for input in &inputs {
        let numbers = [input.capacity, u64::from(input.streams)].map(|number| number.to_string());
        command
            .arg("--trace")
            .arg(&input.name)
            .arg(&input.events)
            .args(numbers);
    }
    say("measuring");
    let measured = process::check(&mut command);
    fs::remove_dir_all(&scratch).with_context(|| format!("remove {}", scratch.display()))?;
    measured?;

    let report = Report::read(&output)?;
    println!("Device: {}", device.name());
    println!("{}", report.table());
    for (name, figure) in &report.derived {
        println!("{name}: {figure}");
    }
    println!("Figures: {}", output.display());
    Ok(ExitCode::SUCCESS)
}

/// Whether settings ask for expandable segments, as the stock allocator reads them: spaces don't count.
fn is_expandable(config: &str) -> bool {
    let config: String = config.split_whitespace().collect();
    config.contains("expandable_segments:True")
}

/// The traces to replay: the built-in one, and those given.
fn traces(paths: &[PathBuf]) -> Result<Vec<(String, Trace)>> {
    let text = synthetic::training(48, 40, 7);
    let built_in = Trace::parse(Path::new(BUILT_IN), text.as_bytes())?;
    let mut traces = vec![(BUILT_IN.to_owned(), built_in)];
    if !paths.is_empty() {
        traces.extend(input::read(paths)?);
    }
    let taken = traces[1..].iter().any(|(name, _)| name == BUILT_IN);
    ensure!(
        !taken,
        "{BUILT_IN} is the built-in trace; the figures could not be told apart"
    );
    Ok(traces)
}

/// What `hot.py` writes. Times are nanoseconds of an operation.
#[derive(Deserialize)]
struct Report {
    cases: Vec<Row>,
    derived: BTreeMap<String, Figure>,
}

/// What follows from several rows.
#[derive(Deserialize)]
#[serde(untagged)]
enum Figure {
    Value(f64),
    /// Median, least and most of several turns.
    OfTurns([f64; 3]),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value:.2}"),
            Self::OfTurns([median, least, most]) => {
                write!(f, "{median:.2} ({least:.2} – {most:.2})")
            }
        }
    }
}

#[derive(Deserialize)]
struct Row {
    case: String,
    stock_ns: f64,
    npualloc_ns: f64,
    ratio: f64,
    /// What the benchmark's own loop takes, where that is known.
    loop_ns: Option<f64>,
    /// The ratio of the times without it.
    net_ratio: Option<f64>,
    /// First and third quartile over the rounds.
    ratio_quartiles: [f64; 2],
    stock_p999_ns: Option<f64>,
    npualloc_p999_ns: Option<f64>,
}

impl Report {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("understand {}", path.display()))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "ns of an operation",
            "stock",
            "npualloc",
            "ratio",
            "quartiles",
            "loop",
            "ratio without",
            "p99.9 stock",
            "p99.9 npualloc",
        ]);
        for row in &self.cases {
            let [first, third] = row.ratio_quartiles;
            table.add_row([
                row.case.clone(),
                time(Some(row.stock_ns)),
                time(Some(row.npualloc_ns)),
                format!("{:.2}", row.ratio),
                format!("{first:.2} – {third:.2}"),
                time(row.loop_ns),
                row.net_ratio
                    .map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
                time(row.stock_p999_ns),
                time(row.npualloc_p999_ns),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// Nanoseconds, in digits that mean something.
fn time(nanoseconds: Option<f64>) -> String {
    match nanoseconds {
        None => "-".into(),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn a_row_shows_its_figures_and_what_is_missing() {
        let text = r#"{"cases": [{"case": "one size", "stock_ns": 350.4, "npualloc_ns": 17.52,
            "ratio": 20.0, "ratio_quartiles": [19.5, 20.25], "loop_ns": 1.5, "net_ratio": null, "stock_p999_ns": 1200.0,
            "npualloc_p999_ns": null, "rounds": 15}], "derived": {"growth": 1.256, "threads": [1.5, 1.25, 2]}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        let table = report.table().to_string();
        let row = table.lines().find(|line| line.contains("one size"));
        let cells: Vec<_> = row.unwrap().split('┆').map(str::trim).collect();
        let expected = ["350", "17.5", "20.00", "19.50 – 20.25", "1.5", "-", "1200"];
        assert_eq!(cells[1..8], expected);
        assert!(cells[8].starts_with("- "), "{}", cells[8]);
        let figures = report.derived.values().map(ToString::to_string);
        assert_eq!(figures.collect::<Vec<_>>(), ["1.26", "1.50 (1.25 – 2.00)"]);
    }
}
