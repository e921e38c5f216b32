//! History, snapshots, memory-error marks.

use std::sync::mpsc;
use std::time::Duration;

use crate::*;
use npualloc::history::{Context, DropContext, RecordContext};

#[test]
fn history_shows_what_happened_in_order() {
    use npualloc::history::Action;
    let (driver, device) = device(GIB);
    device.record_history(true, 100, RecordContext::All);
    let a = device.allocate(100, S0).expect("fits");
    device.record_stream(a, SIDE);
    driver.submit(SIDE);
    device.deallocate(a);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    let actions: Vec<_> = device
        .trace()
        .iter()
        .map(|entry| (entry.action, entry.size))
        .collect();
    assert_eq!(
        actions,
        [
            (Action::SegmentAlloc, 2 * MIB),
            (Action::Alloc, 100),
            (Action::FreeRequested, 100),
            (Action::FreeCompleted, 100),
            (Action::SegmentFree, 2 * MIB),
        ]
    );
    device.record_history(false, 1, RecordContext::Never);
    device.allocate(100, S0).expect("fits");
    assert!(device.trace().is_empty());
}

#[test]
fn entries_have_the_context_of_the_call_in_which_something_happens() {
    use npualloc::history::{Action, Caller};
    let none: DropContext = Arc::new(|_| ());
    let context = |handle| Context::adopt(handle, &none);
    for config in ["", "expandable_segments:True"] {
        let (driver, device) = device_with(GIB, config);
        device.record_history(true, 100, RecordContext::All);
        let allocate = |bytes, handle| {
            let made = device.allocate_in(bytes, S0, MempoolId::DEFAULT, context(handle));
            made.expect("fits")
        };
        let first = allocate(40 * MIB, 1);
        device.record_stream(first, SIDE);
        driver.submit(SIDE);
        assert!(device.deallocate_with(first, context(2)));
        driver.finish(SIDE);
        // By now its event is over: this finds that out.
        let second = allocate(100, 3);
        assert!(device.deallocate_with(second, context(4)));
        {
            let _caller = Caller::enter(context(5));
            device.empty_cache(MempoolId::DEFAULT).expect("works");
        }
        let third = allocate(60 * MIB, 6);
        device.deallocate(third);
        // Nobody says who this is.
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        let of = |action| -> Vec<usize> {
            let trace = device.trace();
            let like = trace.iter().filter(|entry| entry.action == action);
            like.map(|entry| entry.context.as_ref().map_or(0, |context| context.handle()))
                .collect()
        };
        assert_eq!(of(Action::FreeRequested), [2, 4, 6], "{config}");
        assert_eq!(of(Action::FreeCompleted), [3, 4, 6], "{config}");
        let back = if config.is_empty() {
            Action::SegmentFree
        } else {
            Action::SegmentUnmap
        };
        assert_eq!(of(back), [5, 5, 6], "{config}");
    }
}

#[test]
fn what_a_callback_of_the_program_frees_is_not_of_the_request_that_runs_it() {
    use npualloc::history::Action;
    let none: DropContext = Arc::new(|_| ());
    let (driver, device) = device(64 * MIB);
    let device = Arc::new(device);
    device.record_history(true, 100, RecordContext::Alloc);
    let allocate = |bytes, handle| {
        let context = Context::adopt(handle, &none);
        let made = device.allocate_in(bytes, S0, MempoolId::DEFAULT, context);
        made.expect("fits")
    };
    let first = allocate(40 * MIB, 1);
    let other = device.clone();
    driver.meanwhile("run_free_callbacks", move || {
        assert!(other.deallocate_with(first, None))
    });
    allocate(30 * MIB, 2);
    let trace = device.trace();
    let freed = trace
        .iter()
        .filter(|entry| entry.action == Action::FreeCompleted);
    let handles: Vec<_> = freed
        .map(|entry| entry.context.as_ref().map_or(0, |context| context.handle()))
        .collect();
    assert_eq!(handles, [1]);
}

#[test]
fn a_failed_request_is_traced_with_the_pool_that_it_was_made_in() {
    use npualloc::history::Action;
    const NEXT: MempoolId = MempoolId {
        first: 0,
        second: 2,
    };
    let (driver, device) = device(64 * MIB);
    let device = Arc::new(device);
    device.record_history(true, 100, RecordContext::All);
    device.create_or_incref_pool(POOL, false).expect("new");
    // Its pool goes, and another comes, before the failure is written down.
    let elsewhere = device.clone();
    driver.meanwhile("memory_info", move || {
        elsewhere.release_pool(POOL).expect("in use");
        elsewhere.empty_cache(MempoolId::DEFAULT).expect("works");
        assert!(!elsewhere.has_pool(POOL));
        elsewhere.create_or_incref_pool(NEXT, false).expect("new");
    });
    device
        .allocate_in(GIB, S0, POOL, None)
        .expect_err("too large");
    assert!(device.has_pool(NEXT));
    let trace = device.trace();
    let last = trace.last().expect("traced");
    assert_eq!((last.action, last.pool), (Action::OutOfMemory, POOL));
}

