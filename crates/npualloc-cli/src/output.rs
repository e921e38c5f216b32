//! Tables, JSON, progress, and files that are written whole or not at all.

use std::io::{IsTerminal, Write};
use std::path::Path;

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
    /// Prints a result: `text` for people, or `value` as JSON.
    pub fn print(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let mut shown = if self.json {
            serde_json::to_string_pretty(value)?
        } else {
            text()
        };
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        let mut out = std::io::stdout().lock();
        out.write_all(shown.as_bytes()).map_err(Error::Output)?;
        out.flush().map_err(Error::Output)
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

/// Writes a file through a temporary one beside it, so that nobody sees part of it.
pub fn write_whole(path: &Path, contents: &[u8]) -> Result<()> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(contents).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // A temporary file is private; a result is not.
        let mode = std::fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(mode).map_err(failed)?;
    }
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
