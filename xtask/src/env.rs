//! Where things lie: the source tree, the build directory, the cache.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::process::say;

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
        let now = directory("CARGO_MANIFEST_DIR");
        let root = root(Path::new(env!("CARGO_MANIFEST_DIR")), now.as_deref())?;
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

    /// Waits for other commands that build `name` below the target directory, and keeps others out as long as the file
    /// is open.
    ///
    /// # Errors
    /// When the lock can't be made.
    pub fn lock(&self, name: &str) -> Result<File> {
        fs::create_dir_all(&self.target)
            .with_context(|| format!("create {}", self.target.display()))?;
        let path = self.target.join(format!("{name}.lock"));
        let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        if lock.try_lock().is_err() {
            say("waiting for another command that builds");
            lock.lock()
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(lock)
    }

    /// The cargo that runs this program, or the one in `PATH`.
    pub fn cargo() -> PathBuf {
        directory("CARGO").unwrap_or_else(|| "cargo".into())
    }
}

/// The tree this program works on: of `now`, where Cargo says the crate lies that it runs, and `compiled`, where it lay
/// when it was compiled. Of checkouts that share a target directory Cargo takes one's programs for another's; of one
/// that was moved, or is gone, nothing can be mixed up.
fn root(compiled: &Path, now: Option<&Path>) -> Result<PathBuf> {
    // A program that is started without Cargo may have the directory of another crate from its environment.
    let now = now.filter(|it| it.ends_with("xtask")).unwrap_or(compiled);
    let real = |path: &Path| path.canonicalize().ok();
    let before = real(compiled);
    ensure!(
        before.is_none() || before == real(now),
        "this program was built from {}, not from {}: two checkouts share a target directory, and Cargo takes what was \
         built for one as the other's. Give each a CARGO_TARGET_DIR of its own",
        compiled.display(),
        now.display()
    );
    let place = if before.is_some() { compiled } else { now };
    let root = place
        .parent()
        .context("the xtask crate has no parent directory")?;
    Ok(root.to_path_buf())
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_built_by_another_command_is_waited_for() {
        let place = env::temp_dir().join(format!("npualloc-lock-{}", std::process::id()));
        let project = Project {
            root: place.clone(),
            target: place.join("target"),
            cache: place.join("cache"),
        };
        let held = project.lock("package").unwrap();
        project.lock("other").unwrap();
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let project = &project;
            scope.spawn(move || sender.send(project.lock("package").is_ok()));
            let soon = receiver.recv_timeout(Duration::from_millis(100));
            assert_eq!(soon, Err(mpsc::RecvTimeoutError::Timeout));
            drop(held);
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
        });
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_program_of_another_checkout_is_told() {
        let place = env::temp_dir().join(format!("npualloc-checkouts-{}", std::process::id()));
        let of = |name: &str| place.join(name).join("xtask");
        for name in ["one", "two"] {
            fs::create_dir_all(of(name)).unwrap();
        }
        assert_eq!(root(&of("one"), None).unwrap(), place.join("one"));
        assert_eq!(
            root(&of("one"), Some(&of("one"))).unwrap(),
            place.join("one")
        );
        let error = root(&of("one"), Some(&of("two"))).unwrap_err().to_string();
        assert!(error.contains("CARGO_TARGET_DIR"), "{error}");
        // Moved, with its target directory.
        assert_eq!(
            root(&of("gone"), Some(&of("two"))).unwrap(),
            place.join("two")
        );
        // The environment of another crate's test.
        let other = place.join("two");
        assert_eq!(root(&of("one"), Some(&other)).unwrap(), place.join("one"));
        fs::remove_dir_all(&place).unwrap();
    }
}
