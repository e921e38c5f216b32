//! `cargo xtask run`: any Python script on the device of this machine.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cli::{Allocator, RunArgs};
use crate::device::{Device, Knobs};
use crate::env::Project;
use crate::plugin::Plugin;
use crate::process;
use crate::python::Python;

pub fn main(arguments: &RunArgs) -> Result<ExitCode> {
    let project = Project::locate()?;
    let python = Python::find(&project, &arguments.interpreter)?;
    let device = Device::find(&project)?;
    let mut command = python.command();
    let knobs = Knobs {
        capacity: arguments.capacity,
        backed: arguments.backed,
        ..Knobs::default()
    };
    device.prepare(&mut command, &knobs);
    if arguments.allocator == Allocator::Npualloc {
        let library = Plugin::build(&project, &python)?.library;
        command.env_remove("NPUALLOC_DISABLE");
        autoload(&mut command, &project, &library)?;
    }
    command.args(&arguments.script);
    let status = command
        .status()
        .with_context(|| format!("start {}", process::display(&command)))?;
    // A script killed by a signal has no code.
    Ok(status.code().map_or(ExitCode::FAILURE, |code| {
        ExitCode::from(code.clamp(0, 255) as u8)
    }))
}

/// Makes every process of the command load the plug-in once it has imported
/// torch_npu; see `xtask/python/autoload/sitecustomize.py`.
///
/// # Errors
/// When the old `PYTHONPATH` holds a directory with a colon in its name.
pub fn autoload<'a>(
    command: &'a mut Command,
    project: &Project,
    plugin: &Path,
) -> Result<&'a mut Command> {
    let old = env::var_os("PYTHONPATH").unwrap_or_default();
    let ours = project.root.join("xtask/python/autoload");
    let rest = env::split_paths(&old).filter(|path| !path.as_os_str().is_empty());
    let path = env::join_paths(std::iter::once(ours).chain(rest)).context("extend PYTHONPATH")?;
    Ok(command
        .env("PYTHONPATH", path)
        .env("NPUALLOC_PLUGIN", plugin))
}
