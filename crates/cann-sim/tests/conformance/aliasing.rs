//! One physical handle at two addresses. Reference 11-04, aclrtMapMem, neither
//! allows nor forbids it; aclrtMemMapSelectedLink documents it for A3 parts. What
//! is checked beside the knob is what any memory would punish: two users of one
//! page at a time.

use ascend_rs_sys::ACL_ERROR_RT_PARAM_INVALID;
use ascendcl::model::capture::GLOBAL;
use ascendcl::model::config::{Alias, Config};
use ascendcl::model::cost::CallKind;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::Sim;
use ascendcl::model::vmm::Place;
use ascendcl::model::work::Access;

use super::{MIB, code, hazards, kernel, machine};

const PAGE: u64 = 2 * MIB;

/// Two pages of one handle, mapped at two addresses.
fn twice(sim: &mut Sim) -> (u64, u64, u64) {
    let base = sim.vmm.reserve(8 * PAGE, 0, 0, 1).unwrap();
    let device = Place::Device(0);
    let handle = sim
        .malloc_physical(device, 2 * PAGE, Pages::Huge, 4)
        .unwrap();
    sim.map(base, 2 * PAGE, 0, handle, 0).unwrap();
    sim.map(base + 4 * PAGE, 2 * PAGE, 0, handle, 0).unwrap();
    (base, base + 4 * PAGE, handle)
}

/// The knob can be turned while the program runs, both ways.
#[test]
fn the_knob_works_both_ways_at_run_time() {
    let mut sim = Sim::new(Config {
        alias: Alias::Refuse,
        ..Config::default()
    });
    let base = sim.vmm.reserve(8 * PAGE, 0, 0, 1).unwrap();
    let device = Place::Device(0);
    let handle = sim.malloc_physical(device, PAGE, Pages::Huge, 4).unwrap();
    sim.map(base, PAGE, 0, handle, 0).unwrap();
    let again = sim.map(base + PAGE, PAGE, 0, handle, 0);
    assert_eq!(code(again), ACL_ERROR_RT_PARAM_INVALID);
    sim.vmm.set_alias(Alias::Allow);
    sim.map(base + PAGE, PAGE, 0, handle, 0).unwrap();
    sim.vmm.set_alias(Alias::Refuse);
    sim.unmap(base).unwrap();
    let again = sim.map(base, PAGE, 0, handle, 0);
    assert_eq!(code(again), ACL_ERROR_RT_PARAM_INVALID);
    sim.unmap(base + PAGE).unwrap();
    sim.map(base, PAGE, 0, handle, 0)
        .expect("one mapping at a time is no alias");
}

/// Tasks of two streams that run at the same time.
#[test]
fn unordered_uses_of_one_page_are_a_hazard() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let (first, second, _) = twice(&mut sim);
    sim.submit(one, kernel(first + PAGE, 64)).unwrap();
    sim.submit(two, kernel(second, 64)).unwrap();
    sim.submit(two, kernel(second + PAGE + 64, 64)).unwrap();
    assert_eq!(hazards(&sim), [], "other bytes, and then other times");
    sim.submit(one, kernel(first + PAGE + 120, 64)).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::AliasedUse]);
}

/// An event, or the same stream, puts them in order.
#[test]
fn ordered_uses_of_one_page_are_none() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let (first, second, handle) = twice(&mut sim);
    let event = sim.add_event(0, 1, true).unwrap();
    sim.submit(one, kernel(first, 64)).unwrap();
    sim.submit(one, kernel(second, 64)).unwrap();
    sim.record(event, one).unwrap();
    sim.wait_event(two, event).unwrap();
    sim.submit(two, kernel(first, 64)).unwrap();
    assert_eq!(hazards(&sim), []);
    sim.sync_device(0, CallKind::SyncDevice).unwrap();
    sim.unmap(first).unwrap();
    sim.submit(one, kernel(second, 64)).unwrap();
    sim.submit(two, kernel(second, 64)).unwrap();
    assert_eq!(hazards(&sim), [], "one address only: not this hazard");
    assert_eq!(sim.vmm.handle(handle).unwrap().mapped, [second]);
}

/// One task that is given both addresses.
#[test]
fn one_task_with_both_addresses_is_a_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let (first, second, _) = twice(&mut sim);
    let mut work = kernel(first, 64);
    work.accesses.push(Access {
        addr: second + 32,
        len: 64,
    });
    sim.submit(stream, work).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::AliasedUse]);
}

/// Branches of a replayed capture run side by side.
#[test]
fn a_replay_is_checked_like_other_work() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let (fork, join) = (
        sim.add_event(0, 1, true).unwrap(),
        sim.add_event(0, 1, true).unwrap(),
    );
    let (first, second, _) = twice(&mut sim);
    sim.capture_begin(one, GLOBAL).unwrap();
    sim.record(fork, one).unwrap();
    sim.wait_event(two, fork).unwrap();
    sim.submit(one, kernel(first, 8)).unwrap();
    sim.submit(two, kernel(second, 8)).unwrap();
    sim.record(join, two).unwrap();
    sim.wait_event(one, join).unwrap();
    let model = sim.capture_end(one).unwrap();
    assert_eq!(hazards(&sim), []);
    sim.replay(model, one).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::AliasedUse]);
}
