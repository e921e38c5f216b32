//! `npualloc fit`: is this much memory enough?

use npualloc_replay::quantity::show_size;
use serde::Serialize;

use super::Verdict;
use super::replay::{SERVED, driver_failure, place, served};
use crate::cli::FitArgs;
use crate::error::{Error, Result};
use crate::input::Recording;
use crate::output::{Output, table};
use crate::runs::{self, show_conf};

#[derive(Serialize)]
struct Report {
    trace: String,
    /// Whether the input was cut, and is read up to there.
    torn: bool,
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
    /// The least capacity that is enough, to 0.1 % of the live bytes; above the given one where that is not enough.
    least_capacity: Option<u64>,
    /// What is lacking; 0 when it fits.
    missing: Option<u64>,
    /// How many of the requests that failed in the recorded run are served.
    failed_served: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_memory: Option<String>,
    /// Whether it fits is not known then.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_failure: Option<String>,
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
        let fits = outcome.completes();
        let driver_failure = driver_failure(&trace, &outcome);
        let least = match driver_failure {
            Some(_) => None,
            None => runs::least(&trace, conf, settings)?.map(|(bytes, _)| bytes),
        };
        // Completion is not quite monotone in the capacity: what fits lacks nothing, and where it does not fit, less
        // that would be enough is no answer.
        let least = match least {
            Some(bytes) if fits => Some(bytes.min(capacity)),
            Some(bytes) if bytes <= capacity => {
                runs::least_above(&trace, conf, settings, capacity)?
            }
            other => other,
        };
        let missing = least.map(|bytes| bytes.saturating_sub(capacity));
        Ok(Fit {
            conf: conf.clone(),
            fits,
            least_capacity: least,
            missing,
            failed_served: outcome.failed_served,
            out_of_memory: outcome.out_of_memory_at.map(|at| place(&trace, at)),
            driver_failure,
        })
    })?;
    bar.finish_and_clear();
    // Nothing is known where it failed with each of them.
    if settings.iter().all(|fit| fit.driver_failure.is_some())
        && let Some(Fit {
            conf,
            driver_failure: Some(failure),
            ..
        }) = settings.first()
    {
        return Err(Error::Driver {
            conf: conf.clone(),
            failure: failure.clone(),
        });
    }
    let report = Report {
        trace: path.display().to_string(),
        torn: trace.torn,
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
            match fit.least_capacity {
                Some(bytes) => show_size(bytes),
                None if fit.driver_failure.is_some() => "?".to_owned(),
                None => "more than any device has".to_owned(),
            },
            match fit.missing {
                Some(0) => String::new(),
                Some(bytes) => show_size(bytes),
                None => "?".to_owned(),
            },
            fit.out_of_memory
                .as_ref()
                .or(fit.driver_failure.as_ref())
                .cloned()
                .unwrap_or_default(),
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
