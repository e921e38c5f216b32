//! One device's allocator over the fake driver: what each call does to blocks, segments, statistics
//! and the driver.

use std::sync::Arc;

use npualloc::config::Settings;
use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::driver::fake::FakeDriver;
use npualloc::error::AllocError;
use npualloc::ids::{DeviceId, MempoolId, StreamKey};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const S0: StreamKey = StreamKey(0);
const SIDE: StreamToken = StreamToken {
    id: 7,
    device: 0,
    reserved: 0,
};

fn device_with(capacity: usize, config: &str) -> (Arc<FakeDriver>, DeviceAllocator) {
    let driver = Arc::new(FakeDriver::new(capacity));
    let settings = Settings::parse(config).expect("valid settings");
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

fn device(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    device_with(capacity, "")
}

#[test]
fn small_requests_share_a_two_mebibyte_segment() {
    let (driver, device) = device(GIB);
    let a = device.allocate(100, S0).expect("fits");
    let b = device.allocate(480, S0).expect("fits");
    let c = device.allocate(481, S0).expect("fits");
    assert_eq!((b - a, c - b), (512, 512));
    assert_eq!(driver.held(0), (1, 2 * MIB));
    let (stats, _) = device.stats();
    // 100 + 32 and 480 + 32 round to 512; 481 + 32 to 1024.
    assert_eq!(stats.allocated_bytes.current(), 512 + 512 + 1024);
    assert_eq!(stats.requested_bytes.current(), 100 + 480 + 481);
    assert_eq!(stats.inactive_split.current(), 1);
    assert_eq!(
        stats.inactive_split_bytes.current() as usize,
        2 * MIB - 2048
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn segment_sizes_follow_the_request() {
    for (bytes, segment) in [
        (1, 2 * MIB),
        (MIB - 32, 2 * MIB),
        (MIB, 20 * MIB),
        (10 * MIB - 1024, 20 * MIB),
        (10 * MIB - 32, 10 * MIB),
        (10 * MIB, 12 * MIB),
        (100 * MIB + 1, 102 * MIB),
    ] {
        let (driver, device) = device(GIB);
        device.allocate(bytes, S0).expect("fits");
        assert_eq!(
            driver.held(0),
            (1, segment),
            "for a request of {bytes} bytes"
        );
    }
}

#[test]
fn freed_neighbours_merge_and_are_reused_without_the_driver() {
    let (driver, device) = device(GIB);
    let blocks: Vec<_> = (0..4)
        .map(|_| device.allocate(4 * MIB, S0).expect("fits"))
        .collect();
    assert_eq!(driver.held(0), (1, 20 * MIB));
    for addr in [blocks[1], blocks[3], blocks[2]] {
        assert!(device.deallocate(addr));
        device.check_consistency().expect("consistent");
    }
    let calls = driver.total_calls();
    // Three blocks of 4 MiB + 512 in one: only merged can they hold 12 MiB.
    let again = device.allocate(12 * MIB, S0).expect("fits");
    assert_eq!(again, blocks[1]);
    assert_eq!(driver.total_calls(), calls);
}

#[test]
fn a_stream_never_gets_another_streams_block() {
    let (driver, device) = device(GIB);
    let a = device.allocate(MIB, S0).expect("fits");
    device.deallocate(a);
    let b = device.allocate(MIB, StreamKey(9)).expect("fits");
    assert_ne!(a, b);
    assert_eq!(driver.held(0).0, 2);
}

#[test]
fn a_recorded_stream_delays_reuse_until_its_work_is_done() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    assert!(device.record_stream(a, SIDE));
    driver.submit(SIDE);
    device.deallocate(a);
    let (stats, _) = device.stats();
    assert_eq!((stats.allocation.current(), stats.active.current()), (0, 1));
    let b = device.allocate(30 * MIB, S0).expect("fits");
    assert_ne!(a, b);
    driver.finish(SIDE);
    let c = device.allocate(30 * MIB, S0).expect("fits");
    assert_eq!(a, c);
    device.check_consistency().expect("consistent");
}

#[test]
fn an_erased_stream_does_not_delay() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(a, SIDE);
    driver.submit(SIDE);
    device.erase_stream(a, SIDE);
    device.deallocate(a);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    assert_eq!(driver.calls("event_record"), 0);
}

#[test]
fn a_full_device_releases_idle_segments_oldest_first_and_no_more_than_needed() {
    let (driver, device) = device(100 * MIB);
    let first = device.allocate(29 * MIB, S0).expect("fits");
    let second = device.allocate(29 * MIB, S0).expect("fits");
    let third = device.allocate(29 * MIB, S0).expect("fits");
    for addr in [second, first, third] {
        device.deallocate(addr);
    }
    assert_eq!(driver.held(0), (3, 90 * MIB));
    // 40 MiB need two of the three 30 MiB segments gone; the oldest idle ones are second and first.
    device.allocate(39 * MIB, S0).expect("fits after release");
    assert_eq!(driver.held(0), (2, 70 * MIB));
    assert_eq!(device.allocate(29 * MIB, S0).expect("cached"), third);
    let (stats, _) = device.stats();
    assert_eq!(
        (
            stats.num_alloc_retries,
            stats.num_ooms,
            stats.num_device_free
        ),
        (1, 0, 2)
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn out_of_memory_says_so_and_changes_nothing() {
    let (driver, device) = device(64 * MIB);
    let a = device.allocate(29 * MIB, S0).expect("fits");
    let error = device.allocate(60 * MIB, S0).expect_err("does not fit");
    let AllocError::OutOfMemory(report) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (report.alloc_size, report.device_total),
        (62 * MIB, 64 * MIB)
    );
    assert_eq!(
        error.to_string(),
        "NPU out of memory. Tried to allocate 62.00 MiB (NPU 0; 64.00 MiB total capacity; \
         30.00 MiB already allocated; 30.00 MiB current active; 34.00 MiB free; \
         30.00 MiB reserved in total by PyTorch).If reserved memory is >> allocated memory try \
         setting max_split_size_mb to avoid fragmentation."
    );
    let (stats, _) = device.stats();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
    device.check_consistency().expect("consistent");
    device.deallocate(a);
    device.allocate(60 * MIB, S0).expect("fits now");
    assert_eq!(driver.held(0), (1, 62 * MIB));
}

#[test]
fn the_memory_fraction_limits_what_is_reserved() {
    let (driver, device) = device(GIB);
    device.set_memory_fraction(0.25).expect("valid");
    assert_eq!(device.memory_fraction().expect("known"), 0.25);
    device.allocate(200 * MIB, S0).expect("below the limit");
    let error = device.allocate(100 * MIB, S0).expect_err("above the limit");
    assert!(
        error.to_string().contains("256.00 MiB allowed; "),
        "{error}"
    );
    for fraction in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(
            device.set_memory_fraction(fraction),
            Err(AllocError::InvalidFraction { .. })
        ));
    }
    assert_eq!(device.memory_fraction().expect("known"), 0.25);
    device.set_memory_fraction(1.0).expect("valid");
    device.allocate(100 * MIB, S0).expect("no limit");
    assert_eq!(driver.held(0).0, 2);
}

