//! Full devices, limits, giving memory back.

use npualloc::error::AllocError;

use crate::*;

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
    let text = error.to_string();
    let (first, rest) = text.split_once('\n').expect("more than one line");
    assert_eq!(
        first,
        "NPU out of memory. Tried to allocate 62.00 MiB (NPU 0; 64.00 MiB total capacity; \
         30.00 MiB already allocated; 30.00 MiB current active; 34.00 MiB free; \
         30.00 MiB reserved in total by PyTorch).If reserved memory is >> allocated memory try \
         setting max_split_size_mb to avoid fragmentation."
    );
    for line in [
        "have 0 bytes free, the longest run 0 bytes",
        "stream 0x0, default pool: 30.00 MiB reserved (30.00 MiB live, 0 bytes waiting",
        "Outside of this allocator 0 bytes",
        "Tried: a new segment, waiting for the device and returning all that is idle.",
        "90.00 MiB together, more than the 64.00 MiB there are",
    ] {
        assert!(rest.contains(line), "{line} in {rest}");
    }
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
fn large_segments_grow_with_what_is_held_in_pieces_unless_told_otherwise() {
    use npualloc::config::SkippedRungs;
    // What a request of 30 MiB makes the device hold more, when so many segments of 20 MiB have two blocks each, of which
    // those are free that `free` is true of, numbered through.
    let grown_from = |segments: usize, skipped: &str, config: &str, free: fn(usize) -> bool| {
        let driver = Arc::new(FakeDriver::new(8 * GIB));
        let mut settings = Settings::parse(config).expect("valid");
        settings.skipped_rungs =
            SkippedRungs::from_environment(|_| Some(skipped.to_owned())).expect("known");
        let device =
            DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 0).expect("device");
        let blocks: Vec<_> = (0..2 * segments)
            .map(|_| device.allocate(9 * MIB + MIB / 2, S0).expect("room"))
            .collect();
        let before = 20 * MIB * segments;
        assert_eq!(driver.held(0), (segments, before));
        for (number, addr) in blocks.into_iter().enumerate() {
            if free(number) {
                device.deallocate(addr);
            }
        }
        device.allocate(30 * MIB, S0).expect("room");
        device.check_consistency().expect("consistent");
        driver.held(0).1 - before
    };
    let grown = |skipped, config, free| grown_from(310, skipped, config, free);
    // 1/14 of 6,200 MiB is 442: room for 14 times 30. Three quarters of that are 315, and 62 blocks have 589.
    let one_in_ten = |number| number % 10 == 0;
    assert_eq!(grown("", "", one_in_ten), 420 * MIB);
    // 6,140 MiB are less than 6 GiB.
    assert_eq!(grown_from(307, "", "", one_in_ten), 30 * MIB);
    // 31 blocks have 295.
    assert_eq!(grown("", "", |number| number % 20 == 0), 30 * MIB);
    // Segments idle as a whole have 1,240, but are in no pieces.
    assert_eq!(grown("", "", |number| number / 2 % 5 == 0), 30 * MIB);
    assert_eq!(grown("ample_segments", "", one_in_ten), 30 * MIB);
    assert_eq!(grown("", "max_split_size_mb:256", one_in_ten), 30 * MIB);
}

