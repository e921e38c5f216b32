//! Arguments of `cargo xtask`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use npualloc_replay::quantity::parse_size;

use crate::bench::BenchArgs;

/// Builds, runs and tests npualloc.
///
/// Works on a machine without an NPU: programs then run on the simulated CANN
/// runtime. Where CANN and an NPU are present they are used instead.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Train a 1 B parameter language model with each allocator and compare
    ///
    /// Runs demo/train_gpt.py through the stock torch_npu wheel twice: with
    /// torch_npu's own allocator, then with npualloc loaded as a plug-in.
    /// Prints memory_summary() and memory_stats() of the second run and a table
    /// of both, and writes the figures to target/demo/report.json (bytes and
    /// nanoseconds). Fails when the two runs' steps or losses differ, when
    /// npualloc's peak of allocated or reserved memory is above the stock
    /// allocator's, or when it has hazards or leaks.
    Demo(DemoArgs),

    /// Run the tests: all of them, or those of one language
    Test(TestArgs),

    /// Check licences, sources and known vulnerabilities of the crates used
    ///
    /// Runs cargo deny with deny.toml; installs it into the cache when it is
    /// not in PATH, and fails where that can't be done. Vulnerabilities are
    /// left out, with the reason, where their list can't be fetched. Part of
    /// `test rust`.
    Deny,

    /// Measure the allocators
    Bench(BenchArgs),

    /// Feed random input to everything that reads input
    ///
    /// Targets: configuration strings, handles of shared memory, trace files,
    /// memory snapshots, and programs of operations on the core, checked against
    /// a model after each step. Uses libFuzzer with the stable toolchain. Seeds
    /// are in fuzz/seeds; what is collected and what fails goes to target/fuzz.
    Fuzz(FuzzArgs),

    /// Train for hours of virtual time and watch for drift
    ///
    /// Prints reserved memory, bookkeeping and the time of an operation at
    /// intervals; fails when memory grows after the second interval.
    Soak(SoakArgs),

    /// Plant faults and see whether the tests find them
    ///
    /// The faults are in tests/mutations. Works in a copy of the tree. Fails when
    /// fewer than 90 % are found.
    Mutate(MutateArgs),

    /// Run the core's atomics and locks in every order
    ///
    /// Programs of two or three threads under loom: the lock of a device, the table
    /// of owners, devices that come into being, calls of the driver during which
    /// the lock is given back. Part of `test rust`.
    Models(ModelsArgs),

    /// Run tests under AddressSanitizer and ThreadSanitizer
    ///
    /// The core's tests, threads on one device, and the C++ tests that need no torch,
    /// with the core compiled in the same way. Uses the stable toolchain's own
    /// runtimes; the standard library is not instrumented.
    Sanitize(SanitizeArgs),

    /// Build the simulated CANN runtime
    ///
    /// Prints the directory of its libraries as the last line.
    Sim,

    /// Build the torch_npu plug-in
    ///
    /// Prints the path of libnpualloc_torch_npu.so as the last line. Load it
    /// with torch.ops.load_library after `import torch_npu`.
    Plugin(PluginArgs),

    /// Build the Python wheel
    ///
    /// It carries the plug-in for the given versions of torch and torch-npu and
    /// loads it with `import torch`. Prints the wheel's path as the last line.
    Package(PackageArgs),

    /// Run a Python script on the simulated device
    ///
    /// The script needs no change. Everything after `--` is handed to Python,
    /// so `-- -m package.module` works too.
    Run(RunArgs),
}

/// What is used unless told otherwise.
const DEFAULT_TORCH: &str = "2.14.0";

#[derive(Args)]
pub struct Torch {
    /// Version of torch and torch-npu to install from PyPI when no --python is given
    #[arg(long, value_name = "VERSION", default_value = DEFAULT_TORCH, value_parser = torch_version)]
    pub torch: String,
}

impl Default for Torch {
    fn default() -> Self {
        Self {
            torch: DEFAULT_TORCH.to_owned(),
        }
    }
}

#[derive(Args)]
pub struct Interpreter {
    /// Python that has torch and torch_npu installed [default: the project's own environment]
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,

    #[command(flatten)]
    pub torch: Torch,
}

#[derive(Args)]
pub struct DemoArgs {
    #[command(flatten)]
    pub torch: Torch,

    /// Training steps for each run
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
}

#[derive(Args)]
pub struct TestArgs {
    /// Which tests [default: rust, cpp and python]
    #[arg(value_enum)]
    pub suite: Option<Suite>,

    /// Versions of torch and torch-npu, from PyPI, to build the C++ parts for and to run the
    /// Python tests with, one after another: `--torch 2.13.0,2.14.0` [default: 2.14.0]
    #[arg(long, value_name = "VERSION", value_delimiter = ',', value_parser = torch_version)]
    torch: Vec<String>,

    /// Arguments for the runner of the suite (cargo test, ctest or pytest)
    #[arg(last = true, requires = "suite")]
    pub rest: Vec<OsString>,
}

impl TestArgs {
    /// The versions of torch asked for.
    pub fn versions(&self) -> Vec<String> {
        match self.torch.as_slice() {
            [] => vec![DEFAULT_TORCH.to_owned()],
            asked => asked.to_vec(),
        }
    }

