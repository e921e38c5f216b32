//! What the runners of `cargo xtask test` came to.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::process::{self, say};

/// What each runner came to.
#[derive(Default)]
pub struct Summary {
    rows: Vec<(String, bool, Vec<String>)>,
    failed: bool,
}

impl Summary {
    /// Runs a runner, showing its output and keeping the lines that `closing` picks.
    ///
    /// # Errors
    /// When the runner can't be started.
    pub fn run(
        &mut self,
        name: &str,
        command: &mut Command,
        closing: impl Fn(&str) -> bool,
    ) -> Result<()> {
        say(&process::display(command));
        let mut kept = Vec::new();
        let success = process::lines(command, |line| {
            process::echo(line);
            if closing(line) {
                kept.push(line.trim().to_owned());
            }
        })?;
        self.add(name, success, kept);
        Ok(())
    }

    /// Adds what a check came to.
    pub fn add(&mut self, name: &str, success: bool, lines: Vec<String>) {
        self.failed |= !success;
        self.rows.push((name.to_owned(), success, lines));
    }

    /// The exit status of the command.
    pub fn code(&self) -> ExitCode {
        if self.failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }

    /// A line for each runner, with its closing lines below.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, success, lines) in &self.rows {
            let word = if *success { "ok" } else { "FAILED" };
            text += &format!("{name}: {word}\n");
            for line in lines {
                text += &format!("    {line}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::Summary;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn closing_lines_are_kept_and_a_failure_shows() {
        let mut summary = Summary::default();
        let closing = |line: &str| line.starts_with("result");
        summary
            .run(
                "first",
                &mut shell("echo noise; echo result 1 >&2"),
                closing,
            )
            .unwrap();
        assert!(!summary.failed);
        summary
            .run("second", &mut shell("echo result 2; exit 3"), closing)
            .unwrap();
        assert!(summary.failed);
        assert_eq!(
            summary.text(),
            "first: ok\n    result 1\nsecond: FAILED\n    result 2\n"
        );
    }

    #[test]
    fn a_runner_that_is_not_there_is_an_error() {
        let mut summary = Summary::default();
        let error = summary.run("gone", &mut Command::new("/no/such/runner"), |_| true);
        assert!(format!("{:#}", error.unwrap_err()).contains("/no/such/runner"));
    }
}
