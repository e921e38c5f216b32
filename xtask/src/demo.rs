//! `cargo xtask demo`: the same training run with either allocator.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use crate::apt;
use crate::cli::{Allocator, DemoArgs};
use crate::counts::Counts;
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::plugin::{CMakeTree, Plugin};
use crate::process::{self, say};
use crate::python::Python;
use crate::report::{Figures, Report};
use crate::run;
use crate::surroundings;

/// Memory of the simulated device, that of an Ascend 910B.
const CAPACITY: u64 = 64 << 30;

pub fn main(arguments: &DemoArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let python = Python::managed(&project, &arguments.torch)?;
    let device = Device::find(&project)?;
    let plugin = Plugin::build(&project, &python)?;
    let output = project.target.join("demo");
    fs::create_dir_all(&output).with_context(|| format!("create {}", output.display()))?;

    let demo = Demo {
        project,
        python,
        device,
        plugin,
        output,
        steps: arguments.steps,
    };
    let stock = demo.run(Allocator::Stock)?;
    let npualloc = demo.run(Allocator::Npualloc)?;

    println!("Device: {}", demo.device.name());
    println!(
        "\ntorch.npu.memory_summary() with npualloc:\n{}",
        npualloc.summary
    );
    println!("\ntorch.accelerator.memory_stats() with npualloc:");
    for (key, value) in &npualloc.stats {
        println!("  {key}: {value}");
    }
    let report = Report {
        stock: stock.figures,
        npualloc: npualloc.figures,
    };
    let path = demo.output.join("report.json");
    report.write(&path)?;
    println!("\n{}", report.table());
    if let Device::Simulated(_) = demo.device {
        println!(
            "The simulated device computes nothing: losses are what its memory holds, and equal \
             losses and steps show only that both runs took the same course."
        );
    }
    println!("Figures: {}", path.display());
    let failures = report.failures();
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if failures.is_empty() {
        println!("OK: same steps and losses; peak allocated and peak reserved not above stock's");
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

struct Demo {
    project: Project,
    python: Python,
    device: Device,
    plugin: Plugin,
    output: PathBuf,
    steps: u32,
}

/// What `demo/measure.py` writes at the end of a run.
#[derive(Deserialize)]
struct Measured {
    figures: Figures,
    summary: String,
    stats: serde_json::Map<String, serde_json::Value>,
}

impl Demo {
    fn run(&self, allocator: Allocator) -> Result<Measured> {
        let name = match allocator {
            Allocator::Stock => "stock",
            Allocator::Npualloc => "npualloc",
        };
        let root = self.project.root.join("demo");
        let figures = self.output.join(format!("{name}.json"));
        let counts = self.output.join(format!("{name}-device.json"));
        for old in [&figures, &counts] {
            if old.exists() {
                fs::remove_file(old).with_context(|| format!("remove {}", old.display()))?;
            }
        }
        let mut command = self.python.command();
        surroundings::leave_out(&mut command);
        let knobs = Knobs {
            capacity: matches!(self.device, Device::Simulated(_)).then_some(CAPACITY),
            backed: false,
            report: Some(counts.clone()),
        };
        self.device.prepare(&mut command, &knobs);
        match allocator {
            // The plug-in is loaded all the same, for its timing functions.
            Allocator::Stock => run::stock(&mut command),
            Allocator::Npualloc => {
                command.env_remove("NPUALLOC_DISABLE");
                run::autoload(
                    &mut command,
                    &self.project,
                    &self.plugin.library,
                    OsStr::new(""),
                )?
            }
        };
        command.env("PYTHONUNBUFFERED", "1");
        command.arg(root.join("measure.py"));
        command
            .arg("--timing")
            .arg(&self.plugin.library)
            .arg("--output")
            .arg(&figures);
        command
            .arg(root.join("train_gpt.py"))
            .arg("--steps")
            .arg(self.steps.to_string());

        say(&format!(
            "training for {} steps with the {name} allocator",
            self.steps
        ));
        let progress = Progress::new(name, self.steps);
        let result = process::lines_and_errors(&mut command, |line| progress.line(line));
        progress.end();
        let (success, errors) = result?;
        if !success {
            bail!(
                "the run with the {name} allocator failed:\n{}",
                errors.trim_end()
            );
        }
        let mut measured: Measured = read(&figures)?;
        if let Device::Simulated(_) = self.device {
            measured.figures.count(Counts::read(&counts)?);
        }
        Ok(measured)
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("understand {}", path.display()))
}

/// A bar on a terminal, plain lines elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(name: &str, steps: u32) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(u64::from(steps)).with_prefix(name.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{prefix:>9} [{bar:40}] {pos}/{len} {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(Some(bar))
    }

    /// Takes a line the script printed; `step 3/40 …` moves the bar.
    fn line(&self, line: &str) {
        let Some(bar) = &self.0 else {
            return process::echo(line);
        };
        match step(line) {
            Some((done, rest)) => {
                bar.set_position(done);
                bar.set_message(rest.to_owned());
            }
            None => bar.suspend(|| process::echo(line)),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish();
        }
    }
}

/// The number of a `step N/M rest` line, and the rest.
fn step(line: &str) -> Option<(u64, &str)> {
    let (number, rest) = line.strip_prefix("step ")?.split_once('/')?;
    let rest = rest
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start();
    Some((number.trim().parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn step_lines_are_told_from_others() {
        assert_eq!(step("step  3/40  loss 1.5"), Some((3, "loss 1.5")));
        assert_eq!(step("step by step"), None);
        assert_eq!(step("model: 1.0 B parameters"), None);
    }
}
