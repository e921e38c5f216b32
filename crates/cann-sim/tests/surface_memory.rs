//! The exported functions on memory, sharing one simulator: kinds of
//! allocation, copies and fills that touch what is not there, peer access,
//! memory errors and their repair, loss of a device. Sources: reference 11-01 to 11-04 (`docs/zh/api_ref`), the function
//! named; the headers in torch_npu's wheel.

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::control::{
    Stats, cannSimBreakDevice, cannSimGetStats, cannSimInjectUce, cannSimNow, cannSimResetStats,
    cannSimSetAlias, cannSimSetCallCost, cannSimSetCapacity, cannSimSetExternalUsage,
    cannSimSetFaults, cannSimSetHuge1gPages, cannSimSetKernelTime,
};
use ascendcl::ffi::copy::{aclrtMemcpy, aclrtMemcpyAsync, aclrtMemset, aclrtMemsetAsync};
use ascendcl::ffi::device::{
    aclrtDeviceCanAccessPeer, aclrtDeviceEnablePeerAccess, aclrtResetDevice, aclrtSetDevice,
    aclrtSynchronizeDevice,
};
use ascendcl::ffi::host_memory::{aclrtFreeHost, aclrtMallocHost};
use ascendcl::ffi::memory::{
    aclrtFree, aclrtFreeWithDevSync, aclrtGetMemInfo, aclrtGetMemUsageInfo, aclrtMalloc,
    aclrtMallocAlign32, aclrtMallocWithCfg,
};
use ascendcl::ffi::stream::{aclrtCreateStream, aclrtDestroyStream, aclrtSynchronizeStream};
use ascendcl::ffi::uce::{
    aclrtDeviceTaskAbort, aclrtGetErrorVerbose, aclrtGetMemUceInfo, aclrtMemUceRepair,
    aclrtRepairError,
};
use ascendcl::ffi::vmm::{
    aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem, aclrtMemGetAccess, aclrtMemSetAccess,
    aclrtReleaseMemAddress, aclrtReserveMemAddress, aclrtUnmapMem,
};
use parking_lot::{Mutex, MutexGuard};

use support::{DEVICE_0, HUGE_PAGES, READ_AND_WRITE};

static TURN: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(cannSimSetFaults(c"".as_ptr()), 0);
    assert_eq!(cannSimBreakDevice(0, 0), 0);
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(cannSimResetStats(0), 0);
    guard
}

fn stats() -> Stats {
    let mut stats = Stats::default();
    assert_eq!(cannSimGetStats(0, &mut stats), 0);
    stats
}

fn malloc(size: usize) -> *mut c_void {
    let mut pointer = null_mut();
    assert_eq!(aclrtMallocAlign32(&mut pointer, size, 0), 0);
    pointer
}

fn stream() -> *mut c_void {
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    stream
}

/// aclrtMallocWithCfg: as aclrtMalloc, padding included.
#[test]
fn allocation_with_a_configuration() {
    let _turn = turn();
    let mut pointer = null_mut();
    let code = aclrtMallocWithCfg(&mut pointer, 4 * MIB, 0, null_mut());
    assert_eq!((code, stats().used), (0, 6 << 20));
    assert_eq!(aclrtFree(pointer), 0);
}

/// aclrtFreeWithDevSync: waits for the device, so freeing under work is fine.
#[test]
fn a_free_that_synchronises_is_no_hazard() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(4 * MIB));
    assert_eq!(aclrtMemsetAsync(memory, 4 * MIB, 0, 4 * MIB, stream), 0);
    let before = cannSimNow();
    assert_eq!(aclrtFreeWithDevSync(memory), 0);
    assert!(
        cannSimNow() - before > 10_000,
        "the fill's time was waited for"
    );
    assert_eq!((stats().hazards, stats().used), (0, 0));
    assert_eq!(aclrtDestroyStream(stream), 0);
}

/// Pages of 1 GiB are a set of their own, which may change while a program runs.
#[test]
fn free_and_all_pages_of_1_gib_are_told() {
    let _turn = turn();
    let (mut free, mut total) = (9, 9);
    let mut told = || {
        let code = aclrtGetMemInfo(ACL_HBM_MEM_HUGE1G, &mut free, &mut total);
        assert_eq!(code, 0);
        (free >> 30, total >> 30)
    };
    assert_eq!(told(), (0, 0));
    assert_eq!(cannSimSetHuge1gPages(0, 5), 0);
    assert_eq!(told(), (5, 5));
    let mut giant = null_mut();
    assert_eq!(aclrtMallocAlign32(&mut giant, 2 << 30, 6), 0);
    assert_eq!(told(), (3, 5));
    assert_eq!(aclrtFree(giant), 0);
    let many = cannSimSetHuge1gPages(0, 1 << 40);
    assert_eq!(many, ACL_ERROR_INVALID_PARAM, "more than the device has");
    assert_eq!(told(), (5, 5));
    assert_eq!(cannSimSetHuge1gPages(0, 0), 0);
    assert_eq!(told(), (0, 0));
}

