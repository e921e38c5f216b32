//! Uncorrectable memory errors (UCE) and repair.

use core::ffi::{c_uint, c_void};

use crate::error::aclError;

/// Words kept for later use at the end of an `aclrtMemUceInfo`.
pub const UCE_INFO_RESERVED_SIZE: usize = 14;
/// Most ranges in an `aclrtMemUceInfoArray`.
pub const ACL_RT_MEM_UCE_INFO_MAX_NUM: usize = 20;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemUceInfo {
    pub addr: *mut c_void,
    pub len: usize,
    pub reserved: [usize; UCE_INFO_RESERVED_SIZE],
}

pub type aclrtErrorType = c_uint;
pub const ACL_RT_NO_ERROR: aclrtErrorType = 0;
pub const ACL_RT_ERROR_MEMORY: aclrtErrorType = 1;
pub const ACL_RT_ERROR_L2: aclrtErrorType = 2;
pub const ACL_RT_ERROR_AICORE: aclrtErrorType = 3;
pub const ACL_RT_ERROR_LINK: aclrtErrorType = 4;
pub const ACL_RT_ERROR_L3_PORT: aclrtErrorType = 5;
pub const ACL_RT_ERROR_OTHERS: aclrtErrorType = 0xFFFF;

pub type aclrtAicoreErrorType = c_uint;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemUceInfoArray {
    pub arraySize: usize,
    pub memUceInfoArray: [aclrtMemUceInfo; ACL_RT_MEM_UCE_INFO_MAX_NUM],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union aclrtErrorInfoDetail {
    pub uceInfo: aclrtMemUceInfoArray,
    pub aicoreErrType: aclrtAicoreErrorType,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct aclrtErrorInfo {
    pub tryRepair: u8,
    pub hasDetail: u8,
    pub reserved: [u8; 2],
    pub errorType: aclrtErrorType,
    pub detail: aclrtErrorInfoDetail,
}

unsafe extern "C" {
    pub fn aclrtGetMemUceInfo(
        deviceId: i32,
        memUceInfoArray: *mut aclrtMemUceInfo,
        arraySize: usize,
        retSize: *mut usize,
    ) -> aclError;
    pub fn aclrtMemUceRepair(
        deviceId: i32,
        memUceInfoArray: *mut aclrtMemUceInfo,
        arraySize: usize,
    ) -> aclError;
    pub fn aclrtGetErrorVerbose(deviceId: i32, errorInfo: *mut aclrtErrorInfo) -> aclError;
    pub fn aclrtRepairError(deviceId: i32, errorInfo: *const aclrtErrorInfo) -> aclError;
}
