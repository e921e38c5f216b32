//! `cargo xtask bench hot`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::cli::Interpreter;

#[derive(Args)]
pub struct HotArgs {
    /// Run only the cases whose name contains TEXT; may be given several times
    #[arg(long = "case", value_name = "TEXT")]
    pub cases: Vec<String>,

    /// Fewer and shorter rounds: shows that it works, not how fast it is
    #[arg(long)]
    pub quick: bool,

    /// Traces to replay, plain or gzip'ed; may be given several times
    #[arg(long = "trace", value_name = "FILE", num_args = 1..)]
    pub traces: Vec<PathBuf>,

    #[command(flatten)]
    pub interpreter: Interpreter,
}

pub fn main(_arguments: &HotArgs) -> Result<ExitCode> {
    bail!("the benchmark program is not part of this tree yet")
}
