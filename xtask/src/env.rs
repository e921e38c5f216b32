//! Where things lie: the source tree, the build directory, the cache.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directories every command works with.
pub struct Project {
    /// Root of the source tree.
    pub root: PathBuf,
    /// Cargo's target directory; everything built goes below it.
    pub target: PathBuf,
    /// Cache outside the tree, for what is downloaded.
    pub cache: PathBuf,
}

impl Project {
    /// Finds the directories; creates none.
    pub fn locate() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the xtask crate has no parent directory")?
            .to_path_buf();
        let target = match directory("CARGO_TARGET_DIR") {
            Some(path) => std::path::absolute(&path)
                .with_context(|| format!("CARGO_TARGET_DIR is {}", path.display()))?,
            None => root.join("target"),
        };
        Ok(Self {
            root,
            target,
            cache: cache()?,
        })
    }

    /// The cargo that runs this program, or the one in `PATH`.
    pub fn cargo() -> PathBuf {
        directory("CARGO").unwrap_or_else(|| "cargo".into())
    }
}

fn cache() -> Result<PathBuf> {
    if let Some(path) = directory("NPUALLOC_CACHE") {
        return std::path::absolute(&path)
            .with_context(|| format!("NPUALLOC_CACHE is {}", path.display()));
    }
    if let Some(path) = directory("XDG_CACHE_HOME") {
        return Ok(path.join("npualloc"));
    }
    let home = directory("HOME").context("set NPUALLOC_CACHE or HOME to say where to cache")?;
    Ok(home.join(".cache/npualloc"))
}

/// A variable that is set and not empty.
pub fn directory(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
