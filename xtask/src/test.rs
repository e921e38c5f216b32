//! `cargo xtask test`: runs the suites, shows their output on standard error
//! and what each came to on standard output.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context, Result};

use crate::apt::{self, Need};
use crate::bench::replay;
use crate::cli::{Suite, TestArgs, Torch};
use crate::deny;
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::package;
use crate::plugin::{CMakeTree, PROBE_TARGET, Plugin, Tests, build_probe};
use crate::process;
use crate::python::Python;
use crate::sources;
use crate::summary::Summary;
use crate::surroundings;

mod rust;

/// How pytest runs tests side by side, each worker on one core; with it comes what a
/// worker takes at a time. It may keep processes of up to 3 GB to fork from.
const SIDE_BY_SIDE: [&str; 5] = ["-n", "auto", "--maxprocesses", "4", "--dist"];

pub fn main(arguments: &TestArgs) -> Result<ExitCode> {
    arguments.check()?;
    let project = Project::locate()?;
    let suites = match arguments.suite {
        Some(suite) => vec![suite],
        None => vec![Suite::Rust, Suite::Cpp, Suite::Python],
    };
    let mut summary = Summary::default();
    for suite in suites {
        let name = match suite {
            Suite::Rust => "rust",
            Suite::Cpp => "cpp",
            Suite::Python => "python",
            Suite::Docs => "docs",
        };
        let result = match suite {
            Suite::Rust => rust::test(&project, &arguments.rest, &mut summary),
            Suite::Cpp => each_torch(arguments, |torch| {
                cpp(&project, torch, arguments, &mut summary)
            }),
            Suite::Python => each_torch(arguments, |torch| {
                python(&project, torch, arguments, &mut summary)
            })
            .and_then(|()| wheel(&project, arguments, arguments.versions(), &mut summary))
            .and_then(|()| documents(&project, arguments, false, &mut summary)),
            Suite::Docs => {
                let versions = package::VERSIONS.map(str::to_owned).into();
                wheel(&project, arguments, versions, &mut summary)
                    .and_then(|()| documents(&project, arguments, true, &mut summary))
            }
        };
        // One suite's failure to build does not keep the others from running.
        if let Err(error) = result {
            process::echo(&format!("error: {error:#}"));
            summary.add(name, false, vec![format!("could not run: {error:#}")]);
        }
    }
    print!("{}", summary.text());
    Ok(summary.code())
}

/// `cargo xtask deny`.
pub fn deny_main() -> Result<ExitCode> {
    let mut summary = Summary::default();
    let project = Project::locate()?;
    let program = deny::find(&project)?;
    rust::dependencies(&project, &program, &mut summary)?;
    print!("{}", summary.text());
    Ok(summary.code())
}

/// Runs a suite with each version that was asked for.
fn each_torch(arguments: &TestArgs, mut run: impl FnMut(&Torch) -> Result<()>) -> Result<()> {
    arguments.versions().into_iter().try_for_each(|version| {
        let torch = Torch { torch: version };
        run(&torch).with_context(|| format!("with torch {}", torch.torch))
    })
}

fn cpp(
    project: &Project,
    torch: &Torch,
    arguments: &TestArgs,
    summary: &mut Summary,
) -> Result<()> {
    // Told before the environment of some gigabytes is made.
    apt::ensure(&[
        Need::Cxx,
        Need::CMake,
        Need::Ninja,
        Need::GTest,
        Need::ClangFormat,
        Need::PkgConfig,
    ])?;
    let python = Python::managed(project, torch)?;
    let device = Device::find(project)?;
    let sources = sources::cpp(project)?;
    let mut format = Command::new("clang-format");
    format
        .current_dir(&project.root)
        .args(["--dry-run", "-Werror"])
        .args(sources);
    summary.run("clang-format", &mut format, |_| false)?;
    header_comments(project, summary)?;

    let tree = CMakeTree::configure(project, &python, Tests::Build)?;
    // What the Python tests need as well is built side by side with the rest, not alone afterwards.
    let everything = ["all", PROBE_TARGET, replay::TARGET];
    tree.build(if arguments.suite.is_none() {
        &everything
    } else {
        &[]
    })?;
    // Each of the projects that are built with npualloc keeps one processor busy for a time.
    let side_by_side = thread::available_parallelism().map_or(1, usize::from);
    let mut ctest = Command::new("ctest");
    surroundings::leave_out(&mut ctest);
    device.prepare(&mut ctest, &Knobs::default());
    ctest
        .arg("--test-dir")
        .arg(&tree.directory)
        .args(["--output-on-failure", "--no-tests=error"])
        .args(["--parallel", &side_by_side.to_string()]);
    ctest.args(&arguments.rest);
    summary.run(
        &format!("ctest, torch {}", python.torch),
        &mut ctest,
        |line| line.contains("tests passed") || line.contains("(Skipped)"),
    )
}

const DIFFERENTIAL: &str = "tests/differential";

/// The files and directories of tests that arguments for pytest name: no others are to run.
fn named(root: &Path, rest: &[OsString]) -> Vec<String> {
    let path = |argument: &OsString| {
        let file = argument.to_str()?.split("::").next()?;
        (file.starts_with("tests/") && root.join(file).exists()).then(|| file.to_owned())
    };
    rest.iter().filter_map(path).collect()
}

