//! Plain device memory and host memory.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_BAD_ALLOC, ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_PARAM_INVALID,
    ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_LOCATION_TYPE_UNREGISTERED,
    aclError, aclrtMallocConfig, aclrtMemLocation, aclrtMemUsageInfo, aclrtMemcpyBatchAttr,
    aclrtPtrAttributes,
};

use super::{accept, elements, put, required, stream_of};
use crate::host_calls;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::memory::PADDING;
use crate::model::sim::memory::Policy;
use crate::model::sim::{Sim, is_device};
use crate::model::vmm::Place;
use crate::process::{self, enter};

/// Alignment of host memory: a page.
const HOST_ALIGN: usize = 4096;

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
    enter(CallKind::Free, 0, |sim| sim.free(required(devPtr)? as u64))
}

/// `aclrtFreeWithDevSync`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeWithDevSync(devPtr: *mut c_void) -> aclError {
    enter(CallKind::Free, 0, |sim| {
        let addr = required(devPtr)? as u64;
        if let Some(device) = sim.device_at(addr) {
            sim.sync_device(device, CallKind::Free)?;
        }
        sim.free(addr)
    })
}

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
        sim.host.insert(pointer as u64, size as u64);
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
    enter(CallKind::FreeHost, 0, |sim| {
        let addr = required(pointer)? as u64;
        let Some(&len) = sim.host.get(&addr) else {
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

fn register(sim: &mut Sim, pointer: *mut c_void, size: u64) -> Result<()> {
    let addr = required(pointer)? as u64;
    if size == 0 {
        return fail(ACL_ERROR_INVALID_PARAM, "registration of no bytes");
    }
    let before = sim
        .registered
        .range(..addr.saturating_add(size))
        .next_back();
    if before.is_some_and(|(&start, &len)| start + len > addr) {
        return fail(
            ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            "registered already",
        );
    }
    sim.registered.insert(addr, size);
    Ok(())
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
        register(sim, ptr, size)?;
        put(out, ptr);
        Ok(())
    })
}

/// `aclrtHostRegisterV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostRegisterV2(ptr: *mut c_void, size: u64, flag: u32) -> aclError {
    let _ = flag;
    enter(CallKind::HostRegister, size, |sim| register(sim, ptr, size))
}

/// `aclrtHostUnregister`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtHostUnregister(ptr: *mut c_void) -> aclError {
    enter(CallKind::HostUnregister, 0, |sim| {
        let addr = required(ptr)? as u64;
        match sim.registered.remove(&addr) {
            Some(_) => Ok(()),
            None => fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "not registered"),
        }
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

fn check_copy(dst: *mut c_void, room: usize, src: *const c_void, count: usize) -> Result<()> {
    if count == 0 || count > room {
        return fail(ACL_ERROR_INVALID_PARAM, "copy: no bytes, or more than fit");
    }
    required(dst)?;
    required(src.cast_mut()).map(drop)
}

/// `aclrtMemcpy`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpy(
    dst: *mut c_void,
    destMax: usize,
    src: *const c_void,
    count: usize,
    kind: c_uint,
) -> aclError {
    let _ = kind;
    enter(CallKind::Memcpy, count as u64, |sim| {
        check_copy(dst, destMax, src, count)?;
        let device = process::device()?;
        sim.forbid_sync_call()?;
        sim.copy_now(device, dst as u64, src as u64, count as u64)
    })
}

/// `aclrtMemcpyAsync`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyAsync(
    dst: *mut c_void,
    destMax: usize,
    src: *const c_void,
    count: usize,
    kind: c_uint,
    stream: *mut c_void,
) -> aclError {
    let _ = kind;
    enter(CallKind::MemcpyAsync, count as u64, |sim| {
        check_copy(dst, destMax, src, count)?;
        let stream = stream_of(sim, stream)?;
        sim.copy_async(stream, dst as u64, src as u64, count as u64)
    })
}

/// `aclrtMemcpyAsyncWithCondition`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyAsyncWithCondition(
    dst: *mut c_void,
    destMax: usize,
    src: *const c_void,
    count: usize,
    kind: c_uint,
    stream: *mut c_void,
) -> aclError {
    aclrtMemcpyAsync(dst, destMax, src, count, kind, stream)
}

struct Batch<'a> {
    dsts: &'a [*mut c_void],
    rooms: &'a [usize],
    srcs: &'a [*mut c_void],
    sizes: &'a [usize],
    fail_index: *mut usize,
}

impl Batch<'_> {
    fn each(&self, mut copy: impl FnMut(u64, u64, u64) -> Result<()>) -> Result<()> {
        for index in 0..self.sizes.len() {
            let (dst, src) = (self.dsts[index], self.srcs[index]);
            let result = check_copy(dst, self.rooms[index], src, self.sizes[index])
                .and_then(|()| copy(dst as u64, src as u64, self.sizes[index] as u64));
            if result.is_err() {
                if !self.fail_index.is_null() {
                    put(self.fail_index, index);
                }
                return result;
            }
        }
        Ok(())
    }
}

