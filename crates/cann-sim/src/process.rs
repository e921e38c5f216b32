//! The one simulator of a process, its lock, and what belongs to a thread.
//!
//! The simulator comes into being with the first call. Every exported function
//! goes through [`enter`], which holds the lock for the length of the call;
//! functions of the host that a stream calls run after it is released.

use std::cell::Cell;
use std::collections::HashMap;
use std::env;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use ascend_rs_sys::{ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_RT_CONTEXT_NULL, ACL_SUCCESS, aclError};
use parking_lot::{Mutex, MutexGuard};

use crate::host_calls;
use crate::model::config::{Config, ReportTo};
use crate::model::cost::CallKind;
use crate::model::error::{Failure, Result, fail};
use crate::model::sim::{Caller, Sim};

static SIM: OnceLock<Machine> = OnceLock::new();

/// The simulator, and what is known of it without its lock.
struct Machine {
    sim: Mutex<Sim>,
    report: Option<ReportTo>,
    process: u32,
}

thread_local! {
    static DEVICE: Cell<Option<u32>> = const { Cell::new(None) };
    static CONTEXT: Cell<u32> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<aclError> = const { Cell::new(ACL_SUCCESS) };
    static MESSAGE: Cell<&'static CStr> = const { Cell::new(c"") };
}

/// The simulator of this process, made from the environment when first asked for.
pub fn sim() -> MutexGuard<'static, Sim> {
    let machine = SIM.get_or_init(|| {
        let config = config_from_environment();
        Machine {
            report: config.report.clone(),
            process: std::process::id(),
            sim: Mutex::new(Sim::new(config)),
        }
    });
    machine.sim.lock()
}

/// The simulator, if any call was made yet.
pub fn existing() -> Option<MutexGuard<'static, Sim>> {
    SIM.get().map(|machine| machine.sim.lock())
}

/// Where the report at exit goes, if any call was made and one is wanted.
pub fn report_target() -> Option<&'static ReportTo> {
    SIM.get()?.report.as_ref()
}

/// The simulator for the last time. In a child of `fork` none if a call of another
/// thread was under way at the fork: that thread, which is not in the child, holds
/// the lock there for ever.
pub fn at_exit() -> Option<MutexGuard<'static, Sim>> {
    let machine = SIM.get()?;
    if machine.process == std::process::id() {
        return Some(machine.sim.lock());
    }
    // The child may have threads of its own, whose calls end. It does not wait in
    // the lock's queue, whose own locks may be held as well.
    (0..50).find_map(|_| {
        let sim = machine.sim.try_lock();
        if sim.is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        sim
    })
}

fn config_from_environment() -> Config {
    Config::from_lookup(variable).unwrap_or_else(|error| refuse(&error))
}

/// Ends the process: a run with other knobs than the user asked for would mislead.
fn refuse(error: &str) -> ! {
    eprintln!("cann-sim: {error}");
    std::process::exit(2);
}

fn variable(name: &str) -> Option<String> {
    let value = env::var_os(name)?;
    Some(
        value
            .into_string()
            .unwrap_or_else(|value| refuse(&format!("{name}: {value:?} is no UTF-8"))),
    )
}

/// The thread's current device.
pub fn current_device() -> Option<u32> {
    DEVICE.get()
}

/// Makes a device (or none) the thread's current one, with the device's own context.
pub fn set_current_device(device: Option<u32>) {
    DEVICE.set(device);
    CONTEXT.set(0);
}

/// The thread's current context: its device, and a number that is 0 for the device's own. A default device
/// is none before a call needs it.
pub fn current_context() -> Option<(u32, u32)> {
    Some((DEVICE.get()?, CONTEXT.get()))
}

/// Makes a context of a device the thread's current one.
pub fn set_current_context(device: u32, number: u32) {
    DEVICE.set(Some(device));
    CONTEXT.set(number);
}

/// Device of threads that chose none, plus one; 0 if there is no such device.
static DEFAULT_DEVICE: AtomicU32 = AtomicU32::new(0);

/// Gives threads that chose no device one all the same, as `aclInit` does when
/// its configuration names a default device.
pub fn set_default_device(device: Option<u32>) {
    DEFAULT_DEVICE.store(device.map_or(0, |device| device + 1), Ordering::Release);
}

