//! The simulated runtime's report at exit: what the program asked of the driver.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Calls that hand out, give back or map device memory.
const MEMORY_CALLS: &[&str] = &[
    "aclrtMalloc",
    "aclrtFree",
    "aclrtReserveMemAddress",
    "aclrtReleaseMemAddress",
    "aclrtMallocPhysical",
    "aclrtFreePhysical",
    "aclrtMapMem",
    "aclrtUnmapMem",
    "aclrtMemSetAccess",
];

#[derive(Deserialize)]
struct Report {
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    calls: Vec<Call>,
    host_wait_ns: u64,
    hazard_count: u64,
    leaked: u64,
}

#[derive(Deserialize)]
struct Call {
    call: String,
    count: u64,
    ns: u64,
}

/// Totals over all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that hand out, give back or map device memory.
    pub memory_calls: u64,
    /// Their virtual time in nanoseconds, waiting not included.
    pub memory_ns: u64,
    /// Virtual time in nanoseconds that the host waited for devices.
    pub wait_ns: u64,
    /// Uses of memory that a real device might punish.
    pub hazards: u64,
    /// Bytes not freed when the program was done with the device.
    pub leaked: u64,
}

impl Counts {
    /// Reads a report.
    ///
    /// # Errors
    /// When the file is not there or is no such report.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("understand {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let report: Report = serde_json::from_str(text)?;
        let mut total = Self::default();
        for device in &report.devices {
            total.wait_ns += device.host_wait_ns;
            total.hazards += device.hazard_count;
            total.leaked += device.leaked;
            for call in &device.calls {
                if MEMORY_CALLS.contains(&call.call.as_str()) {
                    total.memory_calls += call.count;
                    total.memory_ns += call.ns;
                }
            }
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn memory_calls_of_all_devices_are_added_and_others_left_out() {
        let device = r#"{
            "calls": [
                {"call": "aclrtMalloc", "count": 3, "ns": 300},
                {"call": "aclrtFree", "count": 1, "ns": 50},
                {"call": "aclrtMemcpy", "count": 9, "ns": 9000}
            ],
            "host_wait_ns": 7, "hazard_count": 1, "leaked": 2
        }"#;
        let counts = Counts::parse(&format!(r#"{{"devices": [{device}, {device}]}}"#)).unwrap();
        let expected = Counts {
            memory_calls: 8,
            memory_ns: 700,
            wait_ns: 14,
            hazards: 2,
            leaked: 4,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn another_file_is_refused() {
        assert!(Counts::parse(r#"{"calls": []}"#).is_err());
    }
}
