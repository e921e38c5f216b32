//! Virtual segments.

use crate::*;

#[test]
fn virtual_segments_map_what_is_needed_and_unmap_what_is_idle() {
    let (driver, device) = device_with(GIB, "expandable_segments:True");
    let a = device.allocate(3 * MIB, S0).expect("fits");
    let b = device.allocate(3 * MIB, S0).expect("fits");
    assert_eq!(
        b,
        a + 3 * MIB + 16 * 1024,
        "dense but for the base alignment"
    );
    assert_eq!(driver.mapped_bytes(0), 8 * MIB);
    device.deallocate(a);
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    // Only the first page holds nothing of b.
    assert_eq!(driver.mapped_bytes(0), 6 * MIB);
    let pages = device.pages_under(b).expect("virtual");
    assert_eq!(
        (pages.page_size, pages.addr, pages.handles.len()),
        (2 * MIB, a + 2 * MIB, 3)
    );
    device.deallocate(b);
    device.empty_virtual_cache().expect("works");
    assert_eq!(
        (driver.mapped_bytes(0), device.idle_physical_bytes()),
        (0, 6 * MIB)
    );
    let calls = driver.calls("malloc_physical");
    device.allocate(5 * MIB, S0).expect("from idle memory");
    assert_eq!(driver.calls("malloc_physical"), calls);
    device.check_consistency().expect("consistent");
}
