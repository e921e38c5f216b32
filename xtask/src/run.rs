//! `cargo xtask run`: any Python script on the device of this machine.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::apt::{self, Need};
use crate::cli::{Allocator, RunArgs};
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::plugin::{CMakeTree, Plugin};
use crate::process;
use crate::python::Python;

pub fn main(arguments: &RunArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    match arguments.allocator {
        Allocator::Npualloc => apt::ensure(&CMakeTree::NEEDS)?,
        Allocator::Stock => apt::ensure(&[Need::Cxx])?,
    }
    let python = Python::find(&project, &arguments.interpreter)?;
    let device = Device::find(&project)?;
    let mut command = python.command();
    // The script is the user's own, and so is where it finds its modules.
    let own = env::var_os("PYTHONPATH").unwrap_or_default();
    if !own.is_empty() {
        command.env("PYTHONPATH", &own);
    }
    let knobs = Knobs {
        capacity: arguments.capacity,
        backed: arguments.backed,
        ..Knobs::default()
    };
    device.prepare(&mut command, &knobs);
    match arguments.allocator {
        Allocator::Npualloc => {
            let library = Plugin::build(&project, &python)?.library;
            command.env_remove("NPUALLOC_DISABLE");
            autoload(&mut command, &project, &library, &own)?;
        }
        Allocator::Stock => {
            stock(&mut command);
        }
    }
    command.args(&arguments.script);
    let status = command
        .status()
        .with_context(|| format!("start {}", process::display(&command)))?;
    // As shells have it: one that a signal ended has 128 and the signal's number.
    let code = status.code().unwrap_or_else(|| {
        let signal = status.signal().unwrap_or_default();
        process::say(&format!("the script was ended by signal {signal}"));
        128 + signal
    });
    Ok(ExitCode::from(code.clamp(0, 255) as u8))
}

/// Keeps the stock allocator, also where npualloc's wheel is installed, which `import torch` would load.
pub fn stock(command: &mut Command) -> &mut Command {
    command
        .env("NPUALLOC_DISABLE", "1")
        .env_remove("NPUALLOC_PLUGIN")
}

/// Makes every process of the command load the plug-in once it has imported
/// torch_npu; see `xtask/python/autoload/sitecustomize.py`. The directories of `own`, a `PYTHONPATH`, come after.
///
/// # Errors
/// When the path of this project holds a colon.
pub fn autoload<'a>(
    command: &'a mut Command,
    project: &Project,
    plugin: &Path,
    own: &OsStr,
) -> Result<&'a mut Command> {
    let ours = project.root.join("xtask/python/autoload");
    let rest = env::split_paths(own).filter(|path| !path.as_os_str().is_empty());
    let path = env::join_paths(std::iter::once(ours).chain(rest)).context("extend PYTHONPATH")?;
    Ok(command
        .env("PYTHONPATH", path)
        .env("NPUALLOC_PLUGIN", plugin))
}
