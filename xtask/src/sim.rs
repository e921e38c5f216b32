//! Builds the simulated CANN runtime into one directory that stands in for a
//! CANN installation's `lib64`, and says with which environment a process
//! runs on it.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::apt;
use crate::cargo;
use crate::env::Project;

mod stubs;

/// Libraries torch_npu links or opens besides `libascendcl.so`. All they would
/// define is in `libascendcl.so` and `libopapi.so`, on which they depend.
const COMPANIONS: &[&str] = &[
    "libhccl.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
    "libnnopbase.so",
    "libascend_hal.so",
];

/// Where a built simulator lies.
#[derive(Debug, Clone)]
pub struct SimDir {
    /// Directory with `libascendcl.so` and its companions.
    pub lib_dir: PathBuf,
    /// Library to preload so that torch_npu imports next to a CUDA build of torch.
    pub preload: PathBuf,
}

/// Builds what is out of date of the simulator and returns where it lies:
/// `<target_dir>/sim/lib` and `<target_dir>/sim/libimport_fix.so`, by way of a link in `cache` where the path has a
/// character at which the dynamic linker would split it.
///
/// # Errors
/// When Cargo or the C++ compiler fails, naming the command; when there is no path without such a character.
pub fn build(repo_root: &Path, target_dir: &Path, cache: &Path) -> Result<SimDir> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the simulated runtime needs Linux on x86-64"
    );
    let source = repo_root.join("crates/cann-sim");
    let out = target_dir.join("sim");
    let lib_dir = out.join("lib");
    // torch_npu asks for these directories of an installation; they stay empty.
    for directory in ["lib", "opp", "runtime", "compiler"] {
        let path = out.join(directory);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
    }

    let runtime = lib_dir.join("libascendcl.so");
    install(&cargo_build(repo_root, target_dir)?, &runtime)?;

    let stubs = out.join("opapi_stubs.S");
    write_if_changed(&stubs, &stubs::generate(&source.join("opapi/names.txt"))?)?;
    let entry = source.join("opapi/entry_x86_64.S");
    let opapi = lib_dir.join("libopapi.so");
    link_shared(&opapi, &[&stubs, &entry], &[&runtime], &[])?;

    let empty = out.join("empty.S");
    write_if_changed(&empty, "    .section .note.GNU-stack,\"\",@progbits\n")?;
    for name in COMPANIONS {
        link_shared(&lib_dir.join(name), &[&empty], &[&opapi, &runtime], &[])?;
    }

    let preload = out.join("libimport_fix.so");
    let fix = source.join("preload/import_fix.cpp");
    link_shared(
        &preload,
        &[&fix],
        &[],
        &["-std=c++17", "-O2", "-fvisibility=hidden"],
    )?;
    let place = whole_path(&out, cache)?;
    Ok(SimDir {
        lib_dir: place.join("lib"),
        preload: place.join("libimport_fix.so"),
    })
}

/// Whether the dynamic linker would take the path for several: it splits lists at these, without any escape.
fn splits(path: &Path) -> bool {
    let separators = b" \t\n:;";
    path.as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| separators.contains(byte))
}

/// A path of `directory` that the dynamic linker takes as a whole: its own, or that of a link to it in `cache`.
fn whole_path(directory: &Path, cache: &Path) -> Result<PathBuf> {
    if !splits(directory) {
        return Ok(directory.to_path_buf());
    }
    ensure!(
        !splits(cache),
        "the dynamic linker would split {} at a space, a colon or a semicolon, and {} too; set CARGO_TARGET_DIR or \
         NPUALLOC_CACHE to a directory without them",
        directory.display(),
        cache.display()
    );
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    let link = cache.join(format!("sim-{:016x}", hasher.finish()));
    if fs::read_link(&link).is_ok_and(|target| target == directory) {
        return Ok(link);
    }
    fs::create_dir_all(cache).with_context(|| format!("create {}", cache.display()))?;
    let temporary = link.with_extension(std::process::id().to_string());
    symlink(directory, &temporary).with_context(|| format!("link {}", temporary.display()))?;
    fs::rename(&temporary, &link).with_context(|| format!("link {}", link.display()))?;
    Ok(link)
}

