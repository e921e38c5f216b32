//! What Cargo built, as it says itself: settings of the user's can move it away from where it is by default, where an
//! older one may lie.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process;

/// Runs a `cargo build` and returns the file of that name that it made or found up to date.
///
/// # Errors
/// When Cargo fails or names no such file.
pub fn built(command: &mut Command, name: &str) -> Result<PathBuf> {
    command
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let output = command
        .output()
        .with_context(|| format!("start {}", process::display(command)))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        process::display(command),
        output.status
    );
    let messages = String::from_utf8_lossy(&output.stdout);
    named(&messages, name).with_context(|| format!("{} named no {name}", process::display(command)))
}

/// The file of that name in Cargo's messages.
fn named(messages: &str, name: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let files = message["filenames"].as_array()?;
        let mut paths = files
            .iter()
            .filter_map(|file| file.as_str())
            .map(PathBuf::from);
        paths.find(|path| path.file_name().is_some_and(|file| file == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_where_cargo_says() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","filenames":["/t/x86/long/libnpualloc.rlib"]}"#,
            "\n",
            r#"{"reason":"compiler-artifact","filenames":["/t/x86/long/npualloc-verify"]}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#
        );
        let found = named(messages, "npualloc-verify");
        assert_eq!(found, Some(PathBuf::from("/t/x86/long/npualloc-verify")));
        assert_eq!(named(messages, "verify"), None);
    }
}
