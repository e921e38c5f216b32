//! Start and end, errors, versions, options.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_FILE, ACL_ERROR_INVALID_PARAM, ACL_ERROR_PARSE_FILE,
    ACL_ERROR_REPEAT_FINALIZE, ACL_ERROR_REPEAT_INITIALIZE, aclError,
};

use super::{accept, put, required, text};
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::process::{self, enter};

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// True between `aclInit` and `aclFinalize`.
pub(super) fn initialised() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// The device that `defaultDevice.default_device` of a configuration names, for
/// threads that choose none. Nothing else of the configuration matters here.
fn default_device(path: &str) -> Result<Option<u32>> {
    if path.is_empty() {
        return Ok(None);
    }
    let Ok(content) = std::fs::read(path) else {
        return fail(
            ACL_ERROR_INVALID_FILE,
            "aclInit: the configuration cannot be read",
        );
    };
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&content) else {
        return fail(
            ACL_ERROR_PARSE_FILE,
            "aclInit: the configuration is no JSON",
        );
    };
    let device = &json["defaultDevice"]["default_device"];
    Ok(device.as_str().and_then(|number| number.parse().ok()))
}

/// `aclInit`
#[unsafe(no_mangle)]
pub extern "C" fn aclInit(configPath: *const c_char) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let default_device = default_device(text(configPath))?;
        if INITIALISED.swap(true, Ordering::AcqRel) {
            return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before");
        }
        process::set_default_device(default_device.filter(|&device| device < sim.visible));
        Ok(())
    })
}

/// `aclFinalize`
#[unsafe(no_mangle)]
pub extern "C" fn aclFinalize() -> aclError {
    enter(CallKind::Other, 0, |sim| {
        if !INITIALISED.swap(false, Ordering::AcqRel) {
            return fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize without aclInit");
        }
        for device in 0..sim.config.devices {
            sim.reset_device(device);
        }
        Ok(())
    })
}

/// `aclGetRecentErrMsg`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    process::message()
}

/// `aclrtGetLastError`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetLastError(level: c_uint) -> aclError {
    let _ = level;
    process::last_error(true)
}

/// `aclrtPeekAtLastError`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtPeekAtLastError(level: c_uint) -> aclError {
    let _ = level;
    process::last_error(false)
}

/// `aclrtGetSocName`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAME: OnceLock<std::ffi::CString> = OnceLock::new();
    NAME.get_or_init(|| {
        std::ffi::CString::new(process::sim().config.soc.as_str()).unwrap_or_default()
    })
    .as_ptr()
}

/// Copies a string with its NUL into a buffer of `len` bytes.
fn put_text(buffer: *mut c_char, len: usize, value: &str) -> bool {
    if value.len() >= len {
        return false;
    }
    // SAFETY: the caller passed a buffer of `len` bytes, and the string with its
    // NUL is no longer than that.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len());
        buffer.add(value.len()).write(0);
    }
    true
}

/// `aclsysGetVersionStr`; the buffer holds `ACL_PKG_VERSION_MAX_SIZE` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn aclsysGetVersionStr(pkgName: *mut c_char, versionStr: *mut c_char) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let buffer = required(versionStr)?;
        let driver = text(pkgName).eq_ignore_ascii_case("driver");
        let config = &sim.config;
        let version = if driver {
            &config.driver_version
        } else {
            &config.cann_version
        };
        if !put_text(buffer, 128, version) {
            return fail(ACL_ERROR_INVALID_PARAM, "the version does not fit");
        }
        Ok(())
    })
}

/// `aclCANNPackageVersion`
#[repr(C)]
pub struct PackageVersion {
    version: [c_char; 128],
    major: [c_char; 64],
    minor: [c_char; 64],
    release: [c_char; 64],
    patch: [c_char; 64],
    reserved: [c_char; 128],
}

/// `aclsysGetCANNVersion`
#[unsafe(no_mangle)]
pub extern "C" fn aclsysGetCANNVersion(name: c_uint, version: *mut PackageVersion) -> aclError {
    const DRIVER: c_uint = 7;
    enter(CallKind::Other, 0, |sim| {
        let out = required(version)?;
        let config = &sim.config;
        let wanted = if name == DRIVER {
            &config.driver_version
        } else {
            &config.cann_version
        };
        let mut filled = PackageVersion {
            version: [0; 128],
            major: [0; 64],
            minor: [0; 64],
            release: [0; 64],
            patch: [0; 64],
            reserved: [0; 128],
        };
        put_text(filled.version.as_mut_ptr(), 128, wanted);
        let parts = [
            &mut filled.major,
            &mut filled.minor,
            &mut filled.release,
            &mut filled.patch,
        ];
        for (part, value) in parts.into_iter().zip(wanted.split('.')) {
            put_text(part.as_mut_ptr(), 64, value);
        }
        put(out, filled);
        Ok(())
    })
}

