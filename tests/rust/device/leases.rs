//! What threads do by themselves, where several want a device's lock: nobody sees a difference.

use std::sync::mpsc::sync_channel;

use super::few_sizes::come_back;
use crate::client::{Client, Op, op};
use crate::*;
use npualloc::error::AllocError;
use npualloc::lease::act_as;
use npualloc::stats::DeviceStats;
use proptest::prelude::*;

/// A device whose threads get leases, with memory to spare and room below the peaks.
fn crowded(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    let (driver, settings) = (Arc::new(FakeDriver::new(capacity)), settings_by_default(""));
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    let sizes = [4096, 64 * MIB].into_iter();
    let blocks: Vec<_> = sizes
        .flat_map(|bytes| std::iter::repeat_n(bytes, 32))
        .map(|bytes| device.allocate(bytes, S0).expect("fits"))
        .collect();
    // Free memory that no lease has, so that requests find some.
    for addr in blocks {
        assert!(device.deallocate(addr));
    }
    device.assume_crowd();
    act_as(0);
    (driver, device)
}

/// Blocks of a size that is asked for again and again, on the lease of the calling thread.
fn leased(device: &DeviceAllocator, count: usize) -> Vec<usize> {
    leased_of(device, 4096, count)
}

fn leased_of(device: &DeviceAllocator, bytes: usize, count: usize) -> Vec<usize> {
    let at = again_and_again(device, bytes, count);
    assert!(device.on_lease(0) + device.on_lease(1) >= count);
    at
}