#[test]
fn empty_cache_returns_idle_segments_and_waits_for_events() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    let b = device.allocate(30 * MIB, S0).expect("fits");
    let c = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(b, SIDE);
    driver.submit(SIDE);
    device.deallocate(a);
    device.deallocate(b);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held(0).0, 1);
    device.deallocate(c);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held(0), (0, 0));
    let (stats, _) = device.stats();
    assert_eq!(stats.reserved_bytes.current(), 0);
    assert_eq!(stats.reserved_bytes.aggregate().peak as usize, 3 * 32 * MIB);
    device.check_consistency().expect("consistent");
}

#[test]
fn max_split_size_keeps_large_blocks_whole() {
    let (driver, device) = device_with(GIB, "max_split_size_mb:64");
    let big = device.allocate(100 * MIB, S0).expect("fits");
    device.deallocate(big);
    // A small-enough request must not break the cached oversize block.
    device.allocate(30 * MIB, S0).expect("fits");
    assert_eq!(driver.held(0).0, 2);
    // An oversize request close to its size takes it.
    assert_eq!(device.allocate(95 * MIB, S0).expect("fits"), big);
    let (stats, max_split) = device.stats();
    assert_eq!(stats.oversize_allocations.current, 1);
    assert_eq!(max_split, 64 * MIB as i64);
}

