//! Virtual memory: reservations, physical handles, mappings.

use std::ffi::{c_uint, c_void};

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_PARAM_INVALID, ACL_MEM_LOCATION_TYPE_DEVICE,
    ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_LOCATION_TYPE_HOST_NUMA, ACL_RT_MEM_ACCESS_FLAGS_NONE,
    ACL_RT_MEM_ACCESS_FLAGS_READWRITE, aclError, aclrtMemAccessDesc, aclrtMemLocation,
    aclrtPhysicalMemProp,
};

use super::{elements, put, required};
use crate::model::cost::{CallKind, PAGE};
use crate::model::error::{Result, fail};
use crate::model::memory::{GIANT_PAGE, Pages, device_of};
use crate::model::sim::Sim;
use crate::model::vmm::Place;
use crate::process::{enter, enter_release};

/// `aclrtReserveMemAddress`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReserveMemAddress(
    virPtr: *mut *mut c_void,
    size: usize,
    alignment: usize,
    expectPtr: *mut c_void,
    flags: u64,
) -> aclError {
    enter(CallKind::ReserveAddress, size as u64, |sim| {
        let out = required(virPtr)?;
        let addr = sim
            .vmm
            .reserve(size as u64, alignment as u64, expectPtr as u64, flags)?;
        put(out, addr as *mut c_void);
        Ok(())
    })
}

/// `aclrtReleaseMemAddress`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReleaseMemAddress(virPtr: *mut c_void) -> aclError {
    enter_release(CallKind::ReleaseAddress, virPtr, |sim| {
        sim.vmm.release(required(virPtr)? as u64).map(drop)
    })
}

fn place(sim: &Sim, location: aclrtMemLocation) -> Result<Place> {
    match location.r#type {
        ACL_MEM_LOCATION_TYPE_DEVICE => Ok(Place::Device(sim.device_index(location.id as i32)?)),
        ACL_MEM_LOCATION_TYPE_HOST | ACL_MEM_LOCATION_TYPE_HOST_NUMA => Ok(Place::Host),
        _ => fail(ACL_ERROR_INVALID_PARAM, "physical memory: unknown location"),
    }
}

/// Page size of an attribute: pages of 1 GiB, or the granularity of 2 MiB that
/// the driver uses for the rest.
fn pages(attr: c_uint) -> Result<Pages> {
    match attr {
        10 | 14 | 17 => Ok(Pages::Giant),
        0..=17 => Ok(Pages::Huge),
        _ => fail(
            ACL_ERROR_INVALID_PARAM,
            "physical memory: unknown attribute",
        ),
    }
}

fn properties(prop: *const aclrtPhysicalMemProp) -> Result<aclrtPhysicalMemProp> {
    let prop = required(prop.cast_mut())?;
    // SAFETY: the caller passed a pointer to the structure.
    Ok(unsafe { prop.read() })
}

/// `aclrtMallocPhysical`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocPhysical(
    handle: *mut *mut c_void,
    size: usize,
    prop: *const aclrtPhysicalMemProp,
    flags: u64,
) -> aclError {
    enter(CallKind::MallocPhysical, size as u64, |sim| {
        let out = required(handle)?;
        let prop = properties(prop)?;
        if flags != 0 {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "physical memory: flags must be 0",
            );
        }
        let place = place(sim, prop.location)?;
        let pages = pages(prop.memAttr)?;
        if place == Place::Host && pages == Pages::Giant {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "pages of 1 GiB are device memory only",
            );
        }
        if let Place::Device(device) = place {
            sim.healthy(device)?;
        }
        let handle = sim.malloc_physical(place, size as u64, pages, prop.memAttr)?;
        put(out, handle as *mut c_void);
        Ok(())
    })
}

/// `aclrtFreePhysical`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreePhysical(handle: *mut c_void) -> aclError {
    enter_release(CallKind::FreePhysical, handle, |sim| {
        sim.free_physical(required(handle)? as u64)
    })
}

fn map(
    pointer: *mut c_void,
    (size, offset): (usize, usize),
    handle: *mut c_void,
    flags: u64,
    accessible: bool,
) -> aclError {
    enter(CallKind::Map, size as u64, |sim| {
        let addr = required(pointer)? as u64;
        sim.map(addr, size as u64, offset as u64, handle as u64, flags)?;
        if !accessible {
            sim.vmm.withhold_access(addr);
        }
        Ok(())
    })
}

/// `aclrtMapMem`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMapMem(
    virPtr: *mut c_void,
    size: usize,
    offset: usize,
    handle: *mut c_void,
    flags: u64,
) -> aclError {
    map(virPtr, (size, offset), handle, flags, true)
}

/// `aclrtMemMapNoAccess`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemMapNoAccess(
    virPtr: *mut c_void,
    size: usize,
    offset: usize,
    handle: *mut c_void,
    flags: u64,
) -> aclError {
    map(virPtr, (size, offset), handle, flags, false)
}

