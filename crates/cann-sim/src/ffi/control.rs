//! The control API declared in `include/cann_sim.h`. These calls cost no
//! virtual time and are not counted, but for `cannSimLaunch`.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ascend_rs_sys::{
    ACL_ERROR_INTERNAL_ERROR, ACL_ERROR_INVALID_PARAM, ACL_ERROR_WRITE_FILE, aclError,
};

use super::operator::launch;
use super::{put, required, text};
use crate::host_calls;
use crate::model::config::{Alias, MAX_CAPACITY};
use crate::model::cost::{CallKind, MEMORY_CALLS, kind_by_name};
use crate::model::error::{Result, fail};
use crate::model::fault::FaultPlan;
use crate::model::memory::GIANT_PAGE;
use crate::model::sim::Sim;
use crate::model::work::{Access, Work};
use crate::process;
use crate::report;

fn control(body: impl FnOnce(&mut Sim) -> Result<()>) -> aclError {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut sim = process::sim();
        let result = body(&mut sim);
        if !sim.outbox.is_empty() {
            host_calls::post(&mut sim.outbox);
        }
        result
    }));
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.code,
        Err(_) => ACL_ERROR_INTERNAL_ERROR,
    }
}

fn kind(call: *const c_char) -> Result<CallKind> {
    match kind_by_name(text(call)) {
        Some(kind) => Ok(kind),
        None => fail(ACL_ERROR_INVALID_PARAM, "no kind of call has this name"),
    }
}

/// `cannSimStats`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Stats {
    pub capacity: u64,
    pub used: u64,
    pub peakUsed: u64,
    pub externalUsed: u64,
    pub tasks: u64,
    pub driverCalls: u64,
    pub driverNs: u64,
    pub hostWaitNs: u64,
    pub hazards: u64,
    pub unfreedPlain: u64,
    pub unfreedPhysical: u64,
    pub takenBackByReset: u64,
}

/// `cannSimGetStats`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimGetStats(device: i32, stats: *mut Stats) -> aclError {
    control(|sim| {
        let out = required(stats)?;
        let index = sim.device_index(device)?;
        let report = report::device(sim, index);
        put(
            out,
            Stats {
                capacity: report.capacity,
                used: report.used,
                peakUsed: report.peak_used,
                externalUsed: sim.device(index).external,
                tasks: report.tasks,
                driverCalls: report.driver_calls,
                driverNs: report.driver_ns,
                hostWaitNs: report.host_wait_ns,
                hazards: report.hazard_count,
                unfreedPlain: report.unfreed_plain,
                unfreedPhysical: report.unfreed_physical,
                takenBackByReset: report.taken_back_by_reset,
            },
        );
        Ok(())
    })
}

/// `cannSimMemory`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Memory {
    pub used: u64,
    pub peakUsed: u64,
    pub calls: u64,
}

/// `cannSimGetMemory`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimGetMemory(device: i32, memory: *mut Memory) -> aclError {
    control(|sim| {
        let out = required(memory)?;
        let device = sim.device_index(device)?;
        let device = sim.device(device);
        let calls = MEMORY_CALLS.map(|kind| device.ledger.call(kind).count);
        let filled = Memory {
            used: device.used,
            peakUsed: device.peak,
            calls: calls.iter().sum(),
        };
        put(out, filled);
        Ok(())
    })
}

/// `cannSimCallStat`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct CallStat {
    pub count: u64,
    pub failed: u64,
    pub ns: u64,
    pub waitNs: u64,
}

/// `cannSimGetCallStat`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimGetCallStat(
    device: i32,
    call: *const c_char,
    stat: *mut CallStat,
) -> aclError {
    control(|sim| {
        let out = required(stat)?;
        let device = sim.device_index(device)?;
        let stat = sim.device(device).ledger.call(kind(call)?);
        let filled = CallStat {
            count: stat.count,
            failed: stat.failed,
            ns: stat.ns,
            waitNs: stat.wait_ns,
        };
        put(out, filled);
        Ok(())
    })
}

/// `cannSimHazard`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Hazard {
    pub kind: [c_char; 48],
    pub name: [c_char; 64],
    pub addr: u64,
    pub len: u64,
    pub timeNs: u64,
}

/// A string in a field of fixed size, cut if need be, always with its NUL.
fn field<const N: usize>(value: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (slot, byte) in field[..N - 1].iter_mut().zip(value.bytes()) {
        *slot = byte as c_char;
    }
    field
}