/// `aclGetCannAttributeList`: all three known attributes.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCannAttributeList(list: *mut *const c_int, count: *mut usize) -> aclError {
    static ATTRIBUTES: [c_int; 3] = [0, 1, 2];
    enter(CallKind::Other, 0, |_| {
        let (list, count) = (required(list)?, required(count)?);
        put(list, ATTRIBUTES.as_ptr());
        put(count, ATTRIBUTES.len());
        Ok(())
    })
}

/// `aclGetCannAttribute`: infinities and bfloat16 are there; operators are not
/// compiled online by default, as on Atlas A2, so that the newer interface is used.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCannAttribute(attribute: c_int, value: *mut i32) -> aclError {
    enter(CallKind::Other, 0, |_| {
        let value = required(value)?;
        if !(0..=2).contains(&attribute) {
            return fail(ACL_ERROR_INVALID_PARAM, "unknown attribute");
        }
        put(value, i32::from(attribute != 2));
        Ok(())
    })
}

/// `aclGetDeviceCapability`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDeviceCapability(device: u32, info: c_int, value: *mut i64) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let value = required(value)?;
        sim.device_index(device as i32)?;
        let found = match info {
            0 => 20,
            1 => 40,
            2 => 192 << 20,
            _ => return fail(ACL_ERROR_INVALID_PARAM, "unknown device information"),
        };
        put(value, found);
        Ok(())
    })
}

/// `aclGetCompileoptSize`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCompileoptSize(opt: c_uint) -> usize {
    let _ = opt;
    64
}

/// `aclGetCompileopt`: every switch is off; above all the online compilation of
/// operators, as on Atlas A2, so that torch_npu takes the newer interface.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetCompileopt(opt: c_uint, value: *mut c_char, length: usize) -> aclError {
    let _ = opt;
    enter(CallKind::Other, 0, |_| {
        let buffer = required(value)?;
        if !put_text(buffer, length, "disable") {
            return fail(ACL_ERROR_INVALID_PARAM, "the option does not fit");
        }
        Ok(())
    })
}

macro_rules! get_option {
    ($($name:ident),*) => {
        $(
            /// Reads a system parameter; all are 0.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(opt: c_uint, value: *mut i64) -> aclError {
                let _ = opt;
                enter(CallKind::Other, 0, |_| {
                    put(required(value)?, 0);
                    Ok(())
                })
            }
        )*
    };
}
get_option!(aclrtGetSysParamOpt, aclrtCtxGetSysParamOpt);

/// `aclAppLog`: variadic in C; the variable part is not read.
#[unsafe(no_mangle)]
pub extern "C" fn aclAppLog(
    level: c_uint,
    func: *const c_char,
    file: *const c_char,
    line: u32,
    fmt: *const c_char,
) {
    let _ = (level, func, file, line, fmt);
}

/// `aclrtSetOpExecuteTimeOutV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSetOpExecuteTimeOutV2(timeout: u64, actual: *mut u64) -> aclError {
    enter(CallKind::Other, 0, |_| {
        put(required(actual)?, timeout);
        Ok(())
    })
}

/// `halGetAPIVersion` of the driver; older than what switches counters on.
#[unsafe(no_mangle)]
pub extern "C" fn halGetAPIVersion(version: *mut i32) -> i32 {
    if version.is_null() {
        return 3;
    }
    put(version, 0x07_1600);
    0
}

/// `drvGetDevNum` of the driver: all devices, visible or not.
#[unsafe(no_mangle)]
pub extern "C" fn drvGetDevNum(count: *mut u32) -> i32 {
    if count.is_null() {
        return 3;
    }
    put(count, process::sim().config.devices);
    0
}

/// `halGetDeviceInfo` of the driver: not available.
#[unsafe(no_mangle)]
pub extern "C" fn halGetDeviceInfo(device: u32, module: i32, info: i32, value: *mut i64) -> i32 {
    let _ = (device, module, info, value);
    0xFFFE
}

/// `rtGetC2cCtrlAddr`: there is no such region.
#[unsafe(no_mangle)]
pub extern "C" fn rtGetC2cCtrlAddr(addr: *mut u64, len: *mut u32) -> c_int {
    if addr.is_null() || len.is_null() {
        return ascend_rs_sys::ACL_ERROR_RT_PARAM_INVALID;
    }
    put(addr, 0);
    put(len, 0);
    0
}

accept! {
    aclSetCompileopt(opt: c_uint, value: *const c_char);
    aclopSetCompileFlag(flag: c_uint);
    aclrtSetSysParamOpt(opt: c_uint, value: i64);
    aclrtCtxSetSysParamOpt(opt: c_uint, value: i64);
    aclrtSetDeviceSatMode(mode: c_uint);
    aclrtSetOpExecuteTimeOut(timeout: u32);
    aclrtSetOpExecuteTimeOutWithMs(timeout: u32);
    aclrtSetOpWaitTimeout(timeout: u32);
    aclmdlInitDump();
    aclmdlSetDump(path: *const c_char);
    aclmdlFinalizeDump();
}
