//! What is noted of programs that may repeat themselves.

use std::sync::Arc;

use super::races::{MIB, device, token};
use crate::device::*;
use crate::driver::fake::FakeDriver;
use crate::history::RecordContext;
use crate::ids::{PoolId, StreamKey};
use crate::plan::MOST_STEPS;

const STREAM: StreamKey = StreamKey(1);
/// What the blocks of a full device may take, MiB.
const ROOM: usize = 470;

/// Memory moves until requests are noted: sizes in no order on a full device.
fn until_noting(device: &DeviceAllocator) {
    let mut alive: Vec<(usize, usize)> = Vec::new();
    for step in 1.. {
        if device.state.lock().planning.is_noting() {
            break;
        }
        assert!(step < 3000, "memory never moved");
        let size = 5 + step * step * 7919 % 83;
        while alive.iter().map(|(_, size)| size + 4).sum::<usize>() + size + 4 > ROOM {
            let (addr, _) = alive.remove(step * 5 % alive.len());
            assert!(device.deallocate(addr));
        }
        let addr = device.allocate(size * MIB, STREAM).expect("fits");
        alive.push((addr, size));
    }
    for (addr, _) in alive {
        assert!(device.deallocate(addr));
    }
}

#[test]
fn noting_ends_where_one_size_alone_comes_again_and_again() {
    let (_driver, device) = device(512 * MIB, "expandable_segments:True");
    until_noting(&device);
    for _ in 0..=MOST_STEPS {
        let addr = device.allocate(64 * MIB, STREAM).expect("fits");
        assert!(device.deallocate(addr));
    }
    assert!(!device.state.lock().planning.is_on());
}

/// Sizes of a period, MiB; no two blocks are alive at once but each and the one before it.
const PERIOD: [usize; 5] = [40, 20, 60, 30, 50];

/// A device on which such periods are planned, at the beginning of one, with a block alive.
fn planned(settings: &str) -> (Arc<FakeDriver>, Arc<DeviceAllocator>, usize) {
    let (driver, device) = device(1 << 30, settings);
    device.plan_eagerly();
    let mut last = device.allocate(PERIOD[4] * MIB, STREAM).expect("fits");
    for period in 0.. {
        assert!(period < 30, "no plan was made");
        let before = device.ladder().blocks_planned;
        for size in PERIOD {
            let addr = device.allocate(size * MIB, STREAM).expect("fits");
            assert!(device.deallocate(last));
            last = addr;
        }
        if device.ladder().blocks_planned - before == PERIOD.len() as u64 {
            break;
        }
    }
    (driver, device, last)
}

#[test]
fn what_a_plan_expects_is_served_on_the_hot_path_but_for_the_first_of_a_period() {
    let (_, device, mut last) = planned("expandable_segments:True");
    for period in 0..3 {
        for (at, size) in PERIOD.into_iter().enumerate() {
            let before = device.ladder().blocks_planned;
            let hot = device.allocate_cached(size * MIB, STREAM);
            assert_eq!(hot.is_some(), at > 0, "{period}, {at}");
            let addr = hot.unwrap_or_else(|| device.allocate(size * MIB, STREAM).expect("fits"));
            assert_eq!(device.ladder().blocks_planned, before + 1);
            assert!(device.deallocate(last));
            last = addr;
        }
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn what_a_plan_does_not_expect_is_not_taken_for_it() {
    let (_, device, last) = planned("expandable_segments:True");
    let allocate = |size: usize| device.allocate(size * MIB, STREAM).expect("fits");
    let first = allocate(PERIOD[0]);
    assert!(device.deallocate(last));
    let before = device.ladder().blocks_planned;
    assert_eq!(device.allocate_cached(PERIOD[2] * MIB, STREAM), None);
    assert_eq!(device.allocate_cached(PERIOD[1] * MIB, StreamKey(7)), None);
    assert_eq!(device.ladder().blocks_planned, before);
    assert!(device.allocate_cached(PERIOD[1] * MIB, STREAM).is_some());
    assert_eq!(device.ladder().blocks_planned, before + 1);
    assert!(device.deallocate(first));
}

#[test]
fn small_requests_stay_on_the_hot_path_while_a_plan_is_followed() {
    let (_, device, _) = planned("expandable_segments:True");
    let addr = device.allocate(1000, STREAM).expect("fits");
    assert!(device.deallocate(addr));
    assert!(!device.state.lock().asking);
    assert_eq!(device.allocate_cached(1000, STREAM), Some(addr));
}

#[test]
fn events_are_asked_though_a_plan_is_followed() {
    let (driver, device, last) = planned("expandable_segments:True");
    let first = device.allocate(PERIOD[0] * MIB, STREAM).expect("fits");
    let small = device.allocate(1000, STREAM).expect("fits");
    driver.submit(token(StreamKey(9)));
    assert!(device.record_stream(last, token(StreamKey(9))));
    assert!(device.deallocate(last) && device.deallocate(small));
    assert!(device.state.lock().asking);
    for size in [1000, PERIOD[1] * MIB] {
        assert_eq!(device.allocate_cached(size, STREAM), None);
    }
    assert!(device.deallocate(first));
}

#[test]
fn a_place_that_a_block_still_has_is_not_handed_out_again() {
    let (_, device, mut last) = planned("expandable_segments:True");
    let allocate = |size: usize| device.allocate(size * MIB, STREAM).expect("fits");
    let mut kept = None;
    for (at, size) in PERIOD.into_iter().enumerate() {
        let addr = allocate(size);
        if Some(last) != kept {
            assert!(device.deallocate(last));
        }
        if at == 1 {
            kept = Some(addr);
        }
        last = addr;
    }
    allocate(PERIOD[0]);
    // All that is in its way now is what was kept.
    assert!(device.deallocate(last));
    assert_eq!(device.allocate_cached(PERIOD[1] * MIB, STREAM), None);
    let before = device.ladder().blocks_planned;
    allocate(PERIOD[1]);
    assert_eq!(device.ladder().blocks_planned, before, "it lies elsewhere");
    device.check_consistency().expect("consistent");
}

#[test]
fn what_a_plan_expects_leaves_the_hot_path_where_there_is_more_to_do() {
    let (_, device, last) = planned("expandable_segments:True");
    let allocate = |size: usize| device.allocate(size * MIB, STREAM).expect("fits");
    allocate(PERIOD[0]);
    assert!(device.deallocate(last));
    let cached = || device.allocate_cached(PERIOD[1] * MIB, STREAM);
    device.record_history(true, 16, RecordContext::Never);
    assert_eq!(cached(), None);
    device.record_history(false, 16, RecordContext::Never);
    device.state.lock().captures = 1;
    assert_eq!(cached(), None);
    device.state.lock().captures = 0;
    device.state.lock().sleep.pools.push(PoolId::DEFAULT);
    assert_eq!(cached(), None);
    device.state.lock().sleep.pools.clear();
    device.assume_many_blocks();
    assert!(device.state.lock().cache.marking);
    assert_eq!(cached(), None);
    device.state.lock().cache.many = usize::MAX;
    assert!(cached().is_some());
}
