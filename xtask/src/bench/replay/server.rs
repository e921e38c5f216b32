//! The processes that replay: `benches/replay/server.py`, which forks one for each request.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::super::input::Input;
use super::configuration::Configuration;
use super::report::Run;
use crate::device::{Device, Knobs};
use crate::python::Python;
use crate::surroundings;

/// Tasks that the host is ahead of the device.
const LAG: &str = "256";
/// What a task takes on the device, nanoseconds.
const TASK_NS: &str = "10000";
/// Points of a run's timeline.
const SAMPLES: usize = 400;

/// How servers are started.
pub struct Launcher {
    python: Python,
    device: Device,
    script: PathBuf,
    library: PathBuf,
    plugin: PathBuf,
    scratch: PathBuf,
    /// Held as long as the directory is in use.
    _lock: File,
    started: AtomicUsize,
    /// Whether torch_npu's task queue is on.
    pub task_queue: bool,
}

impl Launcher {
    /// With a directory of its own for logs and traces, which it empties.
    ///
    /// # Errors
    /// When the directory can't be made.
    pub fn new(
        python: Python,
        device: Device,
        script: PathBuf,
        library: PathBuf,
        plugin: PathBuf,
        scratch: PathBuf,
    ) -> Result<Self> {
        fs::create_dir_all(&scratch).with_context(|| format!("create {}", scratch.display()))?;
        let lock = scratch.with_extension("lock");
        let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
        lock.try_lock().with_context(|| {
            format!(
                "another benchmark is using {}; choose another directory with --output",
                scratch.display()
            )
        })?;
        fs::remove_dir_all(&scratch).with_context(|| format!("remove {}", scratch.display()))?;
        fs::create_dir(&scratch).with_context(|| format!("create {}", scratch.display()))?;
        Ok(Self {
            python,
            device,
            script,
            library,
            plugin,
            scratch,
            _lock: lock,
            started: AtomicUsize::new(0),
            task_queue: false,
        })
    }

    /// The directory for logs and traces.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Starts a server.
    ///
    /// # Errors
    /// When the program can't be started.
    pub fn start(&self) -> Result<Server> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.scratch.join(format!("server-{number}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = self.python.command();
        surroundings::leave_out(&mut command);
        self.device.prepare(&mut command, &Knobs::default());
        let mut child = command
            // An installed wheel would be loaded with torch, in place of the stock allocator.
            .env("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
            .env("CANN_SIM_DEVICES", "1")
            .env("CANN_SIM_STREAM_DEPTH", LAG)
            .env("CANN_SIM_KERNEL_NS", TASK_NS)
            // Off, events are recorded at once rather than by another thread: runs repeat exactly.
            .env("TASK_QUEUE_ENABLE", if self.task_queue { "1" } else { "0" })
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(&self.script)
            .arg("--bench")
            .arg(&self.library)
            .arg("--plugin")
            .arg(&self.plugin)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {}", self.python.program.display()))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the replay server has no pipes");
        };
        Ok(Server {
            child,
            requests: Some(requests),
            answers: BufReader::new(answers),
            log,
        })
    }
}

/// A running server; one replay at a time.
pub struct Server {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    log: PathBuf,
}

#[derive(Serialize)]
struct Request<'a> {
    events: &'a Path,
    streams: u32,
    config: Option<&'a str>,
    plugin: bool,
    aliases: bool,
    capacity: u64,
    samples: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Failed { error: String },
    Done(Box<Run>),
}

impl Server {
    /// Replays a trace on a device of `capacity` bytes.
    ///
    /// # Errors
    /// When the replay fails in another way than by running out of memory.
    pub fn replay(
        &mut self,
        input: &Input,
        configuration: Configuration,
        capacity: u64,
    ) -> Result<Run> {
        let request = Request {
            events: &input.events,
            streams: input.streams,
            config: configuration.settings(),
            plugin: configuration.plugin(),
            aliases: configuration.aliases(),
            capacity,
            samples: SAMPLES,
        };
        self.ask(&request).with_context(|| {
            format!(
                "replay {} on {} with {capacity} bytes (log: {})",
                input.name,
                configuration.name(),
                self.log.display()
            )
        })
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Run> {
        let mut text = serde_json::to_string(request)?;
        text.push('\n');
        let requests = self.requests.as_mut().context("the server was stopped")?;
        requests
            .write_all(text.as_bytes())
            .and_then(|()| requests.flush())
            .context("the replay server does not listen")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.is_empty() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(5).collect();
            let last: Vec<_> = last.into_iter().rev().collect();
            bail!("the replay server ended: {}", last.join(" / "));
        }
        match serde_json::from_str(&answer).context("understand the server's answer")? {
            Answer::Done(run) => Ok(*run),
            Answer::Failed { error } => bail!(error),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its input ends, and so does it.
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}
