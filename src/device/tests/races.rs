//! What other threads do while a call has released the lock: tests. Each lets the driver do it in the middle of one of its
//! functions ([`FakeDriver::meanwhile`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::block::BlockState;
use crate::config::{DebugOptions, DefaultEngine, Settings};
use crate::device::*;
use crate::driver::fake::FakeDriver;
use crate::driver::{EventHandle, StreamToken};
use crate::history::{Context, DropContext};
use crate::ids::{DeviceId, MempoolId, StreamKey};
use crate::lease::act_as;
use crate::registry::Registry;

pub(in crate::device) const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const HOME: StreamKey = StreamKey(1);
const OTHER: StreamKey = StreamKey(2);
const POOL: MempoolId = MempoolId {
    first: 0,
    second: 7,
};

pub(in crate::device) fn token(stream: StreamKey) -> StreamToken {
    StreamToken {
        id: stream.0 as i64,
        device: 0,
        reserved: 0,
    }
}

pub(in crate::device) fn device(
    capacity: usize,
    settings: &str,
) -> (Arc<FakeDriver>, Arc<DeviceAllocator>) {
    device_with(capacity, settings, |_| ())
}

fn device_with(
    capacity: usize,
    settings: &str,
    change: impl FnOnce(&mut Settings),
) -> (Arc<FakeDriver>, Arc<DeviceAllocator>) {
    act_as(0);
    let driver = Arc::new(FakeDriver::new(capacity));
    let mut settings = Settings::parse(settings).expect("valid");
    settings.default_engine = DefaultEngine::Probe;
    change(&mut settings);
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, Arc::new(device))
}

/// A device whose threads have leases, with free blocks in them.
fn crowded() -> (Arc<FakeDriver>, Arc<DeviceAllocator>) {
    let (driver, device) = device(8 * GIB, "");
    let sizes = [4096, 64 * MIB].into_iter();
    let blocks: Vec<_> = sizes
        .flat_map(|bytes| std::iter::repeat_n(bytes, 32))
        .map(|bytes| device.allocate(bytes, HOME).expect("fits"))
        .collect();
    for addr in blocks {
        assert!(device.deallocate(addr));
    }
    device.assume_crowd();
    (driver, device)
}

/// Two streams' large blocks are in one list, the home's.
fn shared() -> (Arc<FakeDriver>, Arc<DeviceAllocator>) {
    let (driver, device) = device(GIB, "expandable_segments:True");
    let allocate = |mib: usize, stream| device.allocate(mib * MIB - 4096, stream).expect("fits");
    allocate(128, HOME);
    let freed = allocate(64, OTHER);
    device.share_eagerly();
    assert!(device.deallocate(freed));
    allocate(8, HOME);
    assert!(device.state.lock().guests.shared.is_some());
    (driver, device)
}

