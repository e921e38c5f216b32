//! `npualloc report`: a page that shows where the memory went.

use npualloc_replay::quantity::show_size;
use npualloc_replay::replay::replay_observed;
use serde::Serialize;

use super::Verdict;
use super::replay::{driver_failure, place, served};
use crate::cli::ReportArgs;
use crate::error::{Error, Result};
use crate::input::Recording;
use crate::output::{Output, name};
use crate::report::{Collector, Facts, page};
use crate::runs::{self, show_conf};
use crate::target::{check_apart, is_stdout, write_whole};

#[derive(Serialize)]
struct Written {
    page: String,
    bytes: usize,
    conf: String,
    capacity: u64,
    /// Whether the input was cut, and is read up to there.
    torn: bool,
    peak_held: u64,
    failed_requests: usize,
    failed_served: usize,
    out_of_memory: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &ReportArgs, output: Output) -> Result<Verdict> {
    let settings = runs::settings(&arguments.conf)?;
    let path = &arguments.source.trace;
    check_apart(&arguments.output, path)?;
    let recording = Recording::read(&arguments.source)?;
    let trace = &recording.trace;
    let capacity = runs::capacity(arguments.capacity, trace)?;
    let bar = output.progress("replaying", 1);
    let mut collector = Collector::new(trace);
    let setup = runs::setup(settings, capacity);
    let outcome =
        replay_observed(trace, &setup, &mut collector).map_err(|source| Error::Replay {
            conf: arguments.conf.clone(),
            source,
        })?;
    bar.finish_and_clear();
    if let Some(failure) = driver_failure(trace, &outcome) {
        return Err(Error::Driver {
            conf: arguments.conf.clone(),
            failure,
        });
    }
    let source = path.file_name().unwrap_or(path.as_os_str());
    let facts = Facts {
        source: source.to_string_lossy().into_owned(),
        workload: &trace.workload,
        conf: &arguments.conf,
        capacity,
        torn: trace.torn,
        outcome: &outcome,
        stacks: &recording.stacks,
        stack_of: &recording.stack_of,
    };
    let text = page(&facts, trace, &collector)?;
    write_whole(&arguments.output, text.as_bytes())?;
    let written = Written {
        page: arguments.output.display().to_string(),
        bytes: text.len(),
        conf: arguments.conf.clone(),
        capacity,
        torn: trace.torn,
        peak_held: outcome.peak_held,
        failed_requests: trace.failed.len(),
        failed_served: outcome.failed_served,
        out_of_memory: outcome.out_of_memory_at.map(|at| place(trace, at)),
    };
    let shown = || {
        let end = match &written.out_of_memory {
            None => "completes".to_owned(),
            Some(at) => format!("runs out of memory at {at}"),
        };
        let failed = match written.failed_requests {
            0 => String::new(),
            all => format!(
                "Of the requests that failed when it was recorded, {} are served.\n",
                served(written.failed_served, all)
            ),
        };
        format!(
            "With {} on {} the workload {end}, and holds at most {}.\n{failed}Written: {} ({})",
            show_conf(&written.conf),
            show_size(capacity),
            show_size(written.peak_held),
            name(&written.page),
            show_size(written.bytes as u64),
        )
    };
    if is_stdout(&arguments.output) {
        output.print_aside(&written, shown)?;
    } else {
        output.print(&written, shown)?;
    }
    Ok(Verdict::Done)
}
