//! Whether `bench replay` measures what it says, on traces whose figures are known or bounded; part of
//! `cargo xtask test python`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use npualloc_replay::trace::Trace;

use super::super::input::{self, Extent, Input};
use super::configuration::Configuration;
use super::measure::{self, Plan};
use super::report::{Report, Run, TraceReport};
use super::{picture, prepare, summary, table};
use crate::env::Project;
use crate::python::Python;

const MIB: u64 = 1 << 20;

/// Adds what is wrong with a trace's figures.
type Known = fn(&TraceReport, &mut Vec<String>);

/// Four blocks of 64 MiB, all freed; then one of 256 MiB. The stock allocator pads each by 32 bytes and
/// takes whole multiples of 2 MiB from the driver: 66 MiB and 258 MiB.
const EXACT: &str = "# npualloc-trace v1\n# capacity 1073741824\n# workload four, then one\n\
    a 0 67108864 0\na 1 67108864 0\na 2 67108864 0\na 3 67108864 0\n\
    f 0\nf 1\nf 2\nf 3\ns *\na 4 268435456 0\nf 4\n";

/// Requests that failed, which the program caught: one for more than the device has, one that is served.
const CAUGHT: &str = "# npualloc-trace v1\n# capacity 1073741824\na 0 67108864 0\n\
    m out of memory: 4294967296 bytes\na 1 4294967296 0\nf 1\n\
    m out of memory: 134217728 bytes\na 2 134217728 0\nf 2\n\
    a 3 67108864 0\nf 3\nf 0\n";

/// A block that another stream works on for some time when it is freed. The host waits for that stream, and asks for as
/// much again.
fn waited() -> String {
    let work = "u 0 1\n".repeat(100);
    format!(
        "# npualloc-trace v1\n# capacity 1073741824\n\
         a 0 67108864 0\n{work}f 0\nw 1 0\na 1 67108864 0\nf 1\n"
    )
}

/// Blocks that come and go, then the largest: one event more than whole samples of the timeline hold.
fn tail() -> String {
    let pairs: String = (0..400)
        .map(|id| format!("a {id} 1048576 0\nf {id}\n"))
        .collect();
    format!("# npualloc-trace v1\n# capacity 1073741824\n{pairs}a 400 67108864 0\n")
}

/// Replays small traces in every configuration and returns what to say of it, and what is wrong.
///
/// # Errors
/// When something can't be built or a replay fails.
pub fn check(project: &Project, python: &Python) -> Result<(String, Vec<String>)> {
    let directory = project.target.join("bench-check");
    let launcher = prepare(project, python, &directory)?;
    let traces = vec![
        ("built-in".to_owned(), input::built_in()?),
        (
            "exact".to_owned(),
            Trace::parse(Path::new("exact"), EXACT.as_bytes())?,
        ),
        (
            "caught".to_owned(),
            Trace::parse(Path::new("caught"), CAUGHT.as_bytes())?,
        ),
        (
            "tail".to_owned(),
            Trace::parse(Path::new("tail"), tail().as_bytes())?,
        ),
        (
            "waited".to_owned(),
            Trace::parse(Path::new("waited"), waited().as_bytes())?,
        ),
    ];
    let inputs = Input::write_all(traces, launcher.scratch(), Extent::Whole)?;
    let plan = Plan {
        configurations: Configuration::ALL.to_vec(),
        search: true,
        jobs: 1,
    };
    measure::run(&launcher, &inputs, &plan)?.write(&directory.join("replay.json"))?;
    // As a reader of the file would see it.
    let report = Report::read(&directory.join("replay.json"))?;
    let mut wrong = Vec::new();
    let preset = comfy_table::presets::ASCII_MARKDOWN;
    let side_by_side = summary::text(&report, &Configuration::ALL, preset);
    // The stock allocator's least capacity for "exact": 264 MiB for 256 live.
    if !side_by_side.contains("1.0312") {
        wrong.push(format!("the summary lacks a figure:\n{side_by_side}"));
    }
    for trace in &report.traces {
        general(trace, &mut wrong);
        let path = directory.join(format!("replay-{}.svg", trace.name));
        shown(trace, path, &mut wrong)?;
    }
    for (name, known) in [("exact", exact as Known), ("waited", waited_once)] {
        match report.traces.iter().find(|trace| trace.name == name) {
            Some(trace) => known(trace, &mut wrong),
            None => wrong.push(format!("the trace \"{name}\" is not in the report")),
        }
    }
    if report.hazards() > 0 {
        wrong.push(format!("{} hazards", report.hazards()));
    }
    let closing = format!(
        "{} traces replayed in {} configurations",
        report.traces.len(),
        Configuration::ALL.len()
    );
    Ok((closing, wrong))
}

