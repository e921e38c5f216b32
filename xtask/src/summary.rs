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
    state: State,
    /// Since the row before, so with what was built for it.
    took: Duration,
    lines: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    Failed,
    /// It could not be run here: nothing is known.
    Skipped,
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
        let state = if success { State::Ok } else { State::Failed };
        self.put(name, state, lines);
    }

    /// Adds a check that could not be run here, and why.
    pub fn skip(&mut self, name: &str, reason: String) {
        self.put(name, State::Skipped, vec![reason]);
    }

    fn put(&mut self, name: &str, state: State, lines: Vec<String>) {
        let now = Instant::now();
        self.rows.push(Row {
            name: name.to_owned(),
            state,
            took: now.duration_since(self.since),
            lines,
        });
        self.since = now;
    }

    /// The exit status of the command.
    pub fn code(&self) -> ExitCode {
        if self.those(State::Failed).next().is_some() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }

    /// A line for each runner, with the seconds since the one before and its closing lines below;
    /// the last line is the verdict, naming those that failed, else those that were skipped.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let word = match row.state {
                State::Ok => "ok",
                State::Failed => "FAILED",
                State::Skipped => "skipped",
            };
            text += &format!("{}: {word} ({} s)\n", row.name, row.took.as_secs());
            for line in &row.lines {
                text += &format!("    {line}\n");
            }
        }
        let all = self.rows.len();
        let failed: Vec<_> = self.those(State::Failed).collect();
        let skipped: Vec<_> = self.those(State::Skipped).collect();
        text += &if !failed.is_empty() {
            format!("{} of {all} FAILED: {}\n", failed.len(), failed.join("; "))
        } else if skipped.is_empty() {
            format!("all {all} ok\n")
        } else {
            let ok = all - skipped.len();
            let (count, names) = (skipped.len(), skipped.join("; "));
            format!("{ok} ok, {count} skipped: {names}\n")
        };
        text
    }

    /// The names of those that came to this.
    fn those(&self, state: State) -> impl Iterator<Item = &str> {
        let those = self.rows.iter().filter(move |row| row.state == state);
        those.map(|row| row.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, ExitCode};
    use std::time::Duration;

    use super::{State, Summary};

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
        assert_eq!(summary.those(State::Failed).collect::<Vec<_>>(), ["second"]);
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
    fn what_was_skipped_is_not_ok_and_no_failure() {
        let mut summary = Summary::default();
        summary.add("first", true, Vec::new());
        summary.skip("second", "no such program".into());
        assert_eq!(
            summary.text(),
            "first: ok (0 s)\nsecond: skipped (0 s)\n    no such program\n1 ok, 1 skipped: second\n"
        );
        assert_eq!(summary.code(), ExitCode::SUCCESS);
        summary.add("third", false, Vec::new());
        assert!(summary.text().ends_with("\n1 of 3 FAILED: third\n"));
        assert_eq!(summary.code(), ExitCode::FAILURE);
    }

    #[test]
    fn a_runner_that_is_not_there_is_an_error() {
        let mut summary = Summary::default();
        let error = summary.run("gone", &mut Command::new("/no/such/runner"), |_| true);
        assert!(format!("{:#}", error.unwrap_err()).contains("/no/such/runner"));
    }
}
