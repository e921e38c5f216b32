//! Tensors that grow step by step on a full device: the one before is freed after each step.

use crate::*;

/// The pages that move while three tensors grow by 8 KiB in each of 40 steps, one after another. There is room for a fourth.
fn moved(first: usize) -> u64 {
    let (driver, device) = device_without_aliasing(4 * first + 64 * MIB);
    let most = allocate(&device, 4 * first + 40 * MIB - 4096, S0);
    let rest = allocate(&device, 24 * MIB - 4096, S1);
    free(&device, most);
    free(&device, rest);
    // The driver has no page more: the device is known to be full.
    free(&device, allocate(&device, 4 * first + 48 * MIB - 4096, S0));
    let mapped = driver.calls("map");
    let mut sizes = [first; 3];
    let mut addrs = sizes.map(|bytes| allocate(&device, bytes, S0));
    for _ in 0..40 {
        for (size, addr) in sizes.iter_mut().zip(&mut addrs) {
            *size += 8192;
            let grown = allocate(&device, *size, S0);
            free(&device, *addr);
            *addr = grown;
        }
    }
    assert_eq!(driver.calls("synchronize_device"), 0);
    driver.calls("map") - mapped
}

#[test]
fn tensors_that_grow_find_the_holes_of_those_a_little_smaller() {
    assert_eq!(moved(256 * MIB), 0);
}
