//! Every kind of call fails by plan, through the function that is named for it:
//! with the chosen code, once, and as if it had not been made.

mod support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::capture::{
    aclmdlRICaptureBegin, aclmdlRICaptureEnd, aclmdlRIDestroy, aclmdlRIExecuteAsync,
};
use ascendcl::ffi::control::{
    CallStat, Stats, cannSimGetCallStat, cannSimGetStats, cannSimLaunch, cannSimSetFaults,
};
use ascendcl::ffi::copy::{aclrtMemcpy, aclrtMemcpyAsync, aclrtMemset, aclrtMemsetAsync};
use ascendcl::ffi::device::{
    aclrtGetDevice, aclrtResetDevice, aclrtSetDevice, aclrtSynchronizeDevice,
};
use ascendcl::ffi::event::{
    aclrtCreateEvent, aclrtDestroyEvent, aclrtQueryEventStatus, aclrtRecordEvent, aclrtResetEvent,
    aclrtSynchronizeEvent,
};
use ascendcl::ffi::host_memory::{
    aclrtFreeHost, aclrtHostRegisterV2, aclrtHostUnregister, aclrtMallocHost,
};
use ascendcl::ffi::ipc::{
    aclrtIpcMemClose, aclrtIpcMemGetExportKey, aclrtIpcMemImportByKey,
    aclrtMemExportToShareableHandle, aclrtMemImportFromShareableHandle,
};
use ascendcl::ffi::memory::{aclrtFree, aclrtGetMemInfo, aclrtMalloc};
use ascendcl::ffi::stream::{
    aclrtCreateStream, aclrtDestroyStream, aclrtLaunchHostFunc, aclrtStreamQuery,
    aclrtStreamWaitEvent, aclrtSynchronizeStream, aclrtValueWrite,
};
use ascendcl::ffi::uce::aclrtGetMemUceInfo;
use ascendcl::ffi::vmm::{
    aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem, aclrtMemSetAccess, aclrtReleaseMemAddress,
    aclrtReserveMemAddress, aclrtUnmapMem,
};
use ascendcl::model::cost::CALL_KINDS;
use support::{HUGE_PAGES, READ_AND_WRITE};

const SIZE: usize = 2 << 20;
const CODE: aclError = 507899;

