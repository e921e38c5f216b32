//! Which kind of segments serves requests where `expandable_segments` is not given.

use npualloc::error::AllocError;

use super::*;

/// A code that no runtime documents as "not enough memory".
const FAILURE: i32 = 507_899;

fn probing(config: &str, driver: &Arc<FakeDriver>) -> DeviceAllocator {
    let settings = settings_by_default(config);
    DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device")
}

fn driver() -> Arc<FakeDriver> {
    Arc::new(FakeDriver::new(GIB))
}

fn kinds(device: &DeviceAllocator) -> Vec<bool> {
    let segments = device.snapshot(MempoolId::DEFAULT);
    segments
        .iter()
        .map(|segment| segment.page_size.is_some())
        .collect()
}

#[test]
fn a_driver_that_maps_memory_serves_virtual_segments() {
    let driver = driver();
    let device = probing("", &driver);
    assert_eq!(
        driver.total_calls(),
        0,
        "nothing is tried before it is needed"
    );
    let addr = device.allocate(MIB, S0).unwrap();
    assert_eq!(kinds(&device), [true]);
    assert!(device.deallocate(addr));
    device.empty_cache(MempoolId::DEFAULT).unwrap();
    assert_eq!((driver.held(0), driver.held_virtual(0)), ((0, 0), (0, 0)));
    device.check_consistency().unwrap();
}

#[test]
fn each_failure_of_the_try_leaves_fixed_segments_and_nothing_else() {
    // Reserve, allocate, map; the second map, and three calls that compare contents, only tell whether pages can have two
    // addresses. Then what undoes them.
    let only_tell = (3..7).map(|call| (call, true));
    let others = [0, 1, 2, 7].map(|call| (call, false));
    for (failing, kind) in only_tell.chain(others) {
        let driver = driver();
        let device = probing("", &driver);
        driver.fail_call(failing, FAILURE);
        let addr = device.allocate(MIB, S0).unwrap();
        assert_eq!(kinds(&device), [kind], "call {failing}");
        assert!(device.deallocate(addr));
        device.empty_cache(MempoolId::DEFAULT).unwrap();
        assert_eq!(
            (driver.held(0), driver.held_virtual(0)),
            ((0, 0), (0, 0)),
            "call {failing}"
        );
    }
}

