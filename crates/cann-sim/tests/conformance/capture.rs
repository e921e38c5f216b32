//! Capture and replay. Source of the codes: runtime,
//! `api/impl/api_error.cc` and `feature/aclgraph/context_aclgraph.cc`.

use ascend_rs_sys::{
    ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
    ACL_ERROR_RT_EVENT_CAPTURED, ACL_ERROR_RT_MODEL_UPDATE_FAILED, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
    ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
    ACL_ERROR_RT_STREAM_CAPTURED, ACL_ERROR_RT_STREAM_NOT_CAPTURED, ACL_ERROR_RT_STREAM_UNJOINED,
    ACL_ERROR_STREAM_CAPTURE_CONFLICT, ACL_ERROR_STREAM_TASK_GROUP_STATUS,
};
use ascendcl::model::capture::{GLOBAL, RELAXED, State, THREAD_LOCAL};
use ascendcl::model::cost::CallKind;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::Sim;
use ascendcl::model::sim::memory::Policy;
use ascendcl::model::vmm::Place;

use super::{MIB, code, hazards, kernel, machine};

fn captured(sim: &mut Sim, stream: u64, addr: u64) -> u64 {
    sim.capture_begin(stream, GLOBAL).unwrap();
    sim.submit(stream, kernel(addr, 64)).unwrap();
    sim.submit(stream, kernel(addr + 64, 64)).unwrap();
    sim.capture_end(stream).unwrap()
}

/// Captured work does not run; each replay runs it.
#[test]
fn capture_records_and_replay_runs() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    let model = captured(&mut sim, stream, addr);
    assert!(sim.stream(stream).unwrap().idle(0));
    sim.replay(model, stream).unwrap();
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    assert_eq!(sim.clock.now(), 2000);
    sim.replay(model, stream).unwrap();
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    assert_eq!(sim.clock.now(), 4000);
    assert_eq!(hazards(&sim), []);
}

/// Query, wait and destruction of a captured stream or event fail in every mode.
#[test]
fn a_captured_stream_cannot_be_waited_for() {
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let mut sim = machine();
        let stream = sim.add_stream(0);
        let event = sim.add_event(0, 1, true).unwrap();
        sim.capture_begin(stream, mode).unwrap();
        sim.record(event, stream).unwrap();
        let sync = sim.sync_stream(stream, CallKind::SyncStream);
        assert_eq!(code(sync), ACL_ERROR_RT_STREAM_CAPTURED);
        let device = sim.sync_device(0, CallKind::SyncDevice);
        assert_eq!(code(device), ACL_ERROR_RT_STREAM_CAPTURED);
        assert_eq!(
            code(sim.forbid_in_capture(stream)),
            ACL_ERROR_RT_STREAM_CAPTURED
        );
        assert_eq!(
            code(sim.forbid_event_call(event)),
            ACL_ERROR_RT_EVENT_CAPTURED
        );
        let wait = sim.sync_event(event, CallKind::SyncEvent);
        assert_eq!(code(wait), ACL_ERROR_RT_EVENT_CAPTURED);
        for force in [false, true] {
            assert_eq!(
                code(sim.destroy_stream(stream, force)),
                ACL_ERROR_RT_STREAM_CAPTURED
            );
        }
        assert_eq!(
            code(sim.capture_begin(stream, mode)),
            ACL_ERROR_RT_STREAM_CAPTURED
        );
        assert!(
            sim.sync_device(1, CallKind::SyncDevice).is_ok(),
            "another device may"
        );
    }
}

/// Synchronous copies fail unless the capture or the thread is relaxed.
#[test]
fn synchronous_calls_depend_on_the_mode() {
    for (mode, exchange, same_thread, forbidden) in [
        (GLOBAL, GLOBAL, true, true),
        (GLOBAL, GLOBAL, false, true),
        (THREAD_LOCAL, GLOBAL, true, true),
        (THREAD_LOCAL, GLOBAL, false, false),
        (GLOBAL, THREAD_LOCAL, true, true),
        (GLOBAL, THREAD_LOCAL, false, false),
        (RELAXED, GLOBAL, true, false),
        (GLOBAL, RELAXED, true, false),
    ] {
        let mut sim = machine();
        let stream = sim.add_stream(0);
        sim.caller.thread = 1;
        sim.capture_begin(stream, mode).unwrap();
        sim.caller.thread = if same_thread { 1 } else { 2 };
        sim.caller.exchange = exchange;
        let result = sim.forbid_sync_call();
        assert_eq!(
            result.is_err(),
            forbidden,
            "{mode} {exchange} {same_thread}"
        );
        if forbidden {
            assert_eq!(code(result), ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT);
        }
    }
}

