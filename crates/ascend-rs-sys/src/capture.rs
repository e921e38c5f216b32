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
}