#[test]
fn a_block_freed_through_a_lease_after_the_device_was_waited_for_stays_mapped() {
    let (driver, device) = crowded();
    let (other, tasks) = (device.clone(), driver.clone());
    let freed = Arc::new(Mutex::new(0));
    let told = freed.clone();
    driver.meanwhile("release_external_caches", move || {
        let addr = other.allocate(20 * MIB - 4096, HOME).expect("fits");
        tasks.submit(token(HOME));
        assert!(other.deallocate(addr));
        *told.lock().expect("no panic") = addr;
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    let addr = *freed.lock().expect("no panic");
    assert_eq!(driver.progress(token(HOME)), (1, 0), "work is running");
    assert!(driver.spans(0, addr, 20 * MIB - 4096).is_some());
}

#[test]
fn a_fence_says_nothing_of_a_block_freed_through_a_lease_after_it() {
    let (driver, device) = crowded();
    let mut state = device.state.lock();
    device.record_fence(&mut state, HOME).expect("recorded");
    drop(state);
    let addr = device.allocate(20 * MIB - 4096, HOME).expect("fits");
    driver.submit(token(HOME));
    assert!(device.deallocate(addr));
    let mut state = device.state.lock();
    device.poll_fences(&mut state);
    let holds = |block: &crate::block::Block| block.addr <= addr && addr < block.end();
    let found = state.arena.iter().find(|(_, block)| holds(block));
    let (id, block) = found.expect("there");
    assert_eq!(block.state, BlockState::Free);
    assert!(!state.fences.passed(state.last_use(id)));
}

#[test]
fn a_pool_is_held_while_the_device_is_asked_for_its_memory() {
    let half = |settings: &mut Settings| settings.per_process_memory_fraction = 0.5;
    let (driver, device) = device_with(8 * GIB, "", half);
    device.choose_engine();
    device.create_or_incref_pool(POOL, false).expect("made");
    device.release_pool(POOL).expect("released");
    let next = MempoolId {
        first: 0,
        second: 8,
    };
    let other = device.clone();
    driver.meanwhile("memory_info", move || {
        other.empty_cache(MempoolId::DEFAULT).expect("works");
        other.create_or_incref_pool(next, false).expect("made");
    });
    let served = device.allocate_in(5 * MIB, HOME, POOL, None);
    assert!(served.is_ok(), "{served:?}");
    device.check_consistency().expect("consistent");
    assert!(
        device.snapshot(next).is_empty(),
        "it has the other's memory"
    );
}

#[test]
fn a_context_of_a_request_that_fails_early_goes_without_the_lock() {
    let half = |settings: &mut Settings| settings.per_process_memory_fraction = 0.5;
    let (driver, device) = device_with(8 * GIB, "", half);
    device.choose_engine();
    let free = Arc::new(AtomicBool::new(false));
    let (other, told) = (device.clone(), free.clone());
    let drop_context: DropContext = Arc::new(move |_| {
        told.store(other.state.try_lock_as_is().is_some(), Ordering::Relaxed);
    });
    driver.fail_call(0, 507_000);
    let context = Context::adopt(5, &drop_context);
    let failed = device.allocate_in(5 * MIB, HOME, MempoolId::DEFAULT, context);
    assert!(failed.is_err());
    assert!(free.load(Ordering::Relaxed));
}

#[test]
fn memory_put_to_sleep_while_a_stream_is_made_to_wait_is_not_handed_out() {
    let (driver, device) = shared();
    let allocate = |mib: usize, stream| device.allocate(mib * MIB - 4096, stream).expect("fits");
    // A hole within a page, which the home freed.
    allocate(5, HOME);
    let hole = allocate(6, HOME);
    allocate(5, HOME);
    driver.submit(token(HOME));
    assert!(device.deallocate(hole));
    let other = device.clone();
    driver.meanwhile("stream_wait", move || {
        other.sleep(None).expect("sleeps");
    });
    let got = device.allocate(6 * MIB - 4096, OTHER);
    assert!(driver.calls("stream_wait") > 0);
    if let Ok(addr) = got {
        assert!(driver.spans(0, addr, 6 * MIB - 4096).is_some());
    }
}

#[test]
fn an_event_that_a_block_waits_for_is_not_free_for_other_uses() {
    let (driver, device) = device(GIB, "");
    device.assume_heavy_traffic();
    let blocks = [(); 2].map(|()| device.allocate(700, HOME).expect("fits"));
    for block in blocks {
        assert!(device.record_stream(block, token(OTHER)));
    }
    driver.submit(token(OTHER));
    for block in blocks {
        assert!(device.deallocate(block));
    }
    let mut state = device.state.lock();
    device.fence_deferred(&mut state);
    let waiting: Vec<_> = state
        .events
        .pending
        .iter()
        .map(|(_, pending)| pending)
        .collect();
    assert_eq!(waiting[0].event, waiting[1].event);
    // It completes between two questions.
    let last = waiting[1].block;
    let taken = state.events.pending.take_through(token(OTHER), last);
    let asked = driver.clone();
    driver.meanwhile("event_query", move || {
        // There may be no second question, and what is left of this belongs to the driver.
        let over = Arc::downgrade(&asked);
        let finish = move || {
            if let Some(driver) = over.upgrade() {
                driver.finish(token(OTHER));
            }
        };
        asked.meanwhile("event_query", finish);
    });
    let left = device.return_completed(&mut state, taken, EventHandle(99));
    let is_idle = |event| state.events.idle.contains(event);
    assert!(!left.iter().any(|pending| is_idle(&pending.event)));
}

#[test]
fn what_two_requests_asked_for_in_vain_is_not_needed() {
    let (driver, device) = device(2 * GIB, "expandable_segments:True");
    device.allocate(64 * MIB, HOME).expect("fits");
    driver.take_time("synchronize_device", Duration::from_millis(40));
    std::thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || assert!(device.allocate(100 * GIB, HOME).is_err()));
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            assert!(device.allocate(3 * GIB, OTHER).is_err());
        });
    });
    assert!(device.state.lock().budget.most.active <= 2 * GIB);
}

#[test]
fn a_range_that_could_not_be_released_comes_back_into_the_list_of_all_streams() {
    let (driver, device) = device(GIB, "expandable_segments:True");
    let allocate = |mib: usize, stream| device.allocate(mib * MIB - 4096, stream).expect("fits");
    allocate(128, HOME);
    let freed = allocate(64, OTHER);
    let range = allocate(16, StreamKey(3));
    assert!(device.deallocate(range));
    let (other, failing) = (device.clone(), driver.clone());
    driver.meanwhile("release_address", move || {
        other.share_eagerly();
        assert!(other.deallocate(freed));
        other.allocate(8 * MIB - 4096, HOME).expect("fits");
        assert!(other.state.lock().guests.shared.is_some());
        failing.fail_call(0, 507_000);
    });
    assert!(device.empty_cache(MempoolId::DEFAULT).is_err());
    device.check_consistency().expect("consistent");
}

