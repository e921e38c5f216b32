//! Plain memory.

use ascend_rs_sys::{
    ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
    ACL_STREAM_WAIT_VALUE_EQ,
};
use ascendcl::model::cost::CallKind;
use ascendcl::model::sim::memory::Policy;

use super::{GIB, MIB, backed, code, hazards, kernel, machine};
use ascendcl::model::config::{Config, MAX_CAPACITY};
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::Sim;
use ascendcl::model::vmm::Place;

/// Header: 207001 is "memory allocation error, only used by out of memory".
#[test]
fn capacity_is_a_limit_with_its_own_code() {
    let mut sim = machine();
    let addr = sim.malloc(0, GIB, Policy::HugeFirst).unwrap();
    assert_eq!(sim.memory_info(0), (0, GIB));
    assert_eq!(
        code(sim.malloc(0, 1, Policy::HugeFirst)),
        ACL_ERROR_RT_MEMORY_ALLOCATION
    );
    assert!(
        sim.malloc(1, 1, Policy::HugeFirst).is_ok(),
        "devices do not share memory"
    );
    sim.free(addr).unwrap();
    assert_eq!(sim.memory_info(0), (GIB, GIB));
}

/// Reference 11-01, aclrtMalloc, policy HUGE_FIRST: 4 KiB pages up to 1 MiB,
/// 2 MiB pages above.
#[test]
fn huge_first_uses_small_pages_up_to_one_mebibyte() {
    let mut sim = machine();
    sim.malloc(0, MIB, Policy::HugeFirst).unwrap();
    assert_eq!(sim.devices[0].used, MIB);
    sim.malloc(0, MIB + 1, Policy::HugeFirst).unwrap();
    assert_eq!(sim.devices[0].used, 3 * MIB);
    sim.malloc(0, 1, Policy::HugeOnly).unwrap();
    assert_eq!(sim.devices[0].used, 5 * MIB);
    let large = sim.malloc(0, 3 * MIB, Policy::HugeFirst).unwrap();
    assert_eq!(large % (2 * MIB), 0);
}

/// The capacity is the only limit, also where all pages are small.
#[test]
fn small_pages_fill_the_largest_device() {
    let config = Config {
        capacity: MAX_CAPACITY,
        ..Config::default()
    };
    let mut sim = Sim::new(config);
    let small = |sim: &mut Sim, bytes| sim.malloc(0, bytes, Policy::NormalOnly);
    // More at once than small pages usually have, and many that come to more.
    let mut all = vec![small(&mut sim, 100 * GIB).unwrap()];
    while sim.memory_info(0).0 > 0 {
        all.push(small(&mut sim, 4 * GIB).unwrap());
    }
    assert_eq!(code(small(&mut sim, 1)), ACL_ERROR_RT_MEMORY_ALLOCATION);
    for addr in all {
        sim.free(addr).unwrap();
    }
    assert_eq!(sim.memory_info(0).0, MAX_CAPACITY);
    // What was in small pages has gone back to where it was taken from.
    let whole = sim.malloc(0, MAX_CAPACITY, Policy::HugeOnly).unwrap();
    sim.free(whole).unwrap();
    small(&mut sim, MAX_CAPACITY).unwrap();
}

/// Reference 11-01, HUGE1G_ONLY: fails when pages of 1 GiB are short.
#[test]
fn giant_pages_come_from_a_set_of_their_own() {
    let config = Config {
        capacity: 4 * GIB,
        huge_1g_pages: 1,
        ..Config::default()
    };
    let mut sim = Sim::new(config);
    let addr = sim.malloc(0, 5, Policy::GiantOnly).unwrap();
    assert_eq!(sim.devices[0].used, GIB);
    assert_eq!(
        code(sim.malloc(0, 5, Policy::GiantOnly)),
        ACL_ERROR_RT_MEMORY_ALLOCATION
    );
    sim.free(addr).unwrap();
    assert!(sim.malloc(0, 5, Policy::GiantOnly).is_ok());
}

/// Other allocations leave that set alone, and it is there when they have all else.
#[test]
fn what_is_put_aside_for_giant_pages_is_not_free() {
    let config = Config {
        capacity: 4 * GIB,
        huge_1g_pages: 1,
        ..Config::default()
    };
    let mut sim = Sim::new(config);
    assert_eq!(sim.memory_info(0), (3 * GIB, 4 * GIB));
    let giant = sim.malloc(0, GIB, Policy::GiantOnly).unwrap();
    assert_eq!(sim.memory_info(0), (3 * GIB, 4 * GIB));
    sim.free(giant).unwrap();
    let all = sim.malloc(0, 3 * GIB, Policy::HugeFirst).unwrap();
    let more = sim.malloc(0, 1, Policy::HugeFirst);
    assert_eq!(code(more), ACL_ERROR_RT_MEMORY_ALLOCATION);
    let place = Place::Device(0);
    let more = sim.malloc_physical(place, 2 * MIB, Pages::Huge, 4);
    assert_eq!(code(more), ACL_ERROR_RT_MEMORY_ALLOCATION);
    let giant = sim.malloc_physical(place, GIB, Pages::Giant, 10).unwrap();
    assert_eq!(sim.devices[0].peak, 4 * GIB);
    sim.free_physical(giant).unwrap();
    assert!(sim.malloc(0, GIB, Policy::GiantOnly).is_ok());
    sim.free(all).unwrap();
    assert_eq!(sim.memory_info(0), (3 * GIB, 4 * GIB));
}

