//! What becomes of a device's work and memory when it is reset, of frees after
//! that, and what is booked on which device.

use ascendcl::model::cost::CallKind;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::sim::Sim;
use ascendcl::model::sim::memory::Policy;
use ascendcl::report;

use super::{MIB, kernel, machine};

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
