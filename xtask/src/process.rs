//! Child processes: errors that name the command, and output that keeps this
//! program's standard output for results.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// The command line as one would type it.
pub fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Says a step is starting.
pub fn say(text: &str) {
    eprintln!("==> {text}");
}

/// Runs to the end with both outputs on standard error.
///
/// # Errors
/// When the program can't be started or fails.
pub fn check(command: &mut Command) -> Result<()> {
    command.stdout(Stdio::from(io::stderr()));
    let status = command
        .status()
        .with_context(|| format!("start {}", display(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", display(command));
    }
    Ok(())
}

/// Runs to the end and returns its standard output, trimmed.
///
/// # Errors
/// When the program can't be started or fails, with what it wrote to standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("start {}", display(command)))?;
    if !output.status.success() {
        bail!(
            "{} failed: {}\n{}",
            display(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    let text = String::from_utf8(output.stdout)
        .with_context(|| format!("{} wrote something that is not UTF-8", display(command)))?;
    Ok(text.trim().to_owned())
}

/// Runs to the end, hands each line of both outputs to `line` as it comes, and
/// says whether the program succeeded.
///
/// # Errors
/// When the program can't be started or its output can't be read.
pub fn lines(command: &mut Command, line: impl FnMut(&str)) -> Result<bool> {
    Ok(lines_to_end(command, line)?.success())
}

/// As [`lines`], but says how the program ended.
///
/// # Errors
/// As [`lines`].
pub fn lines_to_end(command: &mut Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    let (reader, writer) = io::pipe().context("create a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("share a pipe")?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("start {}", display(command)))?;
    // The command holds the writing ends; the reader sees the end only when
    // they are gone.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for text in BufReader::new(reader).split(b'\n') {
        let text = text.with_context(|| format!("read from {}", display(command)))?;
        line(String::from_utf8_lossy(&text).trim_end_matches('\r'));
    }
    child
        .wait()
        .with_context(|| format!("wait for {}", display(command)))
}

/// Like [`lines`], but standard output and standard error apart: the first
/// goes to `line`, the second is returned.
///
/// # Errors
/// As [`lines`].
pub fn lines_and_errors(
    command: &mut Command,
    mut line: impl FnMut(&str),
) -> Result<(bool, String)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("start {}", display(command)))?;
    let stdout = child
        .stdout
        .take()
        .context("standard output was not piped")?;
    let mut stderr = child
        .stderr
        .take()
        .context("standard error was not piped")?;
    let errors = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    for text in BufReader::new(stdout).split(b'\n') {
        let text = text.with_context(|| format!("read from {}", display(command)))?;
        line(&String::from_utf8_lossy(&text));
    }
    let status = child
        .wait()
        .with_context(|| format!("wait for {}", display(command)))?;
    let errors = errors
        .join()
        .map_err(|_| anyhow::anyhow!("the reading thread failed"))??;
    Ok((
        status.success(),
        String::from_utf8_lossy(&errors).into_owned(),
    ))
}

/// Writes a line to standard error, ignoring a closed one.
pub fn echo(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