fn python(
    project: &Project,
    torch: &Torch,
    arguments: &TestArgs,
    summary: &mut Summary,
) -> Result<()> {
    apt::ensure(&CMakeTree::NEEDS)?;
    let python = Python::managed(project, torch)?;
    let device = Device::find(project)?;
    let plugin = Plugin::build(project, &python)?;
    let probe = build_probe(project, &python)?;
    let version = &python.torch;
    // Each directory has options of its own. What is forked from serves a file.
    let own = (
        format!("pytest, torch {version}"),
        "tests/python",
        "loadfile",
    );
    let both = (
        format!("pytest, differential, torch {version}"),
        DIFFERENTIAL,
        "load",
    );
    let named = named(&project.root, &arguments.rest);
    let suites = if arguments.rest.is_empty() {
        vec![own, both]
    } else if named.iter().any(|file| file.starts_with(DIFFERENTIAL)) {
        vec![both]
    } else {
        vec![own]
    };
    for (name, directory, at_a_time) in suites {
        let mut pytest = python.command();
        surroundings::leave_out(&mut pytest);
        device.prepare(&mut pytest, &Knobs::default());
        pytest
            .current_dir(&project.root)
            .args(["-m", "pytest", "-ra", "-p", "no:cacheprovider"])
            .args(named.is_empty().then_some(directory))
            .arg("--plugin")
            .arg(&plugin.library)
            .args(SIDE_BY_SIDE)
            .arg(at_a_time)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if directory == "tests/python" {
            pytest.arg("--probe").arg(&probe);
        }
        // Last, so that they may say otherwise.
        pytest.args(&arguments.rest);
        summary.run(&name, &mut pytest, is_pytest_result)?;
    }
    if arguments.rest.is_empty() {
        let (closing, mut lines) = replay::check::check(project, &python)?;
        let success = lines.is_empty();
        lines.push(closing);
        summary.add(&format!("bench replay, torch {version}"), success, lines);
    }
    Ok(())
}

/// The wheel, with libraries for some versions of torch, in environments with each of them.
fn wheel(
    project: &Project,
    arguments: &TestArgs,
    versions: Vec<String>,
    summary: &mut Summary,
) -> Result<()> {
    if !arguments.rest.is_empty() {
        return Ok(());
    }
    let device = Device::find(project)?;
    let wheel = package::build(project, &versions)?;
    for version in versions {
        let name = format!("pytest, package, torch {version}");
        let python = Python::managed(project, &Torch { torch: version })?;
        let mut pytest = python.command();
        surroundings::leave_out(&mut pytest);
        device.prepare(&mut pytest, &Knobs::default());
        pytest
            .current_dir(&project.root)
            .args(["-m", "pytest", "-ra", "-p", "no:cacheprovider"])
            .args(["tests/package", "--wheel"])
            .arg(&wheel)
            .args(SIDE_BY_SIDE)
            .arg("loadfile")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        summary.run(&name, &mut pytest, is_pytest_result)?;
    }
    Ok(())
}

/// The commands of the documents: of all pages, or of those that need nothing built.
fn documents(
    project: &Project,
    arguments: &TestArgs,
    all: bool,
    summary: &mut Summary,
) -> Result<()> {
    if !all && !arguments.rest.is_empty() {
        return Ok(());
    }
    let python = Python::managed(project, &Torch::default())?;
    let Device::Simulated(sim) = Device::find(project)? else {
        let reason = "the documents' commands are for a machine without an NPU";
        summary.skip("documents", reason.to_owned());
        return Ok(());
    };
    let own = env::current_exe().context("find this program")?;
    let named = named(&project.root, &arguments.rest);
    let mut pytest = python.command();
    surroundings::leave_out(&mut pytest);
    let directory = sim.lib_dir.clone();
    Device::Simulated(sim).prepare(&mut pytest, &Knobs::default());
    pytest
        .current_dir(&project.root)
        .args(["-m", "pytest", "-ra", "-p", "no:cacheprovider"])
        .args(named.is_empty().then_some("tests/docs"))
        .arg("--xtask")
        .arg(own)
        .arg("--sim")
        .arg(directory)
        .args(all.then_some("--every-page"))
        .args(&arguments.rest)
        .env("CARGO", Project::cargo())
        .env("CARGO_TARGET_DIR", &project.target)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    summary.run("documents", &mut pytest, |line| {
        is_pytest_result(line) || line.starts_with("SKIPPED")
    })
}

fn is_pytest_result(line: &str) -> bool {
    line.starts_with("==") && line.contains(" in ") && line.trim_end().ends_with("==")
}

/// Every public declaration of the C++ headers has a comment that doxygen understands.
fn header_comments(project: &Project, summary: &mut Summary) -> Result<()> {
    const NAME: &str = "doxygen";
    if let Err(reason) = apt::ensure(&[Need::Doxygen]) {
        summary.skip(NAME, reason.to_string());
        return Ok(());
    }
    let out = project.target.join("doxygen");
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let settings = project.root.join("docs/Doxyfile");
    let mut doxygen = Command::new("sh");
    // A setting given later wins.
    doxygen
        .current_dir(&project.root)
        .args([
            "-c",
            r#"(cat "$0"; echo "OUTPUT_DIRECTORY = $1") | doxygen -"#,
        ])
        .args([&settings, &out]);
    summary.run(NAME, &mut doxygen, |line| line.contains("error:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_tests_is_told_from_options() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = |given: &[&str]| {
            let rest: Vec<OsString> = given.iter().map(OsString::from).collect();
            named(&root, &rest)
        };
        assert_eq!(found(&["-k", "streams", "--subject", "stock"]), [""; 0]);
        assert_eq!(found(&["tests/python/no_such.py"]), [""; 0]);
        let file = "tests/python/test_streams.py";
        assert_eq!(found(&["-x", &format!("{file}::test_it")]), [file]);
    }
}
