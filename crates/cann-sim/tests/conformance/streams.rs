//! Streams and events on the virtual clock.

use ascend_rs_sys::{
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_NO_EVENT_RESOURCE, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE,
    ACL_STREAM_WAIT_VALUE_EQ,
};
use ascendcl::model::cost::CallKind;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::sim::Sim;
use ascendcl::model::sim::memory::Policy;
use ascendcl::model::work::Work;

use super::{Backed, backed, code, hazards, machine};

fn task(nanoseconds: u64) -> Work {
    Work {
        nanoseconds,
        name: "task",
        ..Work::default()
    }
}

/// Work takes device time, not the host's; an event is pending until its
/// stream has reached it.
#[test]
fn an_event_is_pending_until_its_time() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let event = sim.add_event(0, 1, true).unwrap();
    sim.submit(stream, task(5000)).unwrap();
    sim.record(event, stream).unwrap();
    assert_eq!(sim.clock.now(), 0);
    assert_eq!(sim.event_complete(event), Ok(false));
    sim.spend(4999);
    assert_eq!(sim.event_complete(event), Ok(false));
    sim.spend(1);
    assert_eq!(sim.event_complete(event), Ok(true));
}

/// Tasks of a stream run one after the other, those of two streams together.
#[test]
fn streams_run_side_by_side() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    sim.submit(one, task(300)).unwrap();
    sim.submit(one, task(400)).unwrap();
    sim.submit(two, task(500)).unwrap();
    sim.sync_device(0, CallKind::SyncDevice).unwrap();
    assert_eq!(sim.clock.now(), 700);
    assert_eq!(sim.devices[0].ledger.wait_ns(), 700);
}

/// A stream that waits for an event starts no earlier than the event.
#[test]
fn a_wait_orders_two_streams() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let event = sim.add_event(0, 1, true).unwrap();
    sim.submit(one, task(1000)).unwrap();
    sim.record(event, one).unwrap();
    sim.wait_event(two, event).unwrap();
    sim.submit(two, task(10)).unwrap();
    sim.sync_stream(two, CallKind::SyncStream).unwrap();
    assert_eq!(sim.clock.now(), 1010);
}

/// Recording again overwrites; a wait made before keeps to the old record.
#[test]
fn the_latest_record_counts() {
    let mut sim = machine();
    let (one, two) = (sim.add_stream(0), sim.add_stream(0));
    let event = sim.add_event(0, 1, true).unwrap();
    sim.record(event, one).unwrap();
    sim.wait_event(two, event).unwrap();
    sim.submit(one, task(1000)).unwrap();
    sim.record(event, one).unwrap();
    assert_eq!(sim.event_complete(event), Ok(false));
    assert!(sim.stream(two).unwrap().idle(sim.clock.now()));
}

/// What may become of an event that a stream waits for.
#[derive(Debug, Clone, Copy)]
enum Then {
    RecordedAgain,
    Reset,
    Destroyed,
}

const THEN: [Then; 3] = [Then::RecordedAgain, Then::Reset, Then::Destroyed];

fn then(sim: &mut Sim, what: Then, event: u64, stream: u64) {
    match what {
        Then::RecordedAgain => {
            sim.submit(stream, task(5_000_000)).unwrap();
            sim.record(event, stream).unwrap();
        }
        Then::Reset => sim.reset_event(event, stream).unwrap(),
        Then::Destroyed => sim.destroy_event(event).unwrap(),
    }
}

