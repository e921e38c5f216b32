//! Chromium, where there is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Chromium's path; installs it where that is allowed. The reason where it is not there.
pub fn chromium() -> Result<PathBuf, String> {
    let find = || {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|directory| directory.join("chromium"))
            .find(|path| path.is_file())
    };
    if let Some(path) = find() {
        return Ok(path);
    }
    let id = Command::new("id").arg("-u").output();
    if id.is_ok_and(|id| id.stdout.trim_ascii() == b"0") {
        let installed = Command::new("apt-get")
            .args([
                "-qq",
                "install",
                "--yes",
                "--no-install-recommends",
                "chromium",
            ])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output();
        return find().ok_or_else(|| format!("chromium can't be installed: {installed:?}"));
    }
    Err("chromium is not installed, and only root may install it".into())
}

/// Runs Chromium on a page with some more flags.
pub fn run(chromium: &Path, page: &Path, flags: &[&str]) -> Output {
    let profile = tempfile::TempDir::new().expect("a directory");
    Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--virtual-time-budget=60000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(flags)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium runs")
}

/// The value of an attribute of the element of which `mark` is part.
pub fn attribute<'a>(dom: &'a str, mark: &str, name: &str) -> Option<&'a str> {
    let at = dom.find(mark)?;
    let begin = dom[..at].rfind('<')?;
    let tag = &dom[begin..begin + dom[begin..].find('>')?];
    let value = &tag[tag.find(&format!(" {name}=\""))? + name.len() + 3..];
    Some(&value[..value.find('"')?])
}
