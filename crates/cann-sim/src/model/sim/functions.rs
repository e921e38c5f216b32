//! Functions of the host that streams call: which of them come before what a
//! thread waits for. Only the order that events make is known, not that of values
//! in memory.

use super::Sim;
use crate::model::stream::Callers;

fn add(callers: &mut Callers, more: &[u64]) {
    for stream in more {
        if !callers.contains(stream) {
            callers.push(*stream);
        }
    }
}

impl Sim {
    /// Notes that a stream calls functions.
    pub(super) fn calls_functions(&mut self, stream: u64) {
        self.comes_after(stream, &[stream]);
    }

    /// Notes that a stream comes after the functions of others.
    pub(super) fn comes_after(&mut self, stream: u64, callers: &[u64]) {
        if let Some(it) = self.streams.get_mut(stream) {
            add(&mut it.callers, callers);
        }
    }

    /// Streams whose functions come before the end of a stream.
    pub fn callers_of_stream(&self, stream: u64) -> Callers {
        let stream = self.streams.get(stream);
        stream.map(|it| it.callers.clone()).unwrap_or_default()
    }

    /// Streams whose functions come before the latest record of an event.
    pub fn callers_of_event(&self, event: u64) -> Callers {
        let event = self.events.get(event);
        event.map(|it| it.callers.clone()).unwrap_or_default()
    }

    /// Streams whose functions come before the end of any stream of a device.
    pub fn callers_of_device(&self, device: u32) -> Callers {
        let mut callers = Callers::new();
        for (_, stream) in self.streams.iter() {
            if stream.device == device {
                add(&mut callers, &stream.callers);
            }
        }
        callers
    }
}
