//! Devices on which blocks were freed that may still be written to.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::ids::DeviceId;

/// How many such frees there were, and of how many of them it is known that nothing is written any more.
#[derive(Debug, Default)]
struct Counts {
    freed: u64,
    settled: u64,
}

/// See the module's text. Thread-safe.
#[derive(Debug, Default)]
pub struct Unsettled(Mutex<HashMap<DeviceId, Counts>>);

impl Unsettled {
    /// A block was freed without a wait for its device.
    pub fn add(&self, device: DeviceId) {
        self.0.lock().entry(device).or_default().freed += 1;
    }

    /// How many frees a wait that begins now is for; `None` where none is needed.
    pub fn outstanding(&self, device: DeviceId) -> Option<u64> {
        let devices = self.0.lock();
        let counts = devices.get(&device)?;
        (counts.settled < counts.freed).then_some(counts.freed)
    }

    /// A wait that began when there were so many is over. Others may have come since.
    pub fn settle(&self, device: DeviceId, count: u64) {
        if let Some(counts) = self.0.lock().get_mut(&device) {
            counts.settled = counts.settled.max(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_for_its_device_and_for_what_came_before() {
        let (one, other) = (DeviceId(0), DeviceId(1));
        let unsettled = Unsettled::default();
        assert_eq!(unsettled.outstanding(one), None);
        unsettled.add(one);
        unsettled.add(other);
        let (first, second) = (unsettled.outstanding(one), unsettled.outstanding(other));
        assert_eq!((first, second), (Some(1), Some(1)));
        unsettled.add(one);
        unsettled.settle(one, 1);
        assert_eq!(unsettled.outstanding(one), Some(2));
        unsettled.settle(one, 2);
        // An earlier wait that ended later.
        unsettled.settle(one, 1);
        assert_eq!(unsettled.outstanding(one), None);
        assert_eq!(unsettled.outstanding(other), Some(1));
    }
}
