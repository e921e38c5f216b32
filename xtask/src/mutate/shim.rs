//! Faults in the C++ layer, which the tests see through torch, torch_npu and the simulated device.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::fate::{Fate, SaidByTests};
use super::{Fault, LONGER, PATIENCE, Planted, copy, side_by_side};
use crate::cli::Torch;
use crate::device::{Device, Knobs, build_simulator};
use crate::env::Project;
use crate::plugin::{CMakeTree, PLUGIN_PLACE, PROBE_PLACE, PROBE_TARGET, Tests};
use crate::process::{self, say};
use crate::python::Python;
use crate::surroundings;

/// Which fault a program has; not one of the allocator's own variables, which tests leave out.
const CHOSEN: &str = "PLANTED_FAULT";
/// Beside the copy, for each source with a fault.
const HEADER: &str = "planted.h";
const PLANTED: &str = r#"#pragma once
#include <cstdlib>
// Whether this fault was chosen.
inline bool npualloc_planted(int number) {
  static const int chosen = [] {
    const char* text = std::getenv("PLANTED_FAULT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return chosen == number;
}
"#;
/// Before the name of a C++ test: these are known by a pattern of ctest's, others by their file.
const CTEST: &str = "ctest:";

/// What stands in the place of a fault's text: a statement or a block, or an expression.
fn switch(number: usize, fault: &Fault) -> String {
    let (from, to) = (&fault.from, &fault.to);
    if from.trim_end().ends_with([';', '}']) {
        format!("if (npualloc_planted({number})) {{ {to} }} else {{ {from} }}")
    } else {
        format!("(npualloc_planted({number}) ? ({to}) : ({from}))")
    }
}

/// A copy of the whole tree, built.
pub struct Copy {
    root: PathBuf,
    python: Python,
    device: Device,
    tree: CMakeTree,
    plugin: PathBuf,
    probe: PathBuf,
    jobs: u8,
    /// Runs of ctest in one directory write the same files.
    ctest_alone: Mutex<()>,
}

impl Copy {
    pub fn make(project: &Project, faults: &[Fault], jobs: u8) -> Result<Self> {
        let root = project.target.join("mutate/shim");
        let header = project.target.join("mutate").join(HEADER);
        let include = format!("#include \"{}\"\n", header.display());
        copy::tree(project, &root, &[], |name, bytes| {
            if !faults.iter().any(|fault| fault.file == name) {
                return Ok(None);
            }
            let text =
                std::str::from_utf8(bytes).with_context(|| format!("{name} is not UTF-8"))?;
            let text = copy::plant(name, text.to_owned(), faults, switch)?;
            Ok(Some(include.clone() + &text))
        })?;
        copy::write_if_changed(&header, PLANTED.as_bytes())?;
        let copied = Project {
            root: root.clone(),
            target: project.target.join("mutate/shim-target"),
            cache: project.cache.clone(),
        };
        let python = Python::managed(project, &Torch::default())?;
        // Not that of a real device: many tests are of the simulated one.
        let device = Device::Simulated(build_simulator(project)?);
        let tree = CMakeTree::configure(&copied, &python, Tests::Build)?;
        tree.build(&["all", PROBE_TARGET])?;
        Ok(Self {
            plugin: tree.built(PLUGIN_PLACE)?,
            probe: tree.built(PROBE_PLACE)?,
            tree,
            root,
            python,
            device,
            jobs,
            ctest_alone: Mutex::new(()),
        })
    }

    /// Runs the tests of a file, or of a pattern, with a fault.
    ///
    /// # Errors
    /// When there are none, or they break down for another reason: nothing is known of the fault then.
    fn run(&self, tests: &str, fault: usize, limit: Duration) -> Result<Fate> {
        let pattern = tests.strip_prefix(CTEST);
        let _alone = pattern.map(|_| self.ctest_alone.lock());
        let mut command = match pattern {
            Some(pattern) => self.ctest(pattern, limit),
            None => self.pytest(tests, limit),
        };
        command
            .current_dir(&self.root)
            .env(CHOSEN, fault.to_string());
        let (mut said, mut last) = (SaidByTests::default(), String::new());
        let status = process::lines_to_end(&mut command, |line| {
            said.line(line);
            if !line.trim().is_empty() {
                line.clone_into(&mut last);
            }
        })?;
        match said.fate(status.code()) {
            Some(fate) => Ok(fate),
            None => bail!("{tests}, with fault {fault}, broke down ({status}): {last}"),
        }
    }

    fn stopped_at(limit: Duration) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &limit.as_secs().to_string()]);
        surroundings::leave_out(&mut command);
        command
    }

    fn ctest(&self, pattern: &str, limit: Duration) -> Command {
        let mut command = Self::stopped_at(limit);
        self.device.prepare(&mut command, &Knobs::default());
        command
            .args([
                "ctest",
                "--no-tests=error",
                "--tests-regex",
                pattern,
                "--test-dir",
            ])
            .arg(&self.tree.directory);
        command
    }

    fn pytest(&self, file: &str, limit: Duration) -> Command {
        let mut command = Self::stopped_at(limit);
        self.python.isolate(&mut command);
        self.device.prepare(&mut command, &Knobs::default());
        command
            .arg(&self.python.program)
            .args([
                "-m",
                "pytest",
                "-x",
                "-p",
                "no:cacheprovider",
                "-n",
                "0",
                "--plugin",
            ])
            .arg(&self.plugin)
            .arg("--probe")
            .arg(&self.probe)
            .arg(file)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

impl Planted for Copy {
    const LIST: &str = "shim.toml";

    fn check(fault: &Fault) -> Result<()> {
        ensure!(!fault.tests.is_empty(), "it names no tests");
        Ok(())
    }

    fn check_sound(&self, chosen: &[(usize, &Fault)]) -> Result<Duration> {
        say("the tests without a fault");
        let named = chosen.iter().flat_map(|(_, fault)| &fault.tests);
        let named: Vec<&String> = named.collect::<BTreeSet<_>>().into_iter().collect();
        let longest = Mutex::new(Duration::ZERO);
        side_by_side(self.jobs, &named, |tests| {
            let begin = Instant::now();
            let fate = self.run(tests, 0, PATIENCE * LONGER)?;
            ensure!(
                fate == Fate::Survived,
                "{tests} fails without a fault: {}",
                fate.text()
            );
            if let Ok(mut longest) = longest.lock() {
                *longest = longest.max(begin.elapsed());
            }
            Ok(())
        })?;
        Ok(longest.into_inner().unwrap_or_default())
    }

    fn judge(&self, number: usize, fault: &Fault, limit: Duration) -> Result<Fate> {
        for tests in &fault.tests {
            let fate = self.run(tests, number, limit)?;
            if fate != Fate::Survived {
                return Ok(fate);
            }
        }
        Ok(Fate::Survived)
    }
}
