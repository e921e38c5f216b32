//! The commands of the documents, one after another in a directory of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::traces::Files;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Commands in ```console blocks, and the exit status each is to have.
fn commands(text: &str) -> Vec<(String, i32)> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            let status = command.rsplit_once("# exit status ");
            let status = status.map_or(0, |(_, code)| code.trim().parse().expect("a number"));
            commands.push((command.to_owned(), status));
        }
    }
    commands
}

fn run_all(document: &str) {
    let root = root();
    let text = std::fs::read_to_string(root.join(document)).expect("the document");
    let all = commands(&text);
    assert!(all.len() >= 4, "{document}: {all:?}");
    let files = Files::new();
    let examples = root.join("examples").canonicalize().expect("examples");
    std::os::unix::fs::symlink(examples, files.0.path().join("examples")).expect("linked");
    let program = assert_cmd::cargo::cargo_bin("npualloc");
    let mut paths = vec![program.parent().expect("a directory").to_owned()];
    paths.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let path = std::env::join_paths(paths).expect("a path");
    for (command, status) in all {
        let output = Command::new("sh")
            .args(["-c", &command])
            .current_dir(files.0.path())
            .env("PATH", &path)
            .output()
            .expect("sh runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{document}: {command}\n{errors}"
        );
    }
}

#[test]
fn every_command_of_the_tools_page_works() {
    run_all("docs/tool.md");
}

#[test]
fn every_command_of_the_tutorial_works() {
    run_all("docs/tutorial-oom.md");
}