/// aclrtGetMemInfo, aclrtGetMemUsageInfo: what is free and what this process has.
#[test]
fn memory_in_use_is_told() {
    let _turn = turn();
    let (mut free, mut total) = (0, 0);
    assert_eq!(aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total), 0);
    let memory = malloc(8 * MIB);
    assert_eq!(cannSimSetExternalUsage(0, 2 << 20), 0);
    let mut less = 0;
    assert_eq!(aclrtGetMemInfo(ACL_HBM_MEM, &mut less, &mut total), 0);
    assert_eq!(free - less, 10 * MIB, "another process's memory counts");
    // SAFETY: all-zero bytes are a value of this structure of numbers.
    let mut usage: aclrtMemUsageInfo = unsafe { std::mem::zeroed() };
    let mut count = 0;
    assert_eq!(aclrtGetMemUsageInfo(0, &mut usage, 1, &mut count), 0);
    assert_eq!((usage.curMemSize, count), (8 << 20, 1));
    assert_eq!(cannSimSetExternalUsage(0, 0), 0);
    assert_eq!(aclrtFree(memory), 0);
}

/// Copies and fills of memory that is not there fail and are hazards, whether
/// they wait or not.
#[test]
fn copies_and_fills_of_what_is_not_there() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(2 * MIB));
    let mut host = [0u8; 64];
    let buffer = host.as_mut_ptr().cast::<c_void>();
    assert_eq!(aclrtFree(memory), 0);
    for (hazards, code) in [
        aclrtMemcpy(memory, 64, buffer, 64, 1),
        aclrtMemcpy(buffer, 64, memory, 64, 2),
        aclrtMemcpyAsync(memory, 64, buffer, 64, 1, stream),
        aclrtMemset(memory, 64, 0, 64),
        aclrtMemsetAsync(memory, 64, 0, 64, stream),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(code, ACL_ERROR_RT_PARAM_INVALID, "call {hazards}");
    }
    assert_eq!(stats().hazards, 5);
    // More than the room the caller says there is: refused before anything is touched.
    let memory = malloc(2 * MIB);
    assert_ne!(aclrtMemcpy(memory, 8, buffer, 64, 1), 0);
    assert_ne!(aclrtMemset(memory, 8, 0, 64), 0);
    assert_eq!(stats().hazards, 5);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

/// Host memory in use by a copy is freed under work like device memory.
#[test]
fn pinned_memory_under_work_is_a_hazard() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(2 * MIB));
    let mut host = null_mut();
    assert_eq!(aclrtMallocHost(&mut host, MIB), 0);
    assert_eq!(aclrtMemcpyAsync(memory, MIB, host, MIB, 1, stream), 0);
    assert_eq!(aclrtFreeHost(host), 0);
    assert_eq!(stats().hazards, 1);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

/// aclrtDeviceCanAccessPeer, aclrtDeviceEnablePeerAccess: other devices, not
/// the same; a copy between devices takes longer than one inside a device.
#[test]
fn devices_reach_each_other() {
    let _turn = turn();
    let mut can = -1;
    assert_eq!(aclrtDeviceCanAccessPeer(&mut can, 0, 1), 0);
    assert_eq!(can, 1);
    assert_ne!(aclrtDeviceCanAccessPeer(&mut can, 0, 99), 0);
    assert_eq!(aclrtDeviceEnablePeerAccess(1, 0), 0);
    assert_ne!(aclrtDeviceEnablePeerAccess(0, 0), 0, "with itself");
    let (here, beside) = (malloc(64 * MIB), malloc(64 * MIB));
    assert_eq!(aclrtSetDevice(1), 0);
    let there = malloc(64 * MIB);
    assert_eq!(aclrtSetDevice(0), 0);
    let time = |target| {
        let before = cannSimNow();
        assert_eq!(aclrtMemcpy(target, 64 * MIB, here, 64 * MIB, 3), 0);
        cannSimNow() - before
    };
    assert!(time(there) > 10 * time(beside));
    for memory in [here, beside, there] {
        assert_eq!(aclrtFree(memory), 0);
    }
    assert_eq!(stats().hazards, 0);
}

