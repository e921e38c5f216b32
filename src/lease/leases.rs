//! A lease for each thread, as far as slots go: threads that share one wait for each other, no more.

use super::leased::Lease;
use crate::primitives::thread_number;
use crate::sync::{Guarded, Mutex};

/// Leases of a device.
const SLOTS: usize = if cfg!(loom) { 2 } else { 8 };

impl Guarded for Lease {}

/// A thread's lease. The device's lock, if it is needed, is taken before.
#[derive(Default)]
#[repr(align(128))]
pub struct Slot(Mutex<Lease>);

impl Slot {
    /// Takes the slot's lock.
    #[inline]
    pub fn lock(&self) -> impl std::ops::DerefMut<Target = Lease> + '_ {
        self.0.lock_as_is()
    }
}

impl Default for Mutex<Lease> {
    fn default() -> Self {
        Self::new(Lease::default())
    }
}

/// The leases of a device. Thread-safe.
#[derive(Default)]
pub struct Leases {
    slots: [Slot; SLOTS],
}

impl Leases {
    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        self.slots().map(|slot| slot.lock().heap_bytes()).sum()
    }

    /// The calling thread's lease, and its number.
    #[inline]
    pub fn mine(&self) -> (&Slot, usize) {
        let number = thread_number() % SLOTS;
        (&self.slots[number], number)
    }

    /// All of them.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }
}
