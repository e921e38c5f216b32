//! Devices, contexts, peers.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_CONTEXT_NULL, ACL_ERROR_RT_PARAM_INVALID, aclError,
    aclrtUtilizationInfo,
};
use parking_lot::Mutex;

use super::{accept, enter_wait, put, required};
use crate::model::config::visible_devices;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::sim::Sim;
use crate::model::table::Tag;
use crate::process::{self, enter};

/// Contexts that programs made and have not destroyed.
static CONTEXTS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A context as a handle: its device's own (number 0) or one that a program made.
fn handle_of((device, number): (u32, u32)) -> *mut c_void {
    let number = u64::from(number) << 32;
    (((Tag::Context as u64) << 56) | number | u64::from(device + 1)) as *mut c_void
}

/// Device and number of a context.
fn context(sim: &Sim, handle: *mut c_void) -> Result<(u32, u32)> {
    let bits = handle as u64;
    let device = (bits & 0xFFFF_FFFF).checked_sub(1).unwrap_or(u64::MAX);
    let number = (bits >> 32) as u32 & 0xFF_FFFF;
    let lives = number == 0 || CONTEXTS.lock().contains(&number);
    if bits >> 56 != Tag::Context as u64 || device >= u64::from(sim.visible) || !lives {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "unknown context");
    }
    Ok((device as u32, number))
}

/// `aclrtSetDevice`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetDevice(deviceId: i32) -> aclError {
    enter(CallKind::SetDevice, 0, |sim| {
        let device = sim.device_index(deviceId)?;
        sim.device(device).active = true;
        process::set_current_device(Some(device));
        Ok(())
    })
}

/// `aclrtGetDevice`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDevice(deviceId: *mut i32) -> aclError {
    enter(CallKind::Other, 0, |_| {
        let out = required(deviceId)?;
        put(out, process::expected_device()? as i32);
        Ok(())
    })
}

fn reset(deviceId: i32) -> aclError {
    enter_wait(CallKind::ResetDevice, |sim, callers| {
        let device = sim.device_index(deviceId)?;
        *callers = sim.callers_of_device(device);
        // Work that can complete does; what cannot is dropped.
        sim.finish_work(device, CallKind::ResetDevice);
        sim.reset_device(device);
        if process::current_device() == Some(device) {
            process::set_current_device(None);
        }
        Ok(())
    })
}

/// `aclrtResetDevice`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetDevice(deviceId: i32) -> aclError {
    reset(deviceId)
}

/// `aclrtResetDeviceForce`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetDeviceForce(deviceId: i32) -> aclError {
    reset(deviceId)
}

/// `aclrtGetDeviceCount`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceCount(count: *mut u32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(count)?;
        // Until aclInit the program may still change what it wants to see.
        if !super::runtime::initialised()
            && let Ok(list) = std::env::var("ASCEND_RT_VISIBLE_DEVICES")
        {
            sim.visible = visible_devices(&list, sim.config.devices);
        }
        put(out, sim.visible);
        Ok(())
    })
}

/// `aclrtSynchronizeDevice`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeDevice() -> aclError {
    enter_wait(CallKind::SyncDevice, |sim, callers| {
        let device = process::device()?;
        *callers = sim.callers_of_device(device);
        sim.sync_device(device, CallKind::SyncDevice)
    })
}

/// `aclrtSynchronizeDeviceWithTimeout`: virtual waits never time out.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError {
    let _ = timeout;
    aclrtSynchronizeDevice()
}

/// `aclrtCreateContext`: one more context of a device, which becomes the thread's.
/// What is done in it does not differ from what is done in the device's own.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateContext(context: *mut *mut c_void, deviceId: i32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(context)?;
        let device = sim.device_index(deviceId)?;
        sim.device(device).active = true;
        let mut contexts = CONTEXTS.lock();
        let number = contexts.last().map_or(1, |last| last + 1);
        contexts.insert(number);
        process::set_current_context(device, number);
        put(out, handle_of((device, number)));
        Ok(())
    })
}

/// `aclrtDestroyContext`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyContext(handle: *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let (_, number) = context(sim, handle)?;
        CONTEXTS.lock().remove(&number);
        Ok(())
    })
}

/// `aclrtSetCurrentContext`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetCurrentContext(handle: *mut c_void) -> aclError {
    enter(CallKind::SetDevice, 0, |sim| {
        let (device, number) = context(sim, handle)?;
        process::set_current_context(device, number);
        Ok(())
    })
}