/// `cannSimGetHazard`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimGetHazard(device: i32, index: u64, hazard: *mut Hazard) -> aclError {
    control(|sim| {
        let out = required(hazard)?;
        let device = sim.device_index(device)?;
        let hazards = &sim.device(device).ledger.hazards;
        let Some(found) = usize::try_from(index)
            .ok()
            .and_then(|index| hazards.get(index))
        else {
            return fail(ACL_ERROR_INVALID_PARAM, "no hazard has this index");
        };
        let filled = Hazard {
            kind: field(found.kind.name()),
            name: field(found.name),
            addr: found.addr,
            len: found.len,
            timeNs: found.time,
        };
        put(out, filled);
        Ok(())
    })
}

/// `cannSimResetStats`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimResetStats(device: i32) -> aclError {
    control(|sim| {
        let device = sim.device_index(device)?;
        let device = sim.device(device);
        device.ledger = Default::default();
        device.peak = device.used;
        device.taken_back = 0;
        Ok(())
    })
}

/// `cannSimWriteReport`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimWriteReport(path: *const c_char) -> aclError {
    control(|sim| match report::write(&report::of(sim), text(path)) {
        Ok(()) => Ok(()),
        Err(_) => fail(ACL_ERROR_WRITE_FILE, "the report cannot be written"),
    })
}

/// `cannSimNow`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimNow() -> u64 {
    process::existing().map_or(0, |sim| sim.clock.now())
}

/// `cannSimLaunch`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimLaunch(stream: *mut c_void, addr: u64, len: u64) -> aclError {
    let mut work = Work {
        name: "cannSimLaunch",
        ..Work::default()
    };
    if len > 0 {
        work.accesses.push(Access { addr, len });
    }
    launch(stream, work)
}

/// `cannSimAdvance`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimAdvance(nanoseconds: u64) -> aclError {
    control(|sim| {
        sim.spend(nanoseconds);
        Ok(())
    })
}

/// `cannSimSetCapacity`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetCapacity(device: i32, bytes: u64) -> aclError {
    control(|sim| {
        let device = sim.device_index(device)?;
        if bytes > MAX_CAPACITY {
            return fail(ACL_ERROR_INVALID_PARAM, "more than a device can have");
        }
        sim.device(device).capacity = bytes;
        Ok(())
    })
}

/// `cannSimSetExternalUsage`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetExternalUsage(device: i32, bytes: u64) -> aclError {
    control(|sim| {
        let device = sim.device_index(device)?;
        sim.device(device).external = bytes;
        Ok(())
    })
}

/// `cannSimSetHuge1gPages`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetHuge1gPages(device: i32, pages: u64) -> aclError {
    control(|sim| {
        let device = sim.device_index(device)?;
        let device = sim.device(device);
        if pages > device.capacity / GIANT_PAGE {
            return fail(ACL_ERROR_INVALID_PARAM, "more than the device has");
        }
        let used = device.giant_total - device.giant_pages;
        let free = pages.saturating_sub(used);
        let more = free.saturating_sub(device.giant_pages);
        if more > device.free() / GIANT_PAGE {
            return fail(ACL_ERROR_INVALID_PARAM, "more than is not in use");
        }
        device.giant_pages = free;
        device.giant_total = free + used;
        Ok(())
    })
}

/// `cannSimSetCallCost`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetCallCost(call: *const c_char, base: u64, perPage: u64) -> aclError {
    control(|sim| {
        sim.config.cost.set_call(kind(call)?, base, perPage);
        Ok(())
    })
}

/// `cannSimSetKernelTime`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetKernelTime(nanoseconds: u64) -> aclError {
    control(|sim| {
        sim.config.cost.kernel_ns = nanoseconds;
        Ok(())
    })
}

/// `cannSimSetAlias`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetAlias(allow: c_int) -> aclError {
    control(|sim| {
        sim.vmm.set_alias(if allow != 0 {
            Alias::Allow
        } else {
            Alias::Refuse
        });
        Ok(())
    })
}

/// `cannSimSetWorkspace`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetWorkspace(bytes: u64) -> aclError {
    control(|sim| {
        sim.config.workspace = bytes;
        Ok(())
    })
}

/// `cannSimSetFaults`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimSetFaults(plan: *const c_char) -> aclError {
    control(|sim| match FaultPlan::parse(text(plan)) {
        Ok(plan) => {
            sim.config.faults = plan;
            Ok(())
        }
        Err(_) => fail(ACL_ERROR_INVALID_PARAM, "the fault plan cannot be read"),
    })
}

/// `cannSimInjectUce`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimInjectUce(device: i32, addr: u64, len: u64) -> aclError {
    control(|sim| {
        let device = sim.device_index(device)?;
        sim.inject_uce(device, addr, len)
    })
}

/// `cannSimBreakDevice`
#[unsafe(no_mangle)]
pub extern "C" fn cannSimBreakDevice(device: i32, code: i32) -> aclError {
    control(|sim| {
        let device = sim.device_index(device)?;
        sim.device(device).broken = (code != 0).then_some(code);
        Ok(())
    })
}
