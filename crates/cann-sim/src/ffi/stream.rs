//! Streams, host functions on them, and value waits.

use std::ffi::{c_uint, c_void};
use std::time::Duration;

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_REPORT_TIMEOUT,
    ACL_ERROR_RT_STREAM_NO_CB_REG, ACL_STREAM_STATUS_COMPLETE, ACL_STREAM_STATUS_NOT_READY,
    aclError, aclrtCallback,
};

use super::{accept, any_stream, enter_wait, put, required, stream_of};
use crate::host_calls;
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::model::work::{Action, HostCall, Work};
use crate::process::{self, enter};

/// `aclrtCreateStream`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStream(stream: *mut *mut c_void) -> aclError {
    aclrtCreateStreamWithConfig(stream, 0, 0)
}

/// `aclrtCreateStreamWithConfig`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStreamWithConfig(
    stream: *mut *mut c_void,
    priority: u32,
    flag: u32,
) -> aclError {
    let _ = (priority, flag);
    enter(CallKind::CreateStream, 0, |sim| {
        let out = required(stream)?;
        let device = process::device()?;
        sim.healthy(device)?;
        put(out, sim.add_stream(device) as *mut c_void);
        Ok(())
    })
}

/// `aclrtCreateStreamV2`: the configuration changes nothing here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStreamV2(stream: *mut *mut c_void, handle: *const c_void) -> aclError {
    let _ = handle;
    aclrtCreateStreamWithConfig(stream, 0, 0)
}

/// `aclrtDestroyStream`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyStream(stream: *mut c_void) -> aclError {
    enter_wait(CallKind::DestroyStream, |sim, callers| {
        let stream = stream_of(sim, required(stream)?)?;
        *callers = sim.callers_of_stream(stream);
        sim.destroy_stream(stream, false)
    })
}

/// `aclrtDestroyStreamForce`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyStreamForce(stream: *mut c_void) -> aclError {
    enter(CallKind::DestroyStream, 0, |sim| {
        let stream = stream_of(sim, required(stream)?)?;
        sim.destroy_stream(stream, true)
    })
}

/// `aclrtStreamQuery`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamQuery(stream: *mut c_void, status: *mut c_uint) -> aclError {
    enter(CallKind::QueryStream, 0, |sim| {
        let out = required(status)?;
        process::device()?;
        let stream = any_stream(sim, stream)?;
        sim.forbid_in_capture(stream)?;
        let device = sim.stream(stream)?.device;
        sim.healthy(device)?;
        let idle = sim.stream(stream)?.idle(sim.clock.now());
        put(
            out,
            if idle {
                ACL_STREAM_STATUS_COMPLETE
            } else {
                ACL_STREAM_STATUS_NOT_READY
            },
        );
        Ok(())
    })
}

/// `aclrtStreamGetId`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamGetId(stream: *mut c_void, id: *mut i32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(id)?;
        let stream = any_stream(sim, stream)?;
        put(out, sim.stream(stream)?.id);
        Ok(())
    })
}

/// `aclrtGetStreamId`, the older name.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamId(stream: *mut c_void, id: *mut i32) -> aclError {
    aclrtStreamGetId(stream, id)
}

/// `aclrtSynchronizeStream`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeStream(stream: *mut c_void) -> aclError {
    enter_wait(CallKind::SyncStream, |sim, callers| {
        process::device()?;
        let stream = any_stream(sim, stream)?;
        *callers = sim.callers_of_stream(stream);
        sim.sync_stream(stream, CallKind::SyncStream)
    })
}

/// `aclrtSynchronizeStreamWithTimeout`: virtual waits never time out.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeStreamWithTimeout(stream: *mut c_void, timeout: i32) -> aclError {
    let _ = timeout;
    aclrtSynchronizeStream(stream)
}

/// `aclrtStreamWaitEvent`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) -> aclError {
    enter(CallKind::WaitEvent, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.wait_event(stream, required(event)? as u64)
    })
}

/// `aclrtStreamWaitEventWithTimeout`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamWaitEventWithTimeout(
    stream: *mut c_void,
    event: *mut c_void,
    timeout: i32,
) -> aclError {
    let _ = timeout;
    aclrtStreamWaitEvent(stream, event)
}

