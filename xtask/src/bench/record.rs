//! `cargo xtask bench record`: recordings of the programs in `examples/workloads`, the ones that `docs/memory.md` replays.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::apt;
use crate::cli::Interpreter;
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::plugin::{CMakeTree, Plugin};
use crate::process::{self, say};
use crate::python::Python;
use crate::run;
use crate::surroundings;

/// Each recording's name, its program and what that is told.
const RECORDINGS: [(&str, &str, &[&str]); 18] = [
    ("sharded", "sharded", &[]),
    ("sharded-long", "sharded", &["--shape", "long"]),
    ("sharded_per_parameter", "sharded_per_parameter", &[]),
    (
        "sharded_per_parameter-3b",
        "sharded_per_parameter",
        &["--shape", "3b"],
    ),
    (
        "sharded_per_parameter-recompute",
        "sharded_per_parameter",
        &["--recompute"],
    ),
    ("experts", "experts", &[]),
    ("experts-deep", "experts", &["--shape", "deep"]),
    ("policy", "policy", &[]),
    ("policy-narrow", "policy", &["--shape", "narrow"]),
    ("translation", "translation", &[]),
    ("translation-base", "translation", &["--shape", "base"]),
    ("translation-wide", "translation", &["--shape", "wide"]),
    ("translation-wider", "translation", &["--shape", "wider"]),
    ("diffusion", "diffusion", &[]),
    ("diffusion-narrow", "diffusion", &["--shape", "narrow"]),
    ("diffusion-bf16", "diffusion", &["--shape", "bf16"]),
    ("masked", "masked", &[]),
    ("graph", "graph", &[]),
];

#[derive(Args)]
pub struct RecordArgs {
    /// Which ones [default: all]
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(RECORDINGS.map(|(name, ..)| name)))]
    pub names: Vec<String>,

    /// Directory for the recordings, NAME.gz each; those of the same name are replaced [default:
    /// target/bench/recordings]
    #[arg(long, value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub interpreter: Interpreter,
}

pub fn main(arguments: &RecordArgs) -> Result<ExitCode> {
    let wanted: Vec<_> = RECORDINGS
        .into_iter()
        .filter(|(name, ..)| {
            arguments.names.is_empty() || arguments.names.iter().any(|asked| asked == name)
        })
        .collect();
    let project = Project::locate()?;
    let directory = match &arguments.output {
        Some(directory) => std::path::absolute(directory).context("where the recordings go")?,
        None => project.target.join("bench/recordings"),
    };
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let python = Python::find(&project, &arguments.interpreter)?;
    let device = Device::find(&project)?;
    let plugin = Plugin::build(&project, &python)?.library;
    for (number, (name, program, words)) in wanted.iter().enumerate() {
        say(&format!(
            "recording {name} ({} of {})",
            number + 1,
            wanted.len()
        ));
        let file = directory.join(format!("{name}.gz"));
        let script = project
            .root
            .join(format!("examples/workloads/{program}.py"));
        let mut command = python.command();
        surroundings::leave_out(&mut command);
        device.prepare(&mut command, &Knobs::default());
        run::autoload(&mut command, &project, &plugin, OsStr::new(""))?;
        command
            .env("NPUALLOC_TRACE", &file)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(script)
            .args(*words);
        record(&mut command, &file)?;
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a program that writes its recording to `file`; one that fails leaves none.
fn record(command: &mut Command, file: &Path) -> Result<()> {
    let _ = fs::remove_file(file);
    let done = process::check(command);
    if done.is_err() {
        let _ = fs::remove_file(file);
    }
    done?;
    ensure!(
        file.exists(),
        "{} wrote no recording to {}",
        process::display(command),
        file.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_recording_has_a_name_of_its_own_that_is_the_trace_s_name() {
        let names = RECORDINGS.map(|(name, ..)| name);
        assert_eq!(BTreeSet::from(names).len(), names.len());
        // A trace is called by its file's name up to the first dot.
        assert!(names.iter().all(|name| !name.contains('.')));
    }

    #[test]
    fn every_program_is_recorded() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/workloads");
        let files = fs::read_dir(place).expect("programs").flatten();
        let programs: BTreeSet<_> = files
            .map(|file| file.path())
            .filter(|path| path.extension() == Some(OsStr::new("py")))
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .filter(|name| name != "workload")
            .collect();
        let recorded = RECORDINGS.map(|(_, program, _)| program.to_owned());
        assert_eq!(BTreeSet::from(recorded), programs);
    }
}
