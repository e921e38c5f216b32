//! What the device's lock protects of what threads do without it.

use std::sync::Arc;

use super::crowd::Crowd;
use crate::lease::Leases;
use crate::signals::Signals;

/// Threads that would wait for each other.
pub(in crate::device) struct Threads {
    /// Told what threads are to know before they take the lock.
    pub signals: Arc<Signals>,
    /// What threads do by themselves.
    pub leases: Arc<Leases>,
    /// Some lease has begun; never while a guard of the lock is held. `attention` is set then.
    pub leasing: bool,
    pub crowd: Crowd,
}

impl Threads {
    /// Threads that know `signals`.
    pub fn new(signals: Arc<Signals>) -> Self {
        Self {
            signals,
            leases: Arc::default(),
            leasing: false,
            crowd: Crowd::default(),
        }
    }
}