/// A copy of pageable memory would wait, so a captured stream refuses it.
#[test]
fn a_copy_that_would_wait_fails() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    let host = [0u8; 64];
    sim.capture_begin(stream, RELAXED).unwrap();
    let copy = sim.copy_async(stream, addr, host.as_ptr() as u64, 64);
    assert_eq!(code(copy), ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC);
    sim.register_host(host.as_ptr() as u64, 64).unwrap();
    sim.copy_async(stream, addr, host.as_ptr() as u64, 64)
        .unwrap();
}

/// Memory can be allocated and freed during a capture: the runtime checks nothing.
#[test]
fn allocation_is_allowed() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    sim.capture_begin(stream, GLOBAL).unwrap();
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    sim.free(addr).unwrap();
}

/// A capture ends on its stream and, unless relaxed, in its thread.
#[test]
fn a_capture_ends_where_it_began() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let event = sim.add_event(0, 1, true).unwrap();
    assert_eq!(code(sim.capture_end(one)), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
    sim.capture_begin(one, GLOBAL).unwrap();
    sim.record(event, one).unwrap();
    sim.wait_event(two, event).unwrap();
    assert_eq!(
        code(sim.capture_end(two)),
        ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED
    );
    sim.caller.thread = 9;
    assert_eq!(
        code(sim.capture_end(one)),
        ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD
    );
    assert_eq!(sim.capture_info(one), Ok(None), "the failed end ended it");
}

/// A second stream joins by waiting for a captured event and must be joined back.
#[test]
fn streams_fork_and_join() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let (fork, join) = (
        sim.add_event(0, 1, true).unwrap(),
        sim.add_event(0, 1, true).unwrap(),
    );
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    for joined in [false, true] {
        sim.capture_begin(one, GLOBAL).unwrap();
        sim.submit(one, kernel(addr, 8)).unwrap();
        sim.record(fork, one).unwrap();
        sim.wait_event(two, fork).unwrap();
        sim.submit(two, kernel(addr + 64, 8)).unwrap();
        sim.submit(one, kernel(addr + 128, 8)).unwrap();
        sim.record(join, two).unwrap();
        if joined {
            sim.wait_event(one, join).unwrap();
            sim.submit(one, kernel(addr + 192, 8)).unwrap();
            let model = sim.capture_end(one).unwrap();
            let before = sim.clock.now();
            sim.replay(model, one).unwrap();
            sim.sync_stream(one, CallKind::SyncStream).unwrap();
            assert_eq!(
                sim.clock.now() - before,
                3000,
                "two of four tasks run side by side"
            );
        } else {
            assert_eq!(code(sim.capture_end(one)), ACL_ERROR_RT_STREAM_UNJOINED);
        }
        assert_eq!(sim.capture_info(two), Ok(None));
    }
}

/// An event of one capture cannot be waited for in another.
#[test]
fn captures_do_not_mix() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let event = sim.add_event(0, 1, true).unwrap();
    sim.capture_begin(one, GLOBAL).unwrap();
    sim.capture_begin(two, GLOBAL).unwrap();
    sim.record(event, one).unwrap();
    assert_eq!(
        code(sim.wait_event(two, event)),
        ACL_ERROR_STREAM_CAPTURE_CONFLICT
    );
}

