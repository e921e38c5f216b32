//! A device whose bookkeeping a panic has left half changed hands nothing out and takes nothing back any more: it might hand
//! out memory that is in use. The lock sees to that ([`sync`](crate::sync)); here is what is said of it.

use super::DeviceAllocator;
use crate::error::AllocError;

/// Where nobody caught the panic that could tell.
const UNKNOWN: &str = "of which the program's error output may tell";

impl DeviceAllocator {
    /// Whether a call panicked while it had the device's lock, or was in the middle of a change.
    pub fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    /// A panic that somebody caught went through the lock at that address: if it is this device's, the device is poisoned.
    /// Returns the error that every call ends with from now on. `text`: what the panic said; `None` for that of a call
    /// which was refused.
    #[cold]
    pub(crate) fn blame(&self, lock: usize, text: Option<&str>) -> Option<AllocError> {
        if self.state.address() != lock && !self.leases.have_lock(lock) {
            return None;
        }
        self.state.poison();
        let first = text.is_some_and(|text| self.panic.set(text.to_owned()).is_ok());
        let error = self.poisoned();
        if first {
            self.driver.report_bug(&error.to_string());
        }
        Some(error)
    }

    fn poisoned(&self) -> AllocError {
        AllocError::Poisoned {
            device: self.id,
            panic: self.panic.get().map_or(UNKNOWN, String::as_str).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::config::{DefaultEngine, Settings};
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, StreamKey};
    use crate::primitives::act_as;
    use crate::sync::Refused;

    const S0: StreamKey = StreamKey(0);

    /// A device two of whose threads have leases with free blocks, and a block that is in use. Returns that, too.
    fn leased() -> (DeviceAllocator, usize) {
        let mut settings = Settings::parse("").expect("valid");
        settings.default_engine = DefaultEngine::Probe;
        let driver = Arc::new(FakeDriver::new(8 << 30));
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let allocate = |count| -> Vec<usize> {
            let one = |_| device.allocate(4096, S0).expect("fits");
            (0..count).map(one).collect()
        };
        let free = |blocks: Vec<usize>| {
            assert!(blocks.into_iter().all(|addr| device.deallocate(addr)));
        };
        free(allocate(64));
        device.assume_crowd();
        for thread in [0, 1] {
            act_as(thread);
            for _ in 0..20 {
                free(allocate(4));
            }
        }
        let live = allocate(1)[0];
        assert!(device.on_lease(0) > 1 && device.on_lease(1) > 1);
        (device, live)
    }

    /// By each of the two, although neither would have to take the device's lock for it.
    fn assert_nothing_is_served(device: &DeviceAllocator, live: usize) {
        for thread in [1, 0] {
            act_as(thread);
            assert_eq!(device.allocate_cached(4096, S0), None);
            let outcome = catch_unwind(AssertUnwindSafe(|| device.allocate(4096, S0)));
            assert!(outcome.is_err_and(|panic| panic.is::<Refused>()));
            assert!(!device.deallocate(live));
        }
        assert!(device.is_poisoned());
    }

    #[test]
    fn leases_serve_nothing_any_more() {
        let (device, live) = leased();
        let bug = || device.state.lock_or_unwind().with(|_| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(bug)).is_err());
        assert_nothing_is_served(&device, live);
        assert!(device.describe_block(live).is_some());
        assert!(device.bookkeeping_bytes() > 0);
    }

    #[test]
    fn a_panic_with_a_lease_counts_as_soon_as_it_is_caught() {
        let (device, live) = leased();
        let (slot, _) = device.leases.mine();
        crate::sync::take_unwound();
        let bug = || slot.with(|_| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(bug)).is_err());
        let lock = crate::sync::take_unwound();
        assert!(device.blame(lock + 1, Some("a bug")).is_none() && !device.is_poisoned());
        assert!(device.blame(lock, Some("a bug")).is_some());
        assert!(device.is_poisoned());
        assert_nothing_is_served(&device, live);
    }

    #[test]
    fn whoever_misses_a_lease_poisons_the_device() {
        let (device, live) = leased();
        let (slot, _) = device.leases.mine();
        let bug = || slot.with(|_| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(bug)).is_err());
        assert!(!device.is_poisoned());
        let recall = || drop(device.state.lock());
        assert!(catch_unwind(AssertUnwindSafe(recall)).is_err());
        assert_nothing_is_served(&device, live);
    }
}
