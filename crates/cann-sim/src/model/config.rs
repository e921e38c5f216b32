//! The knobs of a simulator and the environment variables they are read from.

use super::cost::CostModel;
use super::fault::{FaultPlan, parse_bytes};
use super::memory::GIANT_PAGE;

/// What stands behind device addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing: copies to the device are dropped, copies from it give zeros.
    Phantom,
    /// Real pages at the same addresses.
    Backed,
}

/// What happens when one physical handle is mapped at a second address. No
/// readable code of the driver forbids it and no document allows it, hence a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// It works.
    Allow,
    /// It fails as an invalid parameter.
    Refuse,
    /// It succeeds, but backed memory at the second address is other memory: nothing says that a driver
    /// that does not know what it was asked for would refuse.
    Apart,
}

/// Where the report at exit goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTo {
    /// JSON into a file.
    File(String),
    /// Text on the standard error.
    Stderr,
}

/// All knobs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Number of devices.
    pub devices: u32,
    /// Devices the program can see (`ASCEND_RT_VISIBLE_DEVICES`).
    pub visible: u32,
    /// Bytes of memory of each device.
    pub capacity: u64,
    /// Pages of 1 GiB set aside on each device.
    pub huge_1g_pages: u64,
    /// What stands behind device addresses.
    pub mode: Mode,
    /// Whether a handle can be mapped twice.
    pub alias: Alias,
    /// Whether streams, events and physical memory may have the handle of one that is gone.
    pub handles_again: bool,
    /// Name of the part, as `aclrtGetSocName` gives it.
    pub soc: String,
    /// Version of CANN.
    pub cann_version: String,
    /// Version of the driver.
    pub driver_version: String,
    /// Bytes of workspace that operators ask for.
    pub workspace: u64,
    /// Steps on elements up to which an operator computes in backed mode; a
    /// larger one takes its time and leaves its output as it was.
    pub compute_limit: u64,
    /// Tasks that fit in a stream before the host has to wait.
    pub stream_depth: usize,
    /// Costs.
    pub cost: CostModel,
    /// Planned failures.
    pub faults: FaultPlan,
    /// Where the report goes, if anywhere.
    pub report: Option<ReportTo>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            devices: 2,
            visible: u32::MAX,
            capacity: 64 << 30,
            huge_1g_pages: 0,
            mode: Mode::Phantom,
            alias: Alias::Allow,
            handles_again: false,
            soc: "Ascend910B1".into(),
            cann_version: "8.5.0".into(),
            driver_version: "25.5.0".into(),
            workspace: 0,
            compute_limit: 256 << 20,
            stream_depth: 4096,
            cost: CostModel::default(),
            faults: FaultPlan::default(),
            report: None,
        }
    }
}

impl Config {
    /// The defaults with what `lookup` knows of the `CANN_SIM_*` variables.
    ///
    /// # Errors
    /// A sentence that names the variable that could not be read.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut config = Config::default();
        let read = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let number = |name: &str, default: u64| match read(name) {
            None => Ok(default),
            Some(text) => parse_bytes(&text).ok_or(format!("{name}: {text:?} is no number")),
        };
        let devices = number("CANN_SIM_DEVICES", 2)?;
        if !(1..=16).contains(&devices) {
            return Err(format!("CANN_SIM_DEVICES: {devices} is not in 1..=16"));
        }
        config.devices = devices as u32;
        if let Some(list) = lookup("ASCEND_RT_VISIBLE_DEVICES") {
            config.visible = visible_devices(&list, config.devices);
        }
        config.capacity = number("CANN_SIM_CAPACITY", config.capacity)?;
        if config.capacity > MAX_CAPACITY {
            return Err(format!("CANN_SIM_CAPACITY: more than {MAX_CAPACITY} bytes"));
        }
        config.huge_1g_pages = number("CANN_SIM_HUGE1G_PAGES", 0)?;
        if config.huge_1g_pages > config.capacity / GIANT_PAGE {
            return Err("CANN_SIM_HUGE1G_PAGES: more than the device has".into());
        }
        config.workspace = number("CANN_SIM_WORKSPACE", 0)?;
        config.compute_limit = number("CANN_SIM_COMPUTE_LIMIT", config.compute_limit)?;
        config.stream_depth = number("CANN_SIM_STREAM_DEPTH", 4096)?.max(1) as usize;
        config.cost.kernel_ns = number("CANN_SIM_KERNEL_NS", config.cost.kernel_ns)?;
        config.mode = match read("CANN_SIM_MODE").as_deref() {
            None | Some("phantom") => Mode::Phantom,
            Some("backed") => Mode::Backed,
            Some(other) => return Err(format!("CANN_SIM_MODE: {other:?}, not phantom or backed")),
        };
        config.alias = match read("CANN_SIM_ALIAS").as_deref() {
            None | Some("allow") => Alias::Allow,
            Some("refuse") => Alias::Refuse,
            Some("apart") => Alias::Apart,
            Some(other) => {
                return Err(format!(
                    "CANN_SIM_ALIAS: {other:?}, not allow, refuse or apart"
                ));
            }
        };
        config.handles_again = match read("CANN_SIM_HANDLES").as_deref() {
            None | Some("new") => false,
            Some("again") => true,
            Some(other) => return Err(format!("CANN_SIM_HANDLES: {other:?}, not new or again")),
        };
        let text = |name: &str, field: &mut String| {
            if let Some(value) = read(name) {
                *field = value;
            }
        };
        text("CANN_SIM_SOC", &mut config.soc);
        text("CANN_SIM_CANN_VERSION", &mut config.cann_version);
        text("CANN_SIM_DRIVER_VERSION", &mut config.driver_version);
        if let Some(costs) = read("CANN_SIM_COSTS") {
            parse_costs(&costs, &mut config.cost)?;
        }
        if let Some(plan) = read("CANN_SIM_FAULTS") {
            config.faults =
                FaultPlan::parse(&plan).map_err(|error| format!("CANN_SIM_FAULTS: {error}"))?;
        }
        config.report = read("CANN_SIM_REPORT").map(|target| match target.as_str() {
            "stderr" => ReportTo::Stderr,
            _ => ReportTo::File(target),
        });
        Ok(config)
    }
}

