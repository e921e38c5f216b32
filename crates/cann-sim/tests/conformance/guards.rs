//! Rules of a line each, which no other test would miss.

use ascend_rs_sys::{
    ACL_ERROR_RT_DEVICE_MEM_ERROR, ACL_ERROR_RT_PARAM_INVALID, ACL_STREAM_WAIT_VALUE_AND,
    ACL_STREAM_WAIT_VALUE_EQ, ACL_STREAM_WAIT_VALUE_GEQ, ACL_STREAM_WAIT_VALUE_NOR,
};
use ascendcl::model::cost::{CallKind, CostModel, PAGE};
use ascendcl::model::fault::FaultPlan;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::Sim;
use ascendcl::model::sim::memory::Policy;
use ascendcl::model::vmm::Place;
use ascendcl::model::work::{Access, Action, Work};

use super::{MIB, code, hazards, kernel, machine};

/// Reference 11-09, aclrtValueWait: the difference as a signed number is not
/// negative, equal, a common bit, a bit that neither has.
#[test]
fn the_four_comparisons_of_a_value() {
    let all = u64::MAX;
    for (flag, word, value, holds) in [
        (ACL_STREAM_WAIT_VALUE_GEQ, 5, 5, true),
        (ACL_STREAM_WAIT_VALUE_GEQ, 6, 5, true),
        (ACL_STREAM_WAIT_VALUE_GEQ, 4, 5, false),
        (ACL_STREAM_WAIT_VALUE_GEQ, 0, all, true),
        (ACL_STREAM_WAIT_VALUE_GEQ, all, 0, false),
        (ACL_STREAM_WAIT_VALUE_EQ, 5, 5, true),
        (ACL_STREAM_WAIT_VALUE_EQ, 6, 5, false),
        (ACL_STREAM_WAIT_VALUE_AND, 6, 5, true),
        (ACL_STREAM_WAIT_VALUE_AND, 6, 9, false),
        (ACL_STREAM_WAIT_VALUE_AND, 6, 0, false),
        (ACL_STREAM_WAIT_VALUE_NOR, all - 1, 0, true),
        (ACL_STREAM_WAIT_VALUE_NOR, all - 1, 1, false),
        (ACL_STREAM_WAIT_VALUE_NOR, all, 0, false),
    ] {
        let mut sim = machine();
        let (waiter, writer) = (sim.add_stream(0), sim.add_stream(0));
        let addr = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
        sim.write_value(writer, addr, word).unwrap();
        sim.sync_stream(writer, CallKind::SyncStream).unwrap();
        sim.wait_value(waiter, addr, value, flag).unwrap();
        sim.spend(1000);
        let idle = sim.stream(waiter).unwrap().idle(sim.clock.now());
        assert_eq!(idle, holds, "{flag}: {word:#x}, {value:#x}");
    }
}

