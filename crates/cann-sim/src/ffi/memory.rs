//! Plain device memory: allocation, release, what is known of it.

use std::ffi::{c_char, c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_LOCATION_TYPE_HOST,
    ACL_MEM_LOCATION_TYPE_UNREGISTERED, aclError, aclrtMallocConfig, aclrtMemLocation,
    aclrtMemUsageInfo, aclrtPtrAttributes,
};

use super::{accept, put, required};
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::memory::PADDING;
use crate::model::sim::memory::Policy;
use crate::model::vmm::Place;
use crate::process::{self, enter, enter_release};

fn policy(bits: c_uint) -> Result<Policy> {
    // Band width and read-only bits may be added to a policy.
    match bits & !0x10_1100 {
        0 | 3 => Ok(Policy::HugeFirst),
        1 | 4 => Ok(Policy::HugeOnly),
        2 | 5 => Ok(Policy::NormalOnly),
        6 | 7 => Ok(Policy::GiantOnly),
        _ => fail(ACL_ERROR_INVALID_PARAM, "unknown allocation policy"),
    }
}

fn malloc(out: *mut *mut c_void, size: usize, bits: c_uint, padding: u64) -> aclError {
    enter(CallKind::Malloc, size as u64, |sim| {
        let out = required(out)?;
        let device = process::device()?;
        sim.healthy(device)?;
        let policy = policy(bits)?;
        if size == 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "allocation of no bytes");
        }
        let padding = if policy == Policy::GiantOnly || sim.unpadded() {
            0
        } else {
            padding
        };
        let Some(len) = (size as u64).checked_next_multiple_of(32) else {
            return fail(ACL_ERROR_INVALID_PARAM, "size is too large");
        };
        let len = len.saturating_add(padding);
        put(out, sim.malloc(device, len, policy)? as *mut c_void);
        Ok(())
    })
}

/// `aclrtMalloc`: rounds up to 32 bytes and adds 32.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMalloc(devPtr: *mut *mut c_void, size: usize, policy: c_uint) -> aclError {
    malloc(devPtr, size, policy, PADDING)
}

/// `aclrtMallocAlign32`: rounds up to 32 bytes.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocAlign32(
    devPtr: *mut *mut c_void,
    size: usize,
    policy: c_uint,
) -> aclError {
    malloc(devPtr, size, policy, 0)
}

/// `aclrtMallocWithCfg`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocWithCfg(
    devPtr: *mut *mut c_void,
    size: usize,
    policy: c_uint,
    cfg: *mut aclrtMallocConfig,
) -> aclError {
    let _ = cfg;
    malloc(devPtr, size, policy, PADDING)
}

/// `aclrtMallocCached`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocCached(
    devPtr: *mut *mut c_void,
    size: usize,
    policy: c_uint,
) -> aclError {
    malloc(devPtr, size, policy, PADDING)
}

/// `aclrtFree`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFree(devPtr: *mut c_void) -> aclError {
    enter_release(CallKind::Free, devPtr, |sim| {
        sim.free(required(devPtr)? as u64)
    })
}

/// `aclrtFreeWithDevSync`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeWithDevSync(devPtr: *mut c_void) -> aclError {
    enter_release(CallKind::Free, devPtr, |sim| {
        let addr = required(devPtr)? as u64;
        if let Some(device) = sim.device_at(addr) {
            sim.sync_device(device, CallKind::Free)?;
        }
        sim.free(addr)
    })
}

/// `aclrtGetMemInfo`: the attributes that name huge or plain pages share one
/// pool; the one for 1 GiB pages has its own.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemInfo(attr: c_uint, free: *mut usize, total: *mut usize) -> aclError {
    enter(CallKind::MemInfo, 0, |sim| {
        let (free, total) = (required(free)?, required(total)?);
        let device = process::device()?;
        let (now, all) = match attr {
            0 | 2 | 3 | 6 | 7 => (0, 0),
            10 | 11 | 14 | 17 => (
                sim.device(device).giant_pages << 30,
                sim.device(device).giant_total << 30,
            ),
            1..=17 => sim.memory_info(device),
            _ => return fail(ACL_ERROR_INVALID_PARAM, "unknown memory attribute"),
        };
        put(free, now as usize);
        put(total, all as usize);
        Ok(())
    })
}

/// `aclrtGetMemUsageInfo`: one component, the program itself.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemUsageInfo(
    deviceId: i32,
    info: *mut aclrtMemUsageInfo,
    inputNum: usize,
    outputNum: *mut usize,
) -> aclError {
    enter(CallKind::MemInfo, 0, |sim| {
        let (info, count) = (required(info)?, required(outputNum)?);
        let device = sim.device_index(deviceId)?;
        if inputNum == 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "no room for a result");
        }
        let mut name = [0; 32];
        for (slot, byte) in name.iter_mut().zip(b"APP") {
            *slot = *byte as c_char;
        }
        let device = sim.device(device);
        put(
            info,
            aclrtMemUsageInfo {
                name,
                curMemSize: device.used,
                memPeakSize: device.peak,
                reserved: [0; 8],
            },
        );
        put(count, 1);
        Ok(())
    })
}

/// `aclrtPointerGetAttributes`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtPointerGetAttributes(
    ptr: *const c_void,
    attributes: *mut aclrtPtrAttributes,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(attributes)?;
        let addr = required(ptr.cast_mut())? as u64;
        let host_mapping = sim
            .vmm
            .find(addr)
            .is_some_and(|(_, mapping)| mapping.place == Place::Host);
        let (id, kind, page) = if let Some(device) = sim.device_at(addr) {
            (device, ACL_MEM_LOCATION_TYPE_DEVICE, 2 << 20)
        } else if host_mapping || sim.host_range(addr).is_some() {
            (0, ACL_MEM_LOCATION_TYPE_HOST, 4096)
        } else {
            (0, ACL_MEM_LOCATION_TYPE_UNREGISTERED, 0)
        };
        put(
            out,
            aclrtPtrAttributes {
                location: aclrtMemLocation { id, r#type: kind },
                pageSize: page,
                rsv: [0; 4],
            },
        );
        Ok(())
    })
}

accept! {
    aclrtMemFlush(ptr: *mut c_void, size: usize);
    aclrtMemInvalidate(ptr: *mut c_void, size: usize);
}
