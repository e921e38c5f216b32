//! `npualloc advise`: better settings for a trace.

use npualloc_replay::quantity::show_size;
use serde::Serialize;

use super::Verdict;
use super::replay::{SERVED, ratio, served};
use crate::cli::{AdviseArgs, Goal};
use crate::error::Result;
use crate::input::Recording;
use crate::output::{Output, table};
use crate::runs::{self, show_conf};
use crate::search::{Scored, Search, candidates};

/// How many candidates a person is shown.
const SHOWN: usize = 8;

#[derive(Serialize)]
struct Report {
    trace: String,
    /// Whether the input was cut, and is read up to there.
    torn: bool,
    goal: Goal,
    capacity: u64,
    peak_live: u64,
    /// In the recorded run.
    failed_requests: usize,
    /// Whether what is best completes on the given device.
    completes: bool,
    /// The line to put before the program; none where nothing that was tried completes.
    advice: Option<String>,
    candidates: Vec<Scored>,
}

/// Runs the command.
pub fn run(arguments: &AdviseArgs, output: Output) -> Result<Verdict> {
    // What the environment says is wrong for every candidate or for none: said before anything is read, as by the
    // other commands.
    runs::settings("")?;
    let path = &arguments.source.trace;
    let trace = Recording::read(&arguments.source)?.trace;
    let capacity = runs::capacity(arguments.capacity, &trace)?;
    let bar = output.progress("searching", candidates());
    let search = Search {
        trace: &trace,
        goal: arguments.goal,
        capacity,
        bar: &bar,
    };
    let candidates = search.run()?;
    bar.finish_and_clear();
    let best = candidates.first();
    let completes = best.is_some_and(|best| best.stall_ns.is_some());
    let advice = best
        .filter(|best| match arguments.goal {
            Goal::Memory => best.least_capacity.is_some(),
            Goal::Stalls => completes,
        })
        .map(|best| format!("PYTORCH_NPU_ALLOC_CONF={}", best.conf));
    let report = Report {
        trace: path.display().to_string(),
        torn: trace.torn,
        goal: arguments.goal,
        capacity,
        peak_live: trace.peak_live,
        failed_requests: trace.failed.len(),
        completes,
        advice,
        candidates,
    };
    output.print(&report, || text(&report))?;
    Ok(if completes {
        Verdict::Done
    } else {
        Verdict::DoesNotFit
    })
}

fn text(report: &Report) -> String {
    let mut header = vec![
        "settings",
        "least capacity",
        "× live",
        "driver calls and waits",
    ];
    if report.failed_requests > 0 {
        header.push(SERVED);
    }
    let mut shown = table(&header);
    let measured = report.goal == Goal::Memory;
    let candidates = &report.candidates;
    let nowhere = measured && candidates.iter().all(|one| one.least_capacity.is_none());
    for (index, scored) in report.candidates.iter().enumerate() {
        let is_start = runs::USUAL_CONFS.contains(&scored.conf.as_str());
        if index >= SHOWN && !is_start {
            continue;
        }
        let mut row = vec![
            show_conf(&scored.conf).to_owned(),
            match scored.least_capacity {
                Some(bytes) => show_size(bytes),
                None if nowhere => "more than any device has".to_owned(),
                None => "not less".to_owned(),
            },
            scored
                .least_capacity
                .map_or_else(String::new, |bytes| ratio(bytes, report.peak_live)),
            scored.stall_ns.map_or_else(
                || "does not complete".to_owned(),
                super::replay::milliseconds,
            ),
        ];
        if report.failed_requests > 0 {
            let count = scored.failed_served;
            row.push(count.map_or_else(String::new, |it| served(it, report.failed_requests)));
        }
        shown.add_row(row);
    }
    if report.goal == Goal::Stalls {
        for index in [1, 2] {
            if let Some(column) = shown.column_mut(index) {
                column.set_constraint(comfy_table::ColumnConstraint::Hidden);
            }
        }
    }
    let goal = match report.goal {
        Goal::Memory => "Least memory".to_owned(),
        Goal::Stalls => format!("Least stalls on {}", show_size(report.capacity)),
    };
    let trouble = if report.completes {
        String::new()
    } else {
        format!("It does not fit in {}.\n", show_size(report.capacity))
    };
    let tried = format!(
        "{shown}\n{} settings tried.\n{trouble}",
        report.candidates.len()
    );
    match (&report.advice, report.goal) {
        (Some(advice), _) => format!("{tried}{goal}:\n\n    {advice}\n"),
        (None, Goal::Memory) => {
            format!("{tried}No advice: no device has enough for any of them.\n")
        }
        (None, Goal::Stalls) => format!(
            "{tried}No advice: it completes with none of them. `--for memory` finds which need the least.\n"
        ),
    }
}