/// `aclrtUnmapMem`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUnmapMem(virPtr: *mut c_void) -> aclError {
    enter_release(CallKind::Unmap, virPtr, |sim| {
        sim.unmap(required(virPtr)? as u64)
    })
}

/// `aclrtMemSetAccess`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemSetAccess(
    virPtr: *mut c_void,
    size: usize,
    desc: *mut aclrtMemAccessDesc,
    count: usize,
) -> aclError {
    enter(CallKind::SetAccess, size as u64, |sim| {
        let addr = required(virPtr)? as u64;
        if count == 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "access: nothing described");
        }
        let mut devices = Vec::new();
        for desc in elements(required(desc)?, count) {
            if !matches!(
                desc.flags,
                ACL_RT_MEM_ACCESS_FLAGS_NONE | ACL_RT_MEM_ACCESS_FLAGS_READWRITE
            ) {
                return fail(ACL_ERROR_RT_PARAM_INVALID, "access: neither all nor none");
            }
            if desc.location.r#type == ACL_MEM_LOCATION_TYPE_DEVICE {
                let device = sim.device_index(desc.location.id as i32)?;
                devices.push((device, desc.flags != ACL_RT_MEM_ACCESS_FLAGS_NONE));
            }
        }
        sim.vmm.set_access(addr, size as u64, &devices)
    })
}

/// `aclrtMemGetAccess`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemGetAccess(
    virPtr: *mut c_void,
    location: *mut aclrtMemLocation,
    flag: *mut u64,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let addr = required(virPtr)? as u64;
        let (location, out) = (required(location)?, required(flag)?);
        // SAFETY: the caller passed a pointer to the structure.
        let location = unsafe { location.read() };
        let mapping = sim.vmm.mapping_at(addr)?;
        let asked = match location.r#type {
            ACL_MEM_LOCATION_TYPE_DEVICE => 1 << sim.device_index(location.id as i32)?,
            _ => u16::MAX,
        };
        let flags = if mapping.access & asked != 0 {
            ACL_RT_MEM_ACCESS_FLAGS_READWRITE
        } else {
            0
        };
        put(out, u64::from(flags));
        Ok(())
    })
}

/// `aclrtMemGetAllocationGranularity`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemGetAllocationGranularity(
    prop: *mut aclrtPhysicalMemProp,
    option: c_uint,
    granularity: *mut usize,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(granularity)?;
        let prop = properties(prop)?;
        if option > 1 {
            return fail(ACL_ERROR_INVALID_PARAM, "granularity: unknown option");
        }
        place(sim, prop.location)?;
        let size = if pages(prop.memAttr)? == Pages::Giant {
            GIANT_PAGE
        } else {
            PAGE
        };
        put(out, size as usize);
        Ok(())
    })
}

/// `aclrtMemRetainAllocationHandle`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemRetainAllocationHandle(
    virPtr: *mut c_void,
    handle: *mut *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(handle)?;
        let found = sim.vmm.mapping_at(required(virPtr)? as u64)?.handle;
        sim.vmm.handle_mut(found)?.references += 1;
        put(out, found as *mut c_void);
        Ok(())
    })
}

/// `aclrtMemGetAllocationPropertiesFromHandle`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemGetAllocationPropertiesFromHandle(
    handle: *mut c_void,
    prop: *mut aclrtPhysicalMemProp,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let out = required(prop)?;
        let physical = sim.vmm.handle(required(handle)? as u64)?;
        let location = match physical.place {
            Place::Device(id) => aclrtMemLocation {
                id,
                r#type: ACL_MEM_LOCATION_TYPE_DEVICE,
            },
            Place::Host => aclrtMemLocation {
                id: 0,
                r#type: ACL_MEM_LOCATION_TYPE_HOST,
            },
        };
        put(
            out,
            aclrtPhysicalMemProp {
                handleType: 0,
                allocationType: 0,
                memAttr: physical.attr,
                location,
                reserve: 0,
            },
        );
        Ok(())
    })
}

/// `aclrtMemGetAddressRange`: of an allocation, or of one mapping.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemGetAddressRange(
    ptr: *mut c_void,
    pbase: *mut *mut c_void,
    psize: *mut usize,
) -> aclError {
    enter(CallKind::Other, 0, |sim| {
        let addr = required(ptr)? as u64;
        let plain = device_of(addr)
            .and_then(|device| sim.devices.get(device as usize)?.memory.find(addr))
            .map(|(start, it)| (start, it.requested));
        let mapped = || {
            sim.vmm
                .find(addr)
                .map(|(start, mapping)| (start, mapping.len))
        };
        let host = || sim.host_range(addr);
        let Some((start, len)) = plain.or_else(mapped).or_else(host) else {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "address is not allocated");
        };
        if !pbase.is_null() {
            put(pbase, start as *mut c_void);
        }
        if !psize.is_null() {
            put(psize, len as usize);
        }
        Ok(())
    })
}
