//! Copies and fills.

use std::ffi::{c_uint, c_void};

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, aclError, aclrtMemcpyBatchAttr};

use super::{elements, put, required, stream_of};
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::sim::is_device;
use crate::process::{self, enter};

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
    let total = total(sizes, numBatches);
    enter(CallKind::Memcpy, total, |sim| {
        let device = process::device()?;
        let batch = batch(dsts, destMaxs, srcs, sizes, numBatches, failIndex)?;
        sim.forbid_sync_call()?;
        batch.each(|dst, src, len| sim.copy_now(device, dst, src, len))
    })
}

/// Bytes of all copies of a batch.
fn total(sizes: *const usize, count: usize) -> u64 {
    let sizes = elements(sizes, count).iter();
    sizes.fold(0, |sum, &size| sum.saturating_add(size as u64))
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
    let total = total(sizes, numBatches);
    enter(CallKind::MemcpyAsync, total, |sim| {
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