#[test]
fn an_unknown_address_is_refused() {
    let (_, device) = device(GIB);
    let a = device.allocate(MIB, S0).expect("fits");
    assert!(!device.deallocate(a + 512));
    assert!(!device.record_stream(a + 512, SIDE));
    assert!(device.deallocate(a));
    assert!(!device.deallocate(a), "a second free");
    device.check_consistency().expect("consistent");
}

#[test]
fn a_handle_outlives_the_free_until_the_events_are_over() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    let handle = device.describe_block(a).expect("live").handle;
    device.record_stream(a, SIDE);
    driver.submit(SIDE);
    device.deallocate(a);
    assert_eq!(device.describe_handle(handle).expect("pending").addr, a);
    // The client knows that the side stream is done: no waiting.
    assert!(device.erase_stream_of(handle, SIDE));
    device.check_consistency().expect("consistent");
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    assert!(
        device.describe_handle(handle).is_none(),
        "the handle of a former tenant"
    );
    assert!(!device.erase_stream_of(handle, SIDE));
}

const POOL: MempoolId = MempoolId {
    first: 0,
    second: 1,
};

#[test]
fn a_private_pool_keeps_its_memory_to_itself_until_released() {
    let (driver, device) = device(GIB);
    device.create_or_incref_pool(POOL, false).expect("new");
    let shared = device.allocate(30 * MIB, S0).expect("fits");
    device.deallocate(shared);
    let private = device.allocate_in(30 * MIB, S0, POOL, None).expect("fits");
    assert_ne!(shared, private);
    device.deallocate(private);
    assert_eq!(device.reserved_by_pool()[0].1.current() as usize, 32 * MIB);
    // In use: its idle memory stays, the default pool's goes.
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held(0), (1, 32 * MIB));
    assert_eq!(
        device
            .allocate_in(30 * MIB, S0, POOL, None)
            .expect("cached"),
        private
    );
    device.release_pool(POOL).expect("was in use");
    device.deallocate(private);
    device.check_consistency().expect("consistent");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held(0), (0, 0));
    assert!(!device.has_pool(POOL));
    device.check_consistency().expect("consistent");
}

#[test]
fn pool_calls_out_of_order_are_refused() {
    let (_, device) = device(GIB);
    let other = MempoolId {
        first: 3,
        second: 0,
    };
    assert!(matches!(
        device.release_pool(other),
        Err(AllocError::UnknownPool { .. })
    ));
    assert!(matches!(
        device.allocate_in(1, S0, other, None),
        Err(AllocError::UnknownPool { .. })
    ));
    device.create_or_incref_pool(other, false).expect("new");
    device.create_or_incref_pool(other, false).expect("shared");
    assert!(device.create_or_incref_pool(other, true).is_err());
    assert_eq!(device.pool_use_count(other).expect("known"), 2);
    device.release_pool(other).expect("in use");
    device.release_pool(other).expect("in use");
    assert!(matches!(
        device.release_pool(other),
        Err(AllocError::PoolState { .. })
    ));
    assert!(matches!(
        device.mark_capture_end(),
        Err(AllocError::NoCapture { .. })
    ));
}

#[test]
fn an_overflow_pool_serves_others_before_memory_runs_out() {
    let (driver, device) = device(64 * MIB);
    device.create_or_incref_pool(POOL, false).expect("new");
    let private = device.allocate_in(40 * MIB, S0, POOL, None).expect("fits");
    device.deallocate(private);
    assert!(
        device.allocate(40 * MIB, S0).is_err(),
        "the pool did not opt in"
    );
    device.set_use_on_oom(POOL, true);
    assert_eq!(
        device.allocate(40 * MIB, S0).expect("from the pool"),
        private
    );
    assert_eq!(driver.held(0).0, 1);
}

#[test]
fn a_no_split_pool_hands_out_whole_blocks() {
    let (_, device) = device(GIB);
    device.set_no_split(POOL);
    device.create_or_incref_pool(POOL, false).expect("new");
    let a = device.allocate_in(512, S0, POOL, None).expect("fits");
    assert_eq!(device.describe_block(a).expect("live").size, 2 * MIB);
}

