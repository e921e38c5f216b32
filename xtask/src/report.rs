//! Figures of the demo's two runs: their file, table and verdict.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::counts::Counts;

/// What one run of the training script came to. Sizes are in bytes, times in
/// nanoseconds. Peaks are over the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Training steps done.
    pub steps: u64,
    /// Loss of each step, as the script saw it.
    pub losses: Vec<f64>,
    /// Most memory in use by tensors at once, in the allocator's rounding.
    pub peak_allocated_bytes: u64,
    /// Most memory held from the driver at once.
    pub peak_reserved_bytes: u64,
    /// Allocations served.
    pub allocations: u64,
    /// Times cached memory had to be given back to serve a request.
    pub alloc_retries: u64,
    /// Calls into the allocator to allocate or free that were timed.
    pub allocator_calls: u64,
    /// Host time spent in them, including what the driver did under them.
    pub allocator_ns: u64,
    /// Host time of the whole run.
    pub wall_ns: u64,
    /// Calls to the driver that hand out, give back or map device memory.
    /// Like the rest, counted by the simulator only.
    pub driver_calls: Option<u64>,
    /// Their time by the simulator's cost model.
    pub driver_virtual_ns: Option<u64>,
    /// Virtual time the host waited for the device.
    pub host_wait_virtual_ns: Option<u64>,
    /// Uses of memory that a real device might punish.
    pub hazards: Option<u64>,
    /// Device memory not freed at the end.
    pub leaked_bytes: Option<u64>,
}

impl Figures {
    /// Adds what the simulator counted.
    pub fn count(&mut self, counts: Counts) {
        self.driver_calls = Some(counts.memory_calls);
        self.driver_virtual_ns = Some(counts.memory_ns);
        self.host_wait_virtual_ns = Some(counts.wait_ns);
        self.hazards = Some(counts.hazards);
        self.leaked_bytes = Some(counts.leaked);
    }
}

/// Both runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// With torch_npu's own allocator.
    pub stock: Figures,
    /// With npualloc loaded as a plug-in.
    pub npualloc: Figures,
}

impl Report {
    /// Writes both runs' figures as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("encode the report")?;
        fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
    }

    /// The side-by-side table.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(["", "stock", "npualloc"]);
        let mut row = |name: &str, show: &dyn Fn(&Figures) -> String| {
            table.add_row([name.to_owned(), show(&self.stock), show(&self.npualloc)]);
        };
        row("steps", &|f| f.steps.to_string());
        row("last loss", &|f| {
            f.losses
                .last()
                .map_or("none".into(), |loss| format!("{loss:.4}"))
        });
        row("peak allocated", &|f| gib(f.peak_allocated_bytes));
        row("peak reserved", &|f| gib(f.peak_reserved_bytes));
        row("reserved / allocated", &|f| {
            format!(
                "{:.3}",
                f.peak_reserved_bytes as f64 / f.peak_allocated_bytes as f64
            )
        });
        row("allocations", &|f| f.allocations.to_string());
        row("retries after freeing cache", &|f| {
            f.alloc_retries.to_string()
        });
        row("driver memory calls", &|f| {
            counted(f.driver_calls, |n| n.to_string())
        });
        row("driver time (virtual)", &|f| {
            counted(f.driver_virtual_ns, millis)
        });
        row("waited for the device (virtual)", &|f| {
            counted(f.host_wait_virtual_ns, millis)
        });
        row("hazards", &|f| counted(f.hazards, |n| n.to_string()));
        row("leaked", &|f| {
            counted(f.leaked_bytes, |n| format!("{n} bytes"))
        });
        row("allocator calls timed", &|f| f.allocator_calls.to_string());
        row("time in the allocator", &|f| millis(f.allocator_ns));
        row("time of one call", &|f| {
            format!(
                "{} ns",
                f.allocator_ns.checked_div(f.allocator_calls).unwrap_or(0)
            )
        });
        row("wall time", &|f| format!("{:.1} s", f.wall_ns as f64 / 1e9));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// What the runs disagree on though they must not; empty when all is well.
    pub fn failures(&self) -> Vec<String> {
        let (stock, ours) = (&self.stock, &self.npualloc);
        let mut failures = Vec::new();
        if stock.steps != ours.steps {
            failures.push(format!(
                "steps: stock {}, npualloc {}",
                stock.steps, ours.steps
            ));
        }
        if stock.losses != ours.losses {
            failures.push("the losses of the two runs differ".into());
        }
        // Blocks of virtual segments are cut closer to the request.
        if ours.peak_allocated_bytes > stock.peak_allocated_bytes {
            failures.push(format!(
                "npualloc's peak allocated of {} bytes is above stock's {}",
                ours.peak_allocated_bytes, stock.peak_allocated_bytes
            ));
        }
        if ours.peak_reserved_bytes > stock.peak_reserved_bytes {
            failures.push(format!(
                "npualloc's peak reserved of {} bytes is above stock's {}",
                ours.peak_reserved_bytes, stock.peak_reserved_bytes
            ));
        }
        for (what, value) in [
            ("hazards", ours.hazards),
            ("leaked bytes", ours.leaked_bytes),
        ] {
            if let Some(count @ 1..) = value {
                failures.push(format!("npualloc has {count} {what}"));
            }
        }
        failures
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.3} GiB", bytes as f64 / f64::from(1 << 30))
}

fn millis(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

fn counted(value: Option<u64>, show: impl Fn(u64) -> String) -> String {
    value.map_or("not counted on a device".into(), show)
}

#[cfg(test)]
mod tests {
    use super::{Counts, Figures, Report};

    fn figures(allocated: u64, reserved: u64, losses: &[f64]) -> Figures {
        Figures {
            steps: losses.len() as u64,
            losses: losses.to_vec(),
            peak_allocated_bytes: allocated,
            peak_reserved_bytes: reserved,
            allocations: 10,
            alloc_retries: 0,
            allocator_calls: 20,
            allocator_ns: 4000,
            wall_ns: 1_000_000,
            driver_calls: None,
            driver_virtual_ns: None,
            host_wait_virtual_ns: None,
            hazards: None,
            leaked_bytes: None,
        }
    }

    #[test]
    fn equal_runs_and_less_reserved_memory_pass() {
        let report = Report {
            stock: figures(100, 200, &[2.0]),
            npualloc: figures(100, 150, &[2.0]),
        };
        assert_eq!(report.failures(), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_named() {
        let mut report = Report {
            stock: figures(100, 200, &[2.0]),
            npualloc: figures(101, 201, &[2.0, 1.0]),
        };
        report.npualloc.count(Counts {
            hazards: 3,
            leaked: 4,
            ..Counts::default()
        });
        let failures = report.failures();
        for word in [
            "steps",
            "losses",
            "allocated",
            "reserved",
            "3 hazards",
            "4 leaked",
        ] {
            assert!(
                failures.iter().any(|text| text.contains(word)),
                "{word}: {failures:?}"
            );
        }
    }

    #[test]
    fn the_table_shows_uncounted_driver_calls_as_such() {
        let report = Report {
            stock: figures(100, 200, &[2.0]),
            npualloc: figures(100, 150, &[2.0]),
        };
        assert!(report.table().contains("not counted"));
        assert!(report.table().contains("200 ns"), "4000 ns in 20 calls");
    }
}