/// Reference 07, aclrtRecordEvent: a wait is for the record that was the
/// latest when it was made, whatever becomes of the event; also on a stream
/// that gets to the wait later.
#[test]
fn a_wait_that_is_reached_later_keeps_to_its_record() {
    for what in THEN {
        let mut sim = machine();
        let [one, two, writer] = [(); 3].map(|()| sim.add_stream(0));
        let flag = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
        let event = sim.add_event(0, 1, false).unwrap();
        let end = sim.add_event(0, 8, true).unwrap();
        sim.submit(one, task(1_000_000)).unwrap();
        sim.record(event, one).unwrap();
        sim.wait_value(two, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
            .unwrap();
        sim.wait_event(two, event).unwrap();
        sim.submit(two, task(10)).unwrap();
        sim.record(end, two).unwrap();
        then(&mut sim, what, event, one);
        sim.write_value(writer, flag, 1).unwrap();
        sim.sync_event(end, CallKind::SyncEvent).unwrap();
        assert_eq!(sim.event_time(end), Ok(1_000_010), "{what:?}");
    }
}

/// The same when the time of the record is not known yet.
#[test]
fn a_wait_keeps_to_a_record_of_unknown_time() {
    for what in THEN {
        let mut sim = machine();
        let [one, two, third, writer] = [(); 4].map(|()| sim.add_stream(0));
        let flag = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
        let event = sim.add_event(0, 1, false).unwrap();
        sim.wait_value(one, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
            .unwrap();
        sim.submit(one, task(300)).unwrap();
        sim.record(event, one).unwrap();
        sim.wait_event(two, event).unwrap();
        sim.submit(two, task(10)).unwrap();
        then(&mut sim, what, event, third);
        sim.spend(1000);
        assert!(!sim.stream(two).unwrap().idle(sim.clock.now()), "{what:?}");
        sim.submit(writer, task(200)).unwrap();
        sim.write_value(writer, flag, 1).unwrap();
        sim.sync_stream(two, CallKind::SyncStream).unwrap();
        assert_eq!(sim.clock.now(), 1510, "{what:?}");
    }
}

/// Work behind a wait begins when the reason to wait goes, not when the host
/// looks: the host's steps change no time on the device.
#[test]
fn the_hosts_steps_do_not_move_work_that_waited() {
    for step in [1_000_000, 25_000, 7_000, 1_000] {
        let mut sim = machine();
        let [writer, waiter, third] = [(); 3].map(|()| sim.add_stream(0));
        let flag = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
        let [first, second] = [(); 2].map(|()| sim.add_event(0, 8, true).unwrap());
        sim.wait_value(waiter, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
            .unwrap();
        sim.submit(waiter, task(10_000)).unwrap();
        sim.record(first, waiter).unwrap();
        sim.wait_event(third, first).unwrap();
        sim.submit(third, task(5_000)).unwrap();
        sim.record(second, third).unwrap();
        sim.submit(writer, task(10_000)).unwrap();
        sim.write_value(writer, flag, 1).unwrap();
        while sim.clock.now() < 1_000_000 {
            sim.spend(step);
        }
        assert_eq!(sim.event_time(first), Ok(20_000), "steps of {step}");
        assert_eq!(sim.event_time(second), Ok(25_000), "steps of {step}");
    }
}

/// By force a stream is destroyed with its work, which has no effect any more
/// and holds up nobody's memory.
#[test]
fn a_stream_destroyed_by_force_takes_its_work_along() {
    let Backed { mut sim, _turn } = backed();
    let stream = sim.add_stream(0);
    let addr = sim.malloc(0, 2 << 20, Policy::HugeFirst).unwrap();
    sim.fill_async(stream, addr, 7, 64).unwrap();
    sim.destroy_stream(stream, true).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::StreamDestroyedUnderWork]);
    sim.free(addr).unwrap();
    let next = sim.malloc(0, 2 << 20, Policy::HugeFirst).unwrap();
    assert_eq!(next, addr, "the next owner of the address");
    sim.spend(1_000_000_000);
    let mut found = [9u8; 64];
    let to = found.as_mut_ptr() as u64;
    sim.copy_now(0, to, next, 64).unwrap();
    assert_eq!(found, [0; 64]);
}

/// Events of aclrtCreateEventExWithFlag are complete before their first
/// record, those of the older call are not.
#[test]
fn an_event_that_was_never_recorded() {
    let mut sim = machine();
    let new = sim.add_event(0, 1, true).unwrap();
    let old = sim.add_event(0, 1, false).unwrap();
    assert_eq!(sim.event_complete(new), Ok(true));
    assert_eq!(sim.event_complete(old), Ok(false));
    let stream = sim.add_stream(0);
    sim.wait_event(stream, new).unwrap();
    assert!(sim.stream(stream).unwrap().idle(0));
}

/// Reset makes an event unrecorded.
#[test]
fn reset_forgets_the_record() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let event = sim.add_event(0, 8, false).unwrap();
    sim.record(event, stream).unwrap();
    assert_eq!(sim.event_complete(event), Ok(true));
    sim.reset_event(event, stream).unwrap();
    assert_eq!(sim.event_complete(event), Ok(false));
}

/// `api_impl.cc`, EventReset: events of aclrtCreateEventExWithFlag are refused.
#[test]
fn an_event_of_the_newer_call_cannot_be_reset() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let event = sim.add_event(0, 8, true).unwrap();
    sim.submit(stream, task(10)).unwrap();
    sim.record(event, stream).unwrap();
    let refused = sim.reset_event(event, stream);
    assert_eq!(code(refused), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    assert_eq!(sim.event_complete(event), Ok(false), "keeps its record");
}

/// Elapsed time is that between the records' times.
#[test]
fn elapsed_time_is_virtual_time() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let (start, end) = (
        sim.add_event(0, 8, true).unwrap(),
        sim.add_event(0, 8, true).unwrap(),
    );
    sim.record(start, stream).unwrap();
    sim.submit(stream, task(2_500_000)).unwrap();
    sim.record(end, stream).unwrap();
    assert!(sim.event_time(end).is_err(), "not complete yet");
    sim.sync_event(end, CallKind::SyncEvent).unwrap();
    assert_eq!(
        sim.event_time(end).unwrap() - sim.event_time(start).unwrap(),
        2_500_000
    );
}

