//! Capture of streams and replay.

use std::ffi::{c_char, c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_FILE_WRITE, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE,
    ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, ACL_MODEL_RI_CAPTURE_STATUS_NONE, aclError,
};
use serde_json::json;

use super::enter_wait;
use super::{any_stream, put, required, stream_of, text};
use crate::model::capture::{Model, State, Step};
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::process::{self, enter};

/// `aclmdlRICaptureThreadExchangeMode`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureThreadExchangeMode(mode: *mut c_uint) -> aclError {
    enter(CallKind::Other, 0, |_| {
        let mode = required(mode)?;
        // SAFETY: the caller passed a pointer to a mode, which is read and replaced.
        let wanted = unsafe { mode.read() };
        if wanted > 2 {
            return fail(ACL_ERROR_INVALID_PARAM, "unknown capture mode");
        }
        put(mode, process::exchange_capture_mode(wanted));
        Ok(())
    })
}

/// `aclmdlRICaptureBegin`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureBegin(stream: *mut c_void, mode: c_uint) -> aclError {
    enter(CallKind::CaptureBegin, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.capture_begin(stream, mode)
    })
}

/// `aclmdlRICaptureGetInfo`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureGetInfo(
    stream: *mut c_void,
    status: *mut c_uint,
    modelRI: *mut *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let (status, model) = (required(status)?, required(modelRI)?);
        let stream = any_stream(sim, stream)?;
        let (found, handle) = match sim.capture_info(stream)? {
            None => (ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0),
            Some((handle, State::Invalidated)) => (ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, handle),
            Some((handle, _)) => (ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, handle),
        };
        put(status, found);
        put(model, handle as *mut c_void);
        Ok(())
    })
}

/// `aclmdlRICaptureEnd`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureEnd(stream: *mut c_void, modelRI: *mut *mut c_void) -> aclError {
    enter(CallKind::CaptureEnd, 0, |sim| {
        let out = required(modelRI)?;
        let stream = stream_of(sim, stream)?;
        put(out, sim.capture_end(stream)? as *mut c_void);
        Ok(())
    })
}

/// `aclmdlRIExecuteAsync`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIExecuteAsync(modelRI: *mut c_void, stream: *mut c_void) -> aclError {
    enter(CallKind::Replay, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.replay(required(modelRI)? as u64, stream)
    })
}

/// `aclmdlRIExecute`: on the default stream, and waits.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIExecute(modelRI: *mut c_void, timeout: i32) -> aclError {
    let _ = timeout;
    enter_wait(CallKind::Replay, |sim, callers| {
        let stream = stream_of(sim, std::ptr::null_mut())?;
        sim.replay(required(modelRI)? as u64, stream)?;
        *callers = sim.callers_of_stream(stream);
        sim.sync_stream(stream, CallKind::Replay)
    })
}

/// `aclmdlRIDestroy`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDestroy(modelRI: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        sim.destroy_model(required(modelRI)? as u64)
    })
}

/// `aclmdlRIGetId`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIGetId(modelRI: *mut c_void, id: *mut u32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(id)?;
        put(out, sim.model(required(modelRI)? as u64)?.id);
        Ok(())
    })
}

/// `aclmdlRICaptureTaskGrpBegin`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskGrpBegin(stream: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.task_group_begin(stream)
    })
}

/// `aclmdlRICaptureTaskGrpEnd`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskGrpEnd(
    stream: *mut c_void,
    handle: *mut *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(handle)?;
        let stream = stream_of(sim, stream)?;
        put(out, sim.task_group_end(stream)? as *mut c_void);
        Ok(())
    })
}

/// `aclmdlRICaptureTaskUpdateBegin`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskUpdateBegin(
    stream: *mut c_void,
    handle: *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.task_update_begin(stream, required(handle)? as u64)
    })
}

/// `aclmdlRICaptureTaskUpdateEnd`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskUpdateEnd(stream: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        sim.task_update_end(stream)
    })
}

fn describe(model: &Model) -> serde_json::Value {
    let nodes = model.nodes.iter().enumerate().map(|(index, node)| {
        let (name, ranges) = match &node.step {
            Step::Task(work) => (
                work.name,
                work.accesses
                    .iter()
                    .map(|it| json!([it.addr, it.len]))
                    .collect(),
            ),
            Step::WaitValue { addr, .. } => ("aclrtValueWait", vec![json!([addr, 8])]),
            Step::Condition(_) => ("conditional task", Vec::new()),
        };
        json!({ "task": index, "name": name, "after": node.after.to_vec(), "ranges": ranges })
    });
    json!({ "model": model.id, "device": model.device, "tasks": nodes.collect::<Vec<_>>() })
}

/// `aclmdlRIDebugPrint`: to the standard error.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDebugPrint(modelRI: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        eprintln!("{}", describe(sim.model(required(modelRI)? as u64)?));
        Ok(())
    })
}

/// `aclmdlRIDebugJsonPrint`: into a file.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDebugJsonPrint(
    modelRI: *mut c_void,
    path: *const c_char,
    flags: u32,
) -> aclError {
    let _ = flags;
    enter(CallKind::Other, 0, |sim| {
        let description = describe(sim.model(required(modelRI)? as u64)?);
        match std::fs::write(text(path), format!("{description:#}")) {
            Ok(()) => Ok(()),
            Err(_) => fail(ACL_ERROR_RT_FILE_WRITE, "the file cannot be written"),
        }
    })
}
