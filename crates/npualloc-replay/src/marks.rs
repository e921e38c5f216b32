//! The places of a trace that it waits for later: events of the device, recorded while it is replayed.

use std::collections::{BTreeMap, HashMap};

use crate::device::SimDevice;
use crate::trace::Trace;

/// What the trace waits for, by the event before which its stream is to be marked.
#[derive(Debug)]
pub struct Marks {
    /// (event, stream), the next one last.
    ahead: Vec<(usize, u32)>,
    /// Marks on the device, and how often each is waited for yet.
    made: HashMap<(usize, u32), (u64, usize)>,
    waits: BTreeMap<(usize, u32), usize>,
}

impl Marks {
    /// Those of a trace.
    pub fn new(trace: &Trace) -> Self {
        let waits = trace.waited_for();
        Self {
            ahead: waits.keys().rev().copied().collect(),
            made: HashMap::new(),
            waits,
        }
    }

    /// The event `at` is next.
    pub fn before(&mut self, at: usize, device: &SimDevice) {
        while let Some(place) = self.ahead.pop_if(|(when, _)| *when <= at) {
            let waits = self.waits.remove(&place).unwrap_or(0);
            self.made.insert(place, (device.mark(place.1), waits));
        }
    }

    /// Waits for what `stream` had been given before event `at`.
    pub fn wait(&mut self, at: usize, stream: u32, device: &SimDevice) {
        let Some((mark, waits)) = self.made.get_mut(&(at, stream)) else {
            return;
        };
        device.wait_for(*mark);
        *waits -= 1;
        if *waits == 0 {
            device.forget(*mark);
            self.made.remove(&(at, stream));
        }
    }
}
