//! Memory of other processes.

use ascend_rs_sys::{ACL_ERROR_RT_DRV_INTERNAL_ERROR, ACL_ERROR_RT_MEMORY_ALLOCATION};

use super::Sim;
use crate::ipc;
use crate::model::error::{Result, fail};
use crate::model::ledger::HazardKind;
use crate::model::memory::{Allocation, Pages, device_of};
use crate::model::vmm::{Physical, Place};

impl Sim {
    /// Makes the pages of a handle available; a path other processes can open.
    pub fn share_handle(&self, handle: u64) -> Option<String> {
        self.backing.share(handle)
    }

    /// Makes a plain allocation available; a path and where in that file.
    pub fn share_plain(&self, addr: u64) -> Option<(String, u64)> {
        self.backing.share_plain(addr)
    }

    /// Notes that the plain allocation at an address is shared under a key.
    pub fn add_export(&mut self, addr: u64, key: &str) {
        self.exports.entry(addr).or_default().push(key.into());
    }

    /// Forgets a key under which memory was shared.
    pub fn close_export(&mut self, key: &str) {
        self.exports.retain(|_, keys| {
            keys.retain(|it| it != key);
            !keys.is_empty()
        });
        ipc::withdraw(key);
    }

    /// Shares the plain allocation at an address no longer: the next one there is
    /// other memory.
    pub(super) fn withdraw_keys(&mut self, addr: u64) {
        for key in self.exports.remove(&addr).unwrap_or_default() {
            ipc::withdraw(&key);
        }
    }

    /// A handle of pages another process owns.
    pub fn import_physical(
        &mut self,
        device: u32,
        len: u64,
        attr: u32,
        path: Option<&str>,
    ) -> Result<u64> {
        let handle = self.vmm.create(Physical {
            place: Place::Device(device),
            len,
            pages: Pages::Huge,
            attr,
            mapped: Vec::new(),
            references: 1,
            exported: None,
            imported: true,
        });
        if !self.backing.adopt(handle, len, path.unwrap_or_default()) {
            self.vmm.free(handle)?;
            return fail(
                ACL_ERROR_RT_DRV_INTERNAL_ERROR,
                "the pages cannot be opened",
            );
        }
        Ok(handle)
    }

    /// Gives memory of another process an address here.
    pub fn import_plain(
        &mut self,
        device: u32,
        len: u64,
        key: &str,
        source: Option<(&str, u64)>,
    ) -> Result<u64> {
        if self.imports.contains_key(key) {
            return fail(
                ACL_ERROR_RT_DRV_INTERNAL_ERROR,
                "the key is imported already",
            );
        }
        let owner = self.next_number();
        let pages = Pages::Huge;
        let taken = len.next_multiple_of(pages.size());
        let allocation = Allocation {
            requested: len,
            len: taken,
            pages,
            owner,
            imported: true,
        };
        let Some(addr) = self.device(device).memory.place(allocation) else {
            return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no address is left");
        };
        if !self.backing.allocate_shared(addr, len, source) {
            self.device(device).memory.remove(addr);
            return fail(
                ACL_ERROR_RT_DRV_INTERNAL_ERROR,
                "the pages cannot be opened",
            );
        }
        self.imports.insert(key.into(), addr);
        Ok(addr)
    }

    /// Forgets an import; false if the key was not imported here.
    pub fn close_import(&mut self, key: &str) -> Result<bool> {
        let Some(addr) = self.imports.remove(key) else {
            return Ok(false);
        };
        let device = device_of(addr).unwrap_or(0);
        if let Some(allocation) = self.device(device).memory.get(addr).copied() {
            if let Some((_, name)) = self.user_of(addr, allocation.requested) {
                self.hazard(
                    HazardKind::UnmapUnderWork,
                    device,
                    addr,
                    allocation.requested,
                    name,
                );
            }
            self.backing.release_shared(addr, allocation.requested);
            self.device(device).memory.remove(addr);
        }
        Ok(true)
    }
}
