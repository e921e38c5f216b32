//! The exported C functions: bad arguments, what belongs to a thread, the
//! control API. All share the one simulator of the process, so they take turns.

mod support;

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::{offset_of, size_of};
use std::process::Command;
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::control;
use ascendcl::ffi::control::{
    Stats, cannSimGetCallStat, cannSimGetHazard, cannSimGetMemory, cannSimGetStats, cannSimLaunch,
    cannSimNow, cannSimResetStats, cannSimSetCapacity, cannSimSetFaults, cannSimWriteReport,
};
use ascendcl::ffi::copy::aclrtMemsetAsync;
use ascendcl::ffi::device::{aclrtGetDevice, aclrtSetDevice};
use ascendcl::ffi::event::{
    aclrtCreateEventExWithFlag, aclrtCreateEventWithFlag, aclrtDestroyEvent, aclrtQueryEventStatus,
    aclrtRecordEvent, aclrtSynchronizeEvent,
};
use ascendcl::ffi::memory::{
    aclrtFree, aclrtGetMemInfo, aclrtMalloc, aclrtMallocAlign32, aclrtPointerGetAttributes,
};
use ascendcl::ffi::runtime::{
    aclGetRecentErrMsg, aclrtGetLastError, aclrtGetSocName, aclrtPeekAtLastError,
};
use ascendcl::ffi::stream::{
    aclrtCreateStream, aclrtDestroyStream, aclrtLaunchCallback, aclrtLaunchHostFunc,
    aclrtSynchronizeStream,
};
use ascendcl::ffi::vmm::{
    aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem, aclrtReleaseMemAddress,
    aclrtReserveMemAddress, aclrtUnmapMem,
};
use parking_lot::{Mutex, MutexGuard};

use support::HUGE_PAGES;

static TURN: Mutex<()> = Mutex::new(());

/// A turn on device 0 with fresh statistics and no faults.
fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(cannSimSetFaults(c"".as_ptr()), 0);
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
    assert_eq!(
        aclrtMallocAlign32(&mut pointer, size, ACL_MEM_MALLOC_HUGE_FIRST),
        0
    );
    pointer
}

