//! Physical memory obtained ahead of need.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::*;

const PAGE: usize = 8 * MIB;

/// A device that may obtain `ahead` bytes ahead.
fn device_that_prefetches(capacity: usize, ahead: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    let driver = Arc::new(FakeDriver::new(capacity));
    let mut settings = settings("expandable_segments:True");
    settings.prefetch = ahead;
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

/// Waits for the thread.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} never");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A block of `pages` pages, all new; returns once the device holds `held` pages in all.
fn grow(driver: &FakeDriver, device: &DeviceAllocator, pages: usize, held: usize) {
    device
        .allocate(pages * PAGE - 4096, S0)
        .expect("fits on the device");
    until("memory came ahead", || driver.held(0).1 == held * PAGE);
}

/// The next call for physical memory, which must be the thread's, does not go on before the answer is used.
fn hold_the_thread(
    driver: &Arc<FakeDriver>,
    then: impl FnOnce() + Send + 'static,
) -> mpsc::Sender<()> {
    let (go_on, may_go_on) = mpsc::channel::<()>();
    driver.meanwhile("malloc_physical", move || {
        if may_go_on.recv().is_ok() {
            then();
        }
    });
    go_on
}

#[test]
fn what_came_ahead_serves_the_next_request() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 4, 8);
    assert_eq!(device.ladder().pages_new, 4);
    // Held, but under no address yet.
    assert_eq!(device.idle_physical_bytes(), 4 * PAGE);
    device.allocate(4 * PAGE - 4096, S0).expect("fits");
    let ladder = device.ladder();
    assert_eq!((ladder.pages_new, ladder.pages_prefetched), (4, 4));
    assert_eq!(driver.mapped_bytes(0), 8 * PAGE);
    device.check_consistency().expect("consistent");
}

#[test]
fn no_more_comes_ahead_than_the_settings_say() {
    let (driver, device) = device_that_prefetches(GIB, 3 * PAGE + MIB);
    grow(&driver, &device, 10, 13);
    assert_eq!(device.idle_physical_bytes(), 3 * PAGE);
    // The request takes them, and as many are ordered again.
    grow(&driver, &device, 10, 23);
    assert_eq!(device.idle_physical_bytes(), 3 * PAGE);
}

#[test]
fn nothing_comes_ahead_unless_the_settings_say_so() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    device.allocate(4 * PAGE, S0).expect("fits");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(device.ladder().pages_prefetched, 0);
    assert_eq!(device.idle_physical_bytes(), 0);
    // One of them to try the driver.
    assert_eq!(
        driver.calls("malloc_physical"),
        1 + device.ladder().pages_new
    );
}

#[test]
fn empty_cache_returns_what_came_ahead_and_what_is_under_way() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    let go_on = hold_the_thread(&driver, || ());
    // From what came ahead; two more are ordered, of which the thread begins one.
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    assert_eq!(device.idle_physical_bytes(), 2 * PAGE);
    std::thread::scope(|scope| {
        let emptied = scope.spawn(|| device.empty_cache(MempoolId::DEFAULT));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!emptied.is_finished(), "waits for the thread's call");
        go_on.send(()).expect("the thread waits");
        emptied.join().expect("no panic").expect("works");
    });
    assert_eq!(device.idle_physical_bytes(), 0);
    assert_eq!(
        (driver.mapped_bytes(0), driver.held(0).1),
        (4 * PAGE, 4 * PAGE)
    );
    device.check_consistency().expect("consistent");
}

#[test]
fn a_request_gets_what_came_ahead_in_pages_of_another_size() {
    let (driver, device) = device_that_prefetches(8 * PAGE, 64 * MIB);
    // Which fills the device.
    grow(&driver, &device, 4, 8);
    for _ in 0..4 * PAGE / MIB {
        device.allocate(MIB - 4096, S0).expect("fits on the device");
    }
    device.check_consistency().expect("consistent");
    assert_eq!(driver.mapped_bytes(0), 8 * PAGE);
    device.allocate(MIB, S0).expect_err("full");
}

