//! Fixed segments of programs that seem to load shards, and use blocks on several streams later.

use crate::*;

/// A device with fixed segments after a GiB of large blocks came and went, or lived, and after blocks were used on so many
/// other streams. Nothing is held.
fn device_after(
    capacity: usize,
    loads_shards: bool,
    streams: usize,
) -> (Arc<FakeDriver>, DeviceAllocator) {
    let driver = Arc::new(FakeDriver::new(capacity));
    let settings = settings_by_default("expandable_segments:False");
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    if loads_shards {
        for _ in 0..16 {
            let addr = allocate(&device, 64 * MIB, S0);
            free(&device, addr);
        }
    } else {
        let weights = allocate(&device, GIB, S0);
        // What lives is seen when more is obtained.
        let more = allocate(&device, 10 * MIB, S1);
        free(&device, weights);
        free(&device, more);
    }
    for stream in (7..).take(streams).map(token) {
        let addr = allocate(&device, 20 * MIB, S0);
        assert!(device.record_stream(addr, stream));
        driver.submit(stream);
        free(&device, addr);
        driver.finish(stream);
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.held(0), (0, 0));
    (driver, device)
}

fn reserved(device: &DeviceAllocator) -> usize {
    device.stats().0.reserved_bytes.current() as usize
}

/// By how much what is held grows for 160 MiB, where 7 GiB are held and most of it is free in pieces of 150 MiB.
fn grown_beside_pieces(device: &DeviceAllocator) -> usize {
    let pieces: Vec<usize> = (0..35)
        .map(|_| {
            let whole = allocate(device, 200 * MIB - 4096, S0);
            free(device, whole);
            allocate(device, 50 * MIB - 4096, S0);
            allocate(device, 150 * MIB - 4096, S0)
        })
        .collect();
    pieces.into_iter().for_each(|addr| free(device, addr));
    let before = reserved(device);
    allocate(device, 160 * MIB - 4096, S0);
    device.check_consistency().expect("consistent");
    reserved(device) - before
}

/// What is held after 500 MiB were asked for, where three segments of 400 MiB are idle and two of them are enough.
fn held_after_shortage(device: &DeviceAllocator) -> usize {
    let idle = [400 * MIB - 4096; 3].map(|size| allocate(device, size, S0));
    idle.into_iter().for_each(|addr| free(device, addr));
    allocate(device, 500 * MIB - 4096, S0);
    device.check_consistency().expect("consistent");
    reserved(device)
}

#[test]
fn segments_of_sharded_programs_are_no_larger_than_requested() {
    for (loads_shards, streams, grown) in [(true, 2, 160), (true, 1, 480), (false, 2, 480)] {
        let (_driver, device) = device_after(64 * GIB, loads_shards, streams);
        let found = grown_beside_pieces(&device) / MIB;
        assert_eq!(found, grown, "{loads_shards}, {streams} streams");
    }
}

#[test]
fn sharded_programs_return_all_that_is_idle_at_the_first_shortage() {
    for (loads_shards, streams, held) in [(true, 2, 500), (true, 1, 900), (false, 2, 900)] {
        let (_driver, device) = device_after(1400 * MIB, loads_shards, streams);
        let found = held_after_shortage(&device) / MIB;
        assert_eq!(found, held, "{loads_shards}, {streams} streams");
    }
}