/// `aclrtMemcpyBatch`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyBatch(
    dsts: *mut *mut c_void,
    destMaxs: *mut usize,
    srcs: *mut *mut c_void,
    sizes: *mut usize,
    numBatches: usize,
    attrs: *mut aclrtMemcpyBatchAttr,
    attrsIndexes: *mut usize,
    numAttrs: usize,
    failIndex: *mut usize,
) -> aclError {
    let _ = (attrs, attrsIndexes, numAttrs);
    enter(CallKind::Memcpy, 0, |sim| {
        let device = process::device()?;
        let batch = batch(dsts, destMaxs, srcs, sizes, numBatches, failIndex)?;
        sim.forbid_sync_call()?;
        batch.each(|dst, src, len| sim.copy_now(device, dst, src, len))
    })
}

fn batch<'a>(
    dsts: *mut *mut c_void,
    rooms: *mut usize,
    srcs: *mut *mut c_void,
    sizes: *mut usize,
    count: usize,
    fail_index: *mut usize,
) -> Result<Batch<'a>> {
    if count == 0 {
        return fail(ACL_ERROR_INVALID_PARAM, "an empty batch");
    }
    Ok(Batch {
        dsts: elements(required(dsts)?, count),
        rooms: elements(required(rooms)?, count),
        srcs: elements(required(srcs)?, count),
        sizes: elements(required(sizes)?, count),
        fail_index,
    })
}

/// `aclrtMemcpyBatchAsync`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyBatchAsync(
    dsts: *mut *mut c_void,
    destMaxs: *mut usize,
    srcs: *mut *mut c_void,
    sizes: *mut usize,
    numBatches: usize,
    attrs: *mut aclrtMemcpyBatchAttr,
    attrsIndexes: *mut usize,
    numAttrs: usize,
    failIndex: *mut usize,
    stream: *mut c_void,
) -> aclError {
    let _ = (attrs, attrsIndexes, numAttrs);
    enter(CallKind::MemcpyAsync, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        let batch = batch(dsts, destMaxs, srcs, sizes, numBatches, failIndex)?;
        batch.each(|dst, src, len| sim.copy_async(stream, dst, src, len))
    })
}

fn check_fill(pointer: *mut c_void, room: usize, count: usize) -> Result<u64> {
    if count == 0 || count > room {
        return fail(
            ACL_ERROR_INVALID_PARAM,
            "memset: no bytes, or more than fit",
        );
    }
    Ok(required(pointer)? as u64)
}

/// `aclrtMemset`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemset(
    devPtr: *mut c_void,
    maxCount: usize,
    value: i32,
    count: usize,
) -> aclError {
    enter(CallKind::Memset, count as u64, |sim| {
        let addr = check_fill(devPtr, maxCount, count)?;
        let device = process::device()?;
        sim.forbid_sync_call()?;
        if !is_device(addr) {
            // SAFETY: the caller passed host memory of at least `maxCount` bytes.
            unsafe { std::ptr::write_bytes(devPtr.cast::<u8>(), value as u8, count) };
        }
        sim.fill_now(device, addr, value as u8, count as u64)
    })
}

/// `aclrtMemsetAsync`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemsetAsync(
    devPtr: *mut c_void,
    maxCount: usize,
    value: i32,
    count: usize,
    stream: *mut c_void,
) -> aclError {
    enter(CallKind::MemsetAsync, count as u64, |sim| {
        let addr = check_fill(devPtr, maxCount, count)?;
        let stream = stream_of(sim, stream)?;
        sim.fill_async(stream, addr, value as u8, count as u64)
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
                sim.config.huge_1g_pages << 30,
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

/// `aclrtCmoAsync`: a cache hint; takes its place on the stream.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCmoAsync(
    src: *mut c_void,
    size: usize,
    kind: c_uint,
    stream: *mut c_void,
) -> aclError {
    let _ = (size, kind);
    enter(CallKind::Launch, 0, |sim| {
        required(src)?;
        let stream = stream_of(sim, stream)?;
        sim.submit(
            stream,
            crate::model::work::Work {
                name: "aclrtCmoAsync",
                ..Default::default()
            },
        )
    })
}

/// Waits for the functions of the host that a waiting call let run.
pub(crate) fn after_wait(code: aclError) -> aclError {
    host_calls::wait_all();
    code
}

accept! {
    aclrtMemFlush(ptr: *mut c_void, size: usize);
    aclrtMemInvalidate(ptr: *mut c_void, size: usize);
}
