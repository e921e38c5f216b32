//! The virtual clock of the host. It moves only when a call costs time or the
//! host waits, so that a single-threaded run is deterministic.

/// Nanoseconds since the simulator started.
#[derive(Debug, Default)]
pub struct Clock {
    now: u64,
    waited: u64,
}

impl Clock {
    /// The present time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// All the time the host has waited for a device.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// The host is busy for a while.
    pub fn spend(&mut self, nanoseconds: u64) {
        self.now = self.now.saturating_add(nanoseconds);
    }

    /// The host waits until `time`; returns for how long.
    pub fn wait_until(&mut self, time: u64) -> u64 {
        let wait = time.saturating_sub(self.now);
        self.now += wait;
        self.waited += wait;
        wait
    }
}
