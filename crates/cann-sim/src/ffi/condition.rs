//! Conditional tasks of captured models.

use std::ffi::{c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_RT_PARAM_INVALID, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, ACL_MODEL_RI_COND_TYPE_IF,
    ACL_MODEL_RI_COND_TYPE_SWITCH, ACL_MODEL_RI_COND_TYPE_WHILE, aclError, aclmdlRICondTaskParams,
};

use super::{put, required, stream_of};
use crate::model::condition::ConditionKind;
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::process::enter;

/// `aclmdlRICondHandleCreate`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICondHandleCreate(
    modelRI: *mut c_void,
    defaultLaunchValue: u32,
    flag: c_uint,
    handle: *mut *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let (model, out) = (required(modelRI)? as u64, required(handle)?);
        if flag > ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "condition: unknown flag");
        }
        let default = (flag == ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT)
            .then_some(u64::from(defaultLaunchValue));
        put(out, sim.add_condition(model, default)? as *mut c_void);
        Ok(())
    })
}

/// `aclmdlRICondHandleGetCondPtr`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICondHandleGetCondPtr(
    handle: *mut c_void,
    ptr: *mut *mut u64,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let (handle, out) = (required(handle)? as u64, required(ptr)?);
        put(out, sim.condition(handle)?.addr as *mut u64);
        Ok(())
    })
}

/// `aclmdlRIAddCondTask`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIAddCondTask(
    params: aclmdlRICondTaskParams,
    stream: *mut c_void,
    flags: u32,
) -> aclError {
    enter(CallKind::Launch, 0, |sim| {
        let stream = stream_of(sim, required(stream)?)?;
        if flags != 0 {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "conditional task: flags must be 0",
            );
        }
        let kind = match params.r#type {
            ACL_MODEL_RI_COND_TYPE_IF => ConditionKind::If,
            ACL_MODEL_RI_COND_TYPE_WHILE => ConditionKind::While,
            ACL_MODEL_RI_COND_TYPE_SWITCH => ConditionKind::Switch,
            _ => {
                return fail(ACL_ERROR_RT_PARAM_INVALID, "conditional task: unknown type");
            }
        };
        if params.handle.is_null() || params.modelRIArray.is_null() {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "conditional task: a required pointer is null",
            );
        }
        let (handle, size) = (params.handle as u64, params.size as usize);
        let bodies = sim.add_conditional_task(stream, handle, kind, size)?;
        for (index, body) in bodies.into_iter().enumerate() {
            // SAFETY: the caller passed an array of `size` models to be written.
            let slot = unsafe { params.modelRIArray.add(index) };
            put(slot, body as *mut c_void);
        }
        Ok(())
    })
}

/// `aclmdlRICaptureToModelRIBegin`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureToModelRIBegin(
    stream: *mut c_void,
    modelRI: *mut c_void,
    mode: c_uint,
) -> aclError {
    enter(CallKind::CaptureBegin, 0, |sim| {
        let stream = stream_of(sim, required(stream)?)?;
        sim.capture_begin_body(stream, required(modelRI)? as u64, mode)
    })
}
