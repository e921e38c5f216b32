//! When one page is mapped at two addresses: where both are seen to show the same memory.

use crate::*;

/// Calls of the try that come before contents are compared, and those that compare them.
const BEFORE: u64 = 5;
const COMPARING: u64 = 13;

fn on(driver: FakeDriver) -> (Arc<FakeDriver>, DeviceAllocator) {
    let driver = Arc::new(driver);
    let settings = Settings::parse("expandable_segments:True").expect("valid");
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

/// On a driver whose memory keeps what is written to it.
fn backed() -> (Arc<FakeDriver>, DeviceAllocator) {
    on(FakeDriver::backed(64 * GIB))
}

/// Whether pages have two addresses: they are smaller then.
fn two_addresses(device: &DeviceAllocator) -> bool {
    let addr = allocate(device, 100 * MIB, S0);
    let page = device.pages_under(addr).expect("virtual").page_size;
    free(device, addr);
    device.check_consistency().expect("consistent");
    assert!([8 * MIB, 10 * MIB].contains(&page));
    page == 8 * MIB
}

fn gives_everything_back(driver: &FakeDriver, device: &DeviceAllocator) {
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    assert_eq!((driver.held(0), driver.held_virtual(0)), ((0, 0), (0, 0)));
}

#[test]
fn two_addresses_that_show_the_same_memory_are_used() {
    let (driver, device) = backed();
    assert!(two_addresses(&device));
    // Both ends of a page, in both directions, and again with one address left.
    assert_eq!((driver.calls("fill"), driver.calls("read")), (4, 8));
    gives_everything_back(&driver, &device);
}

#[test]
fn two_addresses_that_show_other_memory_are_not() {
    let (driver, device) = backed();
    driver.keep_aliases_apart();
    assert!(!two_addresses(&device));
    gives_everything_back(&driver, &device);
}

#[test]
fn nothing_is_seen_in_memory_that_keeps_nothing() {
    let (driver, device) = on(FakeDriver::new(64 * GIB));
    assert!(two_addresses(&device));
    assert_eq!((driver.calls("fill"), driver.calls("read")), (2, 1));
}

#[test]
fn what_could_not_be_seen_is_not_relied_on() {
    for call in BEFORE..BEFORE + COMPARING {
        let (driver, device) = backed();
        driver.fail_call(call, 507_899);
        assert!(!two_addresses(&device), "call {call}");
        assert!(!driver.failure_is_planned());
        gives_everything_back(&driver, &device);
    }
    // The next call only takes back what was tried.
    let (driver, device) = backed();
    driver.fail_call(BEFORE + COMPARING, 507_899);
    assert!(two_addresses(&device));
}

#[test]
fn nothing_is_copied_while_a_graph_is_captured() {
    let (driver, device) = backed();
    device.mark_capture_begin();
    driver.set_capturing(true);
    assert!(!two_addresses(&device));
    assert_eq!((driver.calls("fill"), driver.calls("read")), (0, 0));
}