#[test]
fn a_stream_that_is_captured_by_now_is_not_made_to_wait() {
    let (driver, device) = shared();
    let block = device.allocate(40 * MIB, HOME).expect("fits");
    driver.submit(token(HOME));
    assert!(device.deallocate(block));
    let before = driver.calls("stream_wait");
    let (other, captured) = (device.clone(), driver.clone());
    driver.meanwhile_recorded(move || {
        other.mark_capture_begin();
        captured.capture(Some(token(OTHER)));
    });
    device.allocate(40 * MIB, OTHER).expect("fits");
    assert_eq!(driver.calls("stream_wait"), before);
}

/// A graph's last replay is submitted, and its pool released, while another thread waits for the device.
fn pool_released_meanwhile(settings: &str) {
    let (driver, device) = device(256 * MIB, settings);
    device.choose_engine();
    device.create_or_incref_pool(POOL, false).expect("made");
    let block = device
        .allocate_in(64 * MIB, HOME, POOL, None)
        .expect("fits");
    assert!(device.deallocate(block));
    let (other, tasks) = (device.clone(), driver.clone());
    driver.meanwhile("release_external_caches", move || {
        tasks.submit(token(OTHER));
        other.release_pool(POOL).expect("released");
    });
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(driver.progress(token(OTHER)), (1, 0), "it is running");
    assert!(driver.spans(0, block, 64 * MIB).is_some());
}

#[test]
fn pages_of_a_pool_released_while_the_device_was_waited_for_stay() {
    pool_released_meanwhile("expandable_segments:True");
}

#[test]
fn segments_of_a_pool_released_while_the_device_was_waited_for_stay() {
    pool_released_meanwhile("expandable_segments:False");
}

#[test]
fn memory_freed_after_the_wait_for_the_device_sleeps_once_its_use_is_over() {
    for settings in ["expandable_segments:True", ""] {
        let (driver, device) = device(GIB, settings);
        device.allocate(40 * MIB, HOME).expect("fits");
        let (other, tasks) = (device.clone(), driver.clone());
        let freed = Arc::new(Mutex::new(0));
        let told = freed.clone();
        driver.meanwhile("release_external_caches", move || {
            let addr = other.allocate(40 * MIB, HOME).expect("fits");
            tasks.submit(token(HOME));
            assert!(other.deallocate(addr));
            *told.lock().expect("no panic") = addr;
        });
        device.sleep(None).expect("sleeps");
        let addr = *freed.lock().expect("no panic");
        let (submitted, done) = driver.progress(token(HOME));
        assert_eq!(submitted, 1);
        assert!(done == 1 || driver.spans(0, addr, 40 * MIB).is_some());
    }
}

#[test]
fn a_block_that_another_thread_is_freeing_is_no_live_one() {
    let driver = Arc::new(FakeDriver::backed(GIB));
    let settings = Settings::parse("expandable_segments:False").expect("valid");
    let options = DebugOptions::parse("poison").expect("valid");
    let registry = Registry::with_debug(driver.clone(), settings, 32, options);
    let registry = Arc::new(registry);
    registry.init(1).expect("one");
    let addr = registry.allocate(0, 40 * MIB, HOME).expect("fits");
    let other = registry.clone();
    driver.meanwhile("settle", move || {
        let second = other.deallocate(addr);
        // It is about to be poisoned, and freed: nobody else may have it.
        assert_ne!(other.allocate(0, 40 * MIB, HOME).expect("fits"), addr);
        assert!(second.is_err());
    });
    registry.deallocate(addr).expect("live");
    registry
        .check_memory(0)
        .expect("nobody wrote to freed memory");
}

#[test]
fn pages_on_their_way_to_sleep_are_not_shared() {
    let (driver, device) = device(256 * MIB, "expandable_segments:True");
    let addr = device.allocate(40 * MIB - 4096, HOME).expect("fits");
    let told = Arc::new(Mutex::new(None));
    let (other, seen) = (device.clone(), told.clone());
    driver.meanwhile("free_physical", move || {
        let pages = other.pages_under(addr).map(|pages| pages.handles);
        *seen.lock().expect("no panic") = Some((other.is_asleep_at(addr), pages));
    });
    device.sleep(None).expect("sleeps");
    let told = told.lock().expect("no panic").take();
    assert_eq!(told, Some((true, None)));
}