/// The thread's current device, or the error of having none. A thread that
/// chose none gets the default device, if there is one.
pub fn device() -> Result<u32> {
    let device = expected_device()?;
    DEVICE.set(Some(device));
    Ok(device)
}

/// The device that [`device`] would give, which does not become the thread's.
pub fn expected_device() -> Result<u32> {
    let device = DEVICE
        .get()
        .or_else(|| DEFAULT_DEVICE.load(Ordering::Acquire).checked_sub(1));
    match device {
        Some(device) => Ok(device),
        None => no_device(),
    }
}

/// What a call fails with that needs a device and has none.
pub fn no_device<T>() -> Result<T> {
    fail(
        ACL_ERROR_RT_CONTEXT_NULL,
        "the thread has no current device",
    )
}

/// A number of the calling thread's own: its `pthread_t`.
pub fn thread() -> u64 {
    // SAFETY: has no precondition.
    unsafe { libc::pthread_self() as u64 }
}

/// The thread's interaction mode with captures (`ACL_MODEL_RI_CAPTURE_MODE_*`).
pub fn capture_mode() -> u32 {
    CAPTURE_MODE.get()
}

/// Changes the thread's interaction mode; returns the old one.
pub fn exchange_capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.replace(mode)
}

/// The code of the thread's last failure; forgets it if asked to.
pub fn last_error(forget: bool) -> aclError {
    let code = LAST_ERROR.get();
    if forget {
        LAST_ERROR.set(ACL_SUCCESS);
    }
    code
}

/// Text of the thread's last failure. It lives as long as the process, because
/// callers keep the pointer over other calls.
pub fn message() -> *const std::ffi::c_char {
    MESSAGE.get().as_ptr()
}

fn remember(failure: Failure, kind: CallKind) {
    // Kinds, codes and texts are few, so keeping every message is bounded.
    type Key = (CallKind, aclError, &'static str);
    static MESSAGES: LazyLock<Mutex<HashMap<Key, &'static CStr>>> = LazyLock::new(Mutex::default);
    LAST_ERROR.set(failure.code);
    let key = (kind, failure.code, failure.text);
    let message = *MESSAGES.lock().entry(key).or_insert_with(|| {
        let text = format!("{}: {} ({})", kind.name(), failure.text, failure.code);
        Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str())
    });
    MESSAGE.set(message);
}

/// Runs one exported call under the lock: counts it, lets it cost its time,
/// gives planned faults their turn, and turns failures and panics into codes.
pub fn enter(kind: CallKind, bytes: u64, body: impl FnOnce(&mut Sim) -> Result<()>) -> aclError {
    enter_sized(kind, |_| bytes, body)
}

/// [`enter`] for a call that takes away what an address or a handle names: its
/// size is looked up while it is there.
pub fn enter_release<T>(
    kind: CallKind,
    object: *mut T,
    body: impl FnOnce(&mut Sim) -> Result<()>,
) -> aclError {
    enter_sized(kind, |sim| sim.len_of(kind, object as u64), body)
}

/// [`enter`] for a call whose size is known only under the lock.
pub fn enter_sized(
    kind: CallKind,
    bytes: impl FnOnce(&Sim) -> u64,
    body: impl FnOnce(&mut Sim) -> Result<()>,
) -> aclError {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut sim = sim();
        let chosen = DEVICE.get();
        let device = chosen.filter(|&it| it < sim.config.devices).unwrap_or(0);
        sim.caller = Caller {
            thread: thread(),
            device,
            exchange: CAPTURE_MODE.get(),
        };
        let bytes = bytes(&sim);
        let result = sim.begin(kind, device, bytes).and_then(|()| body(&mut sim));
        sim.finish(kind, device, bytes, result.is_ok());
        if chosen.is_none()
            && let Some(taken) = DEVICE.get()
        {
            // The default device is made current where the call needs one.
            sim.device(taken).active = true;
        }
        if !sim.outbox.is_empty() {
            host_calls::post(&mut sim.outbox);
        }
        result
    }));
    match outcome {
        Ok(Ok(())) => ACL_SUCCESS,
        Ok(Err(failure)) => {
            remember(failure, kind);
            failure.code
        }
        Err(_) => {
            let text = "the simulator failed; its message is on the standard error";
            remember(
                Failure {
                    code: ACL_ERROR_INTERNAL_ERROR,
                    text,
                },
                kind,
            );
            ACL_ERROR_INTERNAL_ERROR
        }
    }
}