/// Reference 11-01, aclrtFree: does not wait; what still uses the memory is
/// the caller's concern.
#[test]
fn a_free_under_work_succeeds_and_is_a_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.submit(stream, kernel(addr + MIB, 16)).unwrap();
    let before = sim.clock.now();
    sim.free(addr).unwrap();
    assert!(
        sim.clock.now() - before < 1000,
        "a free does not wait for the kernel"
    );
    assert_eq!(hazards(&sim), [HazardKind::FreeUnderWork]);
}

/// The same free after the work is done is none.
#[test]
fn a_free_after_a_wait_is_no_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.submit(stream, kernel(addr, 16)).unwrap();
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    sim.free(addr).unwrap();
    assert_eq!(hazards(&sim), []);
}

/// Reference 11-01, aclrtFree: only what aclrtMalloc gave out.
#[test]
fn an_unknown_or_inner_address_cannot_be_freed() {
    let mut sim = machine();
    sim.devices[0].active = true;
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    assert_eq!(code(sim.free(addr + 64)), ACL_ERROR_RT_PARAM_INVALID);
    sim.free(addr).unwrap();
    assert_eq!(code(sim.free(addr)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(hazards(&sim), [HazardKind::BadFree; 2]);
}

/// A task that names memory which is not allocated would fault on a device.
#[test]
fn a_kernel_on_freed_memory_is_a_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.submit(stream, kernel(addr + 4 * MIB - 16, 32)).unwrap();
    sim.free(addr).unwrap();
    sim.submit(stream, kernel(addr, 16)).unwrap();
    assert_eq!(
        hazards(&sim)[0],
        HazardKind::UnmappedAccess,
        "runs past the end"
    );
    assert_eq!(
        hazards(&sim).last(),
        Some(&HazardKind::UnmappedAccess),
        "is gone"
    );
}

/// Reference 11-03, aclrtMemcpyAsync: in stream order; pageable host memory
/// makes it wait.
#[test]
fn copies_keep_data_in_backed_mode_and_wait_for_pageable_memory() {
    let mut backed = backed();
    let sim = &mut backed.sim;
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 4096, Policy::HugeFirst).unwrap();
    let source = [7u8; 64];
    let mut target = [0u8; 64];
    sim.copy_async(stream, addr, source.as_ptr() as u64, 64)
        .unwrap();
    assert!(
        sim.stream(stream).unwrap().idle(sim.clock.now()),
        "pageable: has waited"
    );
    sim.fill_async(stream, addr, 9, 8).unwrap();
    assert!(
        !sim.stream(stream).unwrap().idle(sim.clock.now()),
        "a fill does not wait"
    );
    sim.copy_async(stream, target.as_mut_ptr() as u64, addr, 64)
        .unwrap();
    assert_eq!((&target[..8], &target[8..]), (&[9; 8][..], &[7; 56][..]));
    sim.free(addr).unwrap();
}

/// Data of a copy from pinned memory appears when the copy's time has come.
#[test]
fn a_pinned_copy_takes_effect_at_its_time() {
    let mut backed = backed();
    let sim = &mut backed.sim;
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 4096, Policy::HugeFirst).unwrap();
    sim.fill_now(0, addr, 5, 64).unwrap();
    let mut target = [0u8; 64];
    sim.register_host(target.as_mut_ptr() as u64, 64).unwrap();
    sim.copy_async(stream, target.as_mut_ptr() as u64, addr, 64)
        .unwrap();
    assert_eq!(target, [0; 64]);
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    assert_eq!(target, [5; 64]);
    sim.free(addr).unwrap();
}

/// Phantom memory reads as zeros, so that results do not depend on the host.
#[test]
fn phantom_memory_reads_as_zeros() {
    let mut sim = machine();
    let addr = sim.malloc(0, 4096, Policy::HugeFirst).unwrap();
    let mut target = [1u8; 64];
    sim.copy_now(0, target.as_mut_ptr() as u64, addr, 64)
        .unwrap();
    assert_eq!(target, [0; 64]);
}

/// A copy that would have to wait for ever fails, and is not made later: the
/// memory may be gone by then.
#[test]
fn a_pageable_copy_whose_wait_fails_is_not_made() {
    let mut backed = backed();
    let sim = &mut backed.sim;
    let (stream, writer) = (sim.add_stream(0), sim.add_stream(0));
    let flag = sim.malloc(0, 4096, Policy::HugeFirst).unwrap();
    let addr = sim.malloc(0, 4096, Policy::HugeFirst).unwrap();
    sim.fill_now(0, addr, 5, 64).unwrap();
    sim.wait_value(stream, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
        .unwrap();
    let mut target = [7u8; 64];
    let copy = sim.copy_async(stream, target.as_mut_ptr() as u64, addr, 64);
    assert_eq!(code(copy), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    sim.write_value(writer, flag, 1).unwrap();
    sim.sync_device(0, CallKind::SyncDevice).unwrap();
    assert_eq!(target, [7; 64]);
    assert_eq!(hazards(sim), []);
    for addr in [flag, addr] {
        sim.free(addr).unwrap();
    }
}
