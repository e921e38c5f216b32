//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use npualloc_replay::quantity::parse_size;

use crate::output::Output;

/// Replays allocation traces on a simulated NPU: what would other settings have done?
///
/// A trace is what NPUALLOC_TRACE records or a memory snapshot of torch (torch.npu.memory._dump_snapshot,
/// torch.cuda.memory._dump_snapshot). Settings are texts of PYTORCH_NPU_ALLOC_CONF; NPUALLOC_SKIP_RUNGS leaves ways to
/// find memory out, as in the allocator.
///
/// Exit status: 0 done, 1 the workload does not fit, 2 bad input.
#[derive(Debug, Parser)]
#[command(name = "npualloc", version, max_term_width = 100)]
pub struct Cli {
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// How results and progress are shown.
    pub fn output(&self) -> Output {
        Output {
            json: self.json,
            quiet: self.quiet,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace under one or many settings and compare them.
    Replay(ReplayArgs),
    /// Search for settings that need the least memory, or stall least.
    Advise(AdviseArgs),
    /// Would this workload fit in so much memory, and if not, how much is missing?
    Fit(FitArgs),
    /// Replay a trace and write a page (HTML, works offline) that shows where the memory went.
    Report(ReportArgs),
}

/// The input of every command.
#[derive(Debug, Args)]
pub struct Source {
    /// A trace (text, gzip-compressed or not) or a memory snapshot (pickle).
    pub trace: PathBuf,
    /// Which device of a memory snapshot [default: the first with anything in it].
    #[arg(long, value_name = "NUMBER")]
    pub device: Option<usize>,
}

/// `npualloc replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub source: Source,
    /// Settings to replay under; may be given several times. "" means the defaults (virtual
    /// segments, as the simulated device maps memory). Without any: expandable_segments:False and True.
    #[arg(long = "conf", value_name = "SETTINGS")]
    pub confs: Vec<String>,
    /// Memory of the device, for example 64GiB [default: what the trace says, else 64GiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
    /// Also find the least capacity that is enough (about ten replays for each of the settings).
    #[arg(long)]
    pub least: bool,
}

/// What is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The least capacity that is enough.
    Memory,
    /// The least time in driver calls and waits on a device of the given capacity.
    Stalls,
}

/// `npualloc advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    #[command(flatten)]
    pub source: Source,
    /// What is best.
    #[arg(long = "for", value_enum, default_value = "memory")]
    pub goal: Goal,
    /// Memory of the device, for example 64GiB [default: what the trace says, else 64GiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
}

/// `npualloc fit`.
#[derive(Debug, Args)]
pub struct FitArgs {
    #[command(flatten)]
    pub source: Source,
    /// How much memory there is, for example 64GiB.
    #[arg(long = "in", value_name = "SIZE", value_parser = parse_size)]
    pub capacity: u64,
    /// Settings; may be given several times. "" means the defaults. Without any:
    /// expandable_segments:False and True. One that fits is enough for exit status 0.
    #[arg(long = "conf", value_name = "SETTINGS")]
    pub confs: Vec<String>,
}

/// `npualloc report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub source: Source,
    /// The page; replaced if it exists.
    #[arg(
        long,
        short,
        value_name = "FILE",
        default_value = "npualloc-report.html"
    )]
    pub output: PathBuf,
    /// Settings; "" means the defaults.
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    pub conf: String,
    /// Memory of the device, for example 64GiB [default: what the trace says, else 64GiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
}
