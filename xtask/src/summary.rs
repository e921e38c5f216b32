//! What the runners of `cargo xtask test` came to.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::{self, say};

/// What each runner came to.
pub struct Summary {
    rows: Vec<Row>,
    /// When the last row was added.
    since: Instant,
}

struct Row {
    name: String,
    success: bool,
    /// Since the row before, so with what was built for it.
    took: Duration,
    lines: Vec<String>,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            since: Instant::now(),
        }
    }
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
        mut closing: impl FnMut(&str) -> bool,
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
        let now = Instant::now();
        self.rows.push(Row {
            name: name.to_owned(),
            success,
            took: now.duration_since(self.since),
            lines,
        });
        self.since = now;
    }

    /// The exit status of the command.
    pub fn code(&self) -> ExitCode {
        if self.failed().next().is_some() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }

    /// A line for each runner, with the seconds since the one before and its closing lines below;
    /// the last line is the verdict, naming those that failed.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let word = if row.success { "ok" } else { "FAILED" };
            text += &format!("{}: {word} ({} s)\n", row.name, row.took.as_secs());
            for line in &row.lines {
                text += &format!("    {line}\n");
            }
        }
        let all = self.rows.len();
        let failed: Vec<_> = self.failed().collect();
        text += &if failed.is_empty() {
            format!("all {all} ok\n")
        } else {
            format!("{} of {all} FAILED: {}\n", failed.len(), failed.join("; "))
        };
        text
    }

    /// The names of those that failed.
    fn failed(&self) -> impl Iterator<Item = &str> {
        let failed = self.rows.iter().filter(|row| !row.success);
        failed.map(|row| row.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

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
        assert!(summary.text().ends_with("all 1 ok\n"));
        summary
            .run("second", &mut shell("echo result 2; exit 3"), closing)
            .unwrap();
        assert_eq!(summary.failed().collect::<Vec<_>>(), ["second"]);
        for (row, seconds) in summary.rows.iter_mut().zip([3, 61]) {
            row.took = Duration::from_secs(seconds);
        }
        assert_eq!(
            summary.text(),
            "first: ok (3 s)\n    result 1\nsecond: FAILED (61 s)\n    result 2\n\
             1 of 2 FAILED: second\n"
        );
    }

    #[test]
    fn a_runner_that_is_not_there_is_an_error() {
        let mut summary = Summary::default();
        let error = summary.run("gone", &mut Command::new("/no/such/runner"), |_| true);
        assert!(format!("{:#}", error.unwrap_err()).contains("/no/such/runner"));
    }
}
