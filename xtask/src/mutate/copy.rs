//! Copies of the source tree.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Fault;
use crate::env::Project;
use crate::process;

/// Copies what has changed since the last time, so that only that is compiled again. `names` are files and directories
/// of the tree, all if there are none; `change` may replace a file's text.
pub fn tree(
    project: &Project,
    root: &Path,
    names: &[&str],
    change: impl Fn(&str, &[u8]) -> Result<Option<String>>,
) -> Result<()> {
    let mut list = Command::new("git");
    list.current_dir(&project.root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(names);
    let mut kept = HashSet::new();
    for name in process::output(&mut list)?.lines() {
        let (from, to) = (project.root.join(name), root.join(name));
        let Ok(bytes) = fs::read(&from) else {
            continue;
        };
        kept.insert(to.clone());
        let bytes = change(name, &bytes)?.map_or(bytes, String::into_bytes);
        write_if_changed(&to, &bytes)?;
    }
    remove_others(root, &kept)
}

/// The text of a file with its faults planted, by what stands in the place of each fault's text.
pub fn plant(
    name: &str,
    text: String,
    faults: &[Fault],
    switch: impl Fn(usize, &Fault) -> String,
) -> Result<String> {
    let own = || (1..).zip(faults).filter(|(_, fault)| fault.file == name);
    let mut text = text;
    for (number, fault) in own() {
        text = text.replace(&fault.from, &switch(number, fault));
    }
    for (number, fault) in own() {
        ensure!(
            text.contains(&format!("planted({number})")),
            "{}: another fault of {name} replaces the text",
            fault.what
        );
    }
    Ok(text)
}

/// Removes files of an earlier copy that the tree does not have any more.
pub fn remove_others(directory: &Path, kept: &HashSet<PathBuf>) -> Result<()> {
    let listed = || format!("list {}", directory.display());
    for entry in fs::read_dir(directory).with_context(listed)? {
        let path = entry.with_context(listed)?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let parent = path.parent().context("a file without a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}
