//! `cargo xtask bench replay`: traces on the stock allocator and on npualloc, over the simulated device.
//!
//! `configuration` (what is compared) · `input` (traces, as files for the other side) · `server` (the
//! processes that replay) · `search` (least capacity) · `measure` (all runs, on all cores) · `report`
//! (figures and their file) · `table`, `summary` and `picture` (how they are shown) · `check` (for the tests).

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::presets;

use crate::apt;
use crate::cli::Interpreter;
use crate::device::{Device, build_simulator};
use crate::env::Project;
use crate::plugin::{CMakeTree, Plugin, Tests};
use crate::process::say;
use crate::python::Python;

pub mod check;
pub mod configuration;
pub mod measure;
mod picture;
pub mod report;
pub mod search;
pub mod server;
mod summary;
mod table;

use super::input::{self, Extent, Input};
use configuration::Configuration;
use measure::Plan;
use server::Launcher;

/// What CMake calls the benchmark's library.
pub const TARGET: &str = "npualloc_bench_replay";
/// Where CMake puts the benchmark's library, below its build directory.
const LIBRARY: &str = "benches/replay/libnpualloc_bench_replay.so";

#[derive(Args)]
pub struct ReplayArgs {
    /// Trace files, plain or gzip'ed [default: two small ones that are built in]
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Replay only with this configuration; may be given several times [default: all]
    #[arg(long = "config", value_name = "NAME", value_enum)]
    pub configurations: Vec<Configuration>,

    /// Leave out the search for the least capacity, which takes most of the time; tight capacities are
    /// then 1.02 × the peak of live bytes
    #[arg(long)]
    pub no_search: bool,

    /// Leave torch_npu's task queue on: another thread then records events, later than the trace says,
    /// and figures of traces with several streams differ from run to run
    #[arg(long)]
    pub task_queue: bool,

    /// Check the benchmark itself instead, on small traces whose figures are known; part of
    /// `cargo xtask test python`
    #[arg(long, conflicts_with_all = ["traces", "configurations", "no_search", "task_queue",
          "jobs", "output", "markdown"])]
    pub check: bool,

    #[command(flatten)]
    pub common: CommonArgs,
}

/// What every benchmark that replays traces has.
#[derive(Args)]
pub struct CommonArgs {
    /// Replays at a time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,

    /// Directory for the figures [default: target/bench]
    #[arg(long, value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,

    /// Print the tables as Markdown
    #[arg(long)]
    pub markdown: bool,

    #[command(flatten)]
    pub interpreter: Interpreter,
}

impl CommonArgs {
    /// How tables look.
    pub fn preset(&self) -> &'static str {
        if self.markdown {
            presets::ASCII_MARKDOWN
        } else {
            presets::UTF8_FULL_CONDENSED
        }
    }

    /// The directory for figures, made when it is not there.
    pub fn directory(&self, project: &Project) -> Result<PathBuf> {
        let directory = match &self.output {
            Some(path) => path.clone(),
            None => project.target.join("bench"),
        };
        fs::create_dir_all(&directory)
            .with_context(|| format!("create {}", directory.display()))?;
        Ok(directory)
    }

    /// How many replays run at a time.
    pub fn jobs(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(processors, usize::from)
    }
}

pub fn main(arguments: &ReplayArgs) -> Result<ExitCode> {
    if arguments.check {
        return check_main(arguments);
    }
    // Before anything is built: a trace that can't be read is said at once.
    let traces = input::read(&arguments.traces)?;
    let project = Project::locate()?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let directory = arguments.common.directory(&project)?;
    let python = Python::find(&project, &arguments.common.interpreter)?;
    let mut launcher = prepare(&project, &python, &directory)?;
    launcher.task_queue = arguments.task_queue;
    let inputs = Input::write_all(traces, launcher.scratch(), Extent::Whole)?;
    let plan = Plan {
        configurations: chosen(&arguments.configurations),
        search: !arguments.no_search,
        jobs: arguments.common.jobs(),
    };
    let report = measure::run(&launcher, &inputs, &plan)?;
    let path = directory.join("replay.json");
    report.write(&path)?;
    let preset = arguments.common.preset();
    for trace in &report.traces {
        println!("{}", table::text(trace, preset));
        let picture = directory.join(format!("replay-{}.svg", trace.name));
        picture::draw(trace, &picture)?;
        println!("Picture: {}", picture.display());
        println!();
    }
    if report.traces.len() > 1 {
        println!("{}\n", summary::text(&report, &plan.configurations, preset));
    }
    println!("Figures: {}", path.display());
    Ok(if report.hazards() == 0 {
        ExitCode::SUCCESS
    } else {
        println!("FAILED: the device saw {} hazards", report.hazards());
        ExitCode::FAILURE
    })
}

fn check_main(arguments: &ReplayArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let python = Python::find(&project, &arguments.common.interpreter)?;
    let (closing, wrong) = check::check(&project, &python)?;
    for line in &wrong {
        println!("FAILED: {line}");
    }
    println!("{closing}");
    Ok(if wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// All configurations, or those asked for, each once and in the order of the tables.
pub fn chosen(asked: &[Configuration]) -> Vec<Configuration> {
    let all = Configuration::ALL.into_iter();
    all.filter(|one| asked.is_empty() || asked.contains(one))
        .collect()
}

/// Builds what replays need.
pub fn prepare(
    project: &Project,
    python: &Python,
    directory: &std::path::Path,
) -> Result<Launcher> {
    if !cfg!(target_arch = "x86_64") {
        bail!("traces are replayed on the simulated device, which needs x86-64");
    }
    let simulator = Device::Simulated(build_simulator(project)?);
    let plugin = Plugin::build(project, python)?;
    let tree = CMakeTree::configure(project, python, Tests::Leave)?;
    tree.build(&[TARGET])?;
    say("replaying on the simulated device");
    Launcher::new(
        python.clone(),
        simulator,
        project.root.join("benches/replay/server.py"),
        tree.directory.join(LIBRARY),
        plugin.library,
        directory.join("replay"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Torch;

    #[test]
    fn configurations_come_once_and_in_order() {
        assert_eq!(chosen(&[]), Configuration::ALL);
        let asked = [
            Configuration::NpuallocFixed,
            Configuration::StockDefault,
            Configuration::NpuallocFixed,
        ];
        assert_eq!(
            chosen(&asked),
            [Configuration::StockDefault, Configuration::NpuallocFixed]
        );
    }

    #[test]
    fn figures_go_below_the_target_directory() {
        let place = std::env::temp_dir().join(format!("npualloc-figures-{}", std::process::id()));
        let project = Project {
            root: place.join("tree"),
            target: place.join("elsewhere"),
            cache: place.join("cache"),
        };
        let arguments = CommonArgs {
            jobs: None,
            output: None,
            markdown: false,
            interpreter: Interpreter {
                python: None,
                torch: Torch::default(),
            },
        };
        let directory = arguments.directory(&project).expect("a directory");
        assert_eq!(directory, project.target.join("bench"));
        assert!(directory.is_dir() && !project.root.exists());
        fs::remove_dir_all(&place).expect("removed");
    }
}
