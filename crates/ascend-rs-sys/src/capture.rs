//! Capture of streams into a model ("runtime instance") and its replay.

use core::ffi::{c_uint, c_void};

use crate::base::{aclrtStream, aclrtTaskGrp};
use crate::error::aclError;

pub type aclmdlRI = *mut c_void;

pub type aclmdlRICaptureMode = c_uint;
pub const ACL_MODEL_RI_CAPTURE_MODE_GLOBAL: aclmdlRICaptureMode = 0;
pub const ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL: aclmdlRICaptureMode = 1;
pub const ACL_MODEL_RI_CAPTURE_MODE_RELAXED: aclmdlRICaptureMode = 2;

pub type aclmdlRICaptureStatus = c_uint;
pub const ACL_MODEL_RI_CAPTURE_STATUS_NONE: aclmdlRICaptureStatus = 0;
pub const ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE: aclmdlRICaptureStatus = 1;
pub const ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED: aclmdlRICaptureStatus = 2;

pub type aclmdlRICondHandle = *mut c_void;

pub type aclmdlRICondHandleFlag = c_uint;
pub const ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT: aclmdlRICondHandleFlag = 1;

pub type aclmdlRICondTaskType = c_uint;
pub const ACL_MODEL_RI_COND_TYPE_IF: aclmdlRICondTaskType = 0;
pub const ACL_MODEL_RI_COND_TYPE_WHILE: aclmdlRICondTaskType = 1;
pub const ACL_MODEL_RI_COND_TYPE_SWITCH: aclmdlRICondTaskType = 2;

/// A task that runs one of several models, as a value in device memory says.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct aclmdlRICondTaskParams {
    pub handle: aclmdlRICondHandle,
    pub r#type: aclmdlRICondTaskType,
    /// Number of models.
    pub size: u32,
    /// The models; written by the call.
    pub modelRIArray: *mut aclmdlRI,
}

unsafe extern "C" {
    pub fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> aclError;
    pub fn aclmdlRICaptureGetInfo(
        stream: aclrtStream,
        status: *mut aclmdlRICaptureStatus,
        modelRI: *mut aclmdlRI,
    ) -> aclError;
    pub fn aclmdlRICaptureEnd(stream: aclrtStream, modelRI: *mut aclmdlRI) -> aclError;
    pub fn aclmdlRICaptureThreadExchangeMode(mode: *mut aclmdlRICaptureMode) -> aclError;
    pub fn aclmdlRIExecuteAsync(modelRI: aclmdlRI, stream: aclrtStream) -> aclError;
    pub fn aclmdlRIExecute(modelRI: aclmdlRI, timeout: i32) -> aclError;
    pub fn aclmdlRIDestroy(modelRI: aclmdlRI) -> aclError;
    pub fn aclmdlRIGetId(modelRI: aclmdlRI, modelRIId: *mut u32) -> aclError;
    pub fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> aclError;
    pub fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, handle: *mut aclrtTaskGrp) -> aclError;
    pub fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, handle: aclrtTaskGrp) -> aclError;
    pub fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> aclError;
    pub fn aclmdlRICondHandleCreate(
        modelRI: aclmdlRI,
        defaultLaunchValue: u32,
        flag: aclmdlRICondHandleFlag,
        handle: *mut aclmdlRICondHandle,
    ) -> aclError;
    pub fn aclmdlRICondHandleGetCondPtr(handle: aclmdlRICondHandle, ptr: *mut *mut u64)
    -> aclError;
    pub fn aclmdlRIAddCondTask(
        params: aclmdlRICondTaskParams,
        stream: aclrtStream,
        flags: u32,
    ) -> aclError;
    pub fn aclmdlRICaptureToModelRIBegin(
        stream: aclrtStream,
        modelRI: aclmdlRI,
        mode: aclmdlRICaptureMode,
    ) -> aclError;
}
