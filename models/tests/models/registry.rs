//! Devices that come into being while others ask for them.

use std::sync::Arc;

use npualloc::config::Settings;
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::StreamKey;
use npualloc::registry::Registry;

use crate::{Turns, every_order, joined, thread};

fn registry() -> Arc<Registry> {
    let driver = Arc::new(FakeDriver::new(64 << 20));
    let settings = Settings::parse("expandable_segments:False").expect("valid");
    Arc::new(Registry::new(driver, settings, 32))
}

#[test]
fn a_device_that_counts_is_there() {
    every_order(3, || {
        let registry = registry();
        let one = registry.clone();
        let turns = Turns::new();
        let turn = turns.clone();
        let init = thread(move || {
            one.init(1).expect("a device");
            turn.next();
            one.init(2).expect("one more");
        });
        turns.next();
        let count = registry.device_count();
        for device in 0..count {
            registry.device(device).expect("counted");
        }
        assert!(registry.devices().count() >= count as usize);
        joined(init);
        assert_eq!(
            (registry.device_count(), registry.devices().count()),
            (2, 2)
        );
    });
}

#[test]
fn devices_are_made_once() {
    every_order(3, || {
        let registry = registry();
        let init = |count| {
            let registry = registry.clone();
            thread(move || {
                registry.init(count).expect("devices");
                let device = registry.device(0).expect("there");
                std::ptr::from_ref(device) as usize
            })
        };
        let (one, other) = (init(1), init(2));
        assert_eq!(joined(one), joined(other));
        assert_eq!(registry.device_count(), 2);
    });
}

#[test]
fn a_change_of_settings_reaches_a_device_made_meanwhile() {
    every_order(3, || {
        let registry = registry();
        let one = registry.clone();
        let init = thread(move || one.init(1).expect("a device"));
        registry
            .apply_settings("max_split_size_mb:21")
            .expect("valid");
        joined(init);
        // With the limit, what is left of a block of 30 MiB can't serve a request of 2 MiB.
        let allocate = |bytes: usize| registry.allocate(0, bytes, StreamKey(0)).expect("fits");
        let large = allocate(30 << 20);
        registry.deallocate(large).expect("live");
        assert!(!(large..large + (30 << 20)).contains(&allocate(2 << 20)));
    });
}

#[test]
fn of_two_frees_of_a_block_one_succeeds() {
    every_order(3, || {
        let registry = registry();
        registry.init(2).expect("devices");
        let addr = registry.allocate(1, 4096, StreamKey(0)).expect("fits");
        // The owner is known from here on: frees take the hot path.
        registry.describe_block(addr).expect("live");
        let free = || {
            let registry = registry.clone();
            thread(move || registry.deallocate(addr).is_ok())
        };
        let (one, other) = (free(), free());
        assert_ne!(joined(one), joined(other));
        registry.check_consistency().expect("consistent");
    });
}