/// `aclrtStreamAbort`: drops what has not completed.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamAbort(stream: *mut c_void) -> aclError {
    enter(CallKind::SyncStream, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.abort_stream(stream)
    })
}

/// `aclrtSetStreamOverflowSwitch`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetStreamOverflowSwitch(stream: *mut c_void, flag: u32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.stream_mut(stream)?.overflow = flag;
        Ok(())
    })
}

/// `aclrtGetStreamOverflowSwitch`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetStreamOverflowSwitch(stream: *mut c_void, flag: *mut u32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(flag)?;
        let stream = stream_of(sim, stream)?;
        put(out, sim.stream(stream)?.overflow);
        Ok(())
    })
}

/// `aclrtValueWait`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtValueWait(
    devAddr: *mut c_void,
    value: u64,
    flag: u32,
    stream: *mut c_void,
) -> aclError {
    enter(CallKind::Value, 0, |sim| {
        let addr = required(devAddr)? as u64;
        let stream = stream_of(sim, stream)?;
        sim.wait_value(stream, addr, value, flag)
    })
}

/// `aclrtValueWrite`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtValueWrite(
    devAddr: *mut c_void,
    value: u64,
    flag: u32,
    stream: *mut c_void,
) -> aclError {
    enter(CallKind::Value, 0, |sim| {
        let addr = required(devAddr)? as u64;
        if flag != 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "flag must be 0");
        }
        let stream = stream_of(sim, stream)?;
        sim.write_value(stream, addr, value)
    })
}

fn host_call(
    stream: *mut c_void,
    function: aclrtCallback,
    argument: *mut c_void,
    on_report_thread: bool,
) -> aclError {
    enter(CallKind::HostCallback, 0, |sim| {
        let Some(function) = function else {
            return fail(ACL_ERROR_INVALID_PARAM, "no function");
        };
        let stream = stream_of(sim, stream)?;
        let thread = if on_report_thread {
            match sim.stream(stream)?.report_thread {
                Some(thread) => Some(thread),
                None => return fail(ACL_ERROR_RT_STREAM_NO_CB_REG, "no thread for callbacks"),
            }
        } else {
            None
        };
        let call = HostCall {
            function: function as usize,
            argument: argument as usize,
            thread,
            stream,
        };
        let work = Work {
            action: Some(Action::Host(call)),
            name: "host function",
            ..Work::default()
        };
        host_calls::start();
        sim.submit(stream, work)
    })
}

/// `aclrtLaunchCallback`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtLaunchCallback(
    callback: aclrtCallback,
    userData: *mut c_void,
    blockType: c_uint,
    stream: *mut c_void,
) -> aclError {
    let _ = blockType;
    host_call(stream, callback, userData, true)
}

/// `aclrtLaunchHostFunc`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtLaunchHostFunc(
    stream: *mut c_void,
    callback: aclrtCallback,
    args: *mut c_void,
) -> aclError {
    host_call(stream, callback, args, false)
}

/// `aclrtSubscribeReport`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSubscribeReport(threadId: u64, stream: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let stream = any_stream(sim, stream)?;
        sim.stream_mut(stream)?.report_thread = Some(threadId);
        Ok(())
    })
}

/// `aclrtUnSubscribeReport`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUnSubscribeReport(threadId: u64, stream: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let stream = any_stream(sim, stream)?;
        let stream = sim.stream_mut(stream)?;
        if stream.report_thread != Some(threadId) {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "the thread is not the stream's");
        }
        stream.report_thread = None;
        Ok(())
    })
}

/// `aclrtProcessReport`: waits in real time, at most `timeout` milliseconds
/// (-1: for ever).
#[unsafe(no_mangle)]
pub extern "C" fn aclrtProcessReport(timeout: i32) -> aclError {
    let thread = process::thread();
    let timeout = u64::try_from(timeout).unwrap_or(u64::from(u32::MAX));
    if host_calls::process(thread, Duration::from_millis(timeout)) {
        0
    } else {
        ACL_ERROR_RT_REPORT_TIMEOUT
    }
}

accept! {
    aclrtSetStreamFailureMode(stream: *mut c_void, mode: u64);
    aclrtSetStreamAttribute(stream: *mut c_void, kind: c_uint, value: *mut c_void);
    aclrtActiveStream(active: *mut c_void, stream: *mut c_void);
}
