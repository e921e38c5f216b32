//! Calls on whole devices: reset, abort of tasks, memory errors and repair.

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_DEVICE_MEM_ERROR};

use super::Sim;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::ledger::HazardKind;
use crate::model::memory::Allocation;
use crate::model::vmm::Place;
use crate::model::work::Access;

impl Sim {
    /// Waits for all work of a device that can complete, whatever is captured
    /// meanwhile.
    pub fn finish_work(&mut self, device: u32, kind: CallKind) {
        for stream in self.streams_of(device) {
            // A stream that waits for ever is left as it is.
            let _ = self.sync_stream(stream, kind);
        }
    }

    /// Resets a device: its work is dropped, and memory the program did not free is
    /// taken back.
    pub fn reset_device(&mut self, device: u32) {
        let (plain, physical) = self.outstanding(device);
        self.device(device).taken_back += plain + physical;
        self.abort_tasks(device);
        let plain: Vec<(u64, Allocation)> = self.devices[device as usize]
            .memory
            .live()
            .map(|(addr, allocation)| (addr, *allocation))
            .collect();
        for (addr, allocation) in plain {
            // Streams of other devices go on.
            if let Some((_, name)) = self.user_of(addr, allocation.len) {
                let kind = if allocation.imported {
                    HazardKind::UnmapUnderWork
                } else {
                    HazardKind::FreeUnderWork
                };
                self.hazard(kind, device, addr, allocation.len, name);
            }
            self.drop_plain(device, addr);
            self.device(device).reclaimed.insert(addr);
        }
        let mine = Place::Device(device);
        let mapped: Vec<u64> = self
            .vmm
            .mappings()
            .filter(|(_, mapping)| mapping.place == mine)
            .map(|(addr, _)| addr)
            .collect();
        for addr in mapped {
            // The address was just read from the table of mappings.
            let _ = self.unmap(addr);
        }
        let handles: Vec<(u64, u32)> = self
            .vmm
            .handles()
            .filter(|(_, physical)| physical.place == mine)
            .map(|(handle, physical)| (handle, physical.references))
            .collect();
        for (handle, references) in handles {
            for _ in 0..references {
                let _ = self.free_physical(handle);
            }
        }
        let state = self.device(device);
        state.broken = None;
        state.uce.clear();
        state.active = false;
    }

    /// Drops all work of a device that has not completed.
    pub fn abort_tasks(&mut self, device: u32) {
        for stream in self.streams_of(device) {
            // The handles were just read from the table of streams.
            let _ = self.abort_stream(stream);
        }
    }

    /// Finds memory of a device to be bad.
    pub fn inject_uce(&mut self, device: u32, addr: u64, len: u64) -> Result<()> {
        if len == 0 || self.device_at(addr) != Some(device) || !self.mapped(&Access { addr, len }) {
            return fail(ACL_ERROR_INVALID_PARAM, "not live memory of the device");
        }
        let state = self.device(device);
        state.uce.push((addr, len));
        state.broken = Some(ACL_ERROR_RT_DEVICE_MEM_ERROR);
        Ok(())
    }

    /// Repairs ranges with memory errors; each must be one that was reported.
    pub fn repair_uce(&mut self, device: u32, ranges: &[(u64, u64)]) -> Result<()> {
        let state = self.device(device);
        if ranges.iter().any(|range| !state.uce.contains(range)) {
            return fail(
                ACL_ERROR_INVALID_PARAM,
                "repair of memory that was not reported",
            );
        }
        state.uce.retain(|range| !ranges.contains(range));
        if state.uce.is_empty() && state.broken == Some(ACL_ERROR_RT_DEVICE_MEM_ERROR) {
            state.broken = None;
        }
        Ok(())
    }
}
