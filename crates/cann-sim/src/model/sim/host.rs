//! Host memory that devices read and write on their own: allocated through the
//! runtime, or registered with it.

use std::collections::BTreeMap;

use ascend_rs_sys::{
    ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, ACL_ERROR_HOST_MEMORY_NOT_REGISTERED,
    ACL_ERROR_INVALID_PARAM,
};

use super::{Sim, is_device};
use crate::model::error::{Result, fail};
use crate::model::ledger::HazardKind;
use crate::model::stream::Command;
use crate::model::work::Accesses;

/// A range of pinned host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// Bytes.
    pub len: u64,
    /// Number that no other allocation, mapping or registration ever has.
    pub owner: u64,
}

/// The range of a table that holds `addr`, with its start.
fn holding(table: &BTreeMap<u64, Pinned>, addr: u64) -> Option<(u64, Pinned)> {
    let (&start, &pinned) = table.range(..=addr).next_back()?;
    (addr - start < pinned.len).then_some((start, pinned))
}

impl Sim {
    /// Notes memory of `aclrtMallocHost`.
    pub fn add_host(&mut self, addr: u64, len: u64) {
        let owner = self.next_number();
        self.host.insert(addr, Pinned { len, owner });
    }

    /// Forgets memory of `aclrtMallocHost`.
    pub fn free_host(&mut self, addr: u64, len: u64) {
        self.leave_host(HazardKind::FreeUnderWork, addr, len);
        self.host.remove(&addr);
    }

    /// Registers memory of the program's own.
    pub fn register_host(&mut self, addr: u64, len: u64) -> Result<()> {
        if len == 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "registration of no bytes");
        }
        let before = self
            .registered
            .range(..addr.saturating_add(len))
            .next_back();
        if before.is_some_and(|(&start, it)| start.saturating_add(it.len) > addr) {
            return fail(
                ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                "registered already",
            );
        }
        let owner = self.next_number();
        self.registered.insert(addr, Pinned { len, owner });
        Ok(())
    }

    /// Undoes a registration.
    pub fn unregister_host(&mut self, addr: u64) -> Result<()> {
        let Some(&Pinned { len, .. }) = self.registered.get(&addr) else {
            return fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "not registered");
        };
        self.leave_host(HazardKind::UnmapUnderWork, addr, len);
        self.registered.remove(&addr);
        Ok(())
    }

    /// Reports work on a range that goes away, and takes its effect from it:
    /// nobody knows what will be at the addresses, or whether anything is.
    fn leave_host(&mut self, kind: HazardKind, addr: u64, len: u64) {
        let Some((device, name)) = self.user_of(addr, len) else {
            return;
        };
        self.hazard(kind, device, addr, len, name);
        let touches = |accesses: &Accesses| accesses.iter().any(|it| it.overlaps(addr, len));
        self.due.retain(|due| !touches(&due.0.accesses));
        for stream in self.streams.values_mut() {
            for command in &mut stream.blocked {
                if let Command::Work(work) = command
                    && touches(&work.accesses)
                {
                    work.action = None;
                }
            }
        }
    }

    fn pinned_at(&self, addr: u64) -> Option<(u64, Pinned)> {
        holding(&self.host, addr).or_else(|| holding(&self.registered, addr))
    }

    /// The range of pinned host memory that holds `addr`: start and bytes.
    pub fn host_range(&self, addr: u64) -> Option<(u64, u64)> {
        self.pinned_at(addr).map(|(start, it)| (start, it.len))
    }

    /// Number of the pinned range that holds an address of the host.
    pub(super) fn host_owner(&self, addr: u64) -> Option<u64> {
        self.pinned_at(addr).map(|(_, it)| it.owner)
    }

    /// True if a device can read and write the range on its own: device memory,
    /// or pinned from end to end.
    pub(super) fn pinned(&self, addr: u64, len: u64) -> bool {
        if is_device(addr) {
            return true;
        }
        let Some(end) = addr.checked_add(len) else {
            return false;
        };
        let mut at = addr;
        while at < end {
            let Some((start, it)) = self.pinned_at(at) else {
                return false;
            };
            at = start.saturating_add(it.len);
        }
        true
    }
}
