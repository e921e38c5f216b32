//! `cargo xtask plugin`, and the CMake project for everything that needs it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::apt::{self, Need};
use crate::cli::PluginArgs;
use crate::env::Project;
use crate::process::{self, say};
use crate::python::Python;

const TARGET: &str = "npualloc_torch_npu";
/// The library for `NPUPluggableAllocator`, built beside it.
const PLUGGABLE: &str = "npualloc_pluggable";
const PROBE_TARGET: &str = "npualloc_probe";

pub fn main(arguments: &PluginArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    let python = Python::find(&project, &arguments.interpreter)?;
    let plugin = Plugin::build(&project, &python)?;
    println!("{}", plugin.library.display());
    Ok(ExitCode::SUCCESS)
}

/// The built plug-in.
pub struct Plugin {
    /// `libnpualloc_torch_npu.so`.
    pub library: PathBuf,
    /// `libnpualloc_pluggable.so`, for `NPUPluggableAllocator`.
    pub pluggable: PathBuf,
}

impl Plugin {
    /// Builds the plug-in for that Python's torch and torch_npu.
    ///
    /// # Errors
    /// When a tool is missing, or CMake or a compiler fails.
    pub fn build(project: &Project, python: &Python) -> Result<Self> {
        let tree = CMakeTree::configure(project, python, Tests::Leave)?;
        tree.build(&[TARGET, PLUGGABLE])?;
        Ok(Self {
            library: tree.built("cpp/torch_npu/libnpualloc_torch_npu.so")?,
            pluggable: tree.built("cpp/torch_npu/pluggable/libnpualloc_pluggable.so")?,
        })
    }
}

/// Builds `libnpualloc_probe.so`, which the Python tests call the allocator's methods with.
///
/// # Errors
/// As for [`Plugin::build`].
pub fn build_probe(project: &Project, python: &Python) -> Result<PathBuf> {
    let tree = CMakeTree::configure(project, python, Tests::Leave)?;
    tree.build(&[PROBE_TARGET])?;
    tree.built("tests/probe/libnpualloc_probe.so")
}

/// Whether the GoogleTest suites are part of a build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tests {
    /// They are built; GoogleTest must be there.
    Build,
    /// They are left out.
    Leave,
}

/// A configured CMake build directory.
pub struct CMakeTree {
    /// The build directory.
    pub directory: PathBuf,
}

impl CMakeTree {
    /// Configures the project for that Python.
    ///
    /// # Errors
    /// When a tool is missing or CMake fails.
    pub fn configure(project: &Project, python: &Python, tests: Tests) -> Result<Self> {
        apt::ensure(&[Need::Cxx, Need::CMake, Need::Ninja])?;
        if tests == Tests::Build {
            apt::ensure(&[Need::GTest])?;
        }
        let build_tests = if tests == Tests::Build { "ON" } else { "OFF" };
        let directory = project.target.join(directory_name(python));
        say(&format!(
            "configuring with CMake in {}",
            directory.display()
        ));
        process::check(
            Command::new("cmake")
                .arg("-S")
                .arg(&project.root)
                .arg("-B")
                .arg(&directory)
                .args([
                    "-G",
                    "Ninja",
                    "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    "--log-level=NOTICE",
                ])
                .arg(format!("-DNPUALLOC_PYTHON={}", python.program.display()))
                .arg(format!(
                    "-DNPUALLOC_CARGO_TARGET_DIR={}",
                    project.target.display()
                ))
                .arg("-DNPUALLOC_BUILD_TORCH_NPU=ON")
                .arg(format!("-DNPUALLOC_BUILD_FORK={build_tests}"))
                .arg(format!("-DNPUALLOC_BUILD_TESTS={build_tests}")),
        )?;
        Ok(Self { directory })
    }

    /// A library that was built.
    fn built(&self, place: &str) -> Result<PathBuf> {
        let path = self.directory.join(place);
        ensure!(path.exists(), "CMake built no {}", path.display());
        Ok(path)
    }

    /// Builds the targets, or everything when none are given.
    ///
    /// # Errors
    /// When a compiler fails.
    pub fn build(&self, targets: &[&str]) -> Result<()> {
        say(&format!(
            "building {}",
            if targets.is_empty() {
                "all".into()
            } else {
                targets.join(" ")
            }
        ));
        let mut command = Command::new("cmake");
        command.arg("--build").arg(&self.directory);
        for target in targets {
            command.args(["--target", target]);
        }
        process::check(&mut command)
    }
}

/// One build directory for each torch; other people's interpreters get their
/// own, since two of them may hold different builds of one version.
fn directory_name(python: &Python) -> String {
    if python.managed {
        return format!("cmake-{}", python.torch);
    }
    let mut hasher = DefaultHasher::new();
    python.program.hash(&mut hasher);
    format!("cmake-{}-{:08x}", python.torch, hasher.finish() as u32)
}
