//! Tables, JSON, progress.

use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::error::{Error, Result};

/// How results and progress are shown.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
}

impl Output {
    /// Prints a result: `text` for people, or `value` as JSON. A reader that has seen enough and went away is no
    /// failure.
    pub fn print(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let shown = self.shown(value, text)?;
        let mut out = std::io::stdout().lock();
        let written = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Output(error)),
            _ => Ok(()),
        }
    }

    /// Prints a result on the standard error: the standard output has something else in it.
    pub fn print_aside(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        complain(self.shown(value, text)?.trim_end());
        Ok(())
    }

    fn shown(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<String> {
        let mut shown = if self.json {
            escape_controls(&serde_json::to_string_pretty(value)?)
        } else {
            without_controls(&text())
        };
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        Ok(shown)
    }

    /// A progress bar on the standard error, where that is a terminal.
    pub fn progress(self, what: &'static str, length: u64) -> ProgressBar {
        if self.quiet || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar
    }
}

/// As a terminal may have it: it obeys control characters, and names and texts of a trace are not ours.
fn without_controls(text: &str) -> String {
    let plain = |c: char| {
        if c == '\n' || !c.is_control() {
            c
        } else {
            '\u{fffd}'
        }
    };
    text.chars().map(plain).collect()
}

/// A name within a text, in one line.
pub fn name(text: &str) -> String {
    without_controls(&text.replace('\n', "\u{fffd}"))
}

/// JSON with the control characters escaped that JSON itself allows in texts.
fn escape_controls(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !c.is_control() {
            escaped.push(c);
        } else {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        }
    }
    escaped
}

/// Prints a line on the standard error, where that takes it: nobody is left to tell otherwise.
pub fn complain(line: impl Display) {
    let line = without_controls(&line.to_string());
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A table with a header.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    if !std::io::stdout().is_terminal() {
        // Wide enough for every column; a terminal's width is not ours to guess.
        table.set_width(160);
    }
    table
}