#[test]
fn a_policy_against_shortages_holds_for_both_kinds_of_segments() {
    for kind in ["expandable_segments:True", "expandable_segments:False"] {
        let (driver, device) = device_with(GIB, kind);
        let policy = "throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5";
        device.apply_settings(Settings::parse(&format!("{kind},{policy}")).expect("valid"));
        device.allocate(300 * MIB, S0).expect("below the share");
        for bytes in [300 * MIB, 2 * GIB] {
            let refused = device.allocate(bytes, S0);
            assert!(
                matches!(refused, Err(AllocError::Rejected(_))),
                "{kind}: {refused:?}"
            );
        }
        let (stats, _) = device.stats();
        let failures = (stats.num_oom_rejections, stats.num_ooms);
        assert_eq!((failures, stats.num_alloc_retries), ((2, 0), 0), "{kind}");
        assert_eq!(driver.calls("device_synchronize"), 0, "{kind}");
        device.allocate(200 * MIB, S0).expect("below the share");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn above_a_limit_cached_memory_goes_back_before_a_policy_refuses() {
    for kind in ["expandable_segments:True", "expandable_segments:False"] {
        let policy = "throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5";
        let (_, device) = device_with(GIB, &format!("{kind},{policy}"));
        // What is cached is of no use to the next one, and its memory is.
        for mib in [300, 350, 400] {
            let block = device.allocate(mib * MIB, S0).expect("below the limit");
            assert!(device.deallocate(block));
        }
        let refused = device.allocate(600 * MIB, S0);
        assert!(
            matches!(refused, Err(AllocError::OutOfMemory(_))),
            "{kind}: {refused:?}"
        );
        let (stats, _) = device.stats();
        assert_eq!((stats.num_oom_rejections, stats.num_ooms), (0, 1), "{kind}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn pages_of_the_drivers_choice_go_back_before_a_policy_refuses() {
    let driver = Arc::new(FakeDriver::new(GIB));
    let settings = settings_by_default("");
    let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
    let cached = device.allocate(1000 * MIB, S0).expect("fits");
    assert!(device.deallocate(cached));
    device.apply_settings(settings_by_default("throw_on_npumalloc_oom:True"));
    for mib in [5, 600, 900] {
        let block = device.allocate(mib * MIB, S0).expect("fits");
        assert!(device.deallocate(block));
    }
    let refused = device.allocate(2 * GIB, S0);
    assert!(
        matches!(refused, Err(AllocError::Rejected(_))),
        "{refused:?}"
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn a_share_in_the_settings_asks_the_device_when_memory_is_needed() {
    for config in ["", "expandable_segments:True"] {
        let config = format!("{config},per_process_memory_fraction:0.25");
        let (driver, device) = device_with(GIB, config.trim_start_matches(','));
        assert_eq!(driver.total_calls(), 0, "nobody uses the device");
        driver.fail_call(0, 507_899);
        let failed = device.allocate(100 * MIB, S0);
        assert!(matches!(failed, Err(AllocError::Driver(_))), "{failed:?}");
        device.allocate(200 * MIB, S0).expect("below the limit");
        let error = device.allocate(100 * MIB, S0).expect_err("above the limit");
        assert!(
            error.to_string().contains("256.00 MiB allowed; "),
            "{error}"
        );
        assert_eq!(device.memory_fraction().expect("known"), 0.25);

        let (_, device) = device_with(GIB, "per_process_memory_fraction:0.25");
        assert_eq!(device.memory_fraction().expect("known"), 0.25);
        let (_, device) = device_with(GIB, "per_process_memory_fraction:0.25");
        device.set_memory_fraction(1.0).expect("valid");
        device.allocate(600 * MIB, S0).expect("no limit");
    }
}

#[test]
fn whatever_a_driver_gives_as_a_reason_idle_memory_is_returned_before_it_is_told() {
    const FAILURE: i32 = 507_899;
    let (driver, device) = device(GIB);
    let idle = device.allocate(30 * MIB, S0).expect("fits");
    device.deallocate(idle);
    // The first call asks the client for memory.
    driver.fail_call(1, FAILURE);
    let addr = device.allocate(40 * MIB, S0).expect("the second time");
    let (stats, _) = device.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 0));
    device.deallocate(addr);
    refuse(&driver, "malloc", FAILURE);
    let failed = device.allocate(60 * MIB, S0);
    let Err(AllocError::Driver(error)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(error.code, FAILURE);
    let (stats, _) = device.stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (2, 0));
    assert_eq!(driver.held(0), (0, 0), "all that was idle");
    device.check_consistency().expect("consistent");
}

#[test]
fn virtual_segments_use_all_of_a_device_that_is_little_larger_than_what_is_needed() {
    // What the device holds after half of 10,000 MiB was given back in pieces and 4,000 MiB are needed in one.
    let held = |capacity: usize, share: f64| {
        let (driver, device) = device_with(capacity, "expandable_segments:True");
        device.set_memory_fraction(share).expect("valid");
        let blocks: Vec<_> = (0..125)
            .map(|_| device.allocate(80 * MIB - 4096, S0).expect("fits"))
            .collect();
        for addr in blocks.iter().step_by(2) {
            device.deallocate(*addr);
        }
        device.allocate(4000 * MIB, S0).expect("fits");
        device.check_consistency().expect("consistent");
        driver.held_virtual(0).0 * 8
    };
    let roomy = held(64 * GIB, 1.0);
    assert!((10_000..10_310).contains(&roomy), "{roomy} MiB");
    for (capacity, share) in [(11_000 * MIB, 1.0), (22_000 * MIB, 0.5)] {
        let near = held(capacity, share);
        assert!((10_900..=11_000).contains(&near), "{near} MiB");
    }
}

#[test]
fn a_request_that_failed_is_no_reason_to_hold_more() {
    let held = |fails: bool| {
        let (driver, device) = device_with(8 * GIB, "expandable_segments:True");
        let mut last = device.allocate(100 * MIB, S0).expect("fits");
        if fails {
            device.allocate(20 * GIB, S0).expect_err("no room");
        }
        for more in 1..40 {
            let next = device.allocate((100 + 8 * more) * MIB, S0).expect("fits");
            assert!(device.deallocate(last));
            last = next;
        }
        device.check_consistency().expect("consistent");
        driver.mapped_bytes(0) / MIB
    };
    assert_eq!(held(true), held(false));
}

#[test]
fn sizes_that_would_wrap_are_refused_by_a_device_as_by_all_of_them() {
    for config in ["", "expandable_segments:True"] {
        let (driver, device) = device_with(GIB, config);
        device.create_or_incref_pool(POOL, false).expect("new");
        // Free blocks that a size that wraps would find.
        for pool in [MempoolId::DEFAULT, POOL] {
            let addr = device.allocate_in(100, S0, pool, None).expect("fits");
            assert!(device.deallocate(addr));
        }
        let held = (driver.held(0), driver.mapped_bytes(0));
        for less in [0, 31, 511, 600, 1 << 20, 1 << 62] {
            let bytes = usize::MAX - less;
            for refused in [
                device.allocate(bytes, S0),
                device.allocate_in(bytes, S0, MempoolId::DEFAULT, None),
                device.allocate_in(bytes, S0, POOL, None),
            ] {
                assert!(
                    matches!(refused, Err(AllocError::OutOfMemory(_))),
                    "{config:?} {bytes}: {refused:?}"
                );
            }
            device.check_consistency().expect("consistent");
        }
        let live = device.stats().0.allocated_bytes.aggregate();
        assert_eq!((live.current, live.peak), (0, 512));
        // What is idle may have gone back meanwhile.
        assert!(driver.held(0).1 <= held.0.1 && driver.mapped_bytes(0) <= held.1);
    }
}