/// The environment of a process that shall run on the simulator: this
/// process's own `LD_LIBRARY_PATH` and `LD_PRELOAD` with the simulator's put
/// in front, and the switch that keeps torch_npu from warning about the latter.
/// The `CANN_SIM_*` knobs are left as they are.
pub fn env(sim: &SimDir) -> Vec<(String, String)> {
    let lib = sim.lib_dir.display().to_string();
    let preload = sim.preload.display().to_string();
    let mut variables = vec![
        ("LD_LIBRARY_PATH".into(), prepend("LD_LIBRARY_PATH", &lib)),
        ("LD_PRELOAD".into(), prepend("LD_PRELOAD", &preload)),
        ("TORCH_NPU_WARNING_DISABLE".into(), "1".into()),
    ];
    if env::var_os("ASCEND_HOME_PATH").is_none()
        && let Some(home) = sim.lib_dir.parent()
    {
        // torch_npu warns without an installation to look for more libraries in.
        variables.push(("ASCEND_HOME_PATH".into(), home.display().to_string()));
        variables.push((
            "ASCEND_OPP_PATH".into(),
            home.join("opp").display().to_string(),
        ));
    }
    variables
}

/// `first` in front of a colon-separated variable, once.
fn prepend(variable: &str, first: &str) -> String {
    let old = env::var(variable).unwrap_or_default();
    let rest = old
        .split(':')
        .filter(|part| !part.is_empty() && *part != first);
    std::iter::once(first)
        .chain(rest)
        .collect::<Vec<_>>()
        .join(":")
}

/// Builds the runtime; returns where Cargo put it.
fn cargo_build(repo_root: &Path, target_dir: &Path) -> Result<PathBuf> {
    let mut command = Command::new(Project::cargo());
    command
        .current_dir(repo_root)
        .args(["build", "--quiet", "--release"])
        .args(["--package", "cann-sim", "--lib"])
        .arg("--target-dir")
        .arg(target_dir);
    cargo::built(&mut command, "ascendcl")
}

/// Compiles and links `sources` into a shared library, unless it is newer than
/// all of them and was made by the same command.
fn link_shared(output: &Path, sources: &[&Path], needed: &[&Path], flags: &[&str]) -> Result<()> {
    let name = output
        .file_name()
        .context("library without a name")?
        .to_string_lossy();
    let compiler = apt::cxx();
    let temporary = output.with_extension(format!("so.{}", std::process::id()));
    let mut command = Command::new(&compiler[0]);
    command
        .args(&compiler[1..])
        .args(["-shared", "-fPIC"])
        .args(flags)
        .arg(format!("-Wl,-soname,{name}"));
    command.args(sources);
    // The companions use no symbol of what they depend on, so the linker must
    // be told to keep the dependency.
    command.arg("-Wl,--no-as-needed").args(needed);
    if flags.iter().any(|flag| flag.starts_with("-std=")) {
        command.arg("-ldl");
    }
    let recipe = format!("{command:?}");
    command.arg("-o").arg(&temporary);

    let stamp = output.with_extension("recipe");
    let same_recipe = fs::read_to_string(&stamp).is_ok_and(|old| old == recipe);
    if same_recipe && newer_than_all(output, sources) {
        return Ok(());
    }
    run(&mut command)?;
    fs::rename(&temporary, output).with_context(|| format!("install {}", output.display()))?;
    fs::write(&stamp, recipe).with_context(|| format!("write {}", stamp.display()))
}

fn newer_than_all(output: &Path, sources: &[&Path]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified());
    let Ok(made) = time(output) else { return false };
    sources
        .iter()
        .all(|source| time(source).is_ok_and(|t| t <= made))
}

/// Copies by way of a rename, so that a process that has the old file mapped
/// keeps it.
fn install(from: &Path, to: &Path) -> Result<()> {
    let new = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let temporary = to.with_extension(format!("so.{}", std::process::id()));
    fs::write(&temporary, new).with_context(|| format!("write {}", temporary.display()))?;
    fs::rename(&temporary, to).with_context(|| format!("install {}", to.display()))
}

fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_dynamic_linker_would_split_is_handed_out_as_a_link() {
        let root = env::temp_dir().join(format!("npualloc-sim-{}", std::process::id()));
        let (cache, spaced) = (root.join("cache"), root.join("a b:c/sim"));
        fs::create_dir_all(spaced.join("lib")).unwrap();
        assert_eq!(whole_path(&root, &cache).unwrap(), root);
        // The second time the link is there.
        for _ in 0..2 {
            let place = whole_path(&spaced, &cache).unwrap();
            assert!(place.join("lib").is_dir());
            let sim = SimDir {
                lib_dir: place.join("lib"),
                preload: place.join("libimport_fix.so"),
            };
            for (name, value) in env(&sim) {
                let of_lists = ["LD_LIBRARY_PATH", "LD_PRELOAD"].contains(&name.as_str());
                assert!(!(of_lists && value.contains("a b")), "{name}={value}");
            }
        }
        let error = whole_path(&spaced, &root.join("d e"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("a b:c/sim") && error.contains("NPUALLOC_CACHE"),
            "{error}"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