/// Atlas A2 and A3 have 65,536 events on a device. Reference 07:
/// aclrtCreateEventWithFlag takes one at once if the event orders streams
/// (ACL_EVENT_SYNC); neither aclrtCreateEvent nor aclrtCreateEventExWithFlag
/// does.
#[test]
fn events_run_out() {
    let mut sim = machine();
    let first = sim.add_event(0, ACL_EVENT_SYNC, false).unwrap();
    for _ in 1..65_536 {
        sim.add_event(0, ACL_EVENT_SYNC, false).unwrap();
    }
    assert_eq!(
        code(sim.add_event(0, ACL_EVENT_SYNC, false)),
        ACL_ERROR_RT_NO_EVENT_RESOURCE
    );
    assert!(sim.add_event(1, ACL_EVENT_SYNC, false).is_ok(), "of each");
    assert!(sim.add_event(0, ACL_EVENT_TIME_LINE, false).is_ok());
    let extended = sim.add_event(0, ACL_EVENT_SYNC, true).unwrap();
    sim.destroy_event(extended).unwrap();
    assert_eq!(
        code(sim.add_event(0, ACL_EVENT_SYNC, false)),
        ACL_ERROR_RT_NO_EVENT_RESOURCE,
        "it held none"
    );
    sim.destroy_event(first).unwrap();
    assert!(sim.add_event(0, ACL_EVENT_SYNC, false).is_ok());
    assert_eq!(
        code(sim.record(first, 0)),
        ACL_ERROR_RT_PARAM_INVALID,
        "a stale handle"
    );
}

/// Reference 11-09: a stream waits for a value that another writes; what was
/// put on it meanwhile, events too, waits with it.
#[test]
fn a_value_lets_a_stream_go_on() {
    let mut sim = machine();
    let (waiter, writer) = (sim.add_stream(0), sim.add_stream(0));
    let flag = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
    let event = sim.add_event(0, 1, true).unwrap();
    sim.wait_value(waiter, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
        .unwrap();
    sim.submit(waiter, task(50)).unwrap();
    sim.record(event, waiter).unwrap();
    assert_eq!(sim.event_complete(event), Ok(false));
    sim.submit(writer, task(700)).unwrap();
    sim.write_value(writer, flag, 1).unwrap();
    sim.sync_event(event, CallKind::SyncEvent).unwrap();
    assert_eq!(sim.clock.now(), 750);
}

/// Without a writer a wait for the stream never ends: the device's time-out.
#[test]
fn a_wait_for_nobody_times_out() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let flag = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
    sim.wait_value(stream, flag, 1, ACL_STREAM_WAIT_VALUE_EQ)
        .unwrap();
    let result = sim.sync_stream(stream, CallKind::SyncStream);
    assert_eq!(code(result), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
}

/// Only events that order streams can be waited for by one.
#[test]
fn a_wait_for_an_event_that_tells_progress_alone_is_refused() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    for (flags, waits) in [
        (1, true),
        (2, false),
        (3, true),
        (8, true),
        (0xE, true),
        (0x20, true),
        (0x40, true),
    ] {
        let event = sim.add_event(0, flags, true).unwrap();
        sim.record(event, stream).unwrap();
        let waited = sim.wait_event(stream, event);
        if waits {
            waited.unwrap();
        } else {
            assert_eq!(code(waited), ACL_ERROR_RT_PARAM_INVALID, "{flags}");
        }
    }
}

/// A stream holds only so many tasks; then the host waits for room.
#[test]
fn a_full_stream_makes_the_host_wait() {
    let mut sim = machine();
    sim.config.stream_depth = 4;
    let stream = sim.add_stream(0);
    for _ in 0..4 {
        sim.submit(stream, task(100)).unwrap();
    }
    assert_eq!(sim.clock.now(), 0);
    sim.submit(stream, task(100)).unwrap();
    assert_eq!(sim.clock.now(), 100);
}

/// The same calls give the same times.
#[test]
fn a_run_repeats() {
    let run = || {
        let mut sim = machine();
        let streams = [sim.add_stream(0), sim.add_stream(1)];
        let mut log = Vec::new();
        for step in 0..200u64 {
            let stream = streams[(step % 2) as usize];
            sim.begin(CallKind::Launch, 0, 0).unwrap();
            sim.submit(stream, task(step * 37 % 911)).unwrap();
            sim.finish(CallKind::Launch, 0, 0, true);
            if step % 13 == 0 {
                sim.sync_stream(stream, CallKind::SyncStream).unwrap();
            }
            log.push(sim.clock.now());
        }
        log
    };
    assert_eq!(run(), run());
}
