//! Functions of the host that a stream calls. The model puts them in an outbox
//! when their time has come; they run on the thread that the program named for
//! the stream (`aclrtSubscribeReport`, `aclrtProcessReport`) or, if it named
//! none, on a thread of the simulator.
//!
//! The virtual clock stands still while the program waits in real time for such
//! a function, which would be for ever. A thread that has waited for
//! [`PATIENCE`] therefore moves the clock to the next function's time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::model::work::HostCall;
use crate::process;

/// Real time after which a thread that waits for functions moves the clock.
pub const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Queues {
    waiting: VecDeque<HostCall>,
    running: Vec<u64>,
}

struct Calls {
    queues: Mutex<Queues>,
    changed: Condvar,
}

thread_local! {
    /// True while the thread runs one of the functions.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

static CALLS: OnceLock<Calls> = OnceLock::new();

fn calls() -> &'static Calls {
    CALLS.get_or_init(|| {
        thread::Builder::new()
            .name("cann-sim-host".into())
            .spawn(serve)
            .map(drop)
            .unwrap_or_else(|error| eprintln!("cann-sim: no thread for host functions: {error}"));
        Calls {
            queues: Mutex::default(),
            changed: Condvar::new(),
        }
    })
}

/// Hands over functions whose time has come, oldest first.
pub fn post(outbox: &mut Vec<HostCall>) {
    let calls = calls();
    calls.queues.lock().waiting.extend(outbox.drain(..));
    calls.changed.notify_all();
}

fn run(call: HostCall) {
    RUNNING.set(true);
    // SAFETY: the program passed this function and its argument to
    // `aclrtLaunchCallback` or `aclrtLaunchHostFunc`, which promise that it can
    // be called with that argument.
    unsafe {
        let function: extern "C" fn(*mut libc::c_void) = std::mem::transmute(call.function);
        function(call.argument as *mut libc::c_void);
    }
    RUNNING.set(false);
}

fn take(calls: &Calls, thread: Option<u64>, deadline: Option<Instant>) -> Option<HostCall> {
    loop {
        {
            let mut queues = calls.queues.lock();
            let slice = Instant::now() + PATIENCE;
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            loop {
                if let Some(index) = queues.waiting.iter().position(|call| call.thread == thread) {
                    let call = queues.waiting.remove(index)?;
                    queues.running.push(call.stream);
                    return Some(call);
                }
                if calls.changed.wait_until(&mut queues, until).timed_out() {
                    break;
                }
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return None;
        }
        // The simulator's lock is taken without the queues', never the other way round.
        if let Some(mut sim) = process::existing() {
            sim.hurry_host_calls();
            if !sim.outbox.is_empty() {
                post(&mut sim.outbox);
            }
        }
    }
}

/// Makes sure that the simulator's own thread for host functions is there.
pub fn start() {
    calls();
}

fn finish(calls: &Calls, stream: u64) {
    let mut queues = calls.queues.lock();
    if let Some(index) = queues.running.iter().position(|&it| it == stream) {
        queues.running.swap_remove(index);
    }
    drop(queues);
    calls.changed.notify_all();
}

fn serve() {
    loop {
        let calls = calls();
        if let Some(call) = take(calls, None, None) {
            run(call);
            finish(calls, call.stream);
        }
    }
}

/// Runs one function that is meant for the calling thread; waits for one at
/// most `timeout`. False if none came.
pub fn process(thread: u64, timeout: Duration) -> bool {
    let calls = calls();
    match take(calls, Some(thread), Some(Instant::now() + timeout)) {
        Some(call) => {
            run(call);
            finish(calls, call.stream);
            true
        }
        None => false,
    }
}

/// Waits until every function of these streams that was handed over so far has
/// returned; not when such a function itself asks.
pub fn wait_for(callers: &[u64]) {
    if callers.is_empty() || RUNNING.get() {
        return;
    }
    let Some(calls) = CALLS.get() else { return };
    let mut queues = calls.queues.lock();
    let concerned = |queues: &Queues| {
        let waiting = queues.waiting.iter().map(|call| &call.stream);
        let mut streams = waiting.chain(&queues.running);
        streams.any(|stream| callers.contains(stream))
    };
    while concerned(&queues) {
        // A program may leave a callback's thread without ever processing it;
        // hanging for ever would help nobody.
        let patience = Duration::from_secs(10);
        if calls.changed.wait_for(&mut queues, patience).timed_out() {
            eprintln!("cann-sim: host functions did not return in 10 s of real time");
            return;
        }
    }
}
