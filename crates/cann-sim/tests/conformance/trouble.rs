//! Memory errors, loss of a device, planned faults, other processes' memory,
//! reset.

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_DEVICE_MEM_ERROR, ACL_ERROR_RT_MEMORY_ALLOCATION,
};
use ascendcl::model::cost::{CALL_KINDS, CallKind};
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::memory::Policy;
use ascendcl::model::vmm::Place;
use ascendcl::report;

use super::{GIB, MIB, code, hazards, kernel, machine};

/// Header: 507053 "device MEM ERROR"; torch_npu repairs what
/// aclrtGetMemUceInfo reports and goes on.
#[test]
fn a_memory_error_stops_the_device_until_it_is_repaired() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    assert_eq!(
        code(sim.inject_uce(0, addr + 2 * MIB, 64)),
        ACL_ERROR_INVALID_PARAM
    );
    sim.submit(stream, kernel(addr, 64)).unwrap();
    sim.inject_uce(0, addr + 4096, 64).unwrap();
    let sync = sim.sync_stream(stream, CallKind::SyncStream);
    assert_eq!(code(sync), ACL_ERROR_RT_DEVICE_MEM_ERROR);
    assert_eq!(
        code(sim.submit(stream, kernel(addr, 64))),
        ACL_ERROR_RT_DEVICE_MEM_ERROR
    );
    assert!(sim.healthy(1).is_ok());
    sim.abort_tasks(0);
    assert_eq!(
        code(sim.repair_uce(0, &[(addr, 64)])),
        ACL_ERROR_INVALID_PARAM
    );
    sim.repair_uce(0, &[(addr + 4096, 64)]).unwrap();
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
}

/// aclrtDeviceTaskAbort drops what has not completed; the memory is free to go.
#[test]
fn abort_drops_pending_work() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    sim.submit(stream, kernel(addr, 64)).unwrap();
    sim.abort_tasks(0);
    assert!(sim.stream(stream).unwrap().idle(sim.clock.now()));
    sim.free(addr).unwrap();
    assert_eq!(hazards(&sim), []);
}

/// Other processes may take memory while the program runs.
#[test]
fn capacity_changes_at_run_time() {
    let mut sim = machine();
    let addr = sim.malloc(0, 512 * MIB, Policy::HugeFirst).unwrap();
    sim.devices[0].external = 500 * MIB;
    assert_eq!(sim.memory_info(0), (12 * MIB, GIB));
    let more = sim.malloc(0, 14 * MIB, Policy::HugeFirst);
    assert_eq!(code(more), ACL_ERROR_RT_MEMORY_ALLOCATION);
    sim.devices[0].capacity = 100 * MIB;
    assert_eq!(
        sim.memory_info(0).0,
        0,
        "below what is in use: nothing is left"
    );
    sim.free(addr).unwrap();
}

/// aclrtResetDevice takes back what was not freed, and counts it.
#[test]
fn reset_takes_memory_back() {
    let mut sim = machine();
    let other = sim.malloc(1, 2 * MIB, Policy::HugeFirst).unwrap();
    sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    let base = sim.vmm.reserve(8 * MIB, 0, 0, 1).unwrap();
    let handle = sim
        .malloc_physical(Place::Device(0), 4 * MIB, Pages::Huge, 4)
        .unwrap();
    sim.map(base, 4 * MIB, 0, handle, 0).unwrap();
    sim.reset_device(0);
    assert_eq!(sim.devices[0].used, 0);
    assert_eq!(sim.devices[0].taken_back, 6 * MIB);
    assert_eq!(sim.outstanding(0), (0, 0));
    assert_eq!(sim.devices[1].taken_back, 0);
    sim.free(other).unwrap();
}

/// Every kind of call costs what the model says: once, and for each page.
#[test]
fn calls_cost_what_is_set() {
    let mut sim = machine();
    for &kind in CALL_KINDS {
        sim.config.cost.set_call(kind, 100, 7);
        let before = sim.clock.now();
        sim.begin(kind, 0, 5 * MIB).unwrap();
        sim.finish(kind, 0, 5 * MIB, true);
        assert_eq!(sim.clock.now() - before, 121, "{}", kind.name());
        assert_eq!(sim.devices[0].ledger.call(kind).ns, 121);
    }
}

/// Costs are the user's numbers, and their sums stay at the largest there is.
#[test]
fn costs_do_not_overflow() {
    let mut sim = machine();
    for kind in [CallKind::Malloc, CallKind::Free] {
        sim.config.cost.set_call(kind, 1 << 63, 0);
        for _ in 0..2 {
            sim.begin(kind, 0, 64).unwrap();
            sim.finish(kind, 0, 64, true);
        }
        assert_eq!(sim.devices[0].ledger.call(kind).ns, u64::MAX);
    }
    assert_eq!(sim.clock.now(), u64::MAX);
    assert_eq!(report::device(&sim, 0).driver_ns, u64::MAX);
}
