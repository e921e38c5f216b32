//! Opaque handles, element types and tensor formats.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::error::aclError;

pub type aclrtStream = *mut c_void;
pub type aclrtEvent = *mut c_void;
pub type aclrtContext = *mut c_void;
pub type aclrtNotify = *mut c_void;
pub type aclrtTaskGrp = *mut c_void;

/// Called by a runtime thread with the pointer it was registered with.
pub type aclrtCallback = Option<unsafe extern "C" fn(*mut c_void)>;
pub type aclrtHostFunc = Option<unsafe extern "C" fn(*mut c_void)>;

pub type aclDataType = c_int;
pub const ACL_DT_UNDEFINED: aclDataType = -1;
pub const ACL_FLOAT: aclDataType = 0;
pub const ACL_FLOAT16: aclDataType = 1;
pub const ACL_INT8: aclDataType = 2;
pub const ACL_INT32: aclDataType = 3;
pub const ACL_UINT8: aclDataType = 4;
pub const ACL_INT16: aclDataType = 6;
pub const ACL_UINT16: aclDataType = 7;
pub const ACL_UINT32: aclDataType = 8;
pub const ACL_INT64: aclDataType = 9;
pub const ACL_UINT64: aclDataType = 10;
pub const ACL_DOUBLE: aclDataType = 11;
pub const ACL_BOOL: aclDataType = 12;
pub const ACL_STRING: aclDataType = 13;
pub const ACL_COMPLEX64: aclDataType = 16;
pub const ACL_COMPLEX128: aclDataType = 17;
pub const ACL_BF16: aclDataType = 27;
pub const ACL_INT4: aclDataType = 29;
pub const ACL_UINT1: aclDataType = 30;
pub const ACL_COMPLEX32: aclDataType = 33;
pub const ACL_HIFLOAT8: aclDataType = 34;
pub const ACL_FLOAT8_E5M2: aclDataType = 35;
pub const ACL_FLOAT8_E4M3FN: aclDataType = 36;
pub const ACL_FLOAT8_E8M0: aclDataType = 37;

pub type aclFormat = c_int;
pub const ACL_FORMAT_UNDEFINED: aclFormat = -1;
pub const ACL_FORMAT_NCHW: aclFormat = 0;
pub const ACL_FORMAT_ND: aclFormat = 2;
pub const ACL_FORMAT_FRACTAL_NZ: aclFormat = 29;

pub type aclSysParamOpt = c_uint;
pub const ACL_OPT_DETERMINISTIC: aclSysParamOpt = 0;
pub const ACL_OPT_ENABLE_DEBUG_KERNEL: aclSysParamOpt = 1;
pub const ACL_OPT_STRONG_CONSISTENCY: aclSysParamOpt = 2;

pub type aclCannAttr = c_int;
pub const ACL_CANN_ATTR_INF_NAN: aclCannAttr = 0;
pub const ACL_CANN_ATTR_BF16: aclCannAttr = 1;
pub const ACL_CANN_ATTR_JIT_COMPILE: aclCannAttr = 2;

pub type aclDeviceInfo = c_int;
pub const ACL_DEVICE_INFO_AI_CORE_NUM: aclDeviceInfo = 0;
pub const ACL_DEVICE_INFO_VECTOR_CORE_NUM: aclDeviceInfo = 1;
pub const ACL_DEVICE_INFO_L2_SIZE: aclDeviceInfo = 2;

pub type aclrtLastErrLevel = c_uint;
pub const ACL_RT_THREAD_LEVEL: aclrtLastErrLevel = 0;

unsafe extern "C" {
    pub fn aclInit(configPath: *const c_char) -> aclError;
    pub fn aclFinalize() -> aclError;
    pub fn aclGetRecentErrMsg() -> *const c_char;
    pub fn aclrtGetSocName() -> *const c_char;
    pub fn aclrtGetLastError(level: aclrtLastErrLevel) -> aclError;
    pub fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> aclError;
}
