//! Conditional tasks of captures. Sources: reference 15
//! (`15_model_running_instance__management.md`), the function named; codes from
//! the runtime's `feature/aclgraph/api_error_aclgraph.cc`,
//! `v100/api_impl_aclgraph.cc` and `context_aclgraph.cc`.

use ascend_rs_sys::{
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_MODEL_CAPTURED,
    ACL_ERROR_RT_PARAM_INVALID as INVALID, ACL_ERROR_RT_STREAM_CAPTURED,
    ACL_ERROR_RT_STREAM_NOT_CAPTURED, ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING,
};
use ascendcl::model::capture::GLOBAL;
use ascendcl::model::condition::ConditionKind::{self, If, Switch, While};
use ascendcl::model::cost::CallKind;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::sim::Sim;
use ascendcl::model::sim::memory::Policy;
use ascendcl::model::work::{Action, Work};

use super::{MIB, backed, code, hazards, kernel, machine};

/// Sets a word when it runs.
fn set(addr: u64, value: u64) -> Work {
    let mut work = kernel(addr, 8);
    work.action = Some(Action::WriteValue { addr, value });
    work
}

/// A root model whose task writes the condition's value, and bodies that each
/// write their number plus one to `out`.
struct Program<'a> {
    sim: &'a mut Sim,
    stream: u64,
    root: u64,
    out: u64,
}

fn program(sim: &mut Sim, kind: ConditionKind, bodies: usize, value: Option<u64>) -> Program<'_> {
    let (stream, inner) = (sim.add_stream(0), sim.add_stream(0));
    let out = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
    sim.capture_begin(stream, GLOBAL).unwrap();
    let model = sim.capture_info(stream).unwrap().unwrap().0;
    let condition = sim.add_condition(model, Some(1)).unwrap();
    let addr = sim.condition(condition).unwrap().addr;
    if let Some(value) = value {
        sim.submit(stream, set(addr, value)).unwrap();
    }
    let models = sim
        .add_conditional_task(stream, condition, kind, bodies)
        .unwrap();
    for (index, &body) in models.iter().enumerate() {
        sim.capture_begin_body(inner, body, GLOBAL).unwrap();
        sim.submit(inner, set(out + 8 * index as u64, index as u64 + 1))
            .unwrap();
        if kind == While {
            sim.submit(inner, set(addr, 0)).unwrap();
        }
        assert_eq!(sim.capture_end(inner), Ok(body));
    }
    let root = sim.capture_end(stream).unwrap();
    Program {
        sim,
        stream,
        root,
        out,
    }
}

impl Program<'_> {
    /// Replays; what the bodies have written, then zeros.
    fn run(&mut self) -> [u64; 3] {
        let device = 0;
        let sim = &mut *self.sim;
        sim.fill_now(device, self.out, 0, 64).unwrap();
        sim.replay(self.root, self.stream).unwrap();
        sim.sync_stream(self.stream, CallKind::SyncStream).unwrap();
        let mut words = [0u64; 3];
        sim.copy_now(device, words.as_mut_ptr() as u64, self.out, 24)
            .unwrap();
        words
    }

    fn end(self) {
        self.sim.destroy_model(self.root).unwrap();
        self.sim.free(self.out).unwrap();
        assert_eq!(
            self.sim.outstanding(0),
            (0, 0),
            "the value's memory goes too"
        );
        assert_eq!(hazards(self.sim), []);
    }
}

/// aclmdlRICondTaskParams: IF has one or two bodies, SWITCH takes an index.
#[test]
fn the_value_in_device_memory_chooses_the_body() {
    for (kind, bodies, value, expected) in [
        (If, 1, 7, [1, 0, 0]),
        (If, 1, 0, [0, 0, 0]),
        (If, 2, 7, [1, 0, 0]),
        (If, 2, 0, [0, 2, 0]),
        (Switch, 3, 2, [0, 0, 3]),
        (Switch, 3, 3, [0, 0, 0]),
        (While, 1, 5, [1, 0, 0]),
        (While, 1, 0, [0, 0, 0]),
    ] {
        let mut machine = backed();
        let mut program = program(&mut machine.sim, kind, bodies, Some(value));
        assert_eq!(program.run(), expected, "{kind:?} {bodies} {value}");
        assert_eq!(program.run(), expected, "again");
        program.end();
    }
}

