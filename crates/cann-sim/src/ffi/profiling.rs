//! The profiler's entry points: nothing is profiled.

use std::ffi::{c_char, c_uint, c_void};

use super::accept;

/// `MsprofGetHashId`: a hash of the text (FNV-1a).
#[unsafe(no_mangle)]
pub extern "C" fn MsprofGetHashId(text: *const c_char, length: usize) -> u64 {
    let bytes = super::elements(text.cast::<u8>(), length);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `MsprofSysCycleTime`: the virtual time in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn MsprofSysCycleTime() -> u64 {
    crate::process::existing().map_or(0, |sim| sim.clock.now())
}

/// `aclprofCreateConfig`: a configuration that is never looked into.
#[unsafe(no_mangle)]
pub extern "C" fn aclprofCreateConfig(
    devices: *mut u32,
    count: u32,
    metrics: c_uint,
    events: *const c_void,
    config: u64,
) -> *mut c_void {
    let _ = (devices, count, metrics, events, config);
    std::ptr::dangling_mut::<u64>().cast()
}

/// `aclprofCreateStepInfo`: never looked into.
#[unsafe(no_mangle)]
pub extern "C" fn aclprofCreateStepInfo() -> *mut c_void {
    std::ptr::dangling_mut::<u64>().cast()
}

accept! {
    MsprofRegisterCallback(module: u32, handle: *mut c_void);
    MsprofReportApi(flag: u32, api: *const c_void);
    MsprofReportCompactInfo(flag: u32, data: *const c_void, length: u32);
    MsprofReportAdditionalInfo(flag: u32, data: *const c_void, length: u32);
    aclprofInit(path: *const c_char, length: usize);
    aclprofStart(config: *const c_void);
    aclprofStop(config: *const c_void);
    aclprofFinalize();
    aclprofDestroyConfig(config: *const c_void);
    aclprofDestroyStepInfo(info: *mut c_void);
    aclprofGetStepTimestamp(info: *mut c_void, tag: c_uint, stream: *mut c_void);
    aclprofSetConfig(kind: c_uint, config: *const c_char, length: usize);
    aclprofWarmup(config: *const c_void);
    aclprofRegisterDeviceCallback();
    aclprofMarkEx(message: *const c_char, length: usize, stream: *mut c_void);
    rtDevBinaryRegister(binary: *const c_void, handle: *mut *mut c_void);
    rtFunctionRegister(handle: *mut c_void, stub: *const c_void, name: *const c_char, kernel: *const c_void, mode: u32);
}
