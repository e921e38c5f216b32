//! Host memory under pending copies, and ranges that run past what there is:
//! through the exported functions, which share one simulator. Source:
//! reference 11-02 (aclrtFreeHost, aclrtHostUnregister) and 11-03
//! (aclrtMemcpyAsync).

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::capture::{
    aclmdlRICaptureBegin, aclmdlRICaptureEnd, aclmdlRIDestroy, aclmdlRIExecuteAsync,
};
use ascendcl::ffi::control::{Stats, cannSimGetStats, cannSimLaunch, cannSimResetStats};
use ascendcl::ffi::copy::{aclrtMemcpyAsync, aclrtMemset, aclrtMemsetAsync};
use ascendcl::ffi::device::{aclrtResetDevice, aclrtSetDevice};
use ascendcl::ffi::host_memory::{
    aclrtFreeHost, aclrtHostRegisterV2, aclrtHostUnregister, aclrtMallocHost,
};
use ascendcl::ffi::ipc::aclrtIpcMemGetExportKey;
use ascendcl::ffi::memory::{aclrtFree, aclrtFreeWithDevSync, aclrtMallocAlign32};
use ascendcl::ffi::stream::{
    aclrtCreateStream, aclrtDestroyStream, aclrtStreamQuery, aclrtSynchronizeStream,
};
use ascendcl::ffi::vmm::{aclrtReleaseMemAddress, aclrtReserveMemAddress};
use parking_lot::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

const SIZE: usize = 1 << 20;
const TO_DEVICE: u32 = 1;
const TO_HOST: u32 = 2;

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(cannSimResetStats(0), 0);
    guard
}

fn hazards() -> u64 {
    let mut stats = Stats::default();
    assert_eq!(cannSimGetStats(0, &mut stats), 0);
    stats.hazards
}

fn stream() -> *mut c_void {
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    stream
}

fn malloc(size: usize) -> *mut c_void {
    let mut pointer = null_mut();
    assert_eq!(aclrtMallocAlign32(&mut pointer, size, 0), 0);
    pointer
}

fn copy_to_host(host: *mut c_void, len: usize, device: *mut c_void, stream: *mut c_void) {
    let code = aclrtMemcpyAsync(host, len, device, len, TO_HOST, stream);
    assert_eq!(code, 0);
}

/// The block may be gone when the copy's time comes: nothing is written.
#[test]
fn a_copy_into_memory_that_was_freed_is_a_hazard_and_writes_nothing() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(SIZE));
    let mut host = null_mut();
    assert_eq!(aclrtMallocHost(&mut host, SIZE), 0);
    copy_to_host(host, SIZE, memory, stream);
    assert_eq!(aclrtFreeHost(host), 0);
    assert_eq!(hazards(), 1);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!(hazards(), 1);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

#[test]
fn a_copy_into_memory_that_was_unregistered_is_a_hazard_and_writes_nothing() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(SIZE));
    let mut own = vec![7u8; SIZE];
    let host = own.as_mut_ptr().cast::<c_void>();
    assert_eq!(aclrtHostRegisterV2(host, SIZE as u64, 0), 0);
    copy_to_host(host, SIZE, memory, stream);
    assert_eq!(aclrtHostUnregister(host), 0);
    assert_eq!(hazards(), 1);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert!(own.iter().all(|&byte| byte == 7));
    // Without work on it there is nothing to report.
    assert_eq!(aclrtHostRegisterV2(host, SIZE as u64, 0), 0);
    copy_to_host(host, SIZE, memory, stream);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!(aclrtHostUnregister(host), 0);
    assert_eq!(hazards(), 1);
    assert!(own.iter().all(|&byte| byte == 0), "device memory is zero");
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

/// A replayed copy keeps to the host memory it was captured with.
#[test]
fn a_replayed_copy_into_memory_that_was_unregistered_is_a_hazard() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(SIZE));
    let mut own = vec![7u8; SIZE];
    let host = own.as_mut_ptr().cast::<c_void>();
    assert_eq!(aclrtHostRegisterV2(host, SIZE as u64, 0), 0);
    assert_eq!(aclmdlRICaptureBegin(stream, 0), 0);
    copy_to_host(host, SIZE, memory, stream);
    let mut model = null_mut();
    assert_eq!(aclmdlRICaptureEnd(stream, &mut model), 0);
    assert_eq!(aclmdlRIExecuteAsync(model, stream), 0);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!((hazards(), own[0]), (0, 0));
    own.fill(7);
    assert_eq!(aclrtHostUnregister(host), 0);
    assert_eq!(aclmdlRIExecuteAsync(model, stream), 0);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!(hazards(), 1);
    assert!(own.iter().all(|&byte| byte == 7));
    assert_eq!(aclmdlRIDestroy(model), 0);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

