//! Uncorrectable memory errors, repair, task abort.

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_DEVICE_MEM_ERROR, ACL_RT_ERROR_MEMORY,
    ACL_RT_ERROR_OTHERS, ACL_RT_MEM_UCE_INFO_MAX_NUM, ACL_RT_NO_ERROR, aclError, aclrtErrorInfo,
    aclrtErrorInfoDetail, aclrtMemUceInfo, aclrtMemUceInfoArray,
};

use super::{elements, put, required};
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::process::enter;

/// Most ranges one query asks for (`MAX_MEM_UCE_INFO_ARRAY_SIZE`).
const MOST_RANGES: usize = 128;

fn info((addr, len): (u64, u64)) -> aclrtMemUceInfo {
    aclrtMemUceInfo {
        addr: addr as *mut _,
        len: len as usize,
        reserved: [0; 14],
    }
}

/// `aclrtGetMemUceInfo`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemUceInfo(
    deviceId: i32,
    memUceInfoArray: *mut aclrtMemUceInfo,
    arraySize: usize,
    retSize: *mut usize,
) -> aclError {
    enter(CallKind::Uce, 0, |sim| {
        let (array, count) = (required(memUceInfoArray)?, required(retSize)?);
        let device = sim.device_index(deviceId)?;
        if arraySize == 0 || arraySize > MOST_RANGES {
            return fail(ACL_ERROR_INVALID_PARAM, "an array of 1 to 128 elements");
        }
        let found = &sim.device(device).uce;
        let given = found.len().min(arraySize);
        for (index, &range) in found.iter().take(given).enumerate() {
            // SAFETY: the caller passed an array of `arraySize` elements.
            unsafe { array.add(index).write(info(range)) };
        }
        put(count, given);
        Ok(())
    })
}

fn ranges(infos: &[aclrtMemUceInfo]) -> Vec<(u64, u64)> {
    infos
        .iter()
        .map(|info| (info.addr as u64, info.len as u64))
        .collect()
}

/// `aclrtMemUceRepair`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemUceRepair(
    deviceId: i32,
    memUceInfoArray: *mut aclrtMemUceInfo,
    arraySize: usize,
) -> aclError {
    enter(CallKind::Uce, 0, |sim| {
        let array = required(memUceInfoArray)?;
        let device = sim.device_index(deviceId)?;
        if arraySize > MOST_RANGES {
            return fail(ACL_ERROR_INVALID_PARAM, "an array of at most 128 elements");
        }
        let ranges = ranges(elements(array, arraySize));
        sim.repair_uce(device, &ranges)
    })
}

/// `aclrtGetErrorVerbose`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetErrorVerbose(deviceId: i32, errorInfo: *mut aclrtErrorInfo) -> aclError {
    enter(CallKind::Uce, 0, |sim| {
        let out = required(errorInfo)?;
        let device = sim.device_index(deviceId)?;
        let state = sim.device(device);
        let kind = match state.broken {
            None => ACL_RT_NO_ERROR,
            Some(ACL_ERROR_RT_DEVICE_MEM_ERROR) => ACL_RT_ERROR_MEMORY,
            Some(_) => ACL_RT_ERROR_OTHERS,
        };
        let memory = kind == ACL_RT_ERROR_MEMORY;
        let mut array = aclrtMemUceInfoArray {
            arraySize: state.uce.len().min(ACL_RT_MEM_UCE_INFO_MAX_NUM),
            memUceInfoArray: [info((0, 0)); ACL_RT_MEM_UCE_INFO_MAX_NUM],
        };
        for (slot, &range) in array.memUceInfoArray.iter_mut().zip(&state.uce) {
            *slot = info(range);
        }
        put(
            out,
            aclrtErrorInfo {
                tryRepair: u8::from(memory),
                hasDetail: u8::from(memory),
                reserved: [0; 2],
                errorType: kind,
                detail: aclrtErrorInfoDetail { uceInfo: array },
            },
        );
        Ok(())
    })
}

/// `aclrtRepairError`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRepairError(deviceId: i32, errorInfo: *const aclrtErrorInfo) -> aclError {
    enter(CallKind::Uce, 0, |sim| {
        let pointer = required(errorInfo.cast_mut())?;
        let device = sim.device_index(deviceId)?;
        // SAFETY: the caller passed a pointer to the structure.
        let error = unsafe { pointer.read() };
        if error.errorType != ACL_RT_ERROR_MEMORY || error.hasDetail == 0 {
            return fail(
                ACL_ERROR_INVALID_PARAM,
                "only memory errors can be repaired",
            );
        }
        // SAFETY: a memory error's detail is the array of ranges.
        let array = unsafe { error.detail.uceInfo };
        let count = array.arraySize.min(ACL_RT_MEM_UCE_INFO_MAX_NUM);
        let ranges = ranges(&array.memUceInfoArray[..count]);
        sim.repair_uce(device, &ranges)
    })
}

/// `aclrtDeviceTaskAbort`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDeviceTaskAbort(deviceId: i32, timeout: u32) -> aclError {
    let _ = timeout;
    enter(CallKind::SyncDevice, 0, |sim| {
        let device = sim.device_index(deviceId)?;
        sim.abort_tasks(device);
        Ok(())
    })
}