thread_local! {
    static SEEN: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

extern "C" fn host_function(_: *mut c_void) {}

/// What a failed call must not change.
fn state() -> [u64; 6] {
    let mut stats = Stats::default();
    assert_eq!(cannSimGetStats(0, &mut stats), 0);
    [
        stats.used,
        stats.tasks,
        stats.hazards,
        stats.unfreedPlain,
        stats.unfreedPhysical,
        stats.takenBackByReset,
    ]
}

fn calls(name: &str) -> (u64, u64) {
    let name = CString::new(name).unwrap();
    let mut stat = CallStat::default();
    assert_eq!(cannSimGetCallStat(0, name.as_ptr(), &mut stat), 0);
    (stat.count, stat.failed)
}

/// Fails a call by plan, and makes it again with the same arguments: then its
/// code is `after`, as if there had been no first time.
fn fails_then(name: &'static str, after: aclError, mut call: impl FnMut() -> aclError) {
    let plan = CString::new(format!("{name}:nth=1,code={CODE}")).unwrap();
    assert_eq!(cannSimSetFaults(plan.as_ptr()), 0, "{name}");
    let (before, (count, failed)) = (state(), calls(name));
    assert_eq!(call(), CODE, "{name}");
    assert_eq!(state(), before, "{name}");
    assert_eq!(calls(name), (count + 1, failed + 1), "{name}");
    assert_eq!(call(), after, "{name}, not failed by plan");
    SEEN.with_borrow_mut(|seen| seen.insert(name));
}

fn works(name: &'static str, call: impl FnMut() -> aclError) {
    fails_then(name, 0, call);
}

#[test]
fn every_kind_of_call_can_fail_and_changes_nothing() {
    assert_eq!(aclrtSetDevice(0), 0);
    works("aclrtSetDevice", || aclrtSetDevice(0));
    let mut device = 9;
    works("other", || aclrtGetDevice(&mut device));

    let (mut plain, mut host, mut own) = (null_mut(), null_mut(), [0u8; 64]);
    let own = own.as_mut_ptr().cast::<c_void>();
    works("aclrtMalloc", || aclrtMalloc(&mut plain, SIZE - 64, 0));
    works("aclrtMallocHost", || aclrtMallocHost(&mut host, SIZE));
    works("aclrtHostRegister", || aclrtHostRegisterV2(own, 64, 0));
    let (mut free, mut total) = (0, 0);
    works("aclrtGetMemInfo", || {
        aclrtGetMemInfo(1, &mut free, &mut total)
    });
    works("aclrtMemcpy", || aclrtMemcpy(plain, 64, own, 64, 1));
    works("aclrtMemset", || aclrtMemset(plain, 64, 0, 64));

    let (mut stream, mut event, mut status) = (null_mut(), null_mut(), 0);
    works("aclrtCreateStream", || aclrtCreateStream(&mut stream));
    works("aclrtCreateEvent", || aclrtCreateEvent(&mut event));
    works("launch", || cannSimLaunch(stream, plain as u64, 64));
    works("aclrtMemcpyAsync", || {
        aclrtMemcpyAsync(plain, 64, host, 64, 1, stream)
    });
    works("aclrtMemsetAsync", || {
        aclrtMemsetAsync(plain, 64, 0, 64, stream)
    });
    works("aclrtValueWrite", || aclrtValueWrite(plain, 1, 0, stream));
    works("aclrtRecordEvent", || aclrtRecordEvent(event, stream));
    works("aclrtStreamWaitEvent", || {
        aclrtStreamWaitEvent(stream, event)
    });
    works("aclrtQueryEventStatus", || {
        aclrtQueryEventStatus(event, &mut status)
    });
    works("aclrtSynchronizeEvent", || aclrtSynchronizeEvent(event));
    works("aclrtResetEvent", || aclrtResetEvent(event, stream));
    works("aclrtStreamQuery", || aclrtStreamQuery(stream, &mut status));
    works("aclrtLaunchHostFunc", || {
        aclrtLaunchHostFunc(stream, Some(host_function), null_mut())
    });
    works("aclrtSynchronizeStream", || aclrtSynchronizeStream(stream));
    works("aclrtSynchronizeDevice", || aclrtSynchronizeDevice());
    let mut model = null_mut();
    works("aclmdlRICaptureBegin", || aclmdlRICaptureBegin(stream, 0));
    works("aclmdlRICaptureEnd", || {
        aclmdlRICaptureEnd(stream, &mut model)
    });
    works("aclmdlRIExecuteAsync", || {
        aclmdlRIExecuteAsync(model, stream)
    });
    assert_eq!(aclmdlRIDestroy(model), 0);
    works("aclrtDestroyEvent", || aclrtDestroyEvent(event));
    works("aclrtDestroyStream", || aclrtDestroyStream(stream));

    let mut access = READ_AND_WRITE;
    let (mut base, mut handle, mut shared) = (null_mut::<c_void>(), null_mut(), 0);
    works("aclrtReserveMemAddress", || {
        aclrtReserveMemAddress(&mut base, SIZE, 0, null_mut(), 1)
    });
    works("aclrtMallocPhysical", || {
        aclrtMallocPhysical(&mut handle, SIZE, &HUGE_PAGES, 0)
    });
    works("aclrtMapMem", || aclrtMapMem(base, SIZE, 0, handle, 0));
    works("aclrtMemSetAccess", || {
        aclrtMemSetAccess(base, SIZE, &mut access, 1)
    });
    works("aclrtMemExportToShareableHandle", || {
        aclrtMemExportToShareableHandle(handle, 0, 1, &mut shared)
    });
    // A process cannot import what it exports itself.
    let mut imported = null_mut();
    let refused = ACL_ERROR_RT_PARAM_INVALID;
    fails_then("aclrtMemImportFromShareableHandle", refused, || {
        aclrtMemImportFromShareableHandle(shared, 0, &mut imported)
    });
    works("aclrtUnmapMem", || aclrtUnmapMem(base));
    works("aclrtFreePhysical", || aclrtFreePhysical(handle));
    works("aclrtReleaseMemAddress", || aclrtReleaseMemAddress(base));
    let mut key = [0; 65];
    works("aclrtIpcMemGetExportKey", || {
        aclrtIpcMemGetExportKey(plain, 4096, key.as_mut_ptr(), 65, 1)
    });
    fails_then("aclrtIpcMemImportByKey", refused, || {
        aclrtIpcMemImportByKey(&mut imported, key.as_ptr(), 0)
    });
    works("aclrtIpcMemClose", || aclrtIpcMemClose(key.as_ptr()));

    // SAFETY: all-zero bytes are a value of this structure of numbers.
    let mut errors: [aclrtMemUceInfo; 4] = unsafe { std::mem::zeroed() };
    let mut count = 9;
    works("aclrtGetMemUceInfo", || {
        aclrtGetMemUceInfo(0, errors.as_mut_ptr(), 4, &mut count)
    });
    works("aclrtHostUnregister", || aclrtHostUnregister(own));
    works("aclrtFreeHost", || aclrtFreeHost(host));
    works("aclrtFree", || aclrtFree(plain));
    works("aclrtResetDevice", || aclrtResetDevice(0));

    let all: BTreeSet<_> = CALL_KINDS.iter().map(|kind| kind.name()).collect();
    assert_eq!(SEEN.take(), all);
}
