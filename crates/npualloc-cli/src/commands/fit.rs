//! `npualloc fit`: is this much memory enough?

use serde::Serialize;

use super::Verdict;
use super::replay::{SERVED, place, served};
use crate::cli::FitArgs;
use crate::error::Result;
use crate::input::Recording;
use crate::output::{Output, table};
use crate::quantity::show_size;
use crate::runs::{self, show_conf};

#[derive(Serialize)]
struct Report {
    trace: String,
    capacity: u64,
    peak_live: u64,
    /// In the recorded run. Whether it fits depends on the last alone, and only where the run ended with it.
    failed_requests: usize,
    fits: bool,
    settings: Vec<Fit>,
}

#[derive(Serialize)]
struct Fit {
    conf: String,
    fits: bool,
    /// The least capacity that is enough, to 0.1 % of the live bytes.
    least_capacity: Option<u64>,
    /// What is lacking; 0 when it fits.
    missing: Option<u64>,
    /// How many of the requests that failed in the recorded run are served.
    failed_served: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_memory: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &FitArgs, output: Output) -> Result<Verdict> {
    let confs = runs::checked_confs(&arguments.confs)?;
    let path = &arguments.source.trace;
    let trace = Recording::read(&arguments.source)?.trace;
    let capacity = runs::capacity(Some(arguments.capacity), &trace)?;
    let bar = output.progress("replaying", confs.len() as u64);
    let settings = runs::side_by_side(&confs, &bar, |(conf, settings)| {
        let outcome = runs::run(&trace, conf, settings, capacity)?;
        let fits = outcome.out_of_memory_at.is_none();
        let least = runs::least(&trace, conf, settings)?.map(|(bytes, _)| bytes);
        // Completion is not quite monotone in the capacity: what fits lacks nothing.
        let missing = least.map(|bytes| {
            if fits {
                0
            } else {
                bytes.saturating_sub(capacity)
            }
        });
        Ok(Fit {
            conf: conf.clone(),
            fits,
            least_capacity: least.map(|bytes| if fits { bytes.min(capacity) } else { bytes }),
            missing,
            failed_served: outcome.failed_served,
            out_of_memory: outcome.out_of_memory_at.map(|at| place(&trace, at)),
        })
    })?;
    bar.finish_and_clear();
    let report = Report {
        trace: path.display().to_string(),
        capacity,
        peak_live: trace.peak_live,
        failed_requests: trace.failed.len(),
        fits: settings.iter().any(|fit| fit.fits),
        settings,
    };
    output.print(&report, || text(&report))?;
    Ok(if report.fits {
        Verdict::Done
    } else {
        Verdict::DoesNotFit
    })
}

fn text(report: &Report) -> String {
    let mut header = vec!["settings", "fits", "least capacity", "missing", "fails at"];
    if report.failed_requests > 0 {
        header.push(SERVED);
    }
    let mut shown = table(&header);
    for fit in &report.settings {
        let mut row = vec![
            show_conf(&fit.conf).to_owned(),
            if fit.fits { "yes" } else { "no" }.to_owned(),
            fit.least_capacity
                .map_or_else(|| "more than any device has".to_owned(), show_size),
            match fit.missing {
                Some(0) => String::new(),
                Some(bytes) => show_size(bytes),
                None => "?".to_owned(),
            },
            fit.out_of_memory.clone().unwrap_or_default(),
        ];
        if report.failed_requests > 0 {
            row.push(served(fit.failed_served, report.failed_requests));
        }
        shown.add_row(row);
    }
    let verdict = if report.fits { "fits" } else { "does not fit" };
    format!(
        "The workload {verdict} in {}; at most {} are alive at once.\n{shown}\n",
        show_size(report.capacity),
        show_size(report.peak_live),
    )
}
