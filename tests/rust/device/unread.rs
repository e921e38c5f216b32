//! Frees without a look at the block, where there are many: nobody sees that some were not looked at.

use crate::client::{Client, op};
use crate::*;
use proptest::prelude::*;

/// A device that is said to have many blocks, with memory to spare.
fn of_many(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    let (driver, settings) = (Arc::new(FakeDriver::new(capacity)), settings_by_default(""));
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    device.assume_many_blocks();
    for _ in 0..8 {
        device.allocate(64 * MIB, S0).expect("fits");
    }
    (driver, device)
}

#[test]
fn a_block_is_freed_once_however_many_were_freed_after_it() {
    let (_, device) = of_many(4 * GIB);
    for later in 0..10 {
        let at = again_and_again(&device, 4096, later + 1);
        for addr in &at {
            assert!(device.deallocate(*addr));
        }
        assert!(!device.deallocate(at[0]), "after {later} others");
        assert!(!device.record_stream(at[0], SIDE));
        assert_eq!(device.describe_block(at[0]), None);
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn what_is_no_start_of_a_block_is_refused() {
    let (_, device) = of_many(4 * GIB);
    let addr = again_and_again(&device, 4096, 1)[0];
    // The last ones differ by what the address map doesn't tell apart.
    for offset in [1, 8, 511, 512, 4096, 1 << 40, 1 << 46, 1 << 62] {
        assert!(!device.deallocate(addr + offset), "{offset:#x}");
    }
    assert!(device.deallocate(addr));
    device.check_consistency().expect("consistent");
}

#[test]
fn a_block_that_another_stream_uses_or_is_damaged_is_looked_at() {
    let (driver, device) = of_many(4 * GIB);
    let at = again_and_again(&device, 4096, 4);
    assert!(device.record_stream(at[1], SIDE));
    driver.submit(SIDE);
    assert_eq!(device.mark_damaged(at[2], 1), 1);
    device.check_consistency().expect("consistent");
    at.iter().for_each(|addr| assert!(device.deallocate(*addr)));
    let got: Vec<_> = (0..3)
        .map(|_| device.allocate(4096, S0).expect("fits"))
        .collect();
    assert!(
        !got.contains(&at[1]),
        "handed out while another stream uses it"
    );
    driver.finish(SIDE);
    device.check_consistency().expect("consistent");
    for addr in got {
        assert_eq!(device.is_damaged(addr), Some(false));
        assert!(device.deallocate(addr));
    }
}

#[test]
fn a_request_finds_what_is_unread() {
    let (driver, device) = of_many(4 * GIB);
    let at = again_and_again(&device, 4096, 5);
    at.iter().for_each(|addr| assert!(device.deallocate(*addr)));
    let calls = driver.total_calls();
    let mut got: Vec<_> = at
        .iter()
        .map(|_| device.allocate(4096, S0).expect("fits"))
        .collect();
    got.sort_unstable();
    assert_eq!(got, at, "the same blocks");
    assert_eq!(driver.total_calls(), calls);
}

#[test]
fn a_block_that_is_freed_and_asked_for_at_once_comes_back() {
    let (_, device) = of_many(4 * GIB);
    let at = again_and_again(&device, 4096, 2);
    assert!(device.deallocate(at[0]));
    for _ in 0..6 {
        let addr = device.allocate(4096, S0).expect("fits");
        assert!(device.deallocate(addr));
        assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
        assert!(device.deallocate(addr));
    }
    device.check_consistency().expect("consistent");
}

#[test]
fn marks_are_gone_once_there_are_few_blocks_and_right_when_there_are_many_again() {
    let settings = settings_by_default("");
    let driver = Arc::new(FakeDriver::new(64 * GIB));
    let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
    let mut live = again_and_again(&device, 4096, 9000);
    for round in 0..3 {
        for addr in live.split_off(100) {
            assert!(device.deallocate(addr));
        }
        device.check_consistency().expect("consistent");
        // None is marked any more, and so none when it is handed out as it was.
        live.iter()
            .for_each(|addr| assert!(device.deallocate(*addr)));
        live = again_and_again(&device, 4096, 9000 + round);
        device.check_consistency().expect("consistent");
    }
    for addr in live {
        assert!(device.deallocate(addr));
        assert!(!device.deallocate(addr));
    }
    device.check_consistency().expect("consistent");
}

proptest! {
    /// Blocks, bytes, and bytes asked for, at their peaks too, are what is counted here one by one.
    #[test]
    fn figures_are_exact_while_frees_are_unread(ops in prop::collection::vec(op(8), 1..200)) {
        let (_, device) = of_many(8 * GIB);
        let mut client = Client::new(device);
        (0..8).for_each(|_| client.count(64 * MIB, false));
        ops.into_iter().for_each(|op| client.step(op));
        client.check();
    }
}
