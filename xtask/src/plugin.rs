//! `cargo xtask plugin`, and the CMake project for everything that needs it.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
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
/// What CMake calls the library of [`build_probe`].
pub const PROBE_TARGET: &str = "npualloc_probe";
/// Where CMake puts the plug-in and that library.
pub const PLUGIN_PLACE: &str = "cpp/torch_npu/libnpualloc_torch_npu.so";
pub const PROBE_PLACE: &str = "tests/probe/libnpualloc_probe.so";

pub fn main(arguments: &PluginArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&CMakeTree::NEEDS)?;
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
            library: tree.built(PLUGIN_PLACE)?,
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
    tree.built(PROBE_PLACE)
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
    /// Held as long as it is in use: two commands would reconfigure it for each other.
    _lock: File,
}

impl CMakeTree {
    /// To be there before anything else that takes long is begun, so that what is missing is told at once.
    pub const NEEDS: [Need; 3] = [Need::Cxx, Need::CMake, Need::Ninja];

    /// Configures the project for that Python.
    ///
    /// # Errors
    /// When a tool is missing or CMake fails.
    pub fn configure(project: &Project, python: &Python, tests: Tests) -> Result<Self> {
        apt::ensure(&Self::NEEDS)?;
        if tests == Tests::Build {
            apt::ensure(&[Need::GTest])?;
        }
        let build_tests = if tests == Tests::Build { "ON" } else { "OFF" };
        let name = directory_name(project, python);
        let directory = project.target.join(&name);
        let lock = project.lock(&name)?;
        say(&format!(
            "configuring with CMake in {}",
            directory.display()
        ));
        let mut cmake = Command::new("cmake");
        // It asks that Python where torch is.
        python.isolate(&mut cmake);
        let cache = fs::read_to_string(directory.join("CMakeCache.txt")).unwrap_or_default();
        if is_of_elsewhere(&cache, &project.root, &directory) {
            say("the build directory is of another place: beginning anew");
            cmake.arg("--fresh");
        }
        process::check(
            cmake
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
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// A library that was built.
    ///
    /// # Errors
    /// When it is not there.
    pub fn built(&self, place: &str) -> Result<PathBuf> {
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
/// own, since two of them may hold different builds of one version. So do source
/// trees that share a target directory.
fn directory_name(project: &Project, python: &Python) -> String {
    let mut name = format!("cmake-{}", python.torch);
    let shared = !project.target.starts_with(&project.root);
    let parts = [
        (!python.managed).then_some(&python.program),
        shared.then_some(&project.root),
    ];
    for part in parts.into_iter().flatten() {
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        name += &format!("-{:08x}", hasher.finish() as u32);
    }
    name
}

/// Whether CMake's cache was made for another source tree, or in another directory: it refuses to go on then.
fn is_of_elsewhere(cache: &str, source: &Path, directory: &Path) -> bool {
    let moved = |key: &str, now: &Path| {
        let mut lines = cache.lines();
        let old = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(":INTERNAL="));
        old.is_some_and(|old| Path::new(old) != now)
    };
    moved("CMAKE_HOME_DIRECTORY", source) || moved("CMAKE_CACHEFILE_DIR", directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_of_another_place_is_known() {
        let cache = "# text\nCMAKE_CACHEFILE_DIR:INTERNAL=/a/target/cmake\nCMAKE_HOME_DIRECTORY:INTERNAL=/a\n";
        let of = |source: &str, directory: &str| {
            is_of_elsewhere(cache, Path::new(source), Path::new(directory))
        };
        assert!(!of("/a", "/a/target/cmake"));
        assert!(of("/b", "/a/target/cmake"));
        assert!(of("/a", "/b/target/cmake"));
        assert!(!is_of_elsewhere(
            "",
            Path::new("/a"),
            Path::new("/a/target/cmake")
        ));
    }

    #[test]
    fn source_trees_that_share_a_target_directory_build_apart() {
        let name = |root: &str, target: &str| {
            let project = Project {
                root: root.into(),
                target: target.into(),
                cache: "/cache".into(),
            };
            let python = Python {
                program: "/cache/bin/python".into(),
                torch: "2.14.0".into(),
                managed: true,
            };
            directory_name(&project, &python)
        };
        assert_eq!(name("/a", "/a/target"), "cmake-2.14.0");
        assert_ne!(name("/a", "/shared"), name("/b", "/shared"));
    }
}
