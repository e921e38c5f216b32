//! Chromium, where there is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Chromium's path. Where it is missing the test is skipped; `cargo xtask test` installs it, or says why not.
pub fn chromium() -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join("chromium"))
        .find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: chromium is not installed");
    }
    found
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