#[test]
fn a_snapshot_shows_every_block() {
    let (driver, device) = device(GIB);
    let a = device.allocate(4 * MIB, S0).expect("fits");
    let b = device.allocate(4 * MIB, S0).expect("fits");
    device.record_stream(b, SIDE);
    driver.submit(SIDE);
    device.deallocate(b);
    let snapshot = device.snapshot(MempoolId::DEFAULT);
    assert_eq!(snapshot.len(), 1);
    let segment = &snapshot[0];
    assert_eq!(
        (segment.addr, segment.total_size, segment.large),
        (a, 20 * MIB, true)
    );
    assert_eq!(
        (segment.allocated_size, segment.active_size),
        (4 * MIB + 512, 8 * MIB + 1024)
    );
    assert_eq!(segment.requested_size, 8 * MIB);
    let blocks: Vec<_> = segment
        .blocks
        .iter()
        .map(|block| (block.size, block.allocated, block.active))
        .collect();
    let rest = 12 * MIB - 1024;
    assert_eq!(
        blocks,
        [
            (4 * MIB + 512, true, true),
            (4 * MIB + 512, false, true),
            (rest, false, false)
        ]
    );
}

#[test]
fn memory_errors_mark_blocks_until_they_are_handed_out_again() {
    let (_, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    let b = device.allocate(30 * MIB, S0).expect("fits");
    assert_eq!(device.mark_damaged(a + MIB, 16), 1);
    assert_eq!(
        (device.is_damaged(a), device.is_damaged(b)),
        (Some(true), Some(false))
    );
    device.deallocate(a);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    assert_eq!(device.is_damaged(a), Some(false));
    device.mark_all_damaged();
    assert!(device.clear_damaged(b));
    assert_eq!(
        (device.is_damaged(a), device.is_damaged(b)),
        (Some(true), Some(false))
    );
    assert_eq!(device.is_damaged(1), None);
}

/// A segment that nobody uses, with a context. When that is dropped `works` is called on another thread, and what is
/// sent tells whether it returned.
fn with_a_context(
    works: impl Fn(&DeviceAllocator) + Copy + Send + Sync + 'static,
) -> (Arc<FakeDriver>, Arc<DeviceAllocator>, mpsc::Receiver<bool>) {
    let (driver, device) = device(GIB);
    let device = Arc::new(device);
    let (dropped, drops) = mpsc::channel();
    let other = device.clone();
    let drop: DropContext = Arc::new(move |_| {
        let (device, (done, ends)) = (other.clone(), mpsc::channel());
        std::thread::spawn(move || {
            works(&device);
            done.send(())
        });
        let returned = ends.recv_timeout(Duration::from_secs(5)).is_ok();
        dropped.send(returned).expect("somebody asks");
    });
    device.record_history(true, 1, RecordContext::All);
    let context = Context::adopt(1, &drop);
    let addr = device
        .allocate_in(40 * MIB, S0, MempoolId::DEFAULT, context)
        .expect("fits");
    assert!(device.deallocate(addr));
    (driver, device, drops)
}

#[test]
fn the_context_of_a_segment_that_can_not_be_returned_is_dropped_without_the_lock() {
    let (driver, device, drops) = with_a_context(|device| {
        device.is_capturing_anything();
    });
    let (other, its_driver) = (device.clone(), driver.clone());
    driver.meanwhile("free", move || {
        other.record_history(false, 1, RecordContext::Never);
        its_driver.fail_call(0, 507_899);
    });
    device
        .empty_cache(MempoolId::DEFAULT)
        .expect_err("the driver refuses");
    assert_eq!(drops.recv(), Ok(true), "the device's lock was free");
    device.check_consistency().expect("consistent");
}

#[test]
fn a_context_is_dropped_after_sleep_let_others_sleep() {
    let (driver, device, drops) = with_a_context(|device| {
        device.wake_up(None).expect("works");
    });
    let other = device.clone();
    driver.meanwhile("free", move || {
        other.record_history(false, 1, RecordContext::Never);
    });
    device.sleep(None).expect("works");
    assert_eq!(drops.recv(), Ok(true), "another thread can wake it");
    device.check_consistency().expect("consistent");
}
