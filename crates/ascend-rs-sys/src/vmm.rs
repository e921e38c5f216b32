//! Virtual memory: reservations, physical handles, mappings, sharing.

use core::ffi::{c_uint, c_void};

use crate::error::aclError;
use crate::memory::{aclrtMemAttr, aclrtMemLocation};

pub type aclrtDrvMemHandle = *mut c_void;

pub type aclrtMemAllocationType = c_uint;
pub const ACL_MEM_ALLOCATION_TYPE_PINNED: aclrtMemAllocationType = 0;

pub type aclrtMemHandleType = c_uint;
pub const ACL_MEM_HANDLE_TYPE_NONE: aclrtMemHandleType = 0;
pub const ACL_MEM_HANDLE_TYPE_POSIX: aclrtMemHandleType = 2;

pub type aclrtMemSharedHandleType = c_uint;
pub const ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT: aclrtMemSharedHandleType = 1;
pub const ACL_MEM_SHARE_HANDLE_TYPE_FABRIC: aclrtMemSharedHandleType = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemFabricHandle {
    pub data: [u8; 128],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtPhysicalMemProp {
    pub handleType: aclrtMemHandleType,
    pub allocationType: aclrtMemAllocationType,
    pub memAttr: aclrtMemAttr,
    pub location: aclrtMemLocation,
    pub reserve: u64,
}

pub type aclrtMemGranularityOptions = c_uint;
pub const ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM: aclrtMemGranularityOptions = 0;
pub const ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED: aclrtMemGranularityOptions = 1;

pub type aclrtMemAccessFlags = c_uint;
pub const ACL_RT_MEM_ACCESS_FLAGS_NONE: aclrtMemAccessFlags = 0;
pub const ACL_RT_MEM_ACCESS_FLAGS_READ: aclrtMemAccessFlags = 1;
pub const ACL_RT_MEM_ACCESS_FLAGS_READWRITE: aclrtMemAccessFlags = 3;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtMemAccessDesc {
    pub flags: aclrtMemAccessFlags,
    pub location: aclrtMemLocation,
    pub rsv: [u8; 12],
}

pub const ACL_RT_VMM_EXPORT_FLAG_DEFAULT: u64 = 0;
pub const ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION: u64 = 1;

unsafe extern "C" {
    pub fn aclrtReserveMemAddress(
        virPtr: *mut *mut c_void,
        size: usize,
        alignment: usize,
        expectPtr: *mut c_void,
        flags: u64,
    ) -> aclError;
    pub fn aclrtReleaseMemAddress(virPtr: *mut c_void) -> aclError;
    pub fn aclrtMallocPhysical(
        handle: *mut aclrtDrvMemHandle,
        size: usize,
        prop: *const aclrtPhysicalMemProp,
        flags: u64,
    ) -> aclError;
    pub fn aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError;
    pub fn aclrtMapMem(
        virPtr: *mut c_void,
        size: usize,
        offset: usize,
        handle: aclrtDrvMemHandle,
        flags: u64,
    ) -> aclError;
    pub fn aclrtUnmapMem(virPtr: *mut c_void) -> aclError;
    pub fn aclrtMemSetAccess(
        virPtr: *mut c_void,
        size: usize,
        desc: *mut aclrtMemAccessDesc,
        count: usize,
    ) -> aclError;
    pub fn aclrtMemGetAccess(
        virPtr: *mut c_void,
        location: *mut aclrtMemLocation,
        flag: *mut u64,
    ) -> aclError;
    pub fn aclrtMemGetAllocationGranularity(
        prop: *mut aclrtPhysicalMemProp,
        option: aclrtMemGranularityOptions,
        granularity: *mut usize,
    ) -> aclError;
    pub fn aclrtMemExportToShareableHandle(
        handle: aclrtDrvMemHandle,
        handleType: aclrtMemHandleType,
        flags: u64,
        shareableHandle: *mut u64,
    ) -> aclError;
    pub fn aclrtMemSetPidToShareableHandle(
        shareableHandle: u64,
        pid: *mut i32,
        pidNum: usize,
    ) -> aclError;
    pub fn aclrtMemImportFromShareableHandle(
        shareableHandle: u64,
        deviceId: i32,
        handle: *mut aclrtDrvMemHandle,
    ) -> aclError;
    pub fn aclrtMemExportToShareableHandleV2(
        handle: aclrtDrvMemHandle,
        flags: u64,
        shareType: aclrtMemSharedHandleType,
        shareableHandle: *mut c_void,
    ) -> aclError;
    pub fn aclrtMemImportFromShareableHandleV2(
        shareableHandle: *mut c_void,
        shareType: aclrtMemSharedHandleType,
        flags: u64,
        handle: *mut aclrtDrvMemHandle,
    ) -> aclError;
    pub fn aclrtMemSetPidToShareableHandleV2(
        shareableHandle: *mut c_void,
        shareType: aclrtMemSharedHandleType,
        pid: *mut i32,
        pidNum: usize,
    ) -> aclError;
    pub fn aclrtMemRetainAllocationHandle(
        virPtr: *mut c_void,
        handle: *mut aclrtDrvMemHandle,
    ) -> aclError;
    pub fn aclrtMemGetAllocationPropertiesFromHandle(
        handle: aclrtDrvMemHandle,
        prop: *mut aclrtPhysicalMemProp,
    ) -> aclError;
    pub fn aclrtMemGetAddressRange(
        ptr: *mut c_void,
        pbase: *mut *mut c_void,
        psize: *mut usize,
    ) -> aclError;
}