/// `aclrtGetCurrentContext`: no default device counts here.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetCurrentContext(context: *mut *mut c_void) -> aclError {
    enter(CallKind::Other, 0, |_| {
        let out = required(context)?;
        match process::current_context() {
            Some(context) => put(out, handle_of(context)),
            None => return process::no_device(),
        }
        Ok(())
    })
}

/// `aclrtGetPrimaryCtxState`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetPrimaryCtxState(
    deviceId: i32,
    flags: *mut u32,
    active: *mut i32,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let active = required(active)?;
        let device = sim.device_index(deviceId)?;
        if !flags.is_null() {
            put(flags, 0);
        }
        put(active, i32::from(sim.device(device).active));
        Ok(())
    })
}

/// `aclrtGetDeviceInfo`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceInfo(deviceId: u32, attr: c_uint, value: *mut i64) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let value = required(value)?;
        let device = sim.device_index(deviceId as i32)?;
        let found = match attr {
            1 => 6,
            101 | 102 => 20,
            201 => 40,
            301 => sim.device(device).capacity as i64,
            302 => 192 << 20,
            _ => 0,
        };
        put(value, found);
        Ok(())
    })
}

macro_rules! cores {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            /// Number of cube (0) or vector (1) cores; never limited.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type,)* kind: c_uint, value: *mut u32) -> aclError {
                $(let _ = $arg;)*
                enter(CallKind::Other, 0, |_| {
                    let value = required(value)?;
                    match kind {
                        0 => put(value, 20),
                        1 => put(value, 40),
                        _ => return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown resource"),
                    }
                    Ok(())
                })
            }
        )*
    };
}
cores! {
    aclrtGetDeviceResLimit(deviceId: i32);
    aclrtGetStreamResLimit(stream: *mut c_void);
    aclrtGetResInCurrentThread();
}

accept! {
    aclrtSetDeviceResLimit(deviceId: i32, kind: c_uint, value: u32);
    aclrtResetDeviceResLimit(deviceId: i32);
    aclrtSetStreamResLimit(stream: *mut c_void, kind: c_uint, value: u32);
    aclrtResetStreamResLimit(stream: *mut c_void);
    aclrtUseStreamResInCurrentThread(stream: *mut c_void);
    aclrtUnuseStreamResInCurrentThread(stream: *mut c_void);
}

/// `aclrtGetDeviceUtilizationRate`: how much of the memory is in use.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetDeviceUtilizationRate(
    deviceId: i32,
    info: *mut aclrtUtilizationInfo,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(info)?;
        let device = sim.device_index(deviceId)?;
        let device = sim.device(device);
        let percent = device.used.saturating_mul(100) / device.capacity.max(1);
        put(
            out,
            aclrtUtilizationInfo {
                cubeUtilization: 0,
                vectorUtilization: 0,
                aicpuUtilization: 0,
                memoryUtilization: percent as i32,
                utilizationExtend: std::ptr::null_mut(),
            },
        );
        Ok(())
    })
}

/// `aclrtGetLogicDevIdByUserDevId`: they are the same.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetLogicDevIdByUserDevId(user: i32, logic: *mut i32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(logic)?;
        put(out, sim.device_index(user)? as i32);
        Ok(())
    })
}

/// `aclrtDeviceGetUuid`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceGetUuid(deviceId: i32, uuid: *mut [c_char; 16]) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(uuid)?;
        let device = sim.device_index(deviceId)?;
        let mut bytes = *b"cann-sim device\0";
        bytes[15] = device as u8;
        put(out, bytes.map(|byte| byte as c_char));
        Ok(())
    })
}

/// `aclrtDeviceCanAccessPeer`: all devices reach each other, none itself.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let can = required(can)?;
        let (device, peer) = (sim.device_index(device)?, sim.device_index(peer)?);
        if device == peer {
            return fail(ACL_ERROR_INVALID_PARAM, "a device is not its own peer");
        }
        put(can, 1);
        Ok(())
    })
}

/// `aclrtDeviceEnablePeerAccess`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        if flags != 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "flags must be 0");
        }
        if sim.device_index(peer)? == process::device()? {
            return fail(ACL_ERROR_INVALID_PARAM, "a device is not its own peer");
        }
        Ok(())
    })
}

/// `aclrtDeviceDisablePeerAccess`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceDisablePeerAccess(peer: i32) -> aclError {
    enter(CallKind::Other, 0, |sim| sim.device_index(peer).map(drop))
}

/// `aclrtDeviceGetBareTgid`: the process's own number.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceGetBareTgid(pid: *mut i32) -> aclError {
    enter(CallKind::Other, 0, |_| {
        put(required(pid)?, std::process::id() as i32);
        Ok(())
    })
}
