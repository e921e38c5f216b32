//! Events.

use std::ffi::{c_char, c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_IPC_ERROR, ACL_ERROR_RT_PARAM_INVALID,
    ACL_EVENT_RECORDED_STATUS_COMPLETE, ACL_EVENT_RECORDED_STATUS_NOT_READY,
    ACL_EVENT_WAIT_STATUS_COMPLETE, ACL_EVENT_WAIT_STATUS_NOT_READY, ACL_IPC_EVENT_HANDLE_SIZE,
    aclError, aclrtIpcEventHandle,
};

use serde::{Deserialize, Serialize};

use super::{enter_wait, put, required, stream_of};
use crate::ipc;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::sim::Sim;
use crate::process::{self, enter};

fn create(event: *mut *mut c_void, flag: u32, extended: bool) -> aclError {
    enter(CallKind::CreateEvent, 0, |sim| {
        let out = required(event)?;
        if flag & !0x7F != 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "unknown event flags");
        }
        put(
            out,
            sim.add_event(process::device()?, flag, extended)? as *mut c_void,
        );
        Ok(())
    })
}

/// `aclrtCreateEvent`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEvent(event: *mut *mut c_void) -> aclError {
    create(event, 0x8, false)
}

/// `aclrtCreateEventWithFlag`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEventWithFlag(event: *mut *mut c_void, flag: u32) -> aclError {
    create(event, flag, false)
}

/// `aclrtCreateEventExWithFlag`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEventExWithFlag(event: *mut *mut c_void, flag: u32) -> aclError {
    create(event, flag, true)
}

/// `aclrtDestroyEvent`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyEvent(event: *mut c_void) -> aclError {
    enter(CallKind::DestroyEvent, 0, |sim| {
        sim.destroy_event(required(event)? as u64)
    })
}

/// `aclrtRecordEvent`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRecordEvent(event: *mut c_void, stream: *mut c_void) -> aclError {
    enter(CallKind::RecordEvent, 0, |sim| {
        let event = required(event)? as u64;
        let stream = stream_of(sim, stream)?;
        sim.record(event, stream)?;
        if sim.event(event)?.shared() && sim.stream(stream)?.capture.is_none() {
            sim.sync_event(event, CallKind::RecordEvent)?;
        }
        Ok(())
    })
}

/// `aclrtResetEvent`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetEvent(event: *mut c_void, stream: *mut c_void) -> aclError {
    enter(CallKind::ResetEvent, 0, |sim| {
        let event = required(event)? as u64;
        let stream = stream_of(sim, stream)?;
        sim.reset_event(event, stream)
    })
}

/// Writes the first of two values if `asked` is true of an event, else the second.
fn query(
    event: *mut c_void,
    status: *mut c_uint,
    (complete, pending): (u32, u32),
    asked: fn(&mut Sim, u64) -> Result<bool>,
) -> aclError {
    enter(CallKind::QueryEvent, 0, |sim| {
        let out = required(status)?;
        let event = required(event)? as u64;
        sim.forbid_event_call(event)?;
        let done = asked(sim, event)?;
        put(out, if done { complete } else { pending });
        Ok(())
    })
}

/// `aclrtQueryEventStatus`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEventStatus(event: *mut c_void, status: *mut c_uint) -> aclError {
    let values = (
        ACL_EVENT_RECORDED_STATUS_COMPLETE,
        ACL_EVENT_RECORDED_STATUS_NOT_READY,
    );
    query(event, status, values, |sim, event| {
        sim.event_complete(event)
    })
}

/// `aclrtQueryEvent`, the older query: 0 complete, 1 not ready.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEvent(event: *mut c_void, status: *mut c_uint) -> aclError {
    query(event, status, (0, 1), |sim, event| {
        sim.event_complete(event)
    })
}

/// `aclrtQueryEventWaitStatus`: whether streams have got past their waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEventWaitStatus(event: *mut c_void, status: *mut c_uint) -> aclError {
    let values = (
        ACL_EVENT_WAIT_STATUS_COMPLETE,
        ACL_EVENT_WAIT_STATUS_NOT_READY,
    );
    query(event, status, values, Sim::event_waited)
}

/// `aclrtSynchronizeEvent`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeEvent(event: *mut c_void) -> aclError {
    enter_wait(CallKind::SyncEvent, |sim, callers| {
        let event = required(event)? as u64;
        sim.forbid_event_call(event)?;
        *callers = sim.callers_of_event(event);
        sim.sync_event(event, CallKind::SyncEvent)
    })
}

/// `aclrtSynchronizeEventWithTimeout`: virtual waits never time out.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeEventWithTimeout(event: *mut c_void, timeout: i32) -> aclError {
    let _ = timeout;
    aclrtSynchronizeEvent(event)
}

/// `aclrtEventElapsedTime`, in milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtEventElapsedTime(
    ms: *mut f32,
    startEvent: *mut c_void,
    endEvent: *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(ms)?;
        let start = sim.event_time(required(startEvent)? as u64)?;
        let end = sim.event_time(required(endEvent)? as u64)?;
        put(out, ((end as f64 - start as f64) / 1e6) as f32);
        Ok(())
    })
}

/// `aclrtEventGetTimestamp`, in microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtEventGetTimestamp(event: *mut c_void, timestamp: *mut u64) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(timestamp)?;
        put(out, sim.event_time(required(event)? as u64)? / 1000);
        Ok(())
    })
}

/// What another process needs to know of an event.
#[derive(Serialize, Deserialize)]
struct SharedEvent {
    pid: u32,
    flags: u32,
}

/// `aclrtIpcGetEventHandle`. The clocks of two processes cannot be compared;
/// therefore recording such an event waits until it has completed, and the
/// other process always finds it complete.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcGetEventHandle(
    event: *mut c_void,
    handle: *mut aclrtIpcEventHandle,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(handle)?;
        let event = sim.event(required(event)? as u64)?;
        if !event.shared() {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "the event was not made with ACL_EVENT_IPC",
            );
        }
        let name = format!("e{:016x}", ipc::fresh_number());
        let shared = SharedEvent {
            pid: std::process::id(),
            flags: event.flags,
        };
        if ipc::publish(&name, &shared).is_err() {
            return fail(ACL_ERROR_RT_IPC_ERROR, "the event cannot be published");
        }
        let mut filled = aclrtIpcEventHandle {
            reserved: [0; ACL_IPC_EVENT_HANDLE_SIZE],
        };
        for (slot, byte) in filled.reserved.iter_mut().zip(name.bytes()) {
            *slot = byte as c_char;
        }
        put(out, filled);
        Ok(())
    })
}

/// `aclrtIpcOpenEventHandle`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcOpenEventHandle(
    handle: aclrtIpcEventHandle,
    event: *mut *mut c_void,
) -> aclError {
    enter(CallKind::CreateEvent, 0, |sim| {
        let out = required(event)?;
        let bytes = handle.reserved.iter().map(|&byte| byte as u8);
        let name: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        let name = String::from_utf8_lossy(&name);
        let Ok(shared) = ipc::look_up::<SharedEvent>(&name) else {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "no event is shared under this handle",
            );
        };
        if shared.pid == std::process::id() {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "the event is of this process");
        }
        put(
            out,
            sim.add_event(process::device()?, shared.flags, true)? as *mut c_void,
        );
        Ok(())
    })
}
