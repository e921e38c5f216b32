//! `cargo xtask test`: runs the suites, shows their output on standard error
//! and what each came to on standard output.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::apt::{self, Need};
use crate::bench::{counts, replay};
use crate::cli::{Suite, TestArgs, Torch};
use crate::deny::{self, Verdict};
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::fuzz;
use crate::models;
use crate::package;
use crate::plugin::{CMakeTree, Plugin, Tests, build_probe};
use crate::process;
use crate::python::Python;
use crate::sources;
use crate::summary::Summary;

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
            Suite::Rust => rust(&project, &arguments.rest, &mut summary),
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
    dependencies(&Project::locate()?, &mut summary)?;
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

fn rust(project: &Project, rest: &[OsString], summary: &mut Summary) -> Result<()> {
    // cxx-build compiles C++.
    apt::ensure(&[Need::Cxx])?;
    if let Err(reason) = apt::ensure(&[Need::Chromium]) {
        let skipped = vec![format!("skipped: {reason}")];
        summary.add("reports in a browser", true, skipped);
    }
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(Project::cargo());
        command.current_dir(&project.root).args(arguments);
        command
    };
    summary.run("rustfmt", &mut cargo(&["fmt", "--all", "--check"]), |_| {
        false
    })?;
    // Workspaces of their own.
    for member in ["fuzz", "models"] {
        let manifest = format!("{member}/Cargo.toml");
        let mut format = cargo(&["fmt", "--manifest-path", &manifest, "--check"]);
        summary.run(&format!("rustfmt, {member}"), &mut format, |_| false)?;
    }
    let lint = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    summary.run("clippy", &mut cargo(&lint), |_| false)?;
    summary.run("clippy, fuzz", &mut fuzz::lint(project), |_| false)?;
    summary.run("clippy, models", &mut models::lint(project), |_| false)?;
    // Libraries only: the command-line tool has the core's name.
    let mut docs = cargo(&["doc", "--workspace", "--lib", "--no-deps", "--quiet"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    summary.run("cargo doc", &mut docs, |_| false)?;
    if rest.is_empty() {
        instruction_counts(project, summary)?;
        dependencies(project, summary)?;
    }
    if apt::in_path("cargo-nextest") {
        let mut tests = cargo(&["nextest", "run", "--workspace"]);
        tests.args(rest);
        summary.run("cargo nextest", &mut tests, |line| {
            line.contains("tests run:")
        })?;
        let mut docs = cargo(&["test", "--workspace", "--doc"]);
        summary.run("cargo test --doc", &mut docs, is_cargo_result)?;
    } else {
        let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
        tests.args(rest);
        summary.run("cargo test", &mut tests, is_cargo_result)?;
    }
    if rest.is_empty() {
        let (lines, success) = models::run(project, None)?;
        summary.add("models", success, lines);
        let (lines, success) = fuzz::short(project)?;
        summary.add("fuzzing, 3 s each", success, lines);
    }
    Ok(())
}

/// Instructions of the hot path against what is expected of it.
fn instruction_counts(project: &Project, summary: &mut Summary) -> Result<()> {
    const NAME: &str = "callgrind counts";
    if let Err(reason) = apt::ensure(&[Need::Valgrind]) {
        summary.add(NAME, true, vec![format!("skipped: {reason}")]);
        return Ok(());
    }
    let (closing, mut failures) = counts::check(project)?;
    let success = failures.is_empty();
    failures.push(closing);
    summary.add(NAME, success, failures);
    Ok(())
}

/// What the crates used are allowed to be.
fn dependencies(project: &Project, summary: &mut Summary) -> Result<()> {
    const POLICY: &str = "cargo deny";
    let program = match deny::find(project) {
        Ok(program) => program,
        Err(error) => {
            summary.add(POLICY, true, vec![format!("skipped: {error:#}")]);
            return Ok(());
        }
    };
    for workspace in &deny::WORKSPACES {
        let policy = deny::policy(project, &program, workspace)?;
        let advisories = deny::advisories(project, &program, workspace)?;
        for (name, verdict) in [(POLICY, policy), ("cargo deny, advisories", advisories)] {
            let name = workspace.named(name);
            match verdict {
                Verdict::Ok(text) | Verdict::Skipped(text) => {
                    summary.add(&name, true, vec![text]);
                }
                Verdict::Failed(lines) => summary.add(&name, false, lines),
            }
        }
    }
    Ok(())
}

fn is_cargo_result(line: &str) -> bool {
    line.starts_with("test result:")
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
    tree.build(&[])?;
    let mut ctest = Command::new("ctest");
    device.prepare(&mut ctest, &Knobs::default());
    ctest
        .arg("--test-dir")
        .arg(&tree.directory)
        .args(["--output-on-failure", "--no-tests=error"]);
    ctest.args(&arguments.rest);
    summary.run(
        &format!("ctest, torch {}", python.torch),
        &mut ctest,
        |line| line.contains("tests passed") || line.contains("(Skipped)"),
    )
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
    // Two runs: each directory has options of its own. What is forked from serves a file.
    let mut suites = vec![(
        format!("pytest, torch {version}"),
        "tests/python",
        "loadfile",
    )];
    if arguments.rest.is_empty() {
        suites.push((
            format!("pytest, differential, torch {version}"),
            "tests/differential",
            "load",
        ));
    }
    for (name, directory, at_a_time) in suites {
        let mut pytest = python.command();
        device.prepare(&mut pytest, &Knobs::default());
        pytest
            .current_dir(&project.root)
            .args(["-m", "pytest", "-ra", "-p", "no:cacheprovider"])
            .args([directory, "--plugin"])
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
    if !arguments.rest.is_empty() {
        return Ok(());
    }
    let python = Python::managed(project, &Torch::default())?;
    let Device::Simulated(sim) = Device::find(project)? else {
        let reason = "skipped: the documents' commands are for a machine without an NPU";
        summary.add("documents", true, vec![reason.to_owned()]);
        return Ok(());
    };
    let own = env::current_exe().context("find this program")?;
    let mut pytest = python.command();
    let directory = sim.lib_dir.clone();
    Device::Simulated(sim).prepare(&mut pytest, &Knobs::default());
    pytest
        .current_dir(&project.root)
        .args(["-m", "pytest", "-ra", "-p", "no:cacheprovider"])
        .args(["tests/docs", "--xtask"])
        .arg(own)
        .arg("--sim")
        .arg(directory)
        .args(all.then_some("--every-page"))
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
        summary.add(NAME, true, vec![format!("skipped: {reason}")]);
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