#[test]
fn a_block_is_freed_once_whoever_frees_it() {
    for second in 0..2 {
        let (_, device) = crowded(8 * GIB);
        for looks in [false, true] {
            let at = leased(&device, 4);
            act_as(second);
            at.iter().for_each(|addr| assert!(device.deallocate(*addr)));
            if looks {
                device.check_consistency().expect("consistent");
                assert_eq!(device.on_lease(0), 0, "who looks has all back");
            }
            for addr in at {
                assert!(!device.deallocate(addr));
                assert!(!device.record_stream(addr, SIDE));
                assert_eq!(device.describe_block(addr), None);
            }
            act_as(0);
        }
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn what_is_no_start_of_a_leased_block_is_refused() {
    let (_, device) = crowded(8 * GIB);
    let addr = leased(&device, 1)[0];
    for offset in [1, 8, 511, 512, 4096, 1 << 40, 1 << 46, 1 << 61, 1 << 62] {
        assert!(!device.deallocate(addr + offset), "{offset:#x}");
        assert_eq!(leased(&device, 1).len(), 1);
    }
    assert!(device.deallocate(addr));
    device.check_consistency().expect("consistent");
}

#[test]
fn a_leased_block_that_another_stream_uses_waits_for_it() {
    let (driver, device) = crowded(8 * GIB);
    let at = leased(&device, 3);
    assert!(device.record_stream(at[1], SIDE));
    driver.submit(SIDE);
    at.iter().for_each(|addr| assert!(device.deallocate(*addr)));
    let got: Vec<_> = (0..8)
        .map(|_| device.allocate(4096, S0).expect("fits"))
        .collect();
    assert!(!got.contains(&at[1]), "handed out while it is used");
    driver.finish(SIDE);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_handle_tells_tenants_of_a_leased_block_apart() {
    let (_, device) = crowded(8 * GIB);
    let at = leased(&device, 1)[0];
    for times in [1, 3] {
        let former = device.describe_block(at).expect("live").handle;
        // The lease begins again, with what it had.
        device.allocate(70_000, S0).expect("fits");
        for _ in 0..times {
            assert!(device.deallocate(at));
            assert_eq!(device.allocate(4096, S0).expect("fits"), at);
        }
        assert!(device.on_lease(0) > 1);
        assert!(!device.erase_stream_of(former, SIDE), "after {times}");
        let now = device.describe_block(at).expect("live").handle;
        assert!(device.erase_stream_of(now, SIDE));
    }
}

#[test]
fn a_lease_gives_up_what_another_thread_lacks() {
    let (driver, device) = crowded(8 * GIB);
    // Peaks above what this is about.
    let blocks: Vec<_> = (0..64)
        .map(|_| device.allocate(60_000, S0).expect("fits"))
        .collect();
    for addr in blocks {
        assert!(device.deallocate(addr));
    }
    let live = leased(&device, 8);
    let stock = leased_of(&device, 60_000, 12);
    stock
        .iter()
        .for_each(|addr| assert!(device.deallocate(*addr)));
    assert!(device.on_lease(0) >= 20, "{}", device.on_lease(0));
    act_as(1);
    let (calls, mut got) = (driver.total_calls(), Vec::new());
    while !stock.iter().any(|addr| got.contains(addr)) {
        got.push(device.allocate(60_000, S0).expect("fits"));
        // It has what it handed out still: nobody had it all back.
        assert!(device.on_lease(0) >= 8, "after {}", got.len());
    }
    assert_eq!(driver.total_calls(), calls);
    for addr in live.iter().chain(&got) {
        assert!(device.deallocate(*addr));
    }
    device.check_consistency().expect("consistent");
}

#[test]
fn a_stream_has_its_own_blocks_whoever_works_on_it() {
    let (_, device) = crowded(8 * GIB);
    // Free memory of the other stream.
    let side: Vec<_> = (0..64)
        .map(|_| device.allocate(4096, S1).expect("fits"))
        .collect();
    for addr in side {
        assert!(device.deallocate(addr));
    }
    device.check_consistency().expect("consistent");
    let first = leased(&device, 4);
    // Its stock is of one stream, and it is asked for blocks of another.
    first
        .iter()
        .for_each(|addr| assert!(device.deallocate(*addr)));
    assert!(device.on_lease(0) >= 4);
    let other: Vec<_> = (0..4)
        .map(|_| device.allocate(4096, S1).expect("fits"))
        .collect();
    for addr in other.iter() {
        assert!(!first.contains(addr), "memory of another stream");
        assert!(device.deallocate(*addr));
    }
    for _ in 0..20 {
        let addr = device.allocate(4096, S0).expect("fits");
        assert!(!other.contains(&addr), "memory of another stream");
    }
    device.check_consistency().expect("consistent");
}

/// A thread that works on another stream from now on has a lease for that one before long.
#[test]
fn a_lease_follows_its_thread_to_another_stream() {
    let (_, device) = crowded(8 * GIB);
    let side = |count: usize| -> Vec<usize> {
        let blocks = (0..count).map(|_| device.allocate(4096, S1).expect("fits"));
        blocks.collect()
    };
    // Memory that is free there, and room below the peaks.
    for addr in side(150) {
        assert!(device.deallocate(addr));
    }
    device.check_consistency().expect("consistent");
    leased(&device, 4);
    let live = side(100);
    let leased = device.on_lease(0);
    assert!((20..80).contains(&leased), "{leased} blocks");
    for addr in live {
        assert!(device.deallocate(addr));
    }
    device.check_consistency().expect("consistent");
}

/// Active blocks are most while some wait for another stream and others come and go.
#[test]
fn the_peak_of_active_blocks_is_exact_while_blocks_wait() {
    let (driver, device) = crowded(8 * GIB);
    come_back(&device, 200_000);
    device.assume_heavy_traffic();
    device.reset_peak_stats();
    // Bytes were more before than they are here.
    for addr in leased_of(&device, 200_000, 20) {
        assert!(device.deallocate(addr));
    }
    let live = leased(&device, 40);
    live[32..]
        .iter()
        .for_each(|addr| assert!(device.record_stream(*addr, SIDE)));
    driver.submit(SIDE);
    leased(&device, 1)
        .iter()
        .for_each(|addr| assert!(device.deallocate(*addr)));
    live[32..]
        .iter()
        .for_each(|addr| assert!(device.deallocate(*addr)));
    for _ in 0..2 {
        let more: Vec<_> = (0..8)
            .map(|_| device.allocate(4096, S0).expect("fits"))
            .collect();
        more.iter()
            .for_each(|addr| assert!(device.deallocate(*addr)));
    }
    driver.finish(SIDE);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    let active = device.stats().0.active.aggregate();
    assert_eq!((active.current, active.peak), (32, 48));
    device.check_consistency().expect("consistent");
}

#[test]
fn more_blocks_than_a_lease_has_room_for_are_served_too() {
    let (_, device) = crowded(64 * GIB);
    let mut client = Client::new(device);
    let before = client.device.stats().0;
    for _ in 0..10_000 {
        client.alloc(4096, S0);
    }
    for _ in 0..3 {
        (0..10_000).for_each(|at| {
            client.free(at * 7919);
            client.alloc(4096, S0);
        });
    }
    let after = client.device.stats().0;
    assert_eq!(
        after.allocation.current() - before.allocation.current(),
        10_000
    );
    while !client.live.is_empty() {
        client.free(0);
    }
    client.device.check_consistency().expect("consistent");
}

#[derive(Debug, Clone)]
enum Step {
    /// The thread whose turn it is goes on.
    Client(Op),
    /// It asks for memory on another stream.
    Beside(usize),
    /// Another thread's turn.
    Turn(usize),
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        22 => op(24).prop_map(Step::Client),
        1 => (1usize..300_000).prop_map(Step::Beside),
        4 => (0usize..3).prop_map(Step::Turn),
        1 => Just(Step::Look),
    ]
}

proptest! {
    /// Blocks, bytes, and bytes asked for, at their peaks too, are what is counted here one by one.
    #[test]
    fn figures_are_exact_whatever_threads_do_by_themselves(
        many in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let (driver, settings) = (Arc::new(FakeDriver::new(16 * GIB)), settings_by_default(""));
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        device.assume_crowd();
        if many {
            device.assume_many_blocks();
        }
        act_as(0);
        let mut client = Client::new(device);
        (0..8).for_each(|_| client.alloc(64 * MIB, S0));
        for step in steps {
            match step {
                Step::Client(op) => client.step(op),
                Step::Beside(bytes) => client.alloc(bytes, S1),
                Step::Turn(thread) => act_as(thread),
                Step::Look => client.check(),
            }
        }
        client.check();
    }
}

/// Threads that hand blocks to each other, while one looks at everything again and again.
#[test]
fn threads_hand_blocks_to_each_other() {
    let (_, device) = crowded(32 * GIB);
    let (device, steps) = (&device, 20_000);
    let outcome: Result<Vec<()>, AllocError> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3usize)
            .map(|seed| {
                let (to, from) = sync_channel::<usize>(64);
                let freeing = scope.spawn(move || {
                    for addr in from {
                        assert!(device.deallocate(addr));
                    }
                });
                let allocating = scope.spawn(move || {
                    let mut state = seed as u64 + 1;
                    let mut live = Vec::new();
                    for at in 0..steps {
                        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                        let bytes = 1 + (state >> 33) as usize % 50_000;
                        live.push(device.allocate(bytes, S0)?);
                        if live.len() > 100 {
                            let addr = live.swap_remove((state >> 40) as usize % 100);
                            if at % 64 == 0 {
                                to.send(addr).expect("somebody frees it");
                            } else {
                                assert!(device.deallocate(addr));
                            }
                        }
                    }
                    for addr in live {
                        assert!(device.deallocate(addr));
                    }
                    Ok(())
                });
                (allocating, freeing)
            })
            .collect();
        let mut looks = 0;
        while workers.iter().any(|(worker, _)| !worker.is_finished()) {
            device.check_consistency().expect("consistent");
            looks += 1;
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        assert!(looks > 0);
        workers
            .into_iter()
            .map(|(allocating, freeing)| {
                freeing.join().expect("no panic");
                allocating.join().expect("no panic")
            })
            .collect()
    });
    outcome.expect("fits");
    let DeviceStats { allocation, .. } = device.stats().0;
    assert_eq!(allocation.current(), 0);
    assert_eq!(allocation.aggregate().allocated, 64 + 3 * steps as i64);
    device.check_consistency().expect("consistent");
}