#[test]
fn during_a_capture_events_wait_until_it_has_ended() {
    let (driver, device) = device(GIB);
    let a = device.allocate(30 * MIB, S0).expect("fits");
    let b = device.allocate(30 * MIB, S0).expect("fits");
    device.record_stream(a, SIDE);
    device.mark_capture_begin();
    driver.set_capturing(true);
    device.record_stream(b, SIDE);
    driver.submit(SIDE);
    device.deallocate(a);
    device.deallocate(b);
    device.check_consistency().expect("consistent");
    device.allocate(100, S0).expect("fits");
    assert_eq!(
        driver.calls("event_record") + driver.calls("event_query"),
        0
    );
    driver.set_capturing(false);
    device.mark_capture_end().expect("under way");
    // b was used on the side stream within the capture only: it is free at once. a needs its event.
    device.allocate(100, S0).expect("fits");
    assert_eq!(driver.calls("event_record"), 1);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), b);
    driver.finish(SIDE);
    assert_eq!(device.allocate(30 * MIB, S0).expect("fits"), a);
    device.check_consistency().expect("consistent");
}

#[test]
fn history_shows_what_happened_in_order() {
    use npualloc::history::{Action, RecordContext};
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
fn a_checkpoint_brings_a_pools_blocks_back() {
    for config in ["", "expandable_segments:True"] {
        let (_, device) = device_with(GIB, config);
        device.create_or_incref_pool(POOL, false).expect("new");
        let take = |bytes| device.allocate_in(bytes, S0, POOL, None).expect("fits");
        let (a, b, c) = (take(3 * MIB), take(100), take(5 * MIB));
        device.deallocate(a);
        let saved = device.checkpoint(POOL).expect("no events");
        device.deallocate(b);
        device.deallocate(c);
        let d = take(7 * MIB);
        let restored = device.restore(&saved).expect("memory is there");
        device.check_consistency().expect("consistent");
        assert_eq!(restored.freed, [d]);
        let mut live = restored.allocated.clone();
        live.sort_unstable();
        let mut expected = vec![b, c];
        expected.sort_unstable();
        assert_eq!(live, expected);
        assert!(device.deallocate(b) && device.deallocate(c));
        assert!(!device.deallocate(d));
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_checkpoint_whose_memory_is_gone_is_refused_and_changes_nothing() {
    let (_, device) = device(GIB);
    device.create_or_incref_pool(POOL, false).expect("new");
    let a = device.allocate_in(30 * MIB, S0, POOL, None).expect("fits");
    let saved = device.checkpoint(POOL).expect("no events");
    device.release_pool(POOL).expect("in use");
    assert!(matches!(
        device.restore(&saved),
        Err(AllocError::PoolState { .. })
    ));
    device.deallocate(a);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    device.create_or_incref_pool(POOL, false).expect("new");
    let b = device.allocate_in(100, S0, POOL, None).expect("fits");
    assert!(matches!(
        device.restore(&saved),
        Err(AllocError::PoolState { .. })
    ));
    assert!(device.deallocate(b), "still live");
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

#[test]
fn virtual_segments_map_what_is_needed_and_unmap_what_is_idle() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    let a = device.allocate(3 * MIB, S0).expect("fits");
    let b = device.allocate(3 * MIB, S0).expect("fits");
    assert_eq!(
        b,
        a + 3 * MIB + 16 * 1024,
        "dense but for the base alignment"
    );
    assert_eq!(driver.mapped_bytes(0), 8 * MIB);
    device.deallocate(a);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    // Only the first page holds nothing of b.
    assert_eq!(driver.mapped_bytes(0), 6 * MIB);
    let pages = device.pages_under(b).expect("virtual");
    assert_eq!(
        (pages.page_size, pages.addr, pages.handles.len()),
        (2 * MIB, a + 2 * MIB, 3)
    );
    device.deallocate(b);
    device.empty_virtual_cache().expect("works");
    assert_eq!(
        (driver.mapped_bytes(0), device.idle_physical_bytes()),
        (0, 6 * MIB)
    );
    let calls = driver.calls("malloc_physical");
    device.allocate(5 * MIB, S0).expect("from idle memory");
    assert_eq!(driver.calls("malloc_physical"), calls);
    device.check_consistency().expect("consistent");
}
