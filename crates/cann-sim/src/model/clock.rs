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

    /// Moves on to `time`, if that is yet to come.
    pub fn advance_to(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// Notes that the host has waited for a device.
    pub fn count_wait(&mut self, nanoseconds: u64) {
        self.waited += nanoseconds;
    }
}
