//! Memory shared between processes: physical handles by number, plain memory
//! by key.

use std::ffi::{c_char, c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_DRV_INTERNAL_ERROR, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_NO_PERMISSION, ACL_ERROR_RT_PARAM_INVALID, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT,
    ACL_MEM_SHARE_HANDLE_TYPE_FABRIC, ACL_RT_IPC_MEM_KEY_LEN, aclError,
};

use super::{elements, put, required, text};
use crate::ipc::{self, Shared};
use crate::model::cost::{CallKind, PAGE};
use crate::model::error::{Result, fail};
use crate::model::memory::device_of;
use crate::model::sim::Sim;
use crate::model::vmm::Place;
use crate::process::{self, enter, enter_sized};

fn io<T>(result: std::io::Result<T>, text: &'static str) -> Result<T> {
    result.or_else(|_| fail(ACL_ERROR_RT_DRV_INTERNAL_ERROR, text))
}

fn find(name: &str) -> Result<Shared> {
    match ipc::look_up(name) {
        Ok(shared) => Ok(shared),
        Err(_) => fail(
            ACL_ERROR_RT_PARAM_INVALID,
            "nothing is shared under this handle or key",
        ),
    }
}

/// Adds processes to those that may import.
fn allow(name: &str, pids: &[i32]) -> Result<()> {
    let mut shared = find(name)?;
    if shared.pid != std::process::id() {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "not exported by this process");
    }
    // Without a list anybody may import, and goes on to.
    if let Some(allowed) = &mut shared.allowed {
        allowed.extend(pids);
    }
    io(
        ipc::publish(name, &shared),
        "the export cannot be published",
    )
}

/// What another process shares with this one.
fn admitted(name: &str) -> Result<Shared> {
    let shared = find(name)?;
    let own = std::process::id();
    if shared.pid == own {
        return fail(
            ACL_ERROR_RT_PARAM_INVALID,
            "import in the exporting process",
        );
    }
    if shared
        .allowed
        .as_ref()
        .is_some_and(|pids| !pids.contains(&(own as i32)))
    {
        return fail(
            ACL_ERROR_RT_NO_PERMISSION,
            "this process is not on the list of importers",
        );
    }
    Ok(shared)
}

fn export(sim: &mut Sim, handle: u64, flags: u64) -> Result<u64> {
    if flags > 1 {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "export: unknown flags");
    }
    let number = ipc::fresh_number();
    sim.vmm.export(handle, number)?;
    let physical = sim.vmm.handle(handle)?;
    let Place::Device(device) = physical.place else {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "export: host memory");
    };
    let shared = Shared {
        pid: std::process::id(),
        device,
        len: physical.len,
        attr: physical.attr,
        path: sim.share_handle(handle),
        offset: 0,
        allowed: (flags == 0).then(Vec::new),
    };
    let published = ipc::publish(&ipc::handle_name(number), &shared);
    if published.is_err() {
        sim.vmm.handle_mut(handle)?.exported = None;
    }
    io(published, "the export cannot be published")?;
    Ok(number)
}

/// `aclrtMemExportToShareableHandle`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemExportToShareableHandle(
    handle: *mut c_void,
    handleType: c_uint,
    flags: u64,
    shareableHandle: *mut u64,
) -> aclError {
    enter(CallKind::ExportHandle, 0, |sim| {
        let out = required(shareableHandle)?;
        let handle = required(handle)? as u64;
        if handleType != 0 {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "export: handle type must be NONE",
            );
        }
        put(out, export(sim, handle, flags)?);
        Ok(())
    })
}

/// `aclrtMemSetPidToShareableHandle`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemSetPidToShareableHandle(
    shareableHandle: u64,
    pid: *mut i32,
    pidNum: usize,
) -> aclError {
    enter(CallKind::Other, 0, |_| {
        let pids = elements(required(pid)?, pidNum);
        allow(&ipc::handle_name(shareableHandle), pids)
    })
}

fn import(sim: &mut Sim, number: u64, device: Option<u32>) -> Result<u64> {
    let shared = admitted(&ipc::handle_name(number))?;
    let device = device.unwrap_or(shared.device);
    sim.import_physical(device, shared.len, shared.attr, shared.path.as_deref())
}

/// `aclrtMemImportFromShareableHandle`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemImportFromShareableHandle(
    shareableHandle: u64,
    deviceId: i32,
    handle: *mut *mut c_void,
) -> aclError {
    enter(CallKind::ImportHandle, 0, |sim| {
        let out = required(handle)?;
        let device = sim.device_index(deviceId)?;
        put(
            out,
            import(sim, shareableHandle, Some(device))? as *mut c_void,
        );
        Ok(())
    })
}

/// Fabric handles exist on A3 parts only.
fn check_share_type(sim: &Sim, share_type: c_uint) -> Result<()> {
    match share_type {
        ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT => Ok(()),
        ACL_MEM_SHARE_HANDLE_TYPE_FABRIC if sim.config.soc.starts_with("Ascend910_93") => Ok(()),
        ACL_MEM_SHARE_HANDLE_TYPE_FABRIC => fail(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "fabric handles on this part",
        ),
        _ => fail(ACL_ERROR_RT_PARAM_INVALID, "unknown type of shared handle"),
    }
}

fn read_number(shareable: *mut c_void) -> Result<u64> {
    let pointer = required(shareable)?.cast::<u64>();
    // SAFETY: both kinds of shared handle are at least 8 bytes, of which the
    // first 8 are the number.
    Ok(unsafe { pointer.read_unaligned() })
}