#[test]
fn a_failed_call_of_the_thread_costs_nobody_anything() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    let its_driver = driver.clone();
    let (planned, is_planned) = mpsc::channel();
    let go_on = hold_the_thread(&driver, move || {
        its_driver.fail_call(0, 507_899);
        planned.send(()).expect("it is waited for");
    });
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    go_on.send(()).expect("the thread waits");
    is_planned.recv().expect("the thread goes on");
    until("the failure happened", || !driver.failure_is_planned());
    // What was ordered behind it was not tried.
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    assert_eq!(device.ladder().pages_new, 4);
    // And new memory is ordered again.
    until("memory came ahead", || driver.held(0).1 == 8 * PAGE);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(device.idle_physical_bytes(), 0);
    assert_eq!(driver.held(0).1, 6 * PAGE);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_thread_that_panics_is_not_waited_for() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    let (begin, has_begun) = mpsc::channel();
    let go_on = hold_the_thread(&driver, move || {
        begin.send(()).expect("the test waits");
        panic!("a driver that panics");
    });
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    go_on.send(()).expect("the thread waits");
    // Else the order could be taken back before the thread came to it.
    has_begun.recv().expect("the thread calls");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!(device.idle_physical_bytes(), 0);
    // Without it, memory comes as it is needed.
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    assert_eq!((driver.held(0).1, device.ladder().pages_new), (6 * PAGE, 4));
    device.check_consistency().expect("consistent");
}

#[test]
fn a_full_device_ends_it() {
    let (driver, device) = device_that_prefetches(6 * PAGE, 64 * MIB);
    grow(&driver, &device, 4, 6);
    // The probe's page, four, two that came; the third could not, and the fourth was not tried.
    until("the third failed", || driver.calls("malloc_physical") == 8);
    let calls = driver.calls("malloc_physical");
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    assert_eq!(driver.calls("malloc_physical"), calls);
    assert_eq!(device.idle_physical_bytes(), 0);
    device.check_consistency().expect("consistent");
}

#[test]
fn nothing_is_under_way_while_a_graph_is_captured() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    device.mark_capture_begin();
    device.allocate(6 * PAGE - 4096, S0).expect("fits");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(
        (driver.held(0).1, device.idle_physical_bytes()),
        (8 * PAGE, 0)
    );
    device.mark_capture_end().expect("begun");
    grow(&driver, &device, 2, 12);
}

#[test]
fn a_capture_begins_when_nothing_is_under_way() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    let go_on = hold_the_thread(&driver, || ());
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    std::thread::scope(|scope| {
        let begun = scope.spawn(|| device.mark_capture_begin());
        while !device.is_capturing_anything() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!begun.is_finished(), "waits for the thread's call");
        go_on.send(()).expect("the thread waits");
        begun.join().expect("no panic");
    });
    assert_eq!(driver.held(0).1, 5 * PAGE);
    assert_eq!(device.idle_physical_bytes(), PAGE);
}

#[test]
fn the_memory_fraction_holds() {
    let (driver, device) = device_that_prefetches(16 * PAGE, 64 * MIB);
    device.set_memory_fraction(0.5).expect("a fraction");
    grow(&driver, &device, 6, 8);
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    device.allocate(PAGE, S0).expect_err("above the limit");
    assert_eq!(driver.held(0).1, 8 * PAGE);
}

#[test]
fn the_driver_is_not_called_once_the_process_exits() {
    let (driver, device) = device_that_prefetches(GIB, 512 * MIB);
    device.allocate(60 * PAGE, S0).expect("fits");
    device.begin_process_exit();
    let calls = driver.total_calls();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(driver.total_calls(), calls);
}

#[test]
fn nothing_is_under_way_once_a_pool_is_made_for_a_capture() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    let go_on = hold_the_thread(&driver, || ());
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    std::thread::scope(|scope| {
        let (begins, has_begun) = mpsc::channel();
        let device = &device;
        let made = scope.spawn(move || {
            begins.send(()).expect("somebody waits");
            device.create_or_incref_pool(POOL, false)
        });
        has_begun.recv().expect("the thread begins");
        std::thread::sleep(Duration::from_millis(50));
        let waits = !made.is_finished();
        go_on.send(()).expect("the thread waits");
        made.join().expect("no panic").expect("new");
        assert!(waits, "for the thread's call");
    });
    assert_eq!(device.idle_physical_bytes(), PAGE);
}

#[test]
#[cfg_attr(miri, ignore = "no fork")]
fn a_forked_child_does_not_wait_for_its_parents_thread() {
    let (driver, device) = device_that_prefetches(GIB, 64 * MIB);
    grow(&driver, &device, 2, 4);
    let (begun, has_begun) = mpsc::channel::<()>();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    driver.meanwhile("malloc_physical", move || {
        begun.send(()).expect("somebody waits");
        may_go_on.recv().expect("somebody sends");
    });
    device.allocate(2 * PAGE - 4096, S0).expect("fits");
    has_begun.recv().expect("the thread begins");
    // SAFETY: the child calls nothing that another thread could have left locked, and ends without the test's own end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: both take any number; who waits for good is killed.
        unsafe { libc::alarm(20) };
        let emptied = device.empty_cache(MempoolId::DEFAULT).is_ok();
        device.begin_process_exit();
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!emptied)) }
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    go_on.send(()).expect("the thread waits");
    assert_eq!((waited, status), (child, 0));
}