/// Runtime, `api_impl.cc`, StreamWaitEvent: a wait that fails in a capture
/// invalidates the captures it touched (`TerminateCapture`).
#[test]
fn a_failed_wait_invalidates_both_captures() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let event = sim.add_event(0, 1, true).unwrap();
    sim.capture_begin(one, GLOBAL).unwrap();
    sim.capture_begin(two, GLOBAL).unwrap();
    sim.task_group_begin(two).unwrap();
    sim.record(event, one).unwrap();
    assert!(sim.wait_event(two, event).is_err());
    let group = sim.task_group_end(two);
    assert_eq!(code(group), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
    for stream in [one, two] {
        let state = sim.capture_info(stream).unwrap().unwrap().1;
        assert_eq!(state, State::Invalidated);
        let end = sim.capture_end(stream);
        assert_eq!(code(end), ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(sim.capture_info(stream), Ok(None));
    }
    sim.forbid_sync_call().expect("no capture is left");
}

/// The default stream is never captured, neither by its own nor by an event.
#[test]
fn the_default_stream_cannot_be_captured() {
    let mut sim = machine();
    let (default, stream) = (sim.devices[0].default_stream, sim.add_stream(0));
    let event = sim.add_event(0, 1, true).unwrap();
    let begin = sim.capture_begin(default, GLOBAL);
    assert_eq!(code(begin), ACL_ERROR_RT_PARAM_INVALID);
    sim.capture_begin(stream, GLOBAL).unwrap();
    sim.record(event, stream).unwrap();
    let wait = sim.wait_event(default, event);
    assert_eq!(code(wait), ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT);
}

/// A replay on memory that was unmapped, and mapped again to other pages.
#[test]
fn a_replay_on_other_pages_is_a_hazard() {
    const PAGE: u64 = 2 * MIB;
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let base = sim.vmm.reserve(PAGE, 0, 0, 1).unwrap();
    let device = Place::Device(0);
    let pages = [0, 1].map(|_| sim.malloc_physical(device, PAGE, Pages::Huge, 4).unwrap());
    sim.map(base, PAGE, 0, pages[0], 0).unwrap();
    let model = captured(&mut sim, stream, base);
    sim.unmap(base).unwrap();
    sim.replay(model, stream).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::UnmappedAccess; 2]);
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    sim.map(base, PAGE, 0, pages[1], 0).unwrap();
    sim.replay(model, stream).unwrap();
    assert_eq!(hazards(&sim)[2..], [HazardKind::StaleReplay; 2]);
}

/// A replay uses the captured addresses, whatever is there now.
#[test]
fn a_replay_on_memory_that_changed_hands_is_a_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    let model = captured(&mut sim, stream, addr);
    sim.free(addr).unwrap();
    sim.replay(model, stream).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::UnmappedAccess; 2]);
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    assert_eq!(
        sim.malloc(0, 2 * MIB, Policy::HugeFirst),
        Ok(addr),
        "the address comes back"
    );
    sim.replay(model, stream).unwrap();
    assert_eq!(hazards(&sim)[2..], [HazardKind::StaleReplay; 2]);
}

/// Freeing memory under a replay is freeing under work.
#[test]
fn a_replay_is_pending_work() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    let model = captured(&mut sim, stream, addr);
    sim.replay(model, stream).unwrap();
    sim.free(addr).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::FreeUnderWork]);
}

/// Tasks of a group are replaced, all of them, by tasks put on a stream.
#[test]
fn task_groups_are_updated() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
    assert_eq!(
        code(sim.task_group_begin(stream)),
        ACL_ERROR_RT_STREAM_NOT_CAPTURED
    );
    sim.capture_begin(stream, GLOBAL).unwrap();
    sim.task_group_begin(stream).unwrap();
    assert_eq!(
        code(sim.task_group_begin(stream)),
        ACL_ERROR_STREAM_TASK_GROUP_STATUS
    );
    sim.submit(stream, kernel(addr, 64)).unwrap();
    sim.submit(stream, kernel(addr + 64, 64)).unwrap();
    let group = sim.task_group_end(stream).unwrap();
    let model = sim.capture_end(stream).unwrap();

    sim.task_update_begin(stream, group).unwrap();
    sim.submit(stream, kernel(addr + 128, 64)).unwrap();
    assert_eq!(
        code(sim.task_update_end(stream)),
        ACL_ERROR_RT_MODEL_UPDATE_FAILED,
        "too few"
    );
    sim.task_update_begin(stream, group).unwrap();
    let mut longer = kernel(addr + 128, 64);
    longer.nanoseconds = 5000;
    sim.submit(stream, longer.clone()).unwrap();
    sim.submit(stream, kernel(addr, 64)).unwrap();
    let third = sim.submit(stream, kernel(addr, 64));
    assert_eq!(code(third), ACL_ERROR_RT_MODEL_UPDATE_FAILED, "too many");
    sim.task_update_end(stream).unwrap();
    let before = sim.clock.now();
    sim.replay(model, stream).unwrap();
    sim.sync_stream(stream, CallKind::SyncStream).unwrap();
    assert_eq!(sim.clock.now() - before, 6000);
}

/// A group that is still open when the capture ends is an error.
#[test]
fn an_open_group_fails_the_capture() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    sim.capture_begin(stream, GLOBAL).unwrap();
    sim.task_group_begin(stream).unwrap();
    assert_eq!(
        code(sim.capture_end(stream)),
        ACL_ERROR_STREAM_TASK_GROUP_STATUS
    );
}
