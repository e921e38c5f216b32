//! A trace's figures as tables.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table};

use super::configuration::Configuration;
use super::report::{Run, Tight, TraceReport};

/// All tables of a trace, in a form of comfy-table's `presets`.
pub fn text(trace: &TraceReport, preset: &str) -> String {
    let mut text = String::new();
    let live = trace.peak_live as f64;
    // Writing to a string can't fail.
    let _ = writeln!(text, "{}: {}", trace.name, trace.workload);
    let _ = writeln!(
        text,
        "{} events, {} allocations, peak live {:.3} GiB; ample memory: {:.1} GiB",
        trace.events,
        trace.allocations,
        gib(trace.peak_live),
        gib(trace.ample_capacity),
    );
    // Markdown wants an empty line around a table.
    let _ = writeln!(text, "\n{}\n", ample(trace, live, preset));
    for tight in &trace.tight {
        let _ = writeln!(
            text,
            "Under pressure: {:.3} GiB, {:.4} × peak live{}",
            gib(tight.capacity),
            tight.capacity as f64 / live,
            because(trace, tight),
        );
        let _ = writeln!(text, "\n{}\n", pressed(tight, preset));
    }
    text.truncate(text.trim_end().len());
    text
}

fn because(trace: &TraceReport, tight: &Tight) -> String {
    let measured = trace.configurations.get(&tight.reference);
    let least = measured.and_then(|it| it.least.as_ref());
    match least {
        Some(at) if at.capacity == tight.capacity => {
            format!(" (the least for {})", tight.reference.name())
        }
        _ => String::new(),
    }
}

fn ample(trace: &TraceReport, live: f64, preset: &str) -> Table {
    let mut table = new(
        preset,
        [
            "ample memory",
            "reserved GiB",
            "÷ live",
            "least ÷ live",
            "memory calls",
            "after growth",
            "per 10,000",
            "second half",
            "per 10,000",
            "driver ms",
            "syncs",
            "waited ms",
            "out of memory",
            "hazards",
        ],
    );
    for (configuration, measured) in &trace.configurations {
        let run = &measured.ample;
        let least = measured.least.as_ref();
        let row = [
            configuration.name().to_owned(),
            format!("{:.3}", gib(run.peak_reserved)),
            format!("{:.4}", run.peak_reserved as f64 / live),
            least.map_or("-".into(), |at| format!("{:.4}", at.capacity as f64 / live)),
            run.memory_calls.to_string(),
            run.late_calls.to_string(),
            format!(
                "{:.1}",
                run.late_calls as f64 * 1e4 / run.allocations.max(1) as f64
            ),
            run.second_half_calls
                .map_or("-".into(), |calls| calls.to_string()),
            run.second_half_share()
                .map_or("-".into(), |share| format!("{share:.1}")),
            millis(run.late_ns),
            run.device_syncs.to_string(),
            millis(run.wait_ns),
            ran_out(run),
            run.hazards.to_string(),
        ];
        table.add_row(row);
    }
    right(table)
}

fn pressed(tight: &Tight, preset: &str) -> Table {
    let mut table = new(
        preset,
        [
            "under pressure",
            "out of memory",
            "calls after growth",
            "syncs",
            "waits",
            "driver ms",
            "waited ms",
            "calls ÷ stock",
            "time ÷ stock",
        ],
    );
    let reference = tight
        .runs
        .get(&tight.reference)
        .filter(|run| run.completed());
    for (configuration, run) in &tight.runs {
        let ratio = |of: fn(&Run) -> u64| match reference {
            Some(stock) if run.completed() && of(stock) > 0 => {
                format!("{:.3}", of(run) as f64 / of(stock) as f64)
            }
            _ => "-".to_owned(),
        };
        table.add_row([
            name(*configuration, tight.reference),
            ran_out(run),
            run.late_calls.to_string(),
            run.device_syncs.to_string(),
            run.waits.to_string(),
            millis(run.late_ns),
            millis(run.wait_ns),
            ratio(|run| run.late_calls),
            ratio(Run::stall_ns),
        ]);
    }
    right(table)
}

fn name(configuration: Configuration, reference: Configuration) -> String {
    let mark = if configuration == reference { " *" } else { "" };
    format!("{}{mark}", configuration.name())
}

fn ran_out(run: &Run) -> String {
    match run.out_of_memory_at {
        None => "no".into(),
        Some(event) => format!("at {event}"),
    }
}

fn new<const N: usize>(preset: &str, header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(preset);
    table.set_header(header);
    table
}

fn right(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn millis(nanoseconds: u64) -> String {
    format!("{:.1}", nanoseconds as f64 / 1e6)
}
