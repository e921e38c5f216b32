//! Device and host memory: allocation, copies, usage.

use core::ffi::{c_char, c_uint, c_void};

use crate::base::aclrtStream;
use crate::error::aclError;

pub type aclrtMemcpyKind = c_uint;
pub const ACL_MEMCPY_HOST_TO_HOST: aclrtMemcpyKind = 0;
pub const ACL_MEMCPY_HOST_TO_DEVICE: aclrtMemcpyKind = 1;
pub const ACL_MEMCPY_DEVICE_TO_HOST: aclrtMemcpyKind = 2;
pub const ACL_MEMCPY_DEVICE_TO_DEVICE: aclrtMemcpyKind = 3;
pub const ACL_MEMCPY_DEFAULT: aclrtMemcpyKind = 4;
pub const ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: aclrtMemcpyKind = 5;
pub const ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: aclrtMemcpyKind = 6;
pub const ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: aclrtMemcpyKind = 7;

pub type aclrtMemMallocPolicy = c_uint;
pub const ACL_MEM_MALLOC_HUGE_FIRST: aclrtMemMallocPolicy = 0;
pub const ACL_MEM_MALLOC_HUGE_ONLY: aclrtMemMallocPolicy = 1;
pub const ACL_MEM_MALLOC_NORMAL_ONLY: aclrtMemMallocPolicy = 2;
pub const ACL_MEM_MALLOC_HUGE_FIRST_P2P: aclrtMemMallocPolicy = 3;
pub const ACL_MEM_MALLOC_HUGE_ONLY_P2P: aclrtMemMallocPolicy = 4;
pub const ACL_MEM_MALLOC_NORMAL_ONLY_P2P: aclrtMemMallocPolicy = 5;
pub const ACL_MEM_MALLOC_HUGE1G_ONLY: aclrtMemMallocPolicy = 6;
pub const ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: aclrtMemMallocPolicy = 7;
pub const ACL_MEM_TYPE_LOW_BAND_WIDTH: aclrtMemMallocPolicy = 0x0100;
pub const ACL_MEM_TYPE_HIGH_BAND_WIDTH: aclrtMemMallocPolicy = 0x1000;
pub const ACL_MEM_ACCESS_USER_SPACE_READONLY: aclrtMemMallocPolicy = 0x10_0000;

pub type aclrtMemAttr = c_uint;
pub const ACL_DDR_MEM: aclrtMemAttr = 0;
pub const ACL_HBM_MEM: aclrtMemAttr = 1;
pub const ACL_DDR_MEM_HUGE: aclrtMemAttr = 2;
pub const ACL_DDR_MEM_NORMAL: aclrtMemAttr = 3;
pub const ACL_HBM_MEM_HUGE: aclrtMemAttr = 4;
pub const ACL_HBM_MEM_NORMAL: aclrtMemAttr = 5;
pub const ACL_DDR_MEM_P2P_HUGE: aclrtMemAttr = 6;
pub const ACL_DDR_MEM_P2P_NORMAL: aclrtMemAttr = 7;
pub const ACL_HBM_MEM_P2P_HUGE: aclrtMemAttr = 8;
pub const ACL_HBM_MEM_P2P_NORMAL: aclrtMemAttr = 9;
pub const ACL_HBM_MEM_HUGE1G: aclrtMemAttr = 10;
pub const ACL_HBM_MEM_P2P_HUGE1G: aclrtMemAttr = 11;
pub const ACL_MEM_NORMAL: aclrtMemAttr = 12;
pub const ACL_MEM_HUGE: aclrtMemAttr = 13;
pub const ACL_MEM_HUGE1G: aclrtMemAttr = 14;
pub const ACL_MEM_P2P_NORMAL: aclrtMemAttr = 15;
pub const ACL_MEM_P2P_HUGE: aclrtMemAttr = 16;
pub const ACL_MEM_P2P_HUGE1G: aclrtMemAttr = 17;

