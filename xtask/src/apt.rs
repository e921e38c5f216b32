//! Programs and headers that come from the operating system.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
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
            Self::Cxx => cxx() != [DEFAULT_CXX] || in_path(DEFAULT_CXX),
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

const DEFAULT_CXX: &str = "c++";

/// The C++ compiler and the arguments that it always has.
pub fn cxx() -> Vec<OsString> {
    compiler(&env::var_os("CXX").unwrap_or_default())
}

/// As CMake and the cc crate read `CXX`: nothing in it is as if it was not set, and it may have arguments.
fn compiler(named: &OsStr) -> Vec<OsString> {
    if Path::new(named).is_file() {
        return vec![named.to_owned()];
    }
    let words: Vec<OsString> = named
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    if words.is_empty() {
        vec![DEFAULT_CXX.into()]
    } else {
        words
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_may_have_arguments_or_be_left_empty() {
        let read = |named: &str| compiler(OsStr::new(named));
        assert_eq!(read(""), ["c++"]);
        assert_eq!(read(" "), ["c++"]);
        assert_eq!(read("clang++"), ["clang++"]);
        assert_eq!(read("ccache  g++ -m64"), ["ccache", "g++", "-m64"]);
        let directory = env::temp_dir().join(format!("npualloc cxx {}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let program = directory.join("g++");
        fs::write(&program, "").unwrap();
        assert_eq!(compiler(program.as_os_str()), [program.as_os_str()]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