/// What is true of every trace.
fn general(trace: &TraceReport, wrong: &mut Vec<String>) {
    let live = trace.peak_live;
    for configuration in Configuration::ALL {
        let mut claim = |holds: bool, what: String| {
            if !holds {
                let name = configuration.name();
                wrong.push(format!("{}, {name}: {what}", trace.name));
            }
        };
        let Some(measured) = trace.configurations.get(&configuration) else {
            claim(false, "not measured".to_owned());
            continue;
        };
        let run = &measured.ample;
        claim(run.completed(), "out of memory with ample memory".into());
        claim(
            run.peak_live == live && run.allocations == u64::from(trace.allocations),
            format!(
                "the replay had {} bytes alive in {} allocations, the trace has {live} in {}",
                run.peak_live, run.allocations, trace.allocations
            ),
        );
        let most = |column: usize| run.timeline.iter().map(|point| point[column]).max();
        claim(
            most(1) == Some(live) && most(2) == Some(run.peak_reserved),
            "the timeline misses a peak".into(),
        );
        claim(
            run.peak_reserved >= live && run.peak_reserved >= run.peak_reserved_stat,
            format!("{} reserved of {live} live", run.peak_reserved),
        );
        claim(
            run.late_calls < run.memory_calls && run.device_syncs <= run.waits,
            "the first growth made no call".into(),
        );
        claim(
            run.second_half_calls
                .is_some_and(|calls| calls <= run.memory_calls),
            format!(
                "{:?} memory calls in the second half of {}",
                run.second_half_calls, run.memory_calls
            ),
        );
        match &measured.least {
            None => claim(false, "completes at no capacity".into()),
            Some(at) => claim(
                at.capacity >= live
                    && at.capacity <= trace.ample_capacity
                    && at.run.completed()
                    && at.run.peak_reserved <= at.capacity,
                format!("least capacity {} with {live} live", at.capacity),
            ),
        }
    }
    for tight in &trace.tight {
        let reference = tight.runs.get(&tight.reference);
        if !reference.is_some_and(Run::completed) {
            wrong.push(format!(
                "{}: {} does not complete at its own least capacity",
                trace.name,
                tight.reference.name()
            ));
        }
    }
}

/// What is known of the trace `waited`: the block serves again, and the wait is not the allocator's.
fn waited_once(trace: &TraceReport, wrong: &mut Vec<String>) {
    let Some(stock) = trace.configurations.get(&Configuration::StockDefault) else {
        return;
    };
    let run = &stock.ample;
    let (found, expected) = ((run.peak_reserved, run.waits), (66 * MIB, 0));
    if found != expected {
        wrong.push(format!(
            "waited: (bytes reserved, waits) {found:?}, not {expected:?}"
        ));
    }
}

/// What is known of the trace `exact`.
fn exact(trace: &TraceReport, wrong: &mut Vec<String>) {
    let Some(stock) = trace.configurations.get(&Configuration::StockDefault) else {
        return;
    };
    let mut equal = |what: &str, found: u64, expected: u64| {
        if found != expected {
            wrong.push(format!("exact, {what}: {found}, not {expected}"));
        }
    };
    let run = &stock.ample;
    equal("reserved", run.peak_reserved, (4 * 66 + 258) * MIB);
    equal(
        "reserved by itself",
        run.peak_reserved_stat,
        (4 * 66 + 258) * MIB,
    );
    equal("memory calls", run.memory_calls, 5);
    equal("calls after growth", run.late_calls, 0);
    // Of five blocks the last three.
    equal(
        "calls in the second half",
        run.second_half_calls.unwrap_or(0),
        3,
    );
    // The program's own synchronisation is not the allocator's.
    equal("device synchronisations", run.device_syncs, 0);
    if let Some(at) = &stock.least {
        equal("least capacity", at.capacity, 4 * 66 * MIB);
        // The fifth is refused, the four are given back, and it is asked for again.
        equal("calls at least capacity", at.run.memory_calls, 10);
        equal("calls after growth at least capacity", at.run.late_calls, 6);
        equal("synchronised", u64::from(at.run.device_syncs > 0), 1);
        equal("retries", at.run.retries, 1);
    }
    // Nothing is in use any more when the large block is asked for, and handles move.
    for configuration in [
        Configuration::NpuallocExpandableAlias,
        Configuration::NpuallocExpandable,
    ] {
        let measured = trace.configurations.get(&configuration);
        if let Some(at) = measured.and_then(|it| it.least.as_ref()) {
            let name = configuration.name();
            equal(
                &format!("{name}, device synchronisations"),
                at.run.device_syncs,
                0,
            );
        }
    }
}

/// Tables and pictures name every configuration.
fn shown(trace: &TraceReport, path: PathBuf, wrong: &mut Vec<String>) -> Result<()> {
    picture::draw(trace, &path)?;
    let drawn =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let text = table::text(trace, comfy_table::presets::ASCII_MARKDOWN);
    for configuration in Configuration::ALL {
        let name = configuration.name();
        for (what, shown) in [("table", &text), ("picture", &drawn)] {
            if !shown.contains(name) {
                wrong.push(format!("{}: no {name} in the {what}", trace.name));
            }
        }
    }
    Ok(())
}
