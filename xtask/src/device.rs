//! Which device programs run on: a real NPU when CANN and one are present,
//! otherwise the simulated runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::apt::{self, Need};
use crate::env::{Project, directory};
use crate::process;
use crate::sim;

/// Exit report of the simulated runtime, as a path in this variable.
const REPORT: &str = "CANN_SIM_REPORT";

/// The device of this machine.
pub enum Device {
    /// CANN in this directory, and an NPU. On x86-64 PyPI's torch is a CUDA
    /// build, next to which torch_npu imports only with the simulator's
    /// preloaded library.
    Real(PathBuf, Option<sim::SimDir>),
    /// The simulated runtime.
    Simulated(sim::SimDir),
}

/// Knobs of the simulated device; they have no effect on a real one.
#[derive(Default)]
pub struct Knobs {
    /// Memory of a device in bytes.
    pub capacity: Option<u64>,
    /// Whether device memory has real pages behind it.
    pub backed: bool,
    /// Where the runtime writes its counts at exit.
    pub report: Option<PathBuf>,
}

impl Device {
    /// Finds the real device or builds the simulated one, and says which.
    pub fn find(project: &Project) -> Result<Self> {
        if let Some(home) = real_cann() {
            process::say(&format!("using the NPU with CANN in {}", home.display()));
            let fix = cfg!(target_arch = "x86_64")
                .then(|| build_simulator(project))
                .transpose()?;
            return Ok(Self::Real(home, fix));
        }
        let sim = build_simulator(project)?;
        process::say("no CANN with an NPU found: using the simulated CANN runtime");
        Ok(Self::Simulated(sim))
    }

    /// One line that names the device.
    pub fn name(&self) -> String {
        match self {
            Self::Real(home, _) => format!("NPU (CANN in {})", home.display()),
            Self::Simulated(_) => "simulated CANN runtime".into(),
        }
    }

    /// Sets the environment of a program that shall run on the device.
    pub fn prepare(&self, command: &mut Command, knobs: &Knobs) {
        let sim = match self {
            Self::Simulated(sim) => sim,
            Self::Real(_, fix) => {
                if knobs.capacity.is_some() || knobs.backed {
                    process::say(
                        "a real device's memory can't be chosen: --capacity and --backed have no effect",
                    );
                }
                // The libraries and operators are those of the device's own CANN.
                let preload = ["LD_PRELOAD", "TORCH_NPU_WARNING_DISABLE"];
                let ours = fix.iter().flat_map(sim::env);
                command.envs(ours.filter(|(name, _)| preload.contains(&name.as_str())));
                return;
            }
        };
        command.envs(sim::env(sim));
        if let Some(bytes) = knobs.capacity {
            command.env("CANN_SIM_CAPACITY", bytes.to_string());
        }
        if knobs.backed {
            command.env("CANN_SIM_MODE", "backed");
        }
        if let Some(path) = &knobs.report {
            command.env(REPORT, path);
        }
    }
}

/// Builds the simulated runtime.
pub fn build_simulator(project: &Project) -> Result<sim::SimDir> {
    apt::ensure(&[Need::Cxx])?;
    process::say("building the simulated CANN runtime");
    sim::build(&project.root, &project.target, &project.cache)
}

/// The directory of a usable CANN installation: named by the environment, with
/// its runtime library, on a machine with an NPU device node.
fn real_cann() -> Option<PathBuf> {
    if !Path::new("/dev/davinci0").exists() {
        return None;
    }
    let homes = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"];
    homes
        .into_iter()
        .filter_map(directory)
        .find(|home| has_runtime(home))
}

fn has_runtime(home: &Path) -> bool {
    let places = [
        "lib64",
        "runtime/lib64",
        "x86_64-linux/lib64",
        "aarch64-linux/lib64",
    ];
    places
        .iter()
        .any(|place| home.join(place).join("libascendcl.so").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_device_keeps_its_libraries_and_operators() {
        let sim = sim::SimDir {
            lib_dir: "/sim/lib".into(),
            preload: "/sim/libimport_fix.so".into(),
        };
        let device = Device::Real("/cann".into(), Some(sim));
        let mut command = Command::new("python");
        device.prepare(&mut command, &Knobs::default());
        let mut set: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
        set.sort();
        assert_eq!(set, ["LD_PRELOAD", "TORCH_NPU_WARNING_DISABLE"]);
    }
}
