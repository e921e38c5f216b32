//! Devices and contexts.

use core::ffi::{c_uint, c_void};

use crate::base::aclrtContext;
use crate::error::aclError;

pub type aclrtFloatOverflowMode = c_uint;
pub type aclrtDevResLimitType = c_uint;
pub const ACL_RT_DEV_RES_CUBE_CORE: aclrtDevResLimitType = 0;
pub const ACL_RT_DEV_RES_VECTOR_CORE: aclrtDevResLimitType = 1;

pub type aclrtDevAttr = c_uint;
pub const ACL_DEV_ATTR_AICPU_CORE_NUM: aclrtDevAttr = 1;
pub const ACL_DEV_ATTR_AICORE_CORE_NUM: aclrtDevAttr = 101;
pub const ACL_DEV_ATTR_CUBE_CORE_NUM: aclrtDevAttr = 102;
pub const ACL_DEV_ATTR_VECTOR_CORE_NUM: aclrtDevAttr = 201;
pub const ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: aclrtDevAttr = 301;
pub const ACL_DEV_ATTR_L2_CACHE_SIZE: aclrtDevAttr = 302;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtUtilizationInfo {
    pub cubeUtilization: i32,
    pub vectorUtilization: i32,
    pub aicpuUtilization: i32,
    pub memoryUtilization: i32,
    pub utilizationExtend: *mut c_void,
}

unsafe extern "C" {
    pub fn aclrtSetDevice(deviceId: i32) -> aclError;
    pub fn aclrtGetDevice(deviceId: *mut i32) -> aclError;
    pub fn aclrtResetDevice(deviceId: i32) -> aclError;
    pub fn aclrtResetDeviceForce(deviceId: i32) -> aclError;
    pub fn aclrtGetDeviceCount(count: *mut u32) -> aclError;
    pub fn aclrtSynchronizeDevice() -> aclError;
    pub fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError;
    pub fn aclrtDeviceTaskAbort(deviceId: i32, timeout: u32) -> aclError;
    pub fn aclrtCreateContext(context: *mut aclrtContext, deviceId: i32) -> aclError;
    pub fn aclrtDestroyContext(context: aclrtContext) -> aclError;
    pub fn aclrtSetCurrentContext(context: aclrtContext) -> aclError;
    pub fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError;
    pub fn aclrtGetPrimaryCtxState(deviceId: i32, flags: *mut u32, active: *mut i32) -> aclError;
    pub fn aclrtGetDeviceInfo(deviceId: u32, attr: aclrtDevAttr, value: *mut i64) -> aclError;
}
