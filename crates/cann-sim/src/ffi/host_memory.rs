//! Host memory: allocated through the runtime, or registered with it.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_BAD_ALLOC, ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_PARAM_INVALID, aclError, aclrtMallocConfig,
};

use super::{put, required};
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::model::sim::host::Pinned;
use crate::process::{enter, enter_release};

/// Alignment of host memory: a page.
const HOST_ALIGN: usize = 4096;

/// `aclrtMallocHost`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocHost(hostPtr: *mut *mut c_void, size: usize) -> aclError {
    enter(CallKind::MallocHost, size as u64, |sim| {
        let out = required(hostPtr)?;
        if size == 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "allocation of no bytes");
        }
        let Ok(layout) = Layout::from_size_align(size, HOST_ALIGN) else {
            return fail(ACL_ERROR_BAD_ALLOC, "size is too large");
        };
        // SAFETY: the size is not zero.
        let pointer = unsafe { alloc(layout) };
        if pointer.is_null() {
            return fail(ACL_ERROR_BAD_ALLOC, "the host has no memory for this");
        }
        sim.add_host(pointer as u64, size as u64);
        put(out, pointer.cast());
        Ok(())
    })
}

/// `aclrtMallocHostWithCfg`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocHostWithCfg(
    ptr: *mut *mut c_void,
    size: u64,
    cfg: *mut aclrtMallocConfig,
) -> aclError {
    let _ = cfg;
    aclrtMallocHost(ptr, size as usize)
}

fn free_host(pointer: *mut c_void, sync: bool) -> aclError {
    enter_release(CallKind::FreeHost, pointer, |sim| {
        let addr = required(pointer)? as u64;
        let Some(&Pinned { len, .. }) = sim.host.get(&addr) else {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "not memory of aclrtMallocHost");
        };
        if sync {
            for device in 0..sim.config.devices {
                sim.sync_device(device, CallKind::FreeHost)?;
            }
        }
        sim.free_host(addr, len);
        if let Ok(layout) = Layout::from_size_align(len as usize, HOST_ALIGN) {
            // SAFETY: aclrtMallocHost allocated it with this layout, and it is
            // out of the table, so it cannot be freed again.
            unsafe { dealloc(pointer.cast(), layout) };
        }
        Ok(())
    })
}

/// `aclrtFreeHost`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeHost(hostPtr: *mut c_void) -> aclError {
    free_host(hostPtr, false)
}

/// `aclrtFreeHostWithDevSync`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeHostWithDevSync(hostPtr: *mut c_void) -> aclError {
    free_host(hostPtr, true)
}

/// `aclrtHostRegister`: the device sees the memory at its host address.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostRegister(
    ptr: *mut c_void,
    size: u64,
    kind: c_uint,
    devPtr: *mut *mut c_void,
) -> aclError {
    let _ = kind;
    enter(CallKind::HostRegister, size, |sim| {
        let out = required(devPtr)?;
        sim.register_host(required(ptr)? as u64, size)?;
        put(out, ptr);
        Ok(())
    })
}

/// `aclrtHostRegisterV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostRegisterV2(ptr: *mut c_void, size: u64, flag: u32) -> aclError {
    let _ = flag;
    enter(CallKind::HostRegister, size, |sim| {
        sim.register_host(required(ptr)? as u64, size)
    })
}

/// `aclrtHostUnregister`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostUnregister(ptr: *mut c_void) -> aclError {
    enter_release(CallKind::HostUnregister, ptr, |sim| {
        sim.unregister_host(required(ptr)? as u64)
    })
}

/// `aclrtHostGetDevicePointer`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostGetDevicePointer(
    host: *mut c_void,
    device: *mut *mut c_void,
    flag: u32,
) -> aclError {
    let _ = flag;
    enter(CallKind::Other, 0, |sim| {
        let out = required(device)?;
        if sim.host_range(host as u64).is_none() {
            return fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "not registered");
        }
        put(out, host);
        Ok(())
    })
}
