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
    /// What `work` makes of the lease, with the slot's lock; nothing where it is poisoned, as all are once the device is.
    #[inline]
    pub fn try_with<U>(&self, work: impl FnOnce(&mut Lease) -> U) -> Option<U> {
        Some(self.0.lock_as_is()?.with(work))
    }

    /// The same for who has the device's lock: unwinds where the slot's is poisoned, as the device is to be, too.
    #[inline]
    pub fn with<U>(&self, work: impl FnOnce(&mut Lease) -> U) -> U {
        self.0.lock_or_unwind().with(work)
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
        let bytes = |slot: &Slot| slot.try_with(|lease| lease.heap_bytes());
        self.slots().filter_map(bytes).sum()
    }

    /// The calling thread's lease, and its number.
    #[inline]
    pub fn mine(&self) -> (&Slot, usize) {
        let number = thread_number() % SLOTS;
        (&self.slots[number], number)
    }

    /// Nothing is handed out or taken back by leases any more.
    #[cold]
    pub fn poison(&self) {
        self.slots.iter().for_each(|slot| slot.0.poison());
    }

    /// Whether the lock of one of them is the one at that address.
    pub fn have_lock(&self, address: usize) -> bool {
        self.slots.iter().any(|slot| slot.0.address() == address)
    }

    /// All of them.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }
}