#[test]
fn what_can_not_be_undone_of_the_try_is_no_failure_of_the_client() {
    for call in ["unmap", "free_physical", "release_address"] {
        let driver = driver();
        let device = probing("", &driver);
        refuse(&driver, call, FAILURE);
        let addr = device.allocate(MIB, S0).expect("from a fixed segment");
        assert_eq!(kinds(&device), [false], "{call}");
        assert!(device.deallocate(addr));
        for _ in 0..2 {
            device.empty_cache(MempoolId::DEFAULT).expect(call);
        }
        assert!(kinds(&device).is_empty(), "{call}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_full_device_is_tried_again() {
    let driver = driver();
    let device = probing("", &driver);
    driver.fail_call(1, npualloc::driver::OUT_OF_MEMORY_CODE);
    device.allocate(MIB, S0).unwrap();
    assert_eq!(kinds(&device), [false]);
    device.allocate(64 * MIB, S0).unwrap();
    let mut kinds = kinds(&device);
    kinds.sort_unstable();
    assert_eq!(kinds, [false, true]);
    device.check_consistency().unwrap();
}

#[test]
fn a_driver_that_fails_later_is_left_for_fixed_segments() {
    let driver = driver();
    let device = probing("", &driver);
    let first = device.allocate(8 * MIB, S0).unwrap();
    assert_eq!(kinds(&device), [true]);
    driver.fail_call(2, FAILURE);
    let second = device.allocate(64 * MIB, S0).unwrap();
    let third = device.allocate(64 * MIB, S0).unwrap();
    let mut kinds = kinds(&device);
    kinds.sort_unstable();
    assert_eq!(kinds, [false, false, true]);
    for addr in [first, second, third] {
        assert!(device.deallocate(addr));
    }
    device.empty_cache(MempoolId::DEFAULT).unwrap();
    assert_eq!((driver.held(0), driver.held_virtual(0)), ((0, 0), (0, 0)));
    device.check_consistency().unwrap();
}

#[test]
fn addresses_that_run_out_leave_fixed_segments() {
    // A kind of segments that nobody asked for, with memory to spare: a stream without addresses is no reason to fail.
    let driver = driver();
    let device = probing("", &driver);
    let first = device.allocate(8 * MIB, S0).expect("fits");
    driver.limit_addresses(0, 0);
    let second = device.allocate(64 * MIB, S1).expect("from a fixed segment");
    assert_eq!(kinds(&device).iter().filter(|&&kind| !kind).count(), 1);
    for addr in [first, second] {
        assert!(device.deallocate(addr));
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!((driver.held(0), driver.held_virtual(0)), ((0, 0), (0, 0)));
    device.check_consistency().expect("consistent");
}

#[test]
fn addresses_that_run_out_are_told_of_where_virtual_segments_were_asked_for() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    device.allocate(8 * MIB, S0).expect("fits");
    driver.limit_addresses(0, 0);
    let Err(AllocError::OutOfMemory(report)) = device.allocate(64 * MIB, S1) else {
        panic!("served");
    };
    let text = report.message;
    assert!(text.contains("no addresses left"), "{text}");
}

#[test]
fn more_is_held_before_memory_moves_where_virtual_segments_were_not_asked_for() {
    let held = |config| {
        let driver = Arc::new(FakeDriver::new(64 * GIB));
        let device = probing(config, &driver);
        let blocks: Vec<_> = (0..16)
            .map(|_| device.allocate(GIB - 4096, S0).unwrap())
            .collect();
        assert!(device.deallocate(blocks[7]));
        // The idle gigabyte alone does not serve it.
        device.allocate(GIB + GIB / 2 - 4096, S0).unwrap();
        device.check_consistency().unwrap();
        driver.held(0).1
    };
    assert!(held("expandable_segments:True") < 17 * GIB);
    assert!(held("") > 17 * GIB);
}

#[test]
fn a_failure_is_reported_where_virtual_segments_were_asked_for() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    device.allocate(8 * MIB, S0).unwrap();
    driver.fail_call(2, FAILURE);
    assert!(device.allocate(64 * MIB, S0).is_err());
    device.allocate(64 * MIB, S0).unwrap();
    assert!(kinds(&device).iter().all(|&kind| kind));
}

#[test]
fn settings_at_run_time_change_the_engine() {
    let driver = driver();
    let device = probing("", &driver);
    let start = settings_by_default("");
    device.apply_settings(start.apply_runtime("expandable_segments:False").unwrap());
    device.allocate(MIB, S0).unwrap();
    assert_eq!(kinds(&device), [false]);
    device.apply_settings(start.apply_runtime("expandable_segments:True").unwrap());
    device.allocate(64 * MIB, S0).unwrap();
    let mut kinds = kinds(&device);
    kinds.sort_unstable();
    assert_eq!(kinds, [false, true]);
}

#[test]
fn a_rung_left_out_is_not_climbed() {
    use npualloc::config::SkippedRungs;
    // What is idle is of the wrong size: only returning it makes room.
    let skipped = [
        "",
        "partial_release",
        "full_release",
        "partial_release,full_release",
    ];
    for (skipped, served_by) in skipped.into_iter().zip(["partial", "full", "partial", ""]) {
        let driver = driver();
        let mut settings = Settings::default();
        settings.skipped_rungs =
            SkippedRungs::from_environment(|_| Some(skipped.to_owned())).expect("known");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let idle = [300, 300, 300].map(|mib| device.allocate(mib * MIB, S0).unwrap());
        for addr in idle {
            assert!(device.deallocate(addr));
        }
        let outcome = device.allocate(500 * MIB, S0);
        let ladder = device.ladder();
        let counts = (
            ladder.partial_release,
            ladder.full_release,
            ladder.out_of_memory,
        );
        match served_by {
            "partial" => assert_eq!((outcome.is_ok(), counts), (true, (1, 0, 0)), "{skipped}"),
            "full" => assert_eq!((outcome.is_ok(), counts), (true, (0, 1, 0)), "{skipped}"),
            _ => {
                assert!(matches!(outcome, Err(AllocError::OutOfMemory(_))));
                assert_eq!(counts, (0, 0, 1), "{skipped}");
            }
        }
        device.check_consistency().unwrap();
    }
}

#[test]
fn a_request_beyond_any_device_is_out_of_memory_and_changes_nothing() {
    let driver = driver();
    let device = probing("", &driver);
    device.allocate(MIB, S0).unwrap();
    let error = device.allocate(1 << 40, S0).unwrap_err();
    assert!(matches!(error, AllocError::OutOfMemory(_)), "{error}");
    device.allocate(64 * MIB, S0).unwrap();
    assert!(
        kinds(&device).iter().all(|&kind| kind),
        "virtual segments as before"
    );
}

#[test]
fn the_driver_is_tried_while_another_thread_puts_memory_to_sleep() {
    let driver = driver();
    let device = Arc::new(probing("", &driver));
    let (served, serves) = std::sync::mpsc::channel();
    let other = device.clone();
    driver.meanwhile("synchronize_device", move || {
        let (got, gets) = std::sync::mpsc::channel();
        std::thread::spawn(move || got.send(other.allocate(MIB, S0).is_ok()));
        // What the device is waited for may depend on this allocation.
        let answer = gets.recv_timeout(std::time::Duration::from_secs(5));
        served.send(answer).expect("somebody asks");
    });
    device.sleep(None).unwrap();
    assert_eq!(serves.recv(), Ok(Ok(true)));
    device.check_consistency().unwrap();
}

#[test]
fn blocks_that_are_never_split_are_segments_unless_virtual_ones_were_asked_for() {
    let pool = MempoolId {
        first: 0,
        second: 1,
    };
    let driver = driver();
    let device = probing("", &driver);
    device.set_no_split(pool);
    device.create_or_incref_pool(pool, false).unwrap();
    let take = || device.allocate_in(30 * MIB, S0, pool, None).unwrap();
    let blocks: Vec<usize> = (0..10).map(|_| take()).collect();
    blocks
        .iter()
        .for_each(|&addr| assert!(device.deallocate(addr)));
    // Free neighbours don't become one block that is handed out whole.
    for addr in [take(), take()] {
        let block = device.describe_block(addr).unwrap();
        assert_eq!((blocks.contains(&addr), block.size), (true, 32 * MIB));
    }
    assert_eq!(kinds(&device), [false; 10]);
    let other = device.allocate(30 * MIB, S0).unwrap();
    assert_eq!(kinds(&device).iter().filter(|kind| **kind).count(), 1);
    assert!(device.deallocate(other));
    device.check_consistency().unwrap();
}
