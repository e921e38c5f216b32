//! The other side: reads orders, one a line, makes the calls and answers
//! `peer: CODE [VALUE]`.

use std::ffi::{CString, c_char, c_void};
use std::io::BufRead;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::time::Duration;

use ascend_rs_sys::*;
use ascendcl::ffi::control::{Stats, cannSimGetStats};
use ascendcl::ffi::copy::{aclrtMemcpy, aclrtMemsetAsync};
use ascendcl::ffi::device::{aclrtResetDevice, aclrtSetDevice};
use ascendcl::ffi::event::{
    aclrtCreateEventExWithFlag, aclrtIpcGetEventHandle, aclrtIpcOpenEventHandle,
    aclrtQueryEventStatus, aclrtRecordEvent, aclrtSynchronizeEvent,
};
use ascendcl::ffi::ipc::{
    aclrtIpcMemClose, aclrtIpcMemGetExportKey, aclrtIpcMemImportByKey, aclrtIpcMemSetImportPid,
    aclrtMemExportToShareableHandle, aclrtMemExportToShareableHandleV2,
    aclrtMemImportFromShareableHandle, aclrtMemImportFromShareableHandleV2,
    aclrtMemSetPidToShareableHandle, aclrtMemSetPidToShareableHandleV2,
};
use ascendcl::ffi::memory::{aclrtFree, aclrtMallocAlign32};
use ascendcl::ffi::stream::aclrtStreamWaitEvent;
use ascendcl::ffi::vmm::{
    aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem, aclrtReserveMemAddress, aclrtUnmapMem,
};

use crate::support::HUGE_PAGES;

const PAGE: usize = 2 << 20;

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn pointer(word: &str) -> *mut c_void {
    number(word) as *mut c_void
}