/// aclrtMemSetAccess, aclrtMemGetAccess: of the device that is named; the owner
/// has access from aclrtMapMem on.
#[test]
fn access_to_a_mapping_is_each_device_s_own() {
    let _turn = turn();
    let page = 2 * MIB;
    let (mut base, mut handle) = (null_mut::<c_void>(), null_mut());
    let reserved = aclrtReserveMemAddress(&mut base, page, 0, null_mut(), 1);
    assert_eq!(reserved, 0);
    assert_eq!(aclrtMallocPhysical(&mut handle, page, &HUGE_PAGES, 0), 0);
    assert_eq!(aclrtMapMem(base, page, 0, handle, 0), 0);
    let device_1 = aclrtMemLocation { id: 1, ..DEVICE_0 };
    let set = |location, flags| {
        let mut desc = aclrtMemAccessDesc {
            flags,
            location,
            ..READ_AND_WRITE
        };
        aclrtMemSetAccess(base, page, &mut desc, 1)
    };
    let told = || {
        [DEVICE_0, device_1].map(|mut location| {
            let mut flags = 9;
            assert_eq!(aclrtMemGetAccess(base, &mut location, &mut flags), 0);
            flags
        })
    };
    let all = u64::from(ACL_RT_MEM_ACCESS_FLAGS_READWRITE);
    assert_eq!(told(), [all, 0]);
    assert_eq!(set(device_1, ACL_RT_MEM_ACCESS_FLAGS_READWRITE), 0);
    assert_eq!(told(), [all, all]);
    for flags in [ACL_RT_MEM_ACCESS_FLAGS_READ, 2, 77] {
        assert_eq!(set(device_1, flags), ACL_ERROR_RT_PARAM_INVALID, "{flags}");
    }
    assert_eq!(told(), [all, all], "as it was");
    assert_eq!(set(device_1, 0), 0);
    assert_eq!(told(), [all, 0]);
    assert_eq!(aclrtMemset(base, page, 0, page), 0);
    assert_eq!(set(DEVICE_0, 0), 0);
    assert_ne!(aclrtMemset(base, page, 0, page), 0, "nobody has access");
    assert_eq!((aclrtUnmapMem(base), aclrtFreePhysical(handle)), (0, 0));
    assert_eq!(aclrtReleaseMemAddress(base), 0);
    assert_eq!(stats().hazards, 1);
}

/// torch_npu's stop_device and restart_device: abort what is running, read the
/// error, repair, go on (`csrc/core/npu/NPUException`, header acl_rt.h).
#[test]
fn a_memory_error_is_reported_and_repaired() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(2 * MIB));
    for verbose in [false, true] {
        assert_eq!(aclrtMemsetAsync(memory, MIB, 0, MIB, stream), 0);
        assert_eq!(cannSimInjectUce(0, memory as u64 + 4096, 64), 0);
        let code = aclrtSynchronizeStream(stream);
        assert_eq!(code, ACL_ERROR_RT_DEVICE_MEM_ERROR);
        assert_eq!(aclrtDeviceTaskAbort(0, 100), 0);
        if verbose {
            // SAFETY: all-zero bytes are a value of this structure of numbers.
            let mut error: aclrtErrorInfo = unsafe { std::mem::zeroed() };
            assert_eq!(aclrtGetErrorVerbose(0, &mut error), 0);
            assert_eq!((error.tryRepair, error.errorType), (1, ACL_RT_ERROR_MEMORY));
            assert_eq!(aclrtRepairError(0, &error), 0);
            assert_eq!(aclrtGetErrorVerbose(0, &mut error), 0);
            assert_eq!(error.errorType, ACL_RT_NO_ERROR);
        } else {
            // SAFETY: all-zero bytes are a value of this structure of numbers.
            let mut found: [aclrtMemUceInfo; 128] = unsafe { std::mem::zeroed() };
            let mut count = 0;
            let too_many = aclrtGetMemUceInfo(0, found.as_mut_ptr(), 129, &mut count);
            assert_eq!(too_many, ACL_ERROR_INVALID_PARAM, "128 at most");
            assert_eq!(
                aclrtGetMemUceInfo(0, found.as_mut_ptr(), 128, &mut count),
                0
            );
            let range = (found[0].addr as u64, found[0].len);
            assert_eq!((count, range), (1, (memory as u64 + 4096, 64)));
            assert_eq!(aclrtMemUceRepair(0, found.as_mut_ptr(), 1), 0);
        }
        assert_eq!(aclrtSynchronizeStream(stream), 0);
    }
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
    assert_eq!(stats().hazards, 0);
}