/// aclmdlRICondHandleCreate, ASSIGN_DEFAULT: the value is set anew each time
/// the model starts.
#[test]
fn the_default_is_set_at_each_replay() {
    let mut machine = backed();
    let mut program = program(&mut machine.sim, While, 1, None);
    assert_eq!(program.run(), [1, 0, 0]);
    assert_eq!(program.run(), [1, 0, 0], "the body left 0 there");
    program.end();
}

/// Without data nobody knows the value, so every body runs, each once.
#[test]
fn phantom_memory_runs_every_body_once() {
    let mut machine = machine();
    let mut program = program(&mut machine, Switch, 3, Some(0));
    let before = program.sim.devices[0].ledger.tasks;
    program.run();
    assert_eq!(program.sim.devices[0].ledger.tasks - before, 1 + 1 + 3);
    program.end();
}

/// A conditional task in a body of another.
#[test]
fn conditional_tasks_nest() {
    let mut backed = backed();
    let sim = &mut backed.sim;
    let (stream, inner, innermost) = (sim.add_stream(0), sim.add_stream(0), sim.add_stream(0));
    let out = sim.malloc(0, 64, Policy::NormalOnly).unwrap();
    sim.capture_begin(stream, GLOBAL).unwrap();
    let model = sim.capture_info(stream).unwrap().unwrap().0;
    let condition = sim.add_condition(model, Some(1)).unwrap();
    let body = sim.add_conditional_task(stream, condition, If, 1).unwrap()[0];
    sim.capture_begin_body(inner, body, GLOBAL).unwrap();
    let nested = sim.add_condition(body, Some(0)).unwrap();
    let bodies = sim.add_conditional_task(inner, nested, If, 2).unwrap();
    for (index, &body) in bodies.iter().enumerate() {
        sim.capture_begin_body(innermost, body, GLOBAL).unwrap();
        sim.submit(innermost, set(out + 8 * index as u64, 9))
            .unwrap();
        sim.capture_end(innermost).unwrap();
    }
    sim.capture_end(inner).unwrap();
    let root = sim.capture_end(stream).unwrap();
    let mut program = Program {
        sim,
        stream,
        root,
        out,
    };
    assert_eq!(program.run(), [0, 9, 0]);
    program.end();
}

/// An event recorded after a replay waits for what the condition chose.
#[test]
fn what_follows_waits_for_the_body() {
    let mut machine = backed();
    let program = program(&mut machine.sim, If, 1, Some(1));
    let sim = &mut *program.sim;
    let event = sim.add_event(0, 1, true).unwrap();
    let before = sim.clock.now();
    sim.replay(program.root, program.stream).unwrap();
    sim.record(event, program.stream).unwrap();
    assert_eq!(sim.event_complete(event), Ok(false));
    sim.spend(1000);
    assert_eq!(sim.event_complete(event), Ok(false), "the body takes time");
    sim.spend(1000);
    assert_eq!(sim.event_complete(event), Ok(true));
    assert_eq!(sim.clock.now() - before, 2000);
}

/// A body's memory is in use from the replay on, whatever is chosen.
#[test]
fn memory_of_a_body_is_in_use_by_the_replay() {
    let mut machine = backed();
    let program = program(&mut machine.sim, If, 1, Some(0));
    let sim = &mut *program.sim;
    sim.replay(program.root, program.stream).unwrap();
    sim.free(program.out).unwrap();
    assert_eq!(hazards(sim), [HazardKind::FreeUnderWork]);
}

/// A body that is replayed on memory that changed hands.
#[test]
fn a_body_on_memory_that_changed_hands_is_a_hazard() {
    let mut machine = machine();
    let program = program(&mut machine, If, 1, Some(1));
    let sim = &mut *program.sim;
    sim.free(program.out).unwrap();
    assert_eq!(sim.malloc(0, 64, Policy::NormalOnly), Ok(program.out));
    sim.replay(program.root, program.stream).unwrap();
    sim.sync_stream(program.stream, CallKind::SyncStream)
        .unwrap();
    assert_eq!(hazards(sim), [HazardKind::StaleReplay]);
}

/// Destroying the model frees the value's memory under a pending replay.
#[test]
fn destruction_under_a_replay_is_a_hazard() {
    let mut machine = backed();
    let program = program(&mut machine.sim, If, 1, Some(1));
    program.sim.replay(program.root, program.stream).unwrap();
    program.sim.destroy_model(program.root).unwrap();
    assert_eq!(hazards(program.sim), [HazardKind::FreeUnderWork]);
    program
        .sim
        .sync_stream(program.stream, CallKind::SyncStream)
        .unwrap();
}

