//! What becomes of a device's work and memory when it is reset, of frees after
//! that, and what is booked on which device.

use ascend_rs_sys::ACL_ERROR_RT_PARAM_INVALID;
use ascendcl::model::cost::CallKind;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::sim::Sim;
use ascendcl::model::sim::memory::Policy;
use ascendcl::report;

use super::{MIB, code, hazards, kernel, machine};

/// The text leaves out only devices on which nothing has happened.
#[test]
fn a_device_without_calls_of_its_own_is_in_the_text() {
    let mut sim = machine();
    let text = |sim: &Sim| report::text(&report::of(sim));
    assert!(!text(&sim).contains("device"));
    sim.hazard(HazardKind::BadFree, 1, 0x40, 0, "aclrtFree");
    assert!(text(&sim).contains("free of an unknown address at 0x40"));
    let mut sim = machine();
    sim.malloc(1, 2 * MIB, Policy::HugeFirst).unwrap();
    assert!(text(&sim).contains("device 1: 2097152 of 1073741824 bytes"));
    let mut sim = machine();
    let stream = sim.add_stream(1);
    sim.submit(stream, kernel(0, 0)).unwrap();
    assert!(text(&sim).contains("1 tasks"));
}

/// Work of the device itself is waited for or dropped; that of others goes on.
#[test]
fn a_reset_under_work_of_another_device_is_a_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(1);
    let here = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    let there = sim.malloc(1, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.copy_async(stream, there, here, 4 * MIB).unwrap();
    sim.reset_device(0);
    let kinds: Vec<_> = sim.devices[0]
        .ledger
        .hazards
        .iter()
        .map(|it| (it.kind, it.addr))
        .collect();
    assert_eq!(kinds, [(HazardKind::FreeUnderWork, here)]);
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    sim.reset_device(1);
    assert_eq!(sim.devices[1].ledger.hazard_count, 0);
}

/// A program that resets a device may free what it had there all the same; any
/// other address is a mistake, whether or not a thread has chosen the device.
#[test]
fn only_what_a_reset_took_back_is_freed_again_without_a_hazard() {
    let mut sim = machine();
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.free(addr).unwrap();
    assert_eq!(code(sim.free(addr)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(hazards(&sim), [HazardKind::BadFree]);
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.reset_device(0);
    assert_eq!(code(sim.free(addr)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(hazards(&sim).len(), 1, "taken back");
    assert_eq!(code(sim.free(addr)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(hazards(&sim).len(), 2, "a second time");
    sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.reset_device(0);
    let addr = sim.malloc(0, 4 * MIB, Policy::HugeFirst).unwrap();
    sim.free(addr).unwrap();
    assert_eq!(code(sim.free(addr)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(hazards(&sim).len(), 3, "allocated again since");
}

/// Host memory belongs to no device; who uses it does.
#[test]
fn a_hazard_of_host_memory_is_of_the_device_that_uses_it() {
    let mut sim = machine();
    let stream = sim.add_stream(1);
    let there = sim.malloc(1, 4096, Policy::HugeFirst).unwrap();
    let host = [0u8; 4096];
    let addr = host.as_ptr() as u64;
    sim.add_host(addr, 4096);
    sim.copy_async(stream, there, addr, 4096).unwrap();
    sim.free_host(addr, 4096);
    let counts = [0, 1].map(|index: usize| sim.devices[index].ledger.hazard_count);
    assert_eq!(counts, [0, 1]);
}
