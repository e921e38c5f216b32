//! Uses of blocks on other streams that are taken back, or given up while somebody waits for them.

use std::sync::Arc;

use super::races::{MIB, device, token};
use crate::device::DeviceAllocator;
use crate::driver::Driver;
use crate::driver::fake::FakeDriver;
use crate::ids::{DeviceId, StreamKey};

const HOME: StreamKey = StreamKey(1);
const OTHER: StreamKey = StreamKey(2);
const THIRD: StreamKey = StreamKey(3);

/// A collective on another stream uses a block, which is freed. Then its own stream waits for the collective on the device, and
/// the use is taken back: the stream has not come that far when a third one lacks memory, though it had passed the free.
fn take_back_what_is_in_use(settings: &str, aliasing: bool) {
    let (driver, device) = device(256 * MIB, settings);
    if !aliasing {
        driver.refuse_aliasing();
    }
    device.choose_engine();
    let allocate = |mib: usize, stream| device.allocate(mib * MIB - 4096, stream).expect("fits");
    let block = allocate(80, HOME);
    // So that the two do not merge.
    allocate(16, HOME);
    let idle = allocate(80, HOME);
    let handle = device.describe_block(block).expect("live").handle;
    assert!(device.record_stream(block, token(OTHER)));
    driver.submit(token(OTHER));
    assert!(device.deallocate(idle));
    assert!(device.deallocate(block));
    let before = driver.spans(0, block, 80 * MIB - 4096).expect("mapped");
    // Has what `idle` had, after a wait for its stream.
    allocate(120, THIRD);
    let event = driver.event_create(DeviceId(0)).expect("made");
    driver
        .event_record_for_streams(event, token(OTHER))
        .expect("recorded");
    driver.stream_wait(DeviceId(0), HOME, event).expect("waits");
    assert!(device.erase_stream_of(handle, token(OTHER)));
    let got = allocate(64, THIRD);
    let now = driver.spans(0, got, 64 * MIB - 4096).expect("mapped");
    let used = now
        .iter()
        .any(|new| before.iter().any(|old| old.handle == new.handle));
    let (_, done) = driver.progress(token(OTHER));
    assert!(
        done == 1 || !used || driver.runs_after(token(THIRD), token(OTHER), 1),
        "{settings}: memory that is in use"
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn memory_of_a_use_that_was_taken_back_serves_other_streams_once_its_own_has_come_that_far() {
    take_back_what_is_in_use("expandable_segments:True", true);
    take_back_what_is_in_use("expandable_segments:True", false);
    take_back_what_is_in_use("", true);
}

/// A device with a block that another stream is using.
fn used_elsewhere() -> (Arc<FakeDriver>, Arc<DeviceAllocator>, usize) {
    let (driver, device) = device(64 * MIB, "expandable_segments:False");
    let addr = device.allocate(40 * MIB, HOME).expect("fits");
    assert!(device.record_stream(addr, token(OTHER)));
    driver.submit(token(OTHER));
    (driver, device, addr)
}

#[test]
fn a_block_whose_event_was_waited_for_during_a_reset_is_free() {
    let (driver, device, addr) = used_elsewhere();
    assert!(device.deallocate(addr));
    let (other, failing) = (device.clone(), driver.clone());
    driver.meanwhile("event_synchronize", move || {
        other.drop_pending_events();
        failing.fail_call(0, 507_001);
    });
    assert!(device.allocate(40 * MIB, HOME).is_err());
    assert_eq!(device.state.lock().events.pending.len(), 0);
    assert_eq!(device.allocate(40 * MIB, HOME).ok(), Some(addr));
    device.check_consistency().expect("consistent");
}

#[test]
fn a_block_whose_event_was_recorded_during_a_reset_is_free() {
    let (driver, device, addr) = used_elsewhere();
    let other = device.clone();
    driver.meanwhile("event_record", move || other.drop_pending_events());
    assert!(device.deallocate(addr));
    assert_eq!(device.state.lock().events.pending.len(), 0);
    assert_eq!(device.allocate(40 * MIB, HOME).ok(), Some(addr));
    device.check_consistency().expect("consistent");
}

#[test]
fn no_fence_of_before_a_reset_comes_back() {
    let (driver, device) = device(1 << 30, "expandable_segments:True");
    let allocate = |mib: usize, stream| device.allocate(mib * MIB - 4096, stream).expect("fits");
    allocate(128, HOME);
    let freed = allocate(64, OTHER);
    driver.submit(token(OTHER));
    device.share_eagerly();
    assert!(device.deallocate(freed));
    let other = device.clone();
    driver.meanwhile("stream_wait", move || other.drop_pending_events());
    allocate(8, HOME);
    assert_eq!(device.state.lock().fences.heads().count(), 0);
    device.check_consistency().expect("consistent");
}