/// Reference 07, aclrtRecordEvent: event and stream are of one device.
#[test]
fn an_event_is_recorded_on_a_stream_of_its_device() {
    let mut sim = machine();
    let (here, there) = (sim.add_stream(0), sim.add_stream(1));
    let event = sim.add_event(0, 1, false).unwrap();
    assert_eq!(code(sim.record(event, there)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(sim.event_complete(event), Ok(false), "not recorded");
    sim.record(event, here).unwrap();
    sim.wait_event(there, event).unwrap();
}

/// torch_npu repairs all that aclrtGetMemUceInfo reports.
#[test]
fn a_device_is_healthy_once_all_is_repaired() {
    let mut sim = machine();
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    let ranges = [(addr, 64), (addr + 4096, 64), (addr + 8192, 64)];
    for (addr, len) in ranges {
        sim.inject_uce(0, addr, len).unwrap();
    }
    for range in ranges {
        assert_eq!(code(sim.healthy(0)), ACL_ERROR_RT_DEVICE_MEM_ERROR);
        sim.repair_uce(0, &[range]).unwrap();
    }
    sim.healthy(0).unwrap();
}

#[test]
fn a_fault_plan_counts_and_looks_at_the_size() {
    let failed = |plan: &str, sizes: [u64; 7]| {
        let mut plan = FaultPlan::parse(plan).unwrap();
        let mut check = |bytes| plan.check(CallKind::Malloc, bytes).is_some();
        sizes.map(&mut check).map(u8::from)
    };
    let every = failed("aclrtMalloc:every=3", [64; 7]);
    assert_eq!(every, [0, 0, 1, 0, 0, 1, 0]);
    let sizes = [0, 1023, 1024, 1025, 1, 4096, 1024];
    assert_eq!(failed("aclrtMalloc:max=1k", sizes), [1, 1, 1, 0, 1, 0, 1]);
    let both = failed("aclrtMalloc:min=1k,max=1k", sizes);
    assert_eq!(both, [0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn part_of_a_page_costs_a_page() {
    let mut cost = CostModel::default();
    cost.set_call(CallKind::Malloc, 100, 7);
    for (bytes, pages) in [(0, 0), (1, 1), (PAGE, 1), (PAGE + 1, 2), (2 * PAGE, 2)] {
        assert_eq!(cost.call(CallKind::Malloc, bytes), 100 + 7 * pages);
    }
}

/// Neither what ran, nor what waited, also when the stream has work again.
#[test]
fn an_abort_leaves_nothing_in_use() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let [flag, first, second, third] =
        [(); 4].map(|()| sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap());
    sim.submit(stream, kernel(first, 64)).unwrap();
    sim.wait_value(stream, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
        .unwrap();
    sim.submit(stream, kernel(second, 64)).unwrap();
    sim.abort_stream(stream).unwrap();
    sim.submit(stream, kernel(third, 64)).unwrap();
    for addr in [flag, first, second] {
        sim.free(addr).unwrap();
    }
    assert_eq!(hazards(&sim), []);
    sim.free(third).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::FreeUnderWork]);
}

#[test]
fn a_handle_that_is_mapped_once_again_has_no_alias() {
    let mut sim = machine();
    let base = sim.vmm.reserve(8 * PAGE, 0, 0, 1).unwrap();
    let handle = sim
        .malloc_physical(Place::Device(0), PAGE, Pages::Huge, 4)
        .unwrap();
    for _ in 0..2 {
        sim.map(base, PAGE, 0, handle, 0).unwrap();
        assert!(!sim.vmm.any_aliases());
        sim.map(base + PAGE, PAGE, 0, handle, 0).unwrap();
        sim.map(base + 2 * PAGE, PAGE, 0, handle, 0).unwrap();
        assert_eq!(sim.vmm.aliases(base, 64).len(), 2);
        sim.unmap(base + PAGE).unwrap();
        assert!(sim.vmm.any_aliases());
        sim.unmap(base).unwrap();
        assert!(!sim.vmm.any_aliases());
        sim.unmap(base + 2 * PAGE).unwrap();
    }
}

/// A task that was put on its stream before its memory was there does nothing,
/// although the memory comes before its time.
#[test]
fn a_task_on_memory_that_is_not_there_does_nothing() {
    let mut sim = machine();
    let [stream, waiter] = [(); 2].map(|()| sim.add_stream(0));
    let flag = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
    let base = sim.vmm.reserve(PAGE, 0, 0, 1).unwrap();
    let handle = sim
        .malloc_physical(Place::Device(0), PAGE, Pages::Huge, 4)
        .unwrap();
    let task = || Work {
        action: Some(Action::WriteValue {
            addr: flag,
            value: 1,
        }),
        accesses: [(flag, 8), (base, 64)]
            .into_iter()
            .map(|(addr, len)| Access { addr, len })
            .collect(),
        ..kernel(flag, 8)
    };
    sim.wait_value(waiter, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
        .unwrap();
    sim.submit(stream, task()).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::UnmappedAccess]);
    sim.map(base, PAGE, 0, handle, 0).unwrap();
    sim.spend(10_000);
    let waits = |sim: &Sim| !sim.stream(waiter).unwrap().idle(sim.clock.now());
    assert!(waits(&sim), "nothing was written");
    sim.submit(stream, task()).unwrap();
    sim.spend(10_000);
    assert!(!waits(&sim));
}
