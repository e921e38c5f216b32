//! All traces side by side.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table};

use super::configuration::Configuration;
use super::report::{Measured, Report, Run, Tight, TraceReport};

/// The tables of a report with several traces, in a form of comfy-table's `presets`.
pub fn text(report: &Report, configurations: &[Configuration], preset: &str) -> String {
    let summary = Summary {
        traces: &report.traces,
        configurations,
        preset,
    };
    let mut text = String::new();
    let mut part = |title: &str, table: Table| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{title}:\n\n{table}\n");
    };
    part(
        "Peak reserved ÷ peak live, ample memory",
        summary.ratios(|trace, it| Some(live(trace, it.ample.peak_reserved))),
    );
    let least = |trace: &TraceReport, it: &Measured| {
        let least = it.least.as_ref()?;
        Some(live(trace, least.capacity))
    };
    part("Least capacity ÷ peak live", summary.ratios(least));
    part(
        "Memory calls after growth (for 10,000 allocations) · device synchronisations · virtual ms of these \
         calls and of waits, ample memory",
        summary.ample(),
    );
    part(
        "Memory calls in the second half of the allocations (for 10,000 of them), ample memory",
        summary.second_half(),
    );
    for reference in [Configuration::StockExpandable, Configuration::StockDefault] {
        if let Some(table) = summary.pressure(reference) {
            part(
                &format!(
                    "Under pressure, at 1.02 × peak live or the least for {} where that is more: calls \
                     after growth · device synchronisations · virtual ms, and calls and time as a part of \
                     its own",
                    reference.name()
                ),
                table,
            );
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn live(trace: &TraceReport, bytes: u64) -> f64 {
    bytes as f64 / trace.peak_live as f64
}

struct Summary<'a> {
    traces: &'a [TraceReport],
    configurations: &'a [Configuration],
    preset: &'a str,
}

impl Summary<'_> {
    /// A table with the traces as columns.
    fn table(&self, header: impl Iterator<Item = String>, rows: Vec<Vec<String>>) -> Table {
        let mut table = Table::new();
        table.load_preset(self.preset);
        table.set_header(std::iter::once(String::new()).chain(header));
        table.add_rows(rows);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn measured<T>(
        &self,
        configuration: Configuration,
        figure: impl Fn(&TraceReport, &Measured) -> T,
    ) -> Vec<Option<T>> {
        let of = |trace: &TraceReport| {
            let measured = trace.configurations.get(&configuration)?;
            Some(figure(trace, measured))
        };
        self.traces.iter().map(of).collect()
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.traces.iter().map(|trace| trace.name.clone())
    }

    /// A ratio of each trace, and their mean where each has one.
    fn ratios(&self, figure: impl Fn(&TraceReport, &Measured) -> Option<f64>) -> Table {
        let show = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.4}"));
        let rows = self.configurations.iter().map(|configuration| {
            let ratios = self.measured(*configuration, &figure);
            let ratios: Vec<Option<f64>> = ratios.into_iter().map(Option::flatten).collect();
            let all: Option<Vec<f64>> = ratios.iter().copied().collect();
            let mean = all.map(|all| all.iter().sum::<f64>() / all.len().max(1) as f64);
            let mut row = vec![configuration.name().to_owned()];
            row.extend(ratios.into_iter().chain([mean]).map(show));
            row
        });
        let header = self.names().chain(["mean".to_owned()]);
        self.table(header, rows.collect())
    }

    fn ample(&self) -> Table {
        self.cells(|run| {
            let share = run.late_calls as f64 * 1e4 / run.allocations.max(1) as f64;
            format!(
                "{} ({share:.1}) · {} · {}",
                run.late_calls,
                run.device_syncs,
                millis(run)
            )
        })
    }

    fn second_half(&self) -> Table {
        self.cells(
            |run| match (run.second_half_calls, run.second_half_share()) {
                (Some(calls), Some(share)) => format!("{calls} ({share:.1})"),
                _ => "-".to_owned(),
            },
        )
    }

    /// What is said of each run with ample memory.
    fn cells(&self, say: impl Fn(&Run) -> String) -> Table {
        let rows = self.configurations.iter().map(|configuration| {
            let cells = self.measured(*configuration, |_, it| say(&it.ample));
            let mut row = vec![configuration.name().to_owned()];
            row.extend(cells.into_iter().map(Option::unwrap_or_default));
            row
        });
        self.table(self.names(), rows.collect())
    }

    /// The runs that are compared with a configuration; none where there are none.
    fn pressure(&self, reference: Configuration) -> Option<Table> {
        let found: Vec<(&TraceReport, &Tight)> = self
            .traces
            .iter()
            .flat_map(|trace| trace.tight.iter().map(move |tight| (trace, tight)))
            .filter(|(_, tight)| tight.reference == reference && !tight.runs.is_empty())
            .collect();
        if found.is_empty() {
            return None;
        }
        let header = found
            .iter()
            .map(|(trace, tight)| format!("{}, {:.4} ×", trace.name, live(trace, tight.capacity)));
        let rows = self.configurations.iter().filter_map(|configuration| {
            let runs = found.iter().map(|(_, tight)| tight.runs.get(configuration));
            if runs.clone().all(|run| run.is_none()) {
                return None;
            }
            let stock = found.iter().map(|(_, tight)| tight.runs.get(&reference));
            let cells = runs.zip(stock).map(|(run, stock)| match run {
                None => String::new(),
                Some(run) if !run.completed() => "out of memory".to_owned(),
                Some(run) => pressed(run, stock.filter(|_| *configuration != reference)),
            });
            let mut row = vec![configuration.name().to_owned()];
            row.extend(cells);
            Some(row)
        });
        let rows = rows.collect();
        Some(self.table(header, rows))
    }
}

fn pressed(run: &Run, stock: Option<&Run>) -> String {
    let mut text = format!(
        "{} · {} · {}",
        run.late_calls,
        run.device_syncs,
        millis(run)
    );
    let stock = stock.filter(|stock| stock.completed() && stock.late_calls > 0);
    if let Some(stock) = stock {
        let calls = run.late_calls as f64 / stock.late_calls as f64;
        let time = run.stall_ns() as f64 / stock.stall_ns().max(1) as f64;
        let _ = write!(text, " ({calls:.3}, {time:.3})");
    }
    text
}

fn millis(run: &Run) -> String {
    format!("{:.0}", run.stall_ns() as f64 / 1e6)
}