/// Makes one call; its code and its result.
fn perform(words: &[&str]) -> (aclError, String) {
    let mut out = null_mut::<c_void>();
    let mut shared = 0u64;
    match words {
        ["device", device] => (aclrtSetDevice(number(device) as i32), String::new()),
        ["reset", device] => (aclrtResetDevice(number(device) as i32), String::new()),
        ["malloc", size] => {
            let code = aclrtMallocAlign32(&mut out, number(size) as usize, 0);
            (code, (out as u64).to_string())
        }
        ["free", addr] => (aclrtFree(pointer(addr)), String::new()),
        ["physical"] => {
            let code = aclrtMallocPhysical(&mut out, PAGE, &HUGE_PAGES, 0);
            (code, (out as u64).to_string())
        }
        ["free_physical", handle] => (aclrtFreePhysical(pointer(handle)), String::new()),
        ["reserve"] => {
            let code = aclrtReserveMemAddress(&mut out, 8 * PAGE, 0, null_mut(), 1);
            (code, (out as u64).to_string())
        }
        ["map", addr, handle] => {
            let code = aclrtMapMem(pointer(addr), PAGE, 0, pointer(handle), 0);
            (code, String::new())
        }
        ["unmap", addr] => (aclrtUnmapMem(pointer(addr)), String::new()),
        ["export", handle, flags] => {
            let code =
                aclrtMemExportToShareableHandle(pointer(handle), 0, number(flags), &mut shared);
            (code, shared.to_string())
        }
        ["allow", handle, pid] => {
            let mut pid = number(pid) as i32;
            let code = aclrtMemSetPidToShareableHandle(number(handle), &mut pid, 1);
            (code, String::new())
        }
        ["import", handle, device] => {
            let device = number(device) as i32;
            let code = aclrtMemImportFromShareableHandle(number(handle), device, &mut out);
            (code, (out as u64).to_string())
        }
        ["export2", handle, flags, kind] => {
            let mut data = [0u64; 16];
            let code = aclrtMemExportToShareableHandleV2(
                pointer(handle),
                number(flags),
                number(kind) as u32,
                data.as_mut_ptr().cast(),
            );
            (code, data[0].to_string())
        }
        ["allow2", handle, kind, pid] => {
            let (mut data, mut pid) = ([0u64; 16], number(pid) as i32);
            data[0] = number(handle);
            let kind = number(kind) as u32;
            let code =
                aclrtMemSetPidToShareableHandleV2(data.as_mut_ptr().cast(), kind, &mut pid, 1);
            (code, String::new())
        }
        ["import2", handle, kind] => {
            let mut data = [0u64; 16];
            data[0] = number(handle);
            let kind = number(kind) as u32;
            let code =
                aclrtMemImportFromShareableHandleV2(data.as_mut_ptr().cast(), kind, 0, &mut out);
            (code, (out as u64).to_string())
        }
        ["key", addr, size, len, flags] => {
            let mut key = [0x7F as c_char; 80];
            let code = aclrtIpcMemGetExportKey(
                pointer(addr),
                number(size) as usize,
                key.as_mut_ptr(),
                number(len) as usize,
                number(flags),
            );
            assert!(key[65..].iter().all(|&it| it == 0x7F), "65 bytes at most");
            let text = key.iter().take_while(|&&it| it > 0 && it != 0x7F);
            (code, text.map(|&it| it as u8 as char).collect())
        }
        ["key_allow", key, pid] => {
            let (key, mut pid) = (CString::new(*key).unwrap(), number(pid) as i32);
            let code = aclrtIpcMemSetImportPid(key.as_ptr(), &mut pid, 1);
            (code, String::new())
        }
        ["key_import", key, flags] => {
            let key = CString::new(*key).unwrap();
            let code = aclrtIpcMemImportByKey(&mut out, key.as_ptr(), number(flags));
            (code, (out as u64).to_string())
        }
        ["key_close", key] => {
            let key = CString::new(*key).unwrap();
            (aclrtIpcMemClose(key.as_ptr()), String::new())
        }
        ["write", addr, value] => {
            let value = number(value);
            let source = (&raw const value).cast();
            (aclrtMemcpy(pointer(addr), 8, source, 8, 1), String::new())
        }
        ["read", addr] => {
            let target = (&raw mut shared).cast();
            let code = aclrtMemcpy(target, 8, pointer(addr), 8, 2);
            (code, shared.to_string())
        }
        ["fill", addr, size] => {
            let size = number(size) as usize;
            let code = aclrtMemsetAsync(pointer(addr), size, 1, size, null_mut());
            (code, String::new())
        }
        ["event", flags] => {
            let code = aclrtCreateEventExWithFlag(&mut out, number(flags) as u32);
            (code, (out as u64).to_string())
        }
        ["record", event] => (aclrtRecordEvent(pointer(event), null_mut()), String::new()),
        ["wait", event] => {
            let code = aclrtStreamWaitEvent(null_mut(), pointer(event));
            (code, String::new())
        }
        ["synchronize", event] => (aclrtSynchronizeEvent(pointer(event)), String::new()),
        ["query", event] => {
            let mut status = 9;
            let code = aclrtQueryEventStatus(pointer(event), &mut status);
            (code, status.to_string())
        }
        ["event_handle", event] => {
            let mut handle = aclrtIpcEventHandle { reserved: [0; 64] };
            let code = aclrtIpcGetEventHandle(pointer(event), &mut handle);
            let text = handle.reserved.iter().take_while(|&&it| it != 0);
            (code, text.map(|&it| it as u8 as char).collect())
        }
        ["event_open", text] => {
            let mut handle = aclrtIpcEventHandle { reserved: [0; 64] };
            for (slot, byte) in handle.reserved.iter_mut().zip(text.bytes()) {
                *slot = byte as c_char;
            }
            let code = aclrtIpcOpenEventHandle(handle, &mut out);
            (code, (out as u64).to_string())
        }
        ["stats"] => {
            let mut stats = Stats::default();
            let code = cannSimGetStats(0, &mut stats);
            let Stats { used, hazards, .. } = stats;
            (code, format!("{used} {hazards}"))
        }
        ["fork"] => (0, fork_during_a_call().to_string()),
        ["fork_and_reset", addr] => (0, fork_and_reset(pointer(addr)).to_string()),
        _ => panic!("unknown order {words:?}"),
    }
}

/// Forks while another thread is in a call; how the child, which exits at once,
/// ended, or -1 if it does not end.
fn fork_during_a_call() -> i32 {
    let (held, waits) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sim = ascendcl::process::sim();
            held.wait();
            waits.wait();
            drop(sim);
        });
        held.wait();
        // SAFETY: the child calls nothing but `exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: has no precondition.
            unsafe { libc::exit(0) };
        }
        let mut status = -1;
        for _ in 0..1000 {
            // SAFETY: writes the status of a child of this process.
            if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } != 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if status == -1 {
            // SAFETY: the number is that of a child that has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        waits.wait();
        status
    })
}

/// Forks; the child frees an allocation, resets the device and asks for memory, which
/// it must not get. How the child ended.
fn fork_and_reset(addr: *mut c_void) -> i32 {
    // SAFETY: the simulator's lock is free, and the child ends here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let codes = [aclrtFree(addr), aclrtResetDevice(0), aclrtSetDevice(0)];
        let mut memory = null_mut();
        let none = aclrtMallocAlign32(&mut memory, PAGE, 0) == ACL_ERROR_RT_MEMORY_ALLOCATION;
        let fine = codes == [0; 3] && none;
        // SAFETY: has no precondition.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = -1;
    // SAFETY: writes the status of a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status
}

#[test]
#[ignore = "the other process of a test, not a test"]
fn peer() {
    assert_eq!(aclrtSetDevice(0), 0);
    println!("\npeer: ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let (code, value) = perform(&words);
        println!("peer: {code} {value}");
    }
}
