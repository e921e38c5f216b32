//! The places of a trace that it waits for later: events of the device, recorded while it is replayed.

use std::collections::{BTreeMap, HashMap};

use crate::device::SimDevice;
use crate::trace::Trace;

/// What the trace waits for, by the event before which its stream is to be marked.
#[derive(Debug)]
pub struct Marks {
    /// Ahead, by event and stream: how often each is waited for.
    ahead: BTreeMap<(usize, u32), usize>,
    /// Marks on the device, and how often each is waited for yet.
    made: HashMap<(usize, u32), (u64, usize)>,
}

impl Marks {
    /// Those of a trace.
    pub fn new(trace: &Trace) -> Self {
        Self {
            ahead: trace.waited_for(),
            made: HashMap::new(),
        }
    }

    /// The event `at` is next.
    pub fn before(&mut self, at: usize, device: &SimDevice) {
        while let Some(next) = self.ahead.first_entry()
            && next.key().0 <= at
        {
            let (place, waits) = next.remove_entry();
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
