//! Calls on virtual memory that also touch a device's memory or its streams.

use ascend_rs_sys::{ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_PARAM_INVALID};

use super::Sim;
use crate::ipc;
use crate::model::error::{Result, fail};
use crate::model::ledger::HazardKind;
use crate::model::memory::Pages;
use crate::model::vmm::{Physical, Place, Released};

impl Sim {
    /// Makes a physical handle.
    pub fn malloc_physical(
        &mut self,
        place: Place,
        len: u64,
        pages: Pages,
        attr: u32,
    ) -> Result<u64> {
        if len == 0 || !len.is_multiple_of(pages.size()) {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "physical memory: size is not a multiple of the granularity",
            );
        }
        if let Place::Device(device) = place {
            self.device(device).charge(pages, len)?;
        }
        let physical = Physical {
            place,
            len,
            pages,
            attr,
            mapped: Vec::new(),
            references: 1,
            exported: None,
            imported: false,
        };
        let handle = self.vmm.create(physical);
        if !self.backing.create(handle, len, place == Place::Host) {
            self.vmm.free(handle)?;
            if let Place::Device(device) = place {
                self.device(device).discharge(pages, len);
            }
            return fail(
                ACL_ERROR_RT_MEMORY_ALLOCATION,
                "the host has no pages for this",
            );
        }
        Ok(handle)
    }

    /// Gives up a physical handle; its pages go when nothing maps them.
    pub fn free_physical(&mut self, handle: u64) -> Result<()> {
        if let Some(released) = self.vmm.free(handle)? {
            self.reclaim(released);
        }
        Ok(())
    }

    fn reclaim(&mut self, released: Released) {
        self.backing.destroy(released.handle);
        if let Some(number) = released.exported {
            ipc::withdraw(&ipc::handle_name(number));
        }
        if let (Place::Device(device), false) = (released.place, released.imported) {
            self.device(device).discharge(released.pages, released.len);
        }
    }

    /// Maps a handle.
    pub fn map(&mut self, addr: u64, len: u64, offset: u64, handle: u64, flags: u64) -> Result<()> {
        let owner = self.next_number();
        self.vmm.map(addr, len, offset, handle, flags, owner)?;
        let mapped = if self.vmm.is_apart(handle) {
            self.backing.map_apart(addr, len)
        } else {
            self.backing.map(addr, len, handle)
        };
        if !mapped {
            self.vmm.unmap(addr)?;
            return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "the host cannot map this");
        }
        Ok(())
    }

    /// Undoes the mapping that begins at `addr`. Does not wait for anything.
    pub fn unmap(&mut self, addr: u64) -> Result<()> {
        let mapping = self.vmm.mapping_at(addr)?;
        if let Some((_, name)) = self.user_of(addr, mapping.len) {
            let device = match mapping.place {
                Place::Device(device) => device,
                Place::Host => 0,
            };
            self.hazard(HazardKind::UnmapUnderWork, device, addr, mapping.len, name);
        }
        let (mapping, released) = self.vmm.unmap(addr)?;
        self.backing.unmap(addr, mapping.len, mapping.handle);
        if let Some(released) = released {
            self.reclaim(released);
        }
        Ok(())
    }
}