/// How many devices a list makes visible. As the runtime reads it: numbers
/// separated by commas up to the first other character, which must rise; from
/// the first that does not exist on, the list is ignored.
pub fn visible_devices(list: &str, devices: u32) -> u32 {
    let end = list
        .find(|c: char| !c.is_ascii_digit() && c != ',')
        .unwrap_or(list.len());
    let mut seen: Vec<u32> = Vec::new();
    for number in list[..end].split(',') {
        let Ok(device) = number.parse() else { break };
        if seen.last().is_some_and(|&last| device <= last) {
            return 0;
        }
        if device >= devices {
            break;
        }
        seen.push(device);
    }
    seen.len() as u32
}

/// Largest memory of one device: what its window of addresses holds.
pub const MAX_CAPACITY: u64 = 512 << 30;

/// Reads `call=base[+per_page]` items separated by `;`, in nanoseconds;
/// `kernel` sets the time of a kernel and `*` all calls.
pub fn parse_costs(text: &str, cost: &mut CostModel) -> Result<(), String> {
    for item in text
        .split(';')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let bad = || format!("CANN_SIM_COSTS: cannot read {item:?}");
        let (name, value) = item.split_once('=').ok_or_else(bad)?;
        let (base, per_page) = value.split_once('+').unwrap_or((value, "0"));
        let base: u64 = base.trim().parse().map_err(|_| bad())?;
        let per_page: u64 = per_page.trim().parse().map_err(|_| bad())?;
        match name.trim() {
            "kernel" => cost.kernel_ns = base,
            "*" => {
                for &kind in super::cost::CALL_KINDS {
                    cost.set_call(kind, base, per_page);
                }
            }
            name => cost.set_call(
                super::cost::kind_by_name(name).ok_or_else(bad)?,
                base,
                per_page,
            ),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cost::CallKind;

    fn with(pairs: &[(&str, &str)]) -> Result<Config, String> {
        Config::from_lookup(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn variables_are_read() {
        let config = with(&[
            ("CANN_SIM_DEVICES", "3"),
            ("CANN_SIM_CAPACITY", "32g"),
            ("CANN_SIM_MODE", "backed"),
            ("CANN_SIM_ALIAS", "refuse"),
            ("CANN_SIM_HANDLES", "again"),
            ("CANN_SIM_COSTS", "aclrtMalloc=5+7; kernel=9"),
            ("CANN_SIM_REPORT", "stderr"),
        ])
        .unwrap();
        assert_eq!((config.devices, config.capacity), (3, 32 << 30));
        assert_eq!((config.mode, config.alias), (Mode::Backed, Alias::Refuse));
        assert!(
            config.handles_again && !with(&[("CANN_SIM_HANDLES", "new")]).unwrap().handles_again
        );
        let apart = with(&[("CANN_SIM_ALIAS", "apart")]).unwrap();
        assert_eq!(apart.alias, Alias::Apart);
        assert_eq!(config.cost.call(CallKind::Malloc, 3 << 20), 5 + 2 * 7);
        assert_eq!(config.cost.kernel_ns, 9);
        assert_eq!(config.report, Some(ReportTo::Stderr));
    }

    #[test]
    fn visible_devices_are_counted_as_the_runtime_does() {
        for (list, visible) in [
            ("", 0),
            ("0", 1),
            ("0,1", 2),
            ("1,0", 0),
            ("0,32,1", 1),
            ("npu0", 0),
            ("0, 1", 1),
        ] {
            assert_eq!(visible_devices(list, 2), visible, "{list:?}");
        }
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        for (name, value) in [
            ("CANN_SIM_DEVICES", "0"),
            ("CANN_SIM_CAPACITY", "much"),
            ("CANN_SIM_HUGE1G_PAGES", "65"),
            ("CANN_SIM_MODE", "real"),
            ("CANN_SIM_ALIAS", "maybe"),
            ("CANN_SIM_HANDLES", "stale"),
            ("CANN_SIM_COSTS", "aclrtMalloc"),
            ("CANN_SIM_FAULTS", "x:nth=1"),
        ] {
            assert!(
                with(&[(name, value)]).unwrap_err().starts_with(name),
                "{name}"
            );
        }
    }
}
