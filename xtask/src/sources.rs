//! Which of the project's files are C++.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::env::Project;

/// C++ sources and headers of the project, without those of build directories.
pub fn cpp(project: &Project) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for room in [
        "include", "cpp", "tests", "benches", "crates", "demo", "examples",
    ] {
        collect(&project.root.join(room), &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    let entries =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("list {}", directory.display()))?
            .path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|end| ["cpp", "h", "hpp"].iter().any(|e| end == *e))
        {
            found.push(path);
        }
    }
    Ok(())
}
