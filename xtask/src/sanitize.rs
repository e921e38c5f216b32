//! `cargo xtask sanitize`: the tests of the core and of the C++ class over it under AddressSanitizer and
//! ThreadSanitizer.
//!
//! The stable toolchain has the sanitizers' runtimes, and hides the option that asks for them: it is shown to
//! whoever sets `RUSTC_BOOTSTRAP`. The standard library is not instrumented.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::apt::{self, Need};
use crate::cli::{SanitizeArgs, Sanitizer};
use crate::env::Project;
use crate::process::{self, say};
use crate::summary::Summary;

/// Only one triple is supported; naming it keeps build scripts and macros free of the instrumentation.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The C++ tests that need neither torch nor a device runtime.
const CPP_TESTS: [&str; 2] = ["allocator_test", "debug_test"];

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    fn runtime(self) -> &'static str {
        match self {
            Self::Address => "asan",
            Self::Thread => "tsan",
        }
    }

    /// Everything with `unsafe` in it; what has threads.
    fn rust_tests(self) -> &'static str {
        match self {
            Self::Address => {
                "--package npualloc --lib --test debug --test device --test hot_path --test registry \
                 --package npualloc-verify --test stress --test kept"
            }
            Self::Thread => "--package npualloc-verify --test stress",
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Self::Address => "-Zsanitizer=address",
            // The standard library is not instrumented, which rustc would refuse.
            Self::Thread => "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        }
    }

    /// For programs, and for the compilers that make them.
    fn prepare(self, project: &Project, command: &mut Command) {
        let suppressions = project.root.join("tests/sanitize/thread.txt");
        let options = format!("suppressions='{}' history_size=4", suppressions.display());
        command
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", self.flags())
            .env("TSAN_OPTIONS", options)
            .env(
                "ASAN_OPTIONS",
                "detect_leaks=1:detect_stack_use_after_return=1",
            );
    }
}

pub fn main(arguments: &SanitizeArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    apt::ensure(&[Need::Cxx, Need::CMake, Need::Ninja, Need::GTest])?;
    let chosen = match arguments.sanitizer {
        Some(sanitizer) => vec![sanitizer],
        None => vec![Sanitizer::Address, Sanitizer::Thread],
    };
    let mut summary = Summary::default();
    for sanitizer in chosen {
        find_runtime(sanitizer)?;
        rust(&project, sanitizer, &mut summary)?;
        cpp(&project, sanitizer, &mut summary)?;
    }
    print!("{}", summary.text());
    Ok(summary.code())
}

/// The toolchain's own runtime of a sanitizer must be there.
fn find_runtime(sanitizer: Sanitizer) -> Result<()> {
    let sysroot = process::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let name = format!("librustc-stable_rt.{}.a", sanitizer.runtime());
    let path = Path::new(&sysroot)
        .join("lib/rustlib")
        .join(TRIPLE)
        .join("lib")
        .join(name);
    ensure!(path.exists(), "this toolchain has no {}", path.display());
    Ok(())
}

fn rust(project: &Project, sanitizer: Sanitizer, summary: &mut Summary) -> Result<()> {
    let mut cargo = Command::new(Project::cargo());
    sanitizer.prepare(project, &mut cargo);
    cargo
        .current_dir(&project.root)
        .args(["test", "--no-fail-fast", "--target", TRIPLE])
        .env("CARGO_TARGET_DIR", project.target.join("sanitize"))
        .args(sanitizer.rust_tests().split_whitespace());
    let name = format!("cargo test, {} sanitizer", sanitizer.name());
    summary.run(&name, &mut cargo, |line| line.starts_with("test result:"))
}

fn cpp(project: &Project, sanitizer: Sanitizer, summary: &mut Summary) -> Result<()> {
    let directory = project.target.join("sanitize/cpp").join(sanitizer.name());
    say(&format!(
        "building the C++ tests in {}",
        directory.display()
    ));
    let flags = format!("-fsanitize={} -g -O1", sanitizer.name());
    let mut configure = Command::new("cmake");
    sanitizer.prepare(project, &mut configure);
    configure
        .arg("-S")
        .arg(&project.root)
        .arg("-B")
        .arg(&directory)
        .args(["-G", "Ninja", "--log-level=NOTICE"])
        .args(["-DNPUALLOC_BUILD_C10=OFF", "-DNPUALLOC_BUILD_TORCH_NPU=OFF"])
        .args(["-DNPUALLOC_INSTALL=OFF", "-DNPUALLOC_CARGO_PROFILE=dev"])
        .arg(format!("-DNPUALLOC_CARGO_TRIPLE={TRIPLE}"))
        .arg(format!("-DCMAKE_CXX_FLAGS={flags}"))
        .arg(format!(
            "-DNPUALLOC_CARGO_TARGET_DIR={}",
            project.target.join("sanitize").display()
        ));
    if sanitizer == Sanitizer::Thread {
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("create {}", directory.display()))?;
        let object = directory.join("thread.o");
        let mut compile = Command::new("cc");
        compile
            .args(["-c", "-O1", "-fno-builtin", "-o"])
            .arg(&object)
            .arg(project.root.join("tests/sanitize/thread.c"));
        process::check(&mut compile)?;
        configure.arg(format!(
            "-DCMAKE_CXX_STANDARD_LIBRARIES=\"{}\"",
            object.display()
        ));
    }
    process::check(&mut configure)?;
    let mut build = Command::new("cmake");
    sanitizer.prepare(project, &mut build);
    // The C++ half of the bridge.
    build.env("CXXFLAGS", flags);
    build
        .arg("--build")
        .arg(&directory)
        .arg("--target")
        .args(CPP_TESTS);
    process::check(&mut build)?;
    for test in CPP_TESTS {
        let mut program = Command::new(directory.join("tests/cpp").join(test));
        sanitizer.prepare(project, &mut program);
        program.env("NPUALLOC_DEFAULT_ENGINE", "fixed");
        let name = format!("{test}, {} sanitizer", sanitizer.name());
        summary
            .run(&name, &mut program, |line| line.contains("PASSED"))
            .with_context(|| format!("run {test}"))?;
    }
    Ok(())
}
