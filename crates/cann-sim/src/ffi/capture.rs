//! Capture of streams and replay.

use std::ffi::{c_uint, c_void};

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, aclError};

use super::{put, required};
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

/// `aclmdlRICaptureGetInfo`
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureGetInfo(
    stream: *mut c_void,
    status: *mut c_uint,
    modelRI: *mut *mut c_void,
) -> aclError {
    let _ = stream;
    enter(CallKind::Other, 0, |_| {
        put(required(status)?, 0);
        put(required(modelRI)?, std::ptr::null_mut());
        Ok(())
    })
}
