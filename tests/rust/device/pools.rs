//! Private pools and their checkpoints.

use npualloc::error::AllocError;

use crate::*;

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
fn figures_of_a_pool_go_with_it_and_are_reset_with_all_others() {
    let (_, device) = device(GIB);
    for second in 0..100 {
        let pool = MempoolId { first: 7, second };
        device.create_or_incref_pool(pool, false).expect("new");
        let addr = device.allocate_in(30 * MIB, S0, pool, None).expect("fits");
        device.deallocate(addr);
        device.release_pool(pool).expect("was in use");
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        assert!(!device.has_pool(pool));
    }
    assert_eq!(device.reserved_by_pool(), []);

    device.create_or_incref_pool(POOL, false).expect("new");
    let addr = device.allocate_in(30 * MIB, S0, POOL, None).expect("fits");
    device.deallocate(addr);
    device.empty_cache(POOL).expect("works");
    let figures = || {
        let pools = device.reserved_by_pool();
        assert_eq!(pools.len(), 1);
        let stat = pools[0].1.aggregate();
        (stat.current, stat.peak, stat.allocated, stat.freed)
    };
    let bytes = 32 * MIB as i64;
    let before = figures();
    device.reset_peak_stats();
    let without_peak = figures();
    device.reset_accumulated_stats();
    let without_totals = figures();
    assert_eq!(before.1, bytes);
    assert_eq!(without_peak, (before.0, before.0, before.2, before.3));
    assert_eq!(without_totals, (before.0, before.0, 0, 0));
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
    // What lives in it can be noted, but not brought back.
    let after = device.checkpoint(POOL).expect("it has a block");
    assert!(matches!(
        device.restore(&after),
        Err(AllocError::PoolState { .. })
    ));
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
fn a_checkpoint_whose_memory_another_thread_changes_is_refused_and_changes_nothing() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    let device = Arc::new(device);
    device.create_or_incref_pool(POOL, false).expect("new");
    let take = |bytes| device.allocate_in(bytes, S0, POOL, None).expect("fits");
    let (a, b) = (take(20 * MIB), take(100));
    let saved = device.checkpoint(POOL).expect("no events");
    let c = take(100);
    device.deallocate(a);
    let (other, saved_too) = (device.clone(), saved.clone());
    driver.meanwhile("malloc_physical", move || {
        // The free block is the beginning of a larger one to come.
        let refused = other.restore(&saved_too);
        assert!(matches!(refused, Err(AllocError::PoolState { .. })));
        other.check_consistency().expect("consistent");
    });
    let d = take(40 * MIB);
    assert!(device.deallocate(c), "still live");
    let restored = device.restore(&saved).expect("memory is there");
    assert_eq!((restored.freed.len(), restored.allocated.len()), (2, 2));
    assert!(device.deallocate(a) && device.deallocate(b));
    assert_eq!(a, d);
    device.check_consistency().expect("consistent");
}

#[test]
fn emptying_a_pool_leaves_the_memory_of_others_alone() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    let handles = || driver.held_virtual(0).0;
    let others = device.allocate(200 * MIB, S0).expect("fits");
    device.deallocate(others);
    device.empty_virtual_cache().expect("works");
    let idle = handles();
    assert!(idle >= 20);
    // One that nobody knows.
    device.empty_cache(POOL).expect("works");
    assert_eq!(handles(), idle);
    device.create_or_incref_pool(POOL, false).expect("new");
    let own = device.allocate_in(40 * MIB, S0, POOL, None).expect("fits");
    assert_eq!(handles(), idle, "of what was idle");
    device.deallocate(own);
    device.release_pool(POOL).expect("was in use");
    device.empty_cache(POOL).expect("works");
    // 40 MiB and what kernels may read past it.
    assert_eq!(handles(), idle - 6);
    device.check_consistency().expect("consistent");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(handles(), 0);
}
