//! The smallest capacity on which a trace completes.

use npualloc::error::AllocError;

use crate::replay::{Outcome, Setup, replay};
use crate::trace::Trace;

/// Granularity of the driver, bytes.
const PAGE: u64 = 2 << 20;

/// Bisects between the trace's peak of live bytes and `most`, to within `resolution` bytes. Completion
/// need not be monotone in the capacity: what is found completes, and something less did not. `None` when
/// even `most` is not enough.
pub fn min_capacity(
    trace: &Trace,
    setup: &Setup,
    most: u64,
    resolution: u64,
) -> Result<Option<(u64, Outcome)>, AllocError> {
    let low = trace.peak_live.div_ceil(PAGE).saturating_sub(1);
    search(trace, setup, low, most, resolution)
}

/// As [`min_capacity`], of what is more than `less`, which is not enough.
pub fn min_capacity_above(
    trace: &Trace,
    setup: &Setup,
    less: u64,
    most: u64,
    resolution: u64,
) -> Result<Option<(u64, Outcome)>, AllocError> {
    search(trace, setup, less / PAGE, most, resolution)
}

/// `low` and `high`, in pages: not enough, and enough once one is found.
fn search(
    trace: &Trace,
    setup: &Setup,
    mut low: u64,
    most: u64,
    resolution: u64,
) -> Result<Option<(u64, Outcome)>, AllocError> {
    let run = |capacity: u64| -> Result<Outcome, AllocError> {
        let mut setup = setup.clone();
        setup.device.capacity = capacity;
        replay(trace, &setup)
    };
    let mut high = most / PAGE;
    let mut best = None;
    let mut probe = low + 1;
    if probe > high {
        return Ok(None);
    }
    // Gallop up from the bound: the answer is usually near it.
    let mut step = (trace.peak_live / 512 / PAGE).max(1);
    while best.is_none() {
        let outcome = run(probe * PAGE)?;
        if outcome.completes() {
            high = probe;
            best = Some((probe * PAGE, outcome));
        } else if probe >= high {
            return Ok(None);
        } else {
            low = probe;
            probe = (probe + step).min(high);
            step *= 2;
        }
    }
    while (high - low) * PAGE > resolution.max(PAGE) {
        let middle = low + (high - low) / 2;
        let outcome = run(middle * PAGE)?;
        if outcome.completes() {
            high = middle;
            best = Some((middle * PAGE, outcome));
        } else {
            low = middle;
        }
    }
    Ok(best)
}
