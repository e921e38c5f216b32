//! What becomes of a device's work and memory when it is reset, of frees after
//! that, and what is booked on which device.

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
