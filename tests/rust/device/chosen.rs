//! What a thread chose before a call of the driver, and others took meanwhile.

use std::sync::mpsc;

use crate::*;
use npualloc::driver::OUT_OF_MEMORY_CODE;

const FAILURE: i32 = 507_899;
const DEFAULT_STREAM: StreamToken = StreamToken { id: 0, ..SIDE };

/// Blocks of `sizes` MiB less the padding, on stream 0.
fn blocks(device: &DeviceAllocator, sizes: &[usize]) -> Vec<usize> {
    sizes
        .iter()
        .map(|size| device.allocate(size * MIB - 4096, S0).expect("fits"))
        .collect()
}

#[test]
fn a_window_taken_while_addresses_are_refused_is_given_up() {
    for (code, taken) in [
        (OUT_OF_MEMORY_CODE, true),
        (FAILURE, true),
        (FAILURE, false),
    ] {
        let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
        let device = Arc::new(device);
        let free = blocks(&device, &[24])[0];
        // The driver has no more for a while.
        driver.set_others(0, 232 * MIB);
        device.allocate(100 * MIB, S0).expect_err("no room");
        driver.set_others(0, 0);
        assert!(device.deallocate(free));
        // What is free is the beginning of the best window; a range apart would be better.
        let (other, its_driver) = (device.clone(), driver.clone());
        driver.meanwhile("reserve_address", move || {
            if taken {
                assert_eq!(blocks(&other, &[24]), [free]);
            }
            its_driver.fail_call(0, code);
            refuse(&its_driver, "reserve_address", code);
        });
        let reserved = driver.calls("reserve_address");
        let addr = blocks(&device, &[80])[0];
        assert!(driver.calls("reserve_address") > reserved);
        let apart = addr >= free + 24 * MIB || addr + 80 * MIB <= free;
        assert_eq!(apart, taken, "{code}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_block_that_waits_for_an_event_is_returned_though_others_free_meanwhile() {
    let (driver, device) = device(128 * MIB);
    let device = Arc::new(device);
    let small = device.allocate(100, S0).expect("fits");
    let used = device.allocate(100 * MIB, StreamKey(1)).expect("fits");
    // Memory was short before.
    device.allocate(200 * MIB, S0).expect_err("no room");
    device.record_stream(used, SIDE);
    driver.submit(SIDE);
    assert!(device.deallocate(used));
    let other = device.clone();
    driver.meanwhile("synchronize_device", move || {
        assert!(other.deallocate(small));
    });
    device.allocate(100 * MIB, S0).expect("what was returned");
    device.check_consistency().expect("consistent");
}

#[test]
fn pages_that_fell_asleep_are_not_moved() {
    for returns in [false, true] {
        let (driver, device) = device_without_aliasing(128 * MIB);
        let device = Arc::new(device);
        device.create_or_incref_pool(POOL, false).expect("new");
        let held = blocks(&device, &[40, 8, 40]);
        driver.set_others(0, 40 * MIB);
        let (go, gone) = mpsc::channel();
        let (started, starts) = mpsc::channel();
        let (other, its_driver) = (device.clone(), driver.clone());
        driver.meanwhile("synchronize_device", move || {
            // Freed too late for this wait to cover it.
            assert!(other.deallocate(held[0]) && other.deallocate(held[2]));
            let (chosen, is_chosen) = mpsc::channel();
            its_driver.meanwhile("unmap", move || {
                chosen.send(()).expect("somebody waits");
                gone.recv().expect("goes on");
            });
            let thread = std::thread::spawn(move || {
                if returns {
                    other.empty_cache(MempoolId::DEFAULT).map(|()| 0)
                } else {
                    other.allocate_in(72 * MIB, S0, POOL, None)
                }
            });
            is_chosen.recv().expect("about to unmap one of two blocks");
            started.send(thread).expect("somebody waits");
        });
        let slept = device.sleep(Some(MempoolId::DEFAULT)).expect("works");
        assert_eq!(slept, 48 * MIB, "but for the block that is being unmapped");
        go.send(()).expect("waits");
        let thread = starts.recv().expect("started");
        let outcome = thread.join().expect("no panic");
        device.check_consistency().expect("consistent");
        outcome.expect("works");
        // Where nothing is in use any more no memory is needed, whoever notices.
        let asleep = if returns { 8 * MIB } else { slept };
        assert_eq!(device.asleep_bytes(), asleep);
        driver.set_others(0, 0);
        assert_eq!(device.wake_up(None).expect("works"), 8 * MIB);
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_block_that_loses_a_page_still_serves_its_list() {
    let (driver, device) = device_without_aliasing(176 * MIB);
    let device = Arc::new(device);
    let held = blocks(&device, &[160, 8]);
    driver.submit(DEFAULT_STREAM);
    assert!(device.deallocate(held[0]));
    driver.set_others(0, 8 * MIB);
    let other = device.clone();
    let (sender, served) = mpsc::channel();
    driver.meanwhile("unmap", move || {
        sender.send(other.allocate(80 * MIB, S0)).expect("asked");
        other.check_consistency().expect("consistent");
    });
    let moved = device.allocate(7 * MIB, StreamKey(1)).expect("one page");
    let addr = served.recv().expect("unmapped").expect("20 pages are free");
    assert!((held[0]..held[0] + 160 * MIB).contains(&addr));
    device.check_consistency().expect("consistent");
    assert!(device.deallocate(addr) && device.deallocate(moved) && device.deallocate(held[1]));
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held_virtual(0), (0, 0));
}

#[test]
fn addresses_beside_mappings_that_go_serve_others_meanwhile() {
    let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
    let device = Arc::new(device);
    device.create_or_incref_pool(POOL, false).expect("new");
    let held = blocks(&device, &[8, 40]);
    driver.set_others(0, 208 * MIB);
    assert!(device.deallocate(held[1]));
    device
        .allocate_in(40 * MIB - 4096, S0, POOL, None)
        .expect("moved");
    assert_eq!(device.ladder().pages_lent, 5);
    driver.set_others(0, 0);
    let ranges = driver.held_virtual(0).1;
    let other = device.clone();
    driver.meanwhile("unmap", move || {
        blocks(&other, &[40]);
        other.check_consistency().expect("consistent");
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held_virtual(0).1, ranges, "no range more");
    device.check_consistency().expect("consistent");
}

#[test]
fn a_pool_that_falls_asleep_while_it_is_asked_for_memory_serves_nobody() {
    for call in ["run_free_callbacks", "malloc_physical", "reserve_address"] {
        let (driver, device) = device_with(256 * MIB, "expandable_segments:True");
        let device = Arc::new(device);
        device.create_or_incref_pool(POOL, false).expect("new");
        // A pool in use keeps what is free in it.
        let free = device
            .allocate_in(40 * MIB - 4096, S0, POOL, None)
            .expect("fits");
        let used = device.allocate_in(MIB, S0, POOL, None).expect("fits");
        assert!(device.deallocate(free));
        let (other, all) = (device.clone(), Arc::new(std::sync::Mutex::new(None)));
        let slept = all.clone();
        driver.meanwhile(call, move || {
            *slept.lock().expect("no panic") = Some(other.sleep(Some(POOL)));
        });
        // `reserve_address`: a list without a range.
        let (bytes, stream) = match call {
            "reserve_address" => (30 * MIB, StreamKey(1)),
            _ => (60 * MIB, S0),
        };
        let outcome = device.allocate_in(bytes, stream, POOL, None);
        let slept = all.lock().expect("no panic").take().expect("called");
        assert!(slept.expect("works") > 0, "{call}");
        device.check_consistency().expect("consistent");
        if let Ok(addr) = outcome {
            let view = driver.spans(0, addr, bytes);
            assert!(view.is_some(), "{call}: a block without memory");
        }
        assert!(device.wake_up(Some(POOL)).is_ok());
        assert_eq!(device.asleep_bytes(), 0);
        let again = device.allocate_in(60 * MIB, S0, POOL, None).expect("fits");
        assert!(driver.spans(0, again, 60 * MIB).is_some());
        for addr in [used, again].into_iter().chain(outcome.ok()) {
            assert!(device.deallocate(addr));
        }
        device.release_pool(POOL).expect("in use");
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        assert_eq!(driver.held_virtual(0), (0, 0));
    }
}