pub type aclrtMallocAttrType = c_uint;
pub const ACL_RT_MEM_ATTR_RSV: aclrtMallocAttrType = 0;
pub const ACL_RT_MEM_ATTR_MODULE_ID: aclrtMallocAttrType = 1;
pub const ACL_RT_MEM_ATTR_DEVICE_ID: aclrtMallocAttrType = 2;
pub const ACL_RT_MEM_ATTR_VA_FLAG: aclrtMallocAttrType = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub union aclrtMallocAttrValue {
    pub moduleId: u16,
    pub deviceId: u32,
    pub vaFlag: u32,
    pub rsv: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct aclrtMallocAttribute {
    pub attr: aclrtMallocAttrType,
    pub value: aclrtMallocAttrValue,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct aclrtMallocConfig {
    pub attrs: *mut aclrtMallocAttribute,
    pub numAttrs: usize,
}

pub type aclrtMemLocationType = c_uint;
pub const ACL_MEM_LOCATION_TYPE_HOST: aclrtMemLocationType = 0;
pub const ACL_MEM_LOCATION_TYPE_DEVICE: aclrtMemLocationType = 1;
pub const ACL_MEM_LOCATION_TYPE_UNREGISTERED: aclrtMemLocationType = 2;
pub const ACL_MEM_LOCATION_TYPE_HOST_NUMA: aclrtMemLocationType = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct aclrtMemLocation {
    pub id: u32,
    pub r#type: aclrtMemLocationType,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtPtrAttributes {
    pub location: aclrtMemLocation,
    pub pageSize: u32,
    pub rsv: [u32; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemUsageInfo {
    pub name: [c_char; 32],
    pub curMemSize: u64,
    pub memPeakSize: u64,
    pub reserved: [usize; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemcpyBatchAttr {
    pub dstLoc: aclrtMemLocation,
    pub srcLoc: aclrtMemLocation,
    pub rsv: [u8; 16],
}

pub type aclrtHostRegisterType = c_uint;
pub const ACL_HOST_REGISTER_MAPPED: aclrtHostRegisterType = 0;
pub const ACL_HOST_REG_MAPPED: u32 = 2;
pub const ACL_HOST_REG_PINNED: u32 = 0x1000_0000;

/// Length of an inter-process memory key, the closing NUL included.
pub const ACL_RT_IPC_MEM_KEY_LEN: usize = 65;
pub const ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT: u64 = 0;
pub const ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION: u64 = 1;
pub const ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT: u64 = 0;
pub const ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS: u64 = 1;

unsafe extern "C" {
    pub fn aclrtMalloc(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> aclError;
    pub fn aclrtMallocAlign32(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> aclError;
    pub fn aclrtMallocWithCfg(
        devPtr: *mut *mut c_void,
        size: usize,
        policy: aclrtMemMallocPolicy,
        cfg: *mut aclrtMallocConfig,
    ) -> aclError;
    pub fn aclrtFree(devPtr: *mut c_void) -> aclError;
    pub fn aclrtFreeWithDevSync(devPtr: *mut c_void) -> aclError;
    pub fn aclrtMallocHost(hostPtr: *mut *mut c_void, size: usize) -> aclError;
    pub fn aclrtMallocHostWithCfg(
        ptr: *mut *mut c_void,
        size: u64,
        cfg: *mut aclrtMallocConfig,
    ) -> aclError;
    pub fn aclrtFreeHost(hostPtr: *mut c_void) -> aclError;
    pub fn aclrtFreeHostWithDevSync(hostPtr: *mut c_void) -> aclError;
    pub fn aclrtHostRegister(
        ptr: *mut c_void,
        size: u64,
        r#type: aclrtHostRegisterType,
        devPtr: *mut *mut c_void,
    ) -> aclError;
    pub fn aclrtHostRegisterV2(ptr: *mut c_void, size: u64, flag: u32) -> aclError;
    pub fn aclrtHostUnregister(ptr: *mut c_void) -> aclError;
    pub fn aclrtMemcpy(
        dst: *mut c_void,
        destMax: usize,
        src: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
    ) -> aclError;
    pub fn aclrtMemcpyAsync(
        dst: *mut c_void,
        destMax: usize,
        src: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtMemset(devPtr: *mut c_void, maxCount: usize, value: i32, count: usize) -> aclError;
    pub fn aclrtMemsetAsync(
        devPtr: *mut c_void,
        maxCount: usize,
        value: i32,
        count: usize,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
    pub fn aclrtGetMemUsageInfo(
        deviceId: i32,
        memUsageInfo: *mut aclrtMemUsageInfo,
        inputNum: usize,
        outputNum: *mut usize,
    ) -> aclError;
    pub fn aclrtPointerGetAttributes(
        ptr: *const c_void,
        attributes: *mut aclrtPtrAttributes,
    ) -> aclError;
    pub fn aclrtIpcMemGetExportKey(
        devPtr: *mut c_void,
        size: usize,
        key: *mut c_char,
        len: usize,
        flags: u64,
    ) -> aclError;
    pub fn aclrtIpcMemSetImportPid(key: *const c_char, pid: *mut i32, num: usize) -> aclError;
    pub fn aclrtIpcMemImportByKey(
        devPtr: *mut *mut c_void,
        key: *const c_char,
        flags: u64,
    ) -> aclError;
    pub fn aclrtIpcMemClose(key: *const c_char) -> aclError;
    pub fn aclrtDeviceCanAccessPeer(
        canAccessPeer: *mut i32,
        deviceId: i32,
        peerDeviceId: i32,
    ) -> aclError;
    pub fn aclrtDeviceEnablePeerAccess(peerDeviceId: i32, flags: u32) -> aclError;
    pub fn aclrtDeviceDisablePeerAccess(peerDeviceId: i32) -> aclError;
    pub fn aclrtDeviceGetBareTgid(pid: *mut i32) -> aclError;
}