    /// Refuses what the suite would leave out of account.
    ///
    /// # Errors
    /// Names the argument.
    pub fn check(&self) -> Result<()> {
        let asked = !self.torch.is_empty();
        match self.suite {
            Some(Suite::Rust) if asked => bail!("--torch has no effect on `test rust`"),
            Some(Suite::Docs) if asked => {
                bail!(
                    "--torch has no effect on `test docs`, which tests the wheel with each version it is for"
                )
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Formatting, clippy and the tests of the Rust crates
    Rust,
    /// Formatting and the GoogleTest suites of the C++ parts
    Cpp,
    /// Tests through the stock torch_npu wheel on the simulated device
    Python,
    /// The wheel with every version of torch it is for, and every command of the documents; not part of
    /// "all", where the wheel is tested with one version and the commands of two pages are run
    Docs,
}

#[derive(Args)]
pub struct FuzzArgs {
    /// What to fuzz [default: everything]
    #[arg(value_enum)]
    pub target: Option<FuzzTarget>,

    /// Seconds for each target [default: 10]
    #[arg(long, value_name = "N", conflicts_with = "runs", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,

    /// Inputs for each target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,

    /// Instead: random programs on the core at full speed, until so many operations are done
    #[arg(long, value_name = "N", conflicts_with_all = ["target", "seconds", "runs"],
        value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,

    /// For --operations: another seed makes other programs [default: 1]
    #[arg(long, value_name = "N", requires = "operations")]
    pub seed: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FuzzTarget {
    /// Configuration strings
    Config,
    /// Handles of shared memory
    Ipc,
    /// Programs of operations on the core
    Program,
    /// Memory snapshots (pickles)
    Snapshot,
    /// Trace files
    Trace,
}

#[derive(Args)]
pub struct SoakArgs {
    /// Training steps, rounded up to 10,000s, at least 30,000; a step stands for a quarter of a second
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub steps: u64,

    /// Settings of the allocator; may be given several times [default: none (the
    /// driver decides, as for users), fixed segments, and virtual segments]
    #[arg(long, value_name = "SETTINGS")]
    pub config: Vec<String>,
}

#[derive(Args)]
pub struct ModelsArgs {
    /// Preemptions in one run at the most [default: what each model asks for, 1 to 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub preemptions: Option<u32>,
}

#[derive(Args)]
pub struct SanitizeArgs {
    /// Which one [default: both]
    #[arg(value_enum)]
    pub sanitizer: Option<Sanitizer>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sanitizer {
    /// Memory that is not the program's, and leaks
    Address,
    /// Accesses that no synchronisation orders
    Thread,
}

/// What faults are planted in.
#[derive(Clone, Copy, ValueEnum)]
pub enum MutatedLayer {
    /// The Rust core
    Core,
    /// The C++ layer, with the tests that its list names for each fault
    Shim,
}

#[derive(Args)]
pub struct MutateArgs {
    /// Where the faults are
    #[arg(long, value_enum, default_value_t = MutatedLayer::Core)]
    pub layer: MutatedLayer,

    /// Only faults with this text in their file or description; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,

    /// Faults that are tried at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    pub jobs: u8,
}

#[derive(Args)]
pub struct PluginArgs {
    #[command(flatten)]
    pub interpreter: Interpreter,
}

#[derive(Args)]
pub struct PackageArgs {
    /// Versions of torch and torch-npu to carry libraries for: `--torch 2.13.0,2.14.0`
    #[arg(
        long,
        value_name = "VERSION",
        value_delimiter = ',',
        default_values = crate::package::VERSIONS,
        value_parser = torch_version
    )]
    pub torch: Vec<String>,
}

#[derive(Args)]
pub struct RunArgs {
    /// Which allocator serves the script's device memory
    #[arg(long, value_enum, default_value_t = Allocator::Npualloc)]
    pub allocator: Allocator,

    /// Memory of each simulated device, as 61.5GiB or in bytes [default: 64 GiB]
    #[arg(long, value_name = "SIZE", value_parser = capacity)]
    pub capacity: Option<u64>,

    /// Back simulated device memory with real pages, so that copies keep data
    #[arg(long)]
    pub backed: bool,

    #[command(flatten)]
    pub interpreter: Interpreter,

    /// Script and its arguments
    #[arg(last = true, required = true, value_name = "SCRIPT")]
    pub script: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Allocator {
    /// The one inside the torch_npu wheel
    Stock,
    /// npualloc, loaded as a plug-in
    Npualloc,
}

/// Bytes, at least one.
fn capacity(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a device without memory".into()),
        bytes => Ok(bytes),
    }
}

fn torch_version(text: &str) -> std::result::Result<String, String> {
    let plain = text.split('.').count() == 3
        && text
            .split('.')
            .all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if !plain {
        return Err("expected a version like 2.14.0".into());
    }
    let mut parts = text
        .split('.')
        .map(|n| n.parse::<u32>().unwrap_or(u32::MAX));
    if (parts.next(), parts.next()) < (Some(2), Some(13)) {
        return Err("torch and torch-npu must be 2.13 or later".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