/// A lost device fails every call that needs it, with the code of its loss,
/// until it is reset; the other devices go on.
#[test]
fn a_lost_device_stays_lost_until_reset() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(2 * MIB));
    let lost = ACL_ERROR_RT_LOST_HEARTBEAT;
    assert_eq!(cannSimBreakDevice(0, lost), 0);
    let mut more = null_mut();
    assert_eq!(aclrtMalloc(&mut more, 64, 0), lost);
    assert_eq!(aclrtMemsetAsync(memory, 64, 0, 64, stream), lost);
    assert_eq!(aclrtSynchronizeStream(stream), lost);
    assert_eq!(aclrtSynchronizeDevice(), lost);
    assert_eq!(aclrtSetDevice(1), 0);
    assert_eq!(aclrtMalloc(&mut more, 64, 0), 0);
    assert_eq!(aclrtFree(more), 0);
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(aclrtResetDevice(0), 0);
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!((stats().used, stats().takenBackByReset), (0, 2 << 20));
    assert_eq!(aclrtMalloc(&mut more, 64, 0), 0);
    assert_eq!(aclrtFree(more), 0);
}

/// Costs, the kernel's time and mapping at two addresses change at run time.
#[test]
fn knobs_change_at_run_time() {
    let _turn = turn();
    let cost = |base, per_page| cannSimSetCallCost(c"aclrtMalloc".as_ptr(), base, per_page);
    assert_eq!(cost(1000, 10), 0);
    let before = cannSimNow();
    let memory = malloc(6 * MIB);
    assert_eq!(cannSimNow() - before, 1030);
    assert_eq!(cost(66_000, 300), 0);
    let stream = stream();
    assert_eq!(cannSimSetKernelTime(5_000_000), 0);
    let before = cannSimNow();
    assert_eq!(aclrtMemsetAsync(memory, 64, 0, 64, stream), 0);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert!(cannSimNow() - before > 5_000_000);
    assert_eq!(cannSimSetKernelTime(10_000), 0);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));

    let page = 2 * MIB;
    let (mut base, mut handle) = (null_mut::<c_void>(), null_mut());
    let reserved = aclrtReserveMemAddress(&mut base, 4 * page, 0, null_mut(), 1);
    assert_eq!(reserved, 0);
    assert_eq!(aclrtMallocPhysical(&mut handle, page, &HUGE_PAGES, 0), 0);
    assert_eq!(aclrtMapMem(base, page, 0, handle, 0), 0);
    let second = base.wrapping_byte_add(page);
    assert_eq!(cannSimSetAlias(0), 0);
    let refused = aclrtMapMem(second, page, 0, handle, 0);
    assert_eq!(refused, ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(cannSimSetAlias(1), 0);
    assert_eq!(aclrtMapMem(second, page, 0, handle, 0), 0);
    assert_eq!((aclrtUnmapMem(base), aclrtUnmapMem(second)), (0, 0));
    assert_eq!(
        (aclrtFreePhysical(handle), aclrtReleaseMemAddress(base)),
        (0, 0)
    );
    assert_eq!((stats().used, stats().hazards), (0, 0));
}

/// Pages are put aside only of what is not in use.
#[test]
fn pages_of_1_gib_are_not_put_aside_of_memory_in_use() {
    let _turn = turn();
    assert_eq!(cannSimSetCapacity(0, 8 << 30), 0);
    let memory = malloc(7 << 30);
    assert_eq!(cannSimSetHuge1gPages(0, 8), ACL_ERROR_INVALID_PARAM);
    assert_eq!(cannSimSetHuge1gPages(0, 2), ACL_ERROR_INVALID_PARAM);
    assert_eq!(cannSimSetHuge1gPages(0, 1), 0);
    let mut giant = null_mut();
    assert_eq!(aclrtMallocAlign32(&mut giant, 1 << 30, 6), 0);
    assert_eq!(cannSimSetHuge1gPages(0, 1), 0, "in use");
    assert_eq!(cannSimSetHuge1gPages(0, 2), ACL_ERROR_INVALID_PARAM);
    assert_eq!((aclrtFree(giant), aclrtFree(memory)), (0, 0));
    assert_eq!(cannSimSetCapacity(0, 1 << 20), 0);
    assert_eq!(cannSimSetHuge1gPages(0, 0), 0, "fewer can always be had");
    assert_eq!(cannSimSetCapacity(0, 64 << 30), 0);
}
