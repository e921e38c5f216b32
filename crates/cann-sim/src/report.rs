//! The report at exit: for each device memory, driver calls, waiting, hazards
//! and what was never freed.

use std::fs;

use serde::Serialize;

use crate::model::config::ReportTo;
use crate::model::cost::CALL_KINDS;
use crate::model::sim::Sim;
use crate::process;

/// One kind of driver call.
#[derive(Debug, Serialize)]
pub struct CallReport {
    /// The C function.
    pub call: &'static str,
    /// Calls.
    pub count: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Virtual nanoseconds of the calls themselves.
    pub ns: u64,
    /// Virtual nanoseconds the host waited in them.
    pub wait_ns: u64,
}

/// One hazard.
#[derive(Debug, Serialize)]
pub struct HazardReport {
    /// What happened.
    pub kind: &'static str,
    /// Address of the memory.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Virtual time.
    pub time_ns: u64,
    /// The operator or call concerned.
    pub name: String,
}

/// One device.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    /// Index.
    pub device: u32,
    /// Bytes of memory.
    pub capacity: u64,
    /// Bytes in use now.
    pub used: u64,
    /// Most bytes ever in use.
    pub peak_used: u64,
    /// Tasks put on its streams.
    pub tasks: u64,
    /// Driver calls that were made at least once.
    pub calls: Vec<CallReport>,
    /// All driver calls.
    pub driver_calls: u64,
    /// Virtual nanoseconds of all driver calls.
    pub driver_ns: u64,
    /// Virtual nanoseconds the host waited for the device.
    pub host_wait_ns: u64,
    /// Number of hazards.
    pub hazard_count: u64,
    /// The first of them.
    pub hazards: Vec<HazardReport>,
    /// Bytes of plain allocations not freed.
    pub unfreed_plain: u64,
    /// Bytes of physical handles not freed.
    pub unfreed_physical: u64,
    /// Bytes that were not freed when the program reset the device
    /// (`aclrtResetDevice`), which took them back.
    pub taken_back_by_reset: u64,
    /// Bytes that nobody freed and no reset took back.
    pub leaked: u64,
}

impl DeviceReport {
    /// True if anything happened on the device, by calls of its own or by those of
    /// threads on another.
    fn concerned(&self) -> bool {
        let counts = [self.driver_calls, self.tasks, self.hazard_count];
        let bytes = [self.peak_used, self.leaked, self.taken_back_by_reset];
        counts.into_iter().chain(bytes).any(|number| number > 0)
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Virtual time.
    pub time_ns: u64,
    /// Virtual time the host waited.
    pub host_wait_ns: u64,
    /// `phantom` or `backed`.
    pub mode: &'static str,
    /// Devices.
    pub devices: Vec<DeviceReport>,
}

/// Takes stock of a simulator.
pub fn of(sim: &Sim) -> Report {
    let devices = (0..sim.config.devices)
        .map(|index| device(sim, index))
        .collect();
    Report {
        time_ns: sim.clock.now(),
        host_wait_ns: sim.clock.waited(),
        mode: match sim.config.mode {
            crate::Mode::Phantom => "phantom",
            crate::Mode::Backed => "backed",
        },
        devices,
    }
}

/// Takes stock of one device.
pub fn device(sim: &Sim, index: u32) -> DeviceReport {
    let device = &sim.devices[index as usize];
    let ledger = &device.ledger;
    let calls: Vec<CallReport> = CALL_KINDS
        .iter()
        .map(|&kind| (kind, ledger.call(kind)))
        .filter(|(_, stat)| stat.count > 0)
        .map(|(kind, stat)| CallReport {
            call: kind.name(),
            count: stat.count,
            failed: stat.failed,
            ns: stat.ns,
            wait_ns: stat.wait_ns,
        })
        .collect();
    let hazards = ledger.hazards.iter().map(|hazard| HazardReport {
        kind: hazard.kind.name(),
        addr: hazard.addr,
        len: hazard.len,
        time_ns: hazard.time,
        name: hazard.name.into(),
    });
    let (unfreed_plain, unfreed_physical) = sim.outstanding(index);
    DeviceReport {
        device: index,
        capacity: device.capacity,
        used: device.used,
        peak_used: device.peak,
        tasks: ledger.tasks,
        driver_calls: calls.iter().map(|call| call.count).sum(),
        driver_ns: calls
            .iter()
            .fold(0, |sum, call| sum.saturating_add(call.ns)),
        calls,
        host_wait_ns: ledger.wait_ns(),
        hazard_count: ledger.hazard_count,
        hazards: hazards.collect(),
        unfreed_plain,
        unfreed_physical,
        taken_back_by_reset: device.taken_back,
        leaked: unfreed_plain + unfreed_physical,
    }
}

/// The report as text.
pub fn text(report: &Report) -> String {
    use std::fmt::Write as _;
    let mut out = format!(
        "cann-sim ({}): {} ns of virtual time, {} ns of it waiting\n",
        report.mode, report.time_ns, report.host_wait_ns
    );
    for device in report.devices.iter().filter(|device| device.concerned()) {
        let _ = writeln!(
            out,
            "  device {}: {} of {} bytes in use, peak {}; {} tasks; {} hazards; {} bytes leaked",
            device.device,
            device.used,
            device.capacity,
            device.peak_used,
            device.tasks,
            device.hazard_count,
            device.leaked
        );
        for call in &device.calls {
            let _ = writeln!(
                out,
                "    {:<34} {:>9} calls {:>5} failed {:>14} ns {:>14} ns waiting",
                call.call, call.count, call.failed, call.ns, call.wait_ns
            );
        }
        for hazard in &device.hazards {
            let _ = writeln!(
                out,
                "    hazard: {} at {:#x}, {} bytes, {} ns, by {}",
                hazard.kind, hazard.addr, hazard.len, hazard.time_ns, hazard.name
            );
        }
    }
    out
}

/// Writes a report to a file; `%p` in its name stands for the process's number.
pub fn write(report: &Report, path: &str) -> std::io::Result<()> {
    let path = path.replace("%p", &std::process::id().to_string());
    let json = serde_json::to_vec_pretty(report).map_err(std::io::Error::other)?;
    fs::write(path, json)
}

/// Writes the report where the configuration says.
fn write_at_exit() {
    let Some(target) = process::report_target() else {
        return;
    };
    let Some(sim) = process::at_exit() else {
        eprintln!("cann-sim: no report: a call was under way when the process was forked");
        return;
    };
    let report = of(&sim);
    drop(sim);
    match target {
        ReportTo::Stderr => eprint!("{}", text(&report)),
        ReportTo::File(path) => {
            let written = write(&report, path);
            if let Err(error) = written {
                eprintln!("cann-sim: report to {path}: {error}");
            }
        }
    }
}

extern "C" fn at_exit() {
    // A panic here could only abort the process, which is ending anyway.
    let _ = std::panic::catch_unwind(write_at_exit);
}

/// Runs when the library is finalised, after torch_npu (which depends on it)
/// has ended.
// SAFETY: the section holds pointers to functions that take nothing and return
// nothing, which is what this is.
#[unsafe(link_section = ".fini_array")]
#[used]
static AT_EXIT: extern "C" fn() = at_exit;
