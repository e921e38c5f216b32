//! `cargo xtask package`: the Python wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::apt;
use crate::cli::{PackageArgs, Torch};
use crate::env::Project;
use crate::plugin::{CMakeTree, Plugin};
use crate::process::{self, say};
use crate::python::Python;

/// Versions of torch and torch-npu that the wheel is for.
pub const VERSIONS: [&str; 2] = ["2.13.0", "2.14.0"];

/// The package's sources, in the repository.
const SOURCES: &str = "python";

pub fn main(arguments: &PackageArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    let wheel = build(&project, &arguments.torch)?;
    println!("{}", wheel.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the libraries for each version of torch and torch-npu and puts them into one wheel.
///
/// # Errors
/// When a version has no environment and none can be made, or a tool fails.
pub fn build(project: &Project, versions: &[String]) -> Result<PathBuf> {
    one_of_each_series(versions)?;
    apt::ensure(&CMakeTree::NEEDS)?;
    let _lock = project.lock("package")?;
    let out = project.target.join("package");
    let stage = out.join("stage");
    // Files of an earlier build must not end up in this wheel; the earlier wheel stays until there is a new one.
    let fresh = out.join("new");
    for directory in [&stage, &fresh] {
        if directory.exists() {
            fs::remove_dir_all(directory)
                .with_context(|| format!("remove {}", directory.display()))?;
        }
    }
    copy(&project.root.join(SOURCES), &stage)?;
    let mut builder = None;
    for version in versions {
        let torch = Torch {
            torch: version.clone(),
        };
        let python = Python::managed(project, &torch)?;
        let plugin = Plugin::build(project, &python)?;
        let place = stage.join("npualloc/lib").join(series(version));
        fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        for library in [&plugin.library, &plugin.pluggable] {
            let name = library.file_name().context("a library without a name")?;
            process::check(
                Command::new("strip")
                    .args(["--strip-unneeded", "-o"])
                    .args([&place.join(name), library]),
            )?;
        }
        builder = Some(python);
    }
    let builder = builder.context("no version of torch was given")?;
    say("packing the wheel");
    process::check(
        builder
            .command()
            .args([
                "-m",
                "pip",
                "--disable-pip-version-check",
                "wheel",
                "--quiet",
            ])
            .args(["--no-deps", "--no-build-isolation", "--wheel-dir"])
            .args([&fresh, &stage])
            .env("NPUALLOC_VERSION", env!("CARGO_PKG_VERSION")),
    )?;
    let wheel = only_wheel(&fresh)?;
    while let Ok(earlier) = only_wheel(&out) {
        fs::remove_file(&earlier).with_context(|| format!("remove {}", earlier.display()))?;
    }
    let place = out.join(wheel.file_name().context("a wheel without a name")?);
    fs::rename(&wheel, &place).with_context(|| format!("move {} there", wheel.display()))?;
    Ok(place)
}

/// One library serves a series: of two versions the second would take the first's place.
fn one_of_each_series(versions: &[String]) -> Result<()> {
    for (at, version) in versions.iter().enumerate() {
        let earlier = versions[..at]
            .iter()
            .find(|other| series(other) == series(version));
        if let Some(earlier) = earlier {
            bail!("torch {earlier} and {version} have one library: choose one of them");
        }
    }
    Ok(())
}

/// The part of a version for which one library serves.
fn series(version: &str) -> String {
    let parts: Vec<&str> = version.split('.').take(2).collect();
    parts.join(".")
}

fn only_wheel(directory: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry
            .with_context(|| format!("list {}", directory.display()))?
            .path();
        if path.extension().is_some_and(|end| end == "whl") {
            return Ok(path);
        }
    }
    bail!("pip built no wheel in {}", directory.display())
}

/// Copies a directory without what Python leaves in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let path = entry
            .with_context(|| format!("list {}", from.display()))?
            .path();
        let name = path.file_name().unwrap_or_default();
        if name == "__pycache__" {
            continue;
        }
        let target = to.join(name);
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{one_of_each_series, series};

    #[test]
    fn two_versions_of_a_series_are_refused() {
        let versions = |names: [&str; 2]| names.map(str::to_owned);
        assert!(one_of_each_series(&versions(["2.13.0", "2.14.0"])).is_ok());
        assert!(one_of_each_series(&versions(["2.14.0", "2.14.1"])).is_err());
    }

    #[test]
    fn one_library_serves_a_minor_version() {
        assert_eq!(series("2.14.0"), "2.14");
        assert_eq!(series("2.13.1"), "2.13");
    }
}