/// Only a copy whose whole range is pinned goes on without the host.
#[test]
fn a_copy_that_runs_past_pinned_memory_waits() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(SIZE));
    let mut own = vec![7u8; SIZE];
    let host = own.as_mut_ptr().cast::<c_void>();
    assert_eq!(aclrtHostRegisterV2(host, SIZE as u64 / 2, 0), 0);
    let status = |len| {
        copy_to_host(host, len, memory, stream);
        let mut status = 9;
        assert_eq!(aclrtStreamQuery(stream, &mut status), 0);
        status
    };
    assert_eq!(status(SIZE / 2), ACL_STREAM_STATUS_NOT_READY);
    assert_eq!(status(SIZE / 2 + 1), ACL_STREAM_STATUS_COMPLETE);
    assert_eq!(aclrtHostUnregister(host), 0);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

/// Ranges whose end is past the last address.
#[test]
fn a_range_that_wraps_is_not_mapped_memory() {
    let _turn = turn();
    let (stream, memory) = (stream(), malloc(SIZE));
    let all = usize::MAX;
    let code = aclrtMemsetAsync(memory, all, 0, all, stream);
    assert_eq!((code, hazards()), (ACL_ERROR_RT_PARAM_INVALID, 1));
    let inside = memory as u64 + 4096;
    assert_eq!(cannSimLaunch(stream, inside, u64::MAX), 0);
    assert_eq!(hazards(), 2);
    let mut host = [0u8; 64];
    let host = host.as_mut_ptr().cast();
    let code = aclrtMemcpyAsync(memory, all, host, all - 4096, TO_DEVICE, stream);
    assert_eq!((code, hazards()), (ACL_ERROR_RT_PARAM_INVALID, 3));
    let mut key = [0; 80];
    let code = aclrtIpcMemGetExportKey(memory, all - 4096, key.as_mut_ptr(), 65, 1);
    assert_eq!(code, ACL_ERROR_RT_PARAM_INVALID);
    let mut base = null_mut();
    let code = aclrtReserveMemAddress(&mut base, 2 << 20, 0, null_mut(), 1);
    assert_eq!(code, 0);
    assert_eq!(cannSimLaunch(stream, base as u64, u64::MAX), 0);
    assert_eq!(hazards(), 4, "nothing is mapped in the reservation");
    assert_eq!(aclrtReleaseMemAddress(base), 0);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!((aclrtFree(memory), aclrtDestroyStream(stream)), (0, 0));
}

/// Addresses of a device that does not exist are no memory.
#[test]
fn a_free_with_synchronisation_of_a_device_that_is_not_there() {
    let _turn = turn();
    let far = 0x2000_0000_0000_u64 + (9 << 40) + (2 << 20);
    let code = aclrtFreeWithDevSync(far as *mut c_void);
    assert_eq!((code, hazards()), (ACL_ERROR_RT_PARAM_INVALID, 1));
}

/// aclrtResetDevice: an open capture keeps no other stream from being waited for.
#[test]
fn a_reset_waits_for_work_beside_a_capture() {
    let _turn = turn();
    let (stream, captured, memory) = (stream(), stream(), malloc(SIZE));
    let mut host = null_mut();
    assert_eq!(aclrtMallocHost(&mut host, SIZE), 0);
    assert_eq!(aclrtMemset(host, SIZE, 7, SIZE), 0);
    assert_eq!(aclmdlRICaptureBegin(captured, 2), 0);
    copy_to_host(host, SIZE, memory, stream);
    assert_eq!(aclrtResetDevice(0), 0);
    // SAFETY: the block is live and as long as this.
    let bytes = unsafe { std::slice::from_raw_parts(host.cast::<u8>(), SIZE) };
    assert!(bytes.iter().all(|&byte| byte == 0), "device memory is zero");
    assert_eq!(aclrtSetDevice(0), 0);
    let mut model = null_mut();
    assert_eq!(aclmdlRICaptureEnd(captured, &mut model), 0);
    assert_eq!((aclmdlRIDestroy(model), aclrtFreeHost(host)), (0, 0));
    assert_eq!(
        (aclrtDestroyStream(stream), aclrtDestroyStream(captured)),
        (0, 0)
    );
    assert_eq!(hazards(), 0);
}
