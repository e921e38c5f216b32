//! Programs and headers that come from the operating system.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// Something a command needs from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Cxx,
    CMake,
    Ninja,
    GTest,
    ClangFormat,
    Valgrind,
    Chromium,
    Doxygen,
    PkgConfig,
}

impl Need {
    /// Debian packages that provide it.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Cxx => &["g++"],
            Self::CMake => &["cmake"],
            Self::Ninja => &["ninja-build"],
            Self::GTest => &["libgtest-dev", "libgmock-dev"],
            Self::ClangFormat => &["clang-format"],
            Self::Valgrind => &["valgrind"],
            Self::Chromium => &["chromium"],
            Self::Doxygen => &["doxygen"],
            Self::PkgConfig => &["pkg-config"],
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Cxx => "a C++ compiler (c++)",
            Self::CMake => "cmake",
            Self::Ninja => "ninja",
            Self::GTest => "GoogleTest's headers and libraries",
            Self::ClangFormat => "clang-format",
            Self::Valgrind => "valgrind",
            Self::Chromium => "chromium",
            Self::Doxygen => "doxygen",
            Self::PkgConfig => "pkg-config",
        }
    }

    fn present(self) -> bool {
        match self {
            Self::Cxx => env::var_os("CXX").is_some() || in_path("c++"),
            Self::CMake => in_path("cmake"),
            Self::Ninja => in_path("ninja"),
            Self::GTest => {
                let roots = ["/usr/include", "/usr/local/include"];
                roots.iter().any(|root| {
                    Path::new(root).join("gtest/gtest.h").exists()
                        && Path::new(root).join("gmock/gmock.h").exists()
                })
            }
            Self::ClangFormat => in_path("clang-format"),
            Self::Valgrind => in_path("valgrind"),
            Self::Chromium => in_path("chromium"),
            Self::Doxygen => in_path("doxygen"),
            Self::PkgConfig => in_path("pkg-config"),
        }
    }
}

/// Makes sure that all `needs` are there, installing Debian packages when
/// running as root.
///
/// # Errors
/// Names what is missing and the command that installs it when not root or not
/// on a Debian system; or that an installation failed.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<Need> = needs
        .iter()
        .copied()
        .filter(|need| !need.present())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|need| need.packages())
        .copied()
        .collect();
    let what: Vec<&str> = missing.iter().map(|need| need.what()).collect();
    install(&packages, &what.join(", "))?;
    let still: Vec<&str> = missing
        .iter()
        .filter(|need| !need.present())
        .map(|need| need.what())
        .collect();
    if !still.is_empty() {
        bail!(
            "still missing after installing {}: {}",
            packages.join(" "),
            still.join(", ")
        );
    }
    Ok(())
}

/// Installs Debian packages, which provide `what`.
///
/// # Errors
/// As [`ensure`].
pub fn install(packages: &[&str], what: &str) -> Result<()> {
    let list = packages.join(" ");
    if !in_path("apt-get") {
        bail!("missing: {what}. Install it with your system's package manager (Debian: {list})");
    }
    if !is_root() {
        bail!("missing: {what}. Run as root: apt-get install {list}");
    }
    process::say(&format!("installing {list} with apt-get"));
    process::check(apt_get().args(["-qq", "update"]))?;
    process::check(
        apt_get()
            .args(["-qq", "install", "--yes", "--no-install-recommends"])
            .args(packages),
    )
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Another installation, such as the system's own upgrades, is waited for: seconds.
        .args(["-o", "DPkg::Lock::Timeout=600"]);
    command
}

/// Whether a program of that name is in `PATH`.
pub fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether this process runs with the effective user id 0.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}
