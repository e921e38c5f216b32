//! The figures, as they are in `replay.json`. Sizes are bytes, times virtual nanoseconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::configuration::Configuration;

/// One replay.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The event at which memory ran out; the replay ended there.
    pub out_of_memory_at: Option<u64>,
    /// Allocations made.
    pub allocations: u64,
    /// The most bytes alive at once, as requested.
    pub peak_live: u64,
    /// The most device memory held at once, by the device's own count.
    pub peak_reserved: u64,
    /// The same by the allocator's statistics (`reserved_bytes.all.peak`).
    pub peak_reserved_stat: u64,
    /// Requests that had to give memory back first (`num_alloc_retries`).
    pub retries: u64,
    /// Uses of memory that a real device might punish.
    pub hazards: u64,
    /// Driver calls that obtain, return, map or unmap memory.
    pub memory_calls: u64,
    /// Their time.
    pub memory_ns: u64,
    /// Those without which the most memory ever held could have been reached as well: all but the
    /// first growth.
    pub late_calls: u64,
    /// Their time.
    pub late_ns: u64,
    /// All memory calls in the second half of the trace's allocations; none where the replay did not reach its end.
    pub second_half_calls: Option<u64>,
    /// Device synchronisations by the allocator.
    pub device_syncs: u64,
    /// Waits for the device, a stream or an event by the allocator.
    pub waits: u64,
    /// Their time, calls and waiting.
    pub wait_ns: u64,
    /// The whole replay's time.
    pub virtual_ns: u64,
    /// Memory calls and waits by the allocator, by kind.
    pub calls: BTreeMap<String, u64>,
    /// Samples: event, and the most live bytes, the most reserved bytes since the last sample, and
    /// memory calls so far.
    pub timeline: Vec<[u64; 4]>,
}

impl Run {
    /// Whether it reached the end of the trace.
    pub fn completed(&self) -> bool {
        self.out_of_memory_at.is_none()
    }

    /// Memory calls for 10,000 allocations in the second half of them.
    pub fn second_half_share(&self) -> Option<f64> {
        let half = self.allocations - self.allocations / 2;
        Some(self.second_half_calls? as f64 * 1e4 / half as f64)
    }

    /// Time that memory cost after the first growth: driver calls and waits.
    pub fn stall_ns(&self) -> u64 {
        self.late_ns + self.wait_ns
    }

    /// Without the timeline.
    #[must_use]
    pub fn brief(mut self) -> Self {
        self.timeline.clear();
        self
    }
}

/// A replay at a given capacity.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct At {
    /// Of the device.
    pub capacity: u64,
    /// What came of it.
    pub run: Run,
}

/// One configuration on one trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// With ample memory.
    pub ample: Run,
    /// At the least capacity at which it completes; none when that was not looked for, or there is none.
    pub least: Option<At>,
}

/// All configurations at a capacity that is tight.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tight {
    /// The stock configuration whose own least capacity it is, or 1.02 × the peak of live bytes if
    /// that is more. The others are compared with it.
    pub reference: Configuration,
    /// Of the device.
    pub capacity: u64,
    /// What came of it.
    pub runs: BTreeMap<Configuration, Run>,
}

/// One trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TraceReport {
    /// File name without its extensions.
    pub name: String,
    /// What ran, by the trace's header.
    pub workload: String,
    /// Events, markers not counted.
    pub events: usize,
    /// Allocations.
    pub allocations: u32,
    /// The most bytes alive at once, as requested.
    pub peak_live: u64,
    /// The capacity of the runs with ample memory.
    pub ample_capacity: u64,
    /// By configuration.
    pub configurations: BTreeMap<Configuration, Measured>,
    /// Under pressure.
    pub tight: Vec<Tight>,
}

/// Everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Where it was measured.
    pub device: String,
    /// By trace, in the order given.
    pub traces: Vec<TraceReport>,
}

impl Report {
    /// Reads what [`Report::write`] wrote.
    ///
    /// # Errors
    /// When the file is not there or is no such report.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("understand {}", path.display()))
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).context("encode the figures")?;
        fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
    }

    /// Hazards of all runs.
    pub fn hazards(&self) -> u64 {
        let of = |trace: &TraceReport| {
            let measured = trace.configurations.values();
            let least = measured.clone().filter_map(|it| it.least.as_ref());
            let tight = trace.tight.iter().flat_map(|tight| tight.runs.values());
            measured
                .map(|it| &it.ample)
                .chain(least.map(|it| &it.run))
                .chain(tight)
                .map(|run| run.hazards)
                .sum::<u64>()
        };
        self.traces.iter().map(of).sum()
    }
}