#[test]
fn null_pointers_and_wrong_numbers_are_refused() {
    let _turn = turn();
    let mut pointer = null_mut();
    assert_eq!(aclrtMalloc(null_mut(), 64, 0), ACL_ERROR_INVALID_PARAM);
    assert_eq!(aclrtMalloc(&mut pointer, 0, 0), ACL_ERROR_INVALID_PARAM);
    assert_eq!(aclrtMalloc(&mut pointer, 64, 99), ACL_ERROR_INVALID_PARAM);
    assert_eq!(
        aclrtMalloc(&mut pointer, usize::MAX, 0),
        ACL_ERROR_INVALID_PARAM
    );
    assert_eq!(
        aclrtMalloc(&mut pointer, 1 << 60, 0),
        ACL_ERROR_RT_MEMORY_ALLOCATION
    );
    assert!(pointer.is_null(), "a failed call writes no result");
    assert_eq!(aclrtFree(null_mut()), ACL_ERROR_INVALID_PARAM);
    assert_eq!(aclrtSetDevice(-1), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(aclrtSetDevice(64), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(aclrtGetMemInfo(99, &mut 0, &mut 0), ACL_ERROR_INVALID_PARAM);
    assert_eq!(
        aclrtSynchronizeStream(12345 as *mut c_void),
        ACL_ERROR_RT_PARAM_INVALID
    );
    assert_eq!(
        aclrtCreateEventWithFlag(&mut pointer, 0x8000),
        ACL_ERROR_INVALID_PARAM
    );
    assert_eq!(
        aclrtUnmapMem(0x1000 as *mut c_void),
        ACL_ERROR_RT_PARAM_INVALID
    );
    assert_eq!(stats().used, 0);
}

#[test]
fn a_failure_leaves_its_code_and_its_text() {
    let _turn = turn();
    assert_eq!(aclrtSetDevice(99), ACL_ERROR_RT_INVALID_DEVICEID);
    // SAFETY: the function returns a C string of the thread's own.
    let text = unsafe { CStr::from_ptr(aclGetRecentErrMsg()) }
        .to_str()
        .unwrap();
    assert!(
        text.contains("aclrtSetDevice") && text.contains("107001"),
        "{text}"
    );
    assert_eq!(aclrtPeekAtLastError(0), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(aclrtGetLastError(0), ACL_ERROR_RT_INVALID_DEVICEID);
    assert_eq!(aclrtGetLastError(0), 0, "reading it forgets it");
}

#[test]
fn a_thread_without_a_device_cannot_allocate() {
    let _turn = turn();
    std::thread::spawn(|| {
        let mut pointer = null_mut();
        assert_eq!(aclrtMalloc(&mut pointer, 64, 0), ACL_ERROR_RT_CONTEXT_NULL);
        assert_eq!(aclrtGetDevice(&mut 0), ACL_ERROR_RT_CONTEXT_NULL);
        assert_eq!(aclrtSetDevice(1), 0);
        let mut device = -1;
        assert_eq!(aclrtGetDevice(&mut device), 0);
        assert_eq!(device, 1);
    })
    .join()
    .unwrap();
    let mut device = -1;
    assert_eq!(aclrtGetDevice(&mut device), 0);
    assert_eq!(device, 0, "another thread's device is its own");
}

/// Reference 11-01: aclrtMalloc rounds up to 32 bytes and adds 32,
/// aclrtMallocAlign32 only rounds.
#[test]
fn only_one_kind_of_allocation_is_padded() {
    let _turn = turn();
    let size = 4 << 20;
    let (mut padded, mut plain) = (null_mut(), null_mut());
    assert_eq!(aclrtMalloc(&mut padded, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    assert_eq!(stats().used, 6 << 20);
    assert_eq!(
        aclrtMallocAlign32(&mut plain, size, ACL_MEM_MALLOC_HUGE_FIRST),
        0
    );
    assert_eq!(stats().used, 10 << 20);
    assert_eq!((aclrtFree(padded), aclrtFree(plain)), (0, 0));
}

#[test]
fn waiting_moves_the_clock_and_is_counted() {
    let _turn = turn();
    let (mut stream, mut event) = (null_mut(), null_mut());
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    assert_eq!(aclrtCreateEventExWithFlag(&mut event, ACL_EVENT_SYNC), 0);
    let memory = malloc(1 << 20);
    assert_eq!(aclrtMemsetAsync(memory, 1 << 20, 0, 1 << 20, stream), 0);
    assert_eq!(aclrtRecordEvent(event, stream), 0);
    let mut status = 9;
    assert_eq!(aclrtQueryEventStatus(event, &mut status), 0);
    assert_eq!(status, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    let before = cannSimNow();
    assert_eq!(aclrtSynchronizeEvent(event), 0);
    assert!(cannSimNow() > before + 5_000);
    assert_eq!(aclrtQueryEventStatus(event, &mut status), 0);
    assert_eq!(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    let mut call = control::CallStat::default();
    assert_eq!(
        cannSimGetCallStat(0, c"aclrtSynchronizeEvent".as_ptr(), &mut call),
        0
    );
    assert_eq!(call.count, 1);
    assert!(call.waitNs > 5_000 && stats().hostWaitNs >= call.waitNs);
    assert_eq!(
        (
            aclrtFree(memory),
            aclrtDestroyEvent(event),
            aclrtDestroyStream(stream)
        ),
        (0, 0, 0)
    );
    assert_eq!(stats().hazards, 0);
}

#[test]
fn a_host_function_runs_after_what_came_before() {
    extern "C" fn note(argument: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the stream.
        unsafe { *argument.cast::<u32>() += 1 };
    }
    let _turn = turn();
    let mut count = 0u32;
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    let argument = (&raw mut count).cast();
    assert_eq!(aclrtLaunchHostFunc(stream, Some(note), argument), 0);
    assert_eq!(aclrtSynchronizeStream(stream), 0);
    assert_eq!(count, 1);
    let no_thread = aclrtLaunchCallback(Some(note), argument, 1, stream);
    assert_eq!(no_thread, ACL_ERROR_RT_STREAM_NO_CB_REG);
    assert_eq!(aclrtDestroyStream(stream), 0);
}

/// A program may wait in real time for what a stream calls, without any call
/// that moves the clock.
#[test]
fn a_host_function_comes_although_nobody_waits_for_the_stream() {
    extern "C" fn wake(argument: *mut c_void) {
        // SAFETY: the test passes a sender that outlives the stream.
        let sender = unsafe { &*argument.cast::<std::sync::mpsc::Sender<()>>() };
        sender.send(()).unwrap();
    }
    let _turn = turn();
    let (mut sender, receiver) = std::sync::mpsc::channel();
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    let memory = malloc(64 << 20);
    assert_eq!(aclrtMemsetAsync(memory, 64 << 20, 0, 64 << 20, stream), 0);
    assert_eq!(
        aclrtLaunchHostFunc(stream, Some(wake), (&raw mut sender).cast()),
        0
    );
    assert_eq!(
        receiver.recv_timeout(std::time::Duration::from_secs(30)),
        Ok(())
    );
    assert_eq!((aclrtDestroyStream(stream), aclrtFree(memory)), (0, 0));
}

#[test]
fn a_kernel_of_the_control_api_touches_its_range_and_memory_calls_are_counted() {
    let _turn = turn();
    let mut before = control::Memory::default();
    assert_eq!(cannSimGetMemory(0, &mut before), 0);
    let memory = malloc(8 << 20);
    assert_eq!(cannSimLaunch(null_mut(), memory as u64, 8 << 20), 0);
    assert_eq!((stats().hazards, stats().tasks), (0, 1));
    let mut during = control::Memory::default();
    assert_eq!(cannSimGetMemory(0, &mut during), 0);
    assert_eq!(during.used - before.used, 8 << 20);
    assert_eq!(during.calls - before.calls, 1);
    // Pending work on it.
    assert_eq!(aclrtFree(memory), 0);
    assert_eq!(stats().hazards, 1);
    assert_eq!(cannSimLaunch(null_mut(), memory as u64, 1), 0);
    assert_eq!(stats().hazards, 2);
    let mut after = control::Memory::default();
    assert_eq!(cannSimGetMemory(0, &mut after), 0);
    assert_eq!((after.used, after.calls - before.calls), (before.used, 2));
    assert!(after.peakUsed >= during.used);
    assert_eq!(
        cannSimGetMemory(7, &mut after),
        ACL_ERROR_RT_INVALID_DEVICEID
    );
}

#[test]
fn the_control_api_sets_knobs_and_reads_hazards() {
    let _turn = turn();
    assert_eq!(cannSimSetCapacity(0, 8 << 20), 0);
    let memory = malloc(8 << 20);
    let mut more = null_mut();
    let full = aclrtMallocAlign32(&mut more, 2 << 20, 0);
    assert_eq!(full, ACL_ERROR_RT_MEMORY_ALLOCATION);
    assert_eq!(cannSimSetCapacity(0, 64 << 30), 0);
    assert_eq!(
        cannSimSetFaults(c"aclrtMalloc:nth=1,code=500000".as_ptr()),
        0
    );
    assert_eq!(aclrtMallocAlign32(&mut more, 64, 0), 500000);
    assert_eq!(
        cannSimSetFaults(c"nonsense".as_ptr()),
        ACL_ERROR_INVALID_PARAM
    );
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    assert_eq!(aclrtMemsetAsync(memory, 64, 0, 64, stream), 0);
    assert_eq!(aclrtFree(memory), 0);
    assert_eq!(stats().hazards, 1);
    // SAFETY: all-zero bytes are a value of this structure of numbers.
    let mut hazard: control::Hazard = unsafe { std::mem::zeroed() };
    assert_eq!(cannSimGetHazard(0, 0, &mut hazard), 0);
    // SAFETY: the field holds a C string.
    let name = unsafe { CStr::from_ptr(hazard.name.as_ptr()) };
    assert_eq!((name, hazard.addr), (c"aclrtMemsetAsync", memory as u64));
    assert_eq!(cannSimGetHazard(0, 1, &mut hazard), ACL_ERROR_INVALID_PARAM);
    assert_eq!(
        cannSimGetStats(7, &mut Stats::default()),
        ACL_ERROR_RT_INVALID_DEVICEID
    );
    assert_eq!(aclrtDestroyStream(stream), 0);
}

#[test]
fn the_report_is_json_with_what_happened() {
    let _turn = turn();
    let memory = malloc(4 << 20);
    let path = std::env::temp_dir().join(format!("cann-sim-report-{}.json", std::process::id()));
    let c_path = CString::new(path.to_str().unwrap()).unwrap();
    assert_eq!(cannSimWriteReport(c_path.as_ptr()), 0);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(path).unwrap();
    let device = &report["devices"][0];
    assert_eq!(device["used"], 4 << 20);
    assert_eq!(device["unfreed_plain"], 4 << 20);
    assert_eq!(device["hazard_count"], 0);
    assert!(
        device["calls"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["call"] == "aclrtMalloc")
    );
    assert_eq!(aclrtFree(memory), 0);
}

#[test]
fn structures_of_the_control_header_are_those_of_the_library() {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let dir = std::env::temp_dir().join(format!("cann-sim-header-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let source = dir.join("check.c");
    let check =
        |what: &str, value: usize| format!("_Static_assert({what} == {value}, \"{what}\");\n");
    let text = [
        "#include \"cann_sim.h\"\n#include \"cann_sim.h\"\n".to_string(),
        check("sizeof(cannSimStats)", size_of::<Stats>()),
        check("sizeof(cannSimMemory)", size_of::<control::Memory>()),
        check("sizeof(cannSimCallStat)", size_of::<control::CallStat>()),
        check("sizeof(cannSimHazard)", size_of::<control::Hazard>()),
        check(
            "offsetof(cannSimHazard, name)",
            offset_of!(control::Hazard, name),
        ),
        check(
            "offsetof(cannSimHazard, addr)",
            offset_of!(control::Hazard, addr),
        ),
        check(
            "offsetof(cannSimStats, hostWaitNs)",
            offset_of!(Stats, hostWaitNs),
        ),
        check(
            "offsetof(cannSimStats, takenBackByReset)",
            offset_of!(Stats, takenBackByReset),
        ),
    ]
    .concat();
    std::fs::write(&source, text).unwrap();
    for language in [["-x", "c", "-std=c11"], ["-x", "c++", "-std=c++17"]] {
        let mut command = Command::new("cc");
        if language[1] == "c++" {
            command.arg("-D_Static_assert=static_assert");
        }
        command
            .args(language)
            .args(["-Wall", "-Werror", "-fsyntax-only", "-I", include]);
        let Ok(output) = command.arg(&source).output() else {
            eprintln!("skipped: no C compiler `cc`");
            return;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn virtual_memory_works_through_the_surface() {
    let _turn = turn();
    let size = 2 << 20;
    let (mut base, mut handle) = (null_mut::<c_void>(), null_mut());
    assert_eq!(
        aclrtReserveMemAddress(&mut base, 4 * size, 0, null_mut(), 1),
        0
    );
    assert_eq!(aclrtMallocPhysical(&mut handle, size, &HUGE_PAGES, 0), 0);
    assert_eq!(aclrtMapMem(base, size, 0, handle, 0), 0);
    assert_eq!(
        aclrtMapMem(base, size, 0, handle, 0),
        ACL_ERROR_RT_DRV_INTERNAL_ERROR
    );
    let mut found = aclrtPtrAttributes {
        location: aclrtMemLocation { id: 9, r#type: 9 },
        pageSize: 0,
        rsv: [0; 4],
    };
    assert_eq!(aclrtPointerGetAttributes(base, &mut found), 0);
    assert_eq!(found.location, HUGE_PAGES.location);
    assert_eq!(aclrtUnmapMem(base), 0);
    assert_eq!(aclrtFreePhysical(handle), 0);
    assert_eq!(aclrtReleaseMemAddress(base), 0);
    assert_eq!(stats().used, 0);
    let _: *const c_char = aclrtGetSocName();
}
