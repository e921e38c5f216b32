//! What Cargo built, as it says itself: settings of the user's can move it away from where it is by default, where an
//! older one may lie.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process;

/// Runs a command of Cargo's that builds, and returns the program or shared library of a target, made or found up to
/// date.
///
/// # Errors
/// When Cargo fails or names no such file.
pub fn built(command: &mut Command, target: &str) -> Result<PathBuf> {
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
    named(&messages, target)
        .with_context(|| format!("{} named no file for {target}", process::display(command)))
}

/// The target's program or shared library in Cargo's messages.
fn named(messages: &str, target: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        if message["target"]["name"] != target {
            return None;
        }
        let files = message["filenames"].as_array().into_iter().flatten();
        let mut libraries = files.filter_map(|file| file.as_str());
        let library = libraries.find(|file| file.ends_with(".so"));
        message["executable"]
            .as_str()
            .or(library)
            .map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_where_cargo_says() {
        let messages = concat!(
            r#"{"target":{"name":"ascendcl"},"filenames":["/t/x86/l.rlib","/t/x86/l.so"],"executable":null}"#,
            "\n",
            r#"{"target":{"name":"verify"},"filenames":["/t/x86/verify-1"],"executable":"/t/x86/verify-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#
        );
        let path = |target| named(messages, target);
        assert_eq!(path("ascendcl"), Some(PathBuf::from("/t/x86/l.so")));
        assert_eq!(path("verify"), Some(PathBuf::from("/t/x86/verify-1")));
        assert_eq!(path("other"), None);
    }
}