/// Conditions belong to captures that are going on; a handle has one task.
#[test]
fn conditions_are_made_and_used_in_their_capture() {
    let mut sim = machine();
    let (stream, other) = (sim.add_stream(0), sim.add_stream(0));
    assert_eq!(code(sim.add_condition(12345, None)), INVALID, "no model");
    sim.capture_begin(stream, GLOBAL).unwrap();
    sim.capture_begin(other, GLOBAL).unwrap();
    let model = sim.capture_info(stream).unwrap().unwrap().0;
    let handle = sim.add_condition(model, None).unwrap();
    let idle = sim.add_stream(0);
    let task = sim.add_conditional_task(idle, handle, If, 1);
    assert_eq!(code(task), ACL_ERROR_RT_STREAM_NOT_CAPTURED);
    let task = sim.add_conditional_task(other, handle, If, 1);
    assert_eq!(code(task), INVALID, "another capture");
    for (kind, bodies) in [(If, 0), (If, 3), (While, 2), (Switch, 0)] {
        let task = sim.add_conditional_task(stream, handle, kind, bodies);
        assert_eq!(code(task), INVALID, "{kind:?} {bodies}");
    }
    let body = sim.add_conditional_task(stream, handle, If, 1).unwrap()[0];
    let again = sim.add_conditional_task(stream, handle, If, 1);
    assert_eq!(code(again), INVALID, "a handle is used once");
    sim.capture_begin_body(idle, body, GLOBAL).unwrap();
    sim.capture_end(idle).unwrap();
    sim.capture_end(stream).unwrap();
    assert_eq!(code(sim.add_condition(model, None)), INVALID, "captured");
}

/// aclmdlRICaptureToModelRIBegin: a body is captured once, on a free stream.
#[test]
fn a_body_is_captured_once() {
    let mut sim = machine();
    let (stream, inner) = (sim.add_stream(0), sim.add_stream(0));
    sim.capture_begin(stream, GLOBAL).unwrap();
    let model = sim.capture_info(stream).unwrap().unwrap().0;
    let handle = sim.add_condition(model, None).unwrap();
    let body = sim.add_conditional_task(stream, handle, If, 1).unwrap()[0];
    let same = sim.capture_begin_body(stream, body, GLOBAL);
    assert_eq!(code(same), ACL_ERROR_RT_STREAM_CAPTURED);
    let root = sim.capture_begin_body(inner, model, GLOBAL);
    assert_eq!(code(root), ACL_ERROR_RT_MODEL_CAPTURED, "a root model");
    sim.capture_begin_body(inner, body, GLOBAL).unwrap();
    sim.capture_end(inner).unwrap();
    let again = sim.capture_begin_body(inner, body, GLOBAL);
    assert_eq!(code(again), ACL_ERROR_RT_MODEL_CAPTURED);
    assert_eq!(
        code(sim.replay(body, inner)),
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT
    );
    let destroyed = sim.destroy_model(body);
    assert_eq!(code(destroyed), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    sim.capture_end(stream).unwrap();
}

/// aclmdlRICaptureEnd of the parent, with a body not captured or not ended.
#[test]
fn the_parent_ends_after_its_bodies() {
    for begun in [false, true] {
        let mut sim = machine();
        let (stream, inner) = (sim.add_stream(0), sim.add_stream(0));
        sim.capture_begin(stream, GLOBAL).unwrap();
        let model = sim.capture_info(stream).unwrap().unwrap().0;
        let handle = sim.add_condition(model, None).unwrap();
        let body = sim.add_conditional_task(stream, handle, If, 1).unwrap()[0];
        if begun {
            sim.capture_begin_body(inner, body, GLOBAL).unwrap();
        }
        let end = sim.capture_end(stream);
        assert_eq!(code(end), ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING);
        assert_eq!(sim.capture_info(inner), Ok(None));
        assert!(sim.model(body).is_err(), "the body went with its parent");
        assert_eq!(sim.outstanding(0), (0, 0));
        sim.forbid_sync_call().expect("no capture is left");
        sim.add_stream(0);
        let addr = sim.malloc(0, 2 * MIB, Policy::HugeFirst).unwrap();
        sim.copy_now(0, addr, addr, 8).unwrap();
    }
}
