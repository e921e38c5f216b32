//! What the caller's environment says about the allocator and the simulated device, which measurements and tests leave
//! out: a table's rows say what they are of, and a test what it is with.

use std::env;
use std::process::Command;

use crate::process::say;

/// Removes every variable that changes what is measured or tested, and says which there were. To be called before the
/// command is given its own.
pub fn leave_out(command: &mut Command) {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let found: Vec<String> = names.filter(|name| changes_figures(name)).collect();
    for name in &found {
        command.env_remove(name);
    }
    if !found.is_empty() {
        say(&format!("without {}", found.join(", ")));
    }
}

fn changes_figures(name: &str) -> bool {
    // Those of these commands themselves.
    let own = matches!(name, "NPUALLOC_CACHE" | "NPUALLOC_PYTHON");
    let settings = name.starts_with("PYTORCH_") && name.ends_with("ALLOC_CONF");
    !own && (settings || name.starts_with("NPUALLOC_") || name.starts_with("CANN_SIM_"))
}

#[cfg(test)]
mod tests {
    use super::changes_figures;

    #[test]
    fn settings_of_the_allocator_and_the_device_are_left_out() {
        for name in [
            "NPUALLOC_DEFAULT_ENGINE",
            "NPUALLOC_PLUGIN",
            "NPUALLOC_DISABLE",
            "NPUALLOC_DEBUG",
            "CANN_SIM_COSTS",
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_NPU_ALLOC_CONF",
        ] {
            assert!(changes_figures(name), "{name}");
        }
        for name in ["NPUALLOC_CACHE", "NPUALLOC_PYTHON", "PYTORCH_JIT", "PATH"] {
            assert!(!changes_figures(name), "{name}");
        }
    }
}
