//! What a run is judged by: counts and times of driver calls, and hazards.

use super::cost::{CALL_KINDS, CallKind};

/// How often calls of a kind were made and what they cost the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallStat {
    /// Calls.
    pub count: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Nanoseconds of the calls themselves, waiting not counted.
    pub ns: u64,
    /// Nanoseconds the host waited in them for the device.
    pub wait_ns: u64,
}

/// Something a real device might punish with a fault or with wrong data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HazardKind {
    /// Memory was freed while a task that uses it had not completed.
    FreeUnderWork,
    /// A mapping was undone while a task that uses it had not completed.
    UnmapUnderWork,
    /// A task names memory that is not mapped.
    UnmappedAccess,
    /// A replayed task names memory that has changed hands since its capture.
    StaleReplay,
    /// Tasks that run at the same time, or one task, use one physical page at
    /// two addresses.
    AliasedUse,
    /// An address was freed that is not allocated, or twice.
    BadFree,
    /// A stream was destroyed with work on it by force.
    StreamDestroyedUnderWork,
}

impl HazardKind {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            HazardKind::FreeUnderWork => "free under pending work",
            HazardKind::UnmapUnderWork => "unmap under pending work",
            HazardKind::UnmappedAccess => "access to unmapped memory",
            HazardKind::StaleReplay => "replay touches memory that changed hands",
            HazardKind::AliasedUse => "physical page in use at two addresses",
            HazardKind::BadFree => "free of an unknown address",
            HazardKind::StreamDestroyedUnderWork => "stream destroyed under pending work",
        }
    }
}

/// One hazard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hazard {
    /// What happened.
    pub kind: HazardKind,
    /// On which device.
    pub device: u32,
    /// Address of the memory.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// When, on the virtual clock.
    pub time: u64,
    /// The operator or call that was pending or at fault.
    pub name: &'static str,
}

/// Hazards kept word for word; later ones are only counted.
pub const HAZARDS_KEPT: usize = 1000;

/// Counts of one device.
#[derive(Debug, Clone)]
pub struct Ledger {
    calls: Vec<CallStat>,
    /// Tasks that streams were given.
    pub tasks: u64,
    /// Hazards in the order they happened, at most [`HAZARDS_KEPT`].
    pub hazards: Vec<Hazard>,
    /// All hazards.
    pub hazard_count: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            calls: vec![CallStat::default(); CALL_KINDS.len()],
            tasks: 0,
            hazards: Vec::new(),
            hazard_count: 0,
        }
    }
}

impl Ledger {
    /// Counts of one kind.
    pub fn call(&self, kind: CallKind) -> CallStat {
        self.calls[kind as usize]
    }

    /// Counts of one kind, to change.
    pub fn call_mut(&mut self, kind: CallKind) -> &mut CallStat {
        &mut self.calls[kind as usize]
    }

    /// Nanoseconds the host waited for this device.
    pub fn wait_ns(&self) -> u64 {
        self.calls.iter().map(|stat| stat.wait_ns).sum()
    }

    /// Writes a hazard down.
    pub fn hazard(&mut self, hazard: Hazard) {
        self.hazard_count += 1;
        if self.hazards.len() < HAZARDS_KEPT {
            self.hazards.push(hazard);
        }
    }
}
