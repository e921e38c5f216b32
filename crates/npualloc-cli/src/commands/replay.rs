//! `npualloc replay`: settings compared on one trace.

use npualloc_replay::quantity::show_size;
use npualloc_replay::replay::Outcome;
use npualloc_replay::trace::Trace;
use serde::Serialize;

use super::Verdict;
use crate::cli::ReplayArgs;
use crate::error::Result;
use crate::input::Recording;
use crate::output::{Output, table};
use crate::runs::{self, show_conf};

#[derive(Serialize)]
struct Report {
    trace: String,
    workload: String,
    /// Whether the input was cut, and is read up to there.
    torn: bool,
    events: usize,
    peak_live: u64,
    /// In the recorded run; how many of them are served is said for each of the settings.
    failed_requests: usize,
    private_pools: usize,
    capacity: u64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    conf: String,
    /// Present with `--least`; `null` when not even the largest device is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_capacity: Option<Option<u64>>,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Runs the command.
pub fn run(arguments: &ReplayArgs, output: Output) -> Result<Verdict> {
    let confs = runs::checked_confs(&arguments.confs)?;
    let path = &arguments.source.trace;
    let trace = Recording::read(&arguments.source)?.trace;
    let capacity = runs::capacity(arguments.capacity, &trace)?;
    let bar = output.progress("replaying", confs.len() as u64);
    let runs = runs::side_by_side(&confs, &bar, |(conf, settings)| {
        let outcome = runs::run(&trace, conf, settings, capacity)?;
        let least_capacity = if arguments.least {
            let found = runs::least(&trace, conf, settings)?;
            Some(found.map(|(least, _)| least))
        } else {
            None
        };
        Ok(Run {
            conf: conf.clone(),
            least_capacity,
            outcome,
        })
    })?;
    bar.finish_and_clear();
    let report = Report {
        trace: path.display().to_string(),
        workload: trace.workload.clone(),
        torn: trace.torn,
        events: trace.events.len(),
        peak_live: trace.peak_live,
        failed_requests: trace.failed.len(),
        private_pools: trace.pools.len(),
        capacity,
        runs,
    };
    output.print(&report, || text(&report, &trace))?;
    Ok(Verdict::Done)
}

fn text(report: &Report, trace: &Trace) -> String {
    let mut header = vec![
        "settings",
        "completes",
        "most held",
        "× live",
        "driver calls",
        "in them",
        "waits",
        "syncs",
        "retries",
    ];
    if report.runs.iter().any(|run| run.least_capacity.is_some()) {
        header.push("least capacity");
    }
    if report.failed_requests > 0 {
        header.push(SERVED);
    }
    let mut shown = table(&header);
    for run in &report.runs {
        let outcome = &run.outcome;
        let mut row = vec![
            show_conf(&run.conf).to_owned(),
            match (driver_failure(trace, outcome), outcome.out_of_memory_at) {
                (Some(failure), _) => format!("no: {failure}"),
                (None, Some(at)) => format!("no: out of memory at {}", place(trace, at)),
                (None, None) => "yes".into(),
            },
            show_size(outcome.peak_held),
            ratio(outcome.peak_held, report.peak_live),
            outcome.memory_calls.to_string(),
            milliseconds(outcome.memory_ns),
            milliseconds(outcome.wait_ns),
            outcome.device_syncs.to_string(),
            outcome.retries.to_string(),
        ];
        if let Some(least) = run.least_capacity {
            row.push(least.map_or("none".into(), |bytes| {
                format!("{} ({}×)", show_size(bytes), ratio(bytes, report.peak_live))
            }));
        }
        if report.failed_requests > 0 {
            row.push(served(outcome.failed_served, report.failed_requests));
        }
        shown.add_row(row);
    }
    let workload = if report.workload.is_empty() {
        String::new()
    } else {
        format!("{}\n", report.workload)
    };
    format!(
        "{workload}{} events, at most {} alive at once, on a device of {}\n{shown}\n",
        report.events,
        show_size(report.peak_live),
        show_size(report.capacity),
    )
}

/// An event as a person finds it: its number, and the marker before it.
pub fn place(trace: &Trace, at: usize) -> String {
    use npualloc_replay::trace::Event;
    let marker = trace.events[..at]
        .iter()
        .rev()
        .find_map(|event| match event {
            Event::Mark { label } => trace.labels.get(*label as usize),
            _ => None,
        });
    match marker {
        Some(label) if !label.is_empty() => format!("event {at} ({label})"),
        _ => format!("event {at}"),
    }
}

/// The driver's failure that ended a replay, and where.
pub(super) fn driver_failure(trace: &Trace, outcome: &Outcome) -> Option<String> {
    let place = place(trace, outcome.driver_failed_at?);
    let message = outcome.message.as_deref().unwrap_or_default();
    Some(format!("{message}, at {place}"))
}

/// Header of the column with [`served`].
pub(super) const SERVED: &str = "failed requests served";

/// How many of the requests that failed in the recorded run a replay served.
pub(super) fn served(count: usize, all: usize) -> String {
    format!("{count} of {all}")
}

pub(super) fn ratio(bytes: u64, live: u64) -> String {
    format!("{:.3}", bytes as f64 / live.max(1) as f64)
}

pub(super) fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.1} ms", nanoseconds as f64 / 1e6)
}
