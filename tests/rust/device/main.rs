//! One device's allocator over the fake driver: what each call does to blocks, segments, statistics
//! and the driver.

mod blocks;
mod chosen;
mod client;
mod engine;
mod few_sizes;
mod growing;
mod guests;
mod late;
mod leases;
mod limits;
mod meanwhile;
mod page_sizes;
mod planned;
mod poisoned;
mod pools;
mod prefetch;
mod quick;
mod records;
mod sharded;
mod shared;
mod shortage;
mod sleep;
mod streams;
mod traffic;
mod transit;
mod turns;
mod two_addresses;
mod unread;
mod virtual_segments;

use std::sync::Arc;

use npualloc::config::{DefaultEngine, Settings};
use npualloc::device::DeviceAllocator;
use npualloc::driver::StreamToken;
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::{DeviceId, MempoolId, StreamKey};

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const S0: StreamKey = StreamKey(0);
const S1: StreamKey = StreamKey(1);
const S2: StreamKey = StreamKey(2);
/// A size whose blocks consist of whole pages, with the padding.
const SIZE: usize = 64 * MIB - 4096;
const SIDE: StreamToken = StreamToken {
    id: 7,
    device: 0,
    reserved: 0,
};

/// The stream of a key, as an event names it.
fn token(stream: i64) -> StreamToken {
    StreamToken {
        id: stream,
        device: 0,
        reserved: 0,
    }
}

/// Serves a request, and checks the state.
fn allocate(device: &DeviceAllocator, bytes: usize, stream: StreamKey) -> usize {
    let addr = device.allocate(bytes, stream).expect("fits");
    device.check_consistency().expect("consistent");
    addr
}

/// Blocks of a size that is asked for again and again.
fn again_and_again(device: &DeviceAllocator, bytes: usize, count: usize) -> Vec<usize> {
    let mut at = Vec::new();
    for _ in 0..3 {
        for addr in at.drain(..) {
            assert!(device.deallocate(addr));
        }
        at.extend((0..count).map(|_| device.allocate(bytes, S0).expect("fits")));
    }
    at
}

/// Frees a block, and checks the state.
fn free(device: &DeviceAllocator, addr: usize) {
    assert!(device.deallocate(addr));
    device.check_consistency().expect("consistent");
}

/// Settings with pages of 8 MiB under all large blocks, in which the tests count.
fn settings(config: &str) -> Settings {
    let mut settings = Settings::parse(config).expect("valid settings");
    if settings.segment_size == 0 {
        settings.segment_size = 8 * MIB;
    }
    settings
}

fn device_with(capacity: usize, config: &str) -> (Arc<FakeDriver>, DeviceAllocator) {
    let driver = Arc::new(FakeDriver::new(capacity));
    let settings = settings(config);
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

/// Settings with which the driver decides on the engine, as it does for programs.
fn settings_by_default(config: &str) -> Settings {
    let mut settings = Settings::parse(config).expect("valid settings");
    settings.default_engine = DefaultEngine::Probe;
    settings
}

/// A device with virtual segments, where a handle can be mapped at one address only.
fn device_without_aliasing(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    let (driver, device) = device_with(capacity, "expandable_segments:True");
    driver.refuse_aliasing();
    (driver, device)
}

fn device(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    device_with(capacity, "")
}

/// Every driver call of a kind (the trait's method name) fails from now on.
fn refuse(driver: &Arc<FakeDriver>, call: &'static str, code: i32) {
    // The driver keeps it, and must not keep itself.
    let again = Arc::downgrade(driver);
    driver.meanwhile(call, move || {
        let again = again.upgrade().expect("called by it");
        again.fail_call(0, code);
        refuse(&again, call, code);
    });
}
const POOL: MempoolId = MempoolId {
    first: 0,
    second: 1,
};