/// `aclrtMemExportToShareableHandleV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemExportToShareableHandleV2(
    handle: *mut c_void,
    flags: u64,
    shareType: c_uint,
    shareableHandle: *mut c_void,
) -> aclError {
    enter(CallKind::ExportHandle, 0, |sim| {
        let out = required(shareableHandle)?;
        let handle = required(handle)? as u64;
        check_share_type(sim, shareType)?;
        let number = export(sim, handle, flags)?;
        if shareType == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC {
            let mut data = [0u8; 128];
            data[..8].copy_from_slice(&number.to_ne_bytes());
            put(out.cast::<[u8; 128]>(), data);
        } else {
            put(out.cast::<u64>(), number);
        }
        Ok(())
    })
}

/// `aclrtMemSetPidToShareableHandleV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemSetPidToShareableHandleV2(
    shareableHandle: *mut c_void,
    shareType: c_uint,
    pid: *mut i32,
    pidNum: usize,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        check_share_type(sim, shareType)?;
        let pids = elements(required(pid)?, pidNum);
        allow(&ipc::handle_name(read_number(shareableHandle)?), pids)
    })
}

/// `aclrtMemImportFromShareableHandleV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemImportFromShareableHandleV2(
    shareableHandle: *mut c_void,
    shareType: c_uint,
    flags: u64,
    handle: *mut *mut c_void,
) -> aclError {
    enter(CallKind::ImportHandle, 0, |sim| {
        let out = required(handle)?;
        if flags != 0 {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "import: flags must be 0");
        }
        check_share_type(sim, shareType)?;
        let number = read_number(shareableHandle)?;
        put(
            out,
            import(sim, number, process::current_device())? as *mut c_void,
        );
        Ok(())
    })
}

/// `aclrtIpcMemGetExportKey`: plain memory, whole pages.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcMemGetExportKey(
    devPtr: *mut c_void,
    size: usize,
    key: *mut c_char,
    len: usize,
    flags: u64,
) -> aclError {
    enter(CallKind::IpcExport, size as u64, |sim| {
        let (addr, key) = (required(devPtr)? as u64, required(key)?);
        if len != ACL_RT_IPC_MEM_KEY_LEN {
            return fail(ACL_ERROR_INVALID_PARAM, "a key has 65 bytes");
        }
        if flags > 1 || size == 0 {
            return fail(
                ACL_ERROR_INVALID_PARAM,
                "export: unknown flags, or no bytes",
            );
        }
        let plain = device_of(addr)
            .and_then(|device| Some((device, sim.devices.get(device as usize)?.memory.find(addr)?)))
            .filter(|(_, (start, it))| {
                let end = addr.checked_add(size as u64);
                !it.imported && end.is_some_and(|end| end <= start + it.len)
            });
        let Some((device, (start, allocation))) = plain else {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "export: not plain device memory of this process",
            );
        };
        let page = allocation.pages.size().min(PAGE);
        if !addr.is_multiple_of(page) {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "export: not the start of a page",
            );
        }
        let name = format!("{:032x}{:032x}", ipc::fresh_number(), addr);
        let (path, offset) = sim.share_plain(addr).unzip();
        let shared = Shared {
            pid: std::process::id(),
            device,
            len: size as u64,
            attr: 0,
            path,
            offset: offset.unwrap_or(0),
            allowed: (flags == 0).then(Vec::new),
        };
        io(
            ipc::publish(&name, &shared),
            "the export cannot be published",
        )?;
        sim.add_export(start, &name);
        for (index, byte) in name.bytes().chain([0]).enumerate() {
            // SAFETY: the caller passed a buffer of 65 bytes; the name has 64.
            unsafe { key.add(index).write(byte as c_char) };
        }
        Ok(())
    })
}

/// `aclrtIpcMemSetImportPid`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcMemSetImportPid(
    key: *const c_char,
    pid: *mut i32,
    num: usize,
) -> aclError {
    enter(CallKind::Other, 0, |_| {
        allow(text(key), elements(required(pid)?, num))
    })
}

/// `aclrtIpcMemImportByKey`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcMemImportByKey(
    devPtr: *mut *mut c_void,
    key: *const c_char,
    flags: u64,
) -> aclError {
    let bytes = |_: &Sim| find(text(key)).map_or(0, |shared| shared.len);
    enter_sized(CallKind::IpcImport, bytes, |sim| {
        let out = required(devPtr)?;
        if flags > 1 {
            return fail(ACL_ERROR_INVALID_PARAM, "import: unknown flags");
        }
        let key = text(key);
        let shared = admitted(key)?;
        let device = process::device()?;
        if shared.device != device && flags == 0 {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "import: memory of another device",
            );
        }
        if shared.device >= sim.config.devices {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "import: no such device here");
        }
        let source = shared.path.as_deref().map(|path| (path, shared.offset));
        put(
            out,
            sim.import_plain(shared.device, shared.len, key, source)? as *mut c_void,
        );
        Ok(())
    })
}

/// `aclrtIpcMemClose`: forgets an import, or withdraws an export.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtIpcMemClose(key: *const c_char) -> aclError {
    enter(CallKind::IpcClose, 0, |sim| {
        let key = text(key);
        if sim.close_import(key)? {
            return Ok(());
        }
        let shared = find(key)?;
        if shared.pid != std::process::id() {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "not imported by this process");
        }
        sim.close_export(key);
        Ok(())
    })
}
