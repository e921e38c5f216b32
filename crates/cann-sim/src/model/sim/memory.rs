//! Calls on plain memory: allocate, free, copy, fill, host memory.

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_PARAM_INVALID,
};
use smallvec::smallvec;

use super::{Sim, is_device};
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::ledger::HazardKind;
use crate::model::memory::{Allocation, Pages, SMALL_LIMIT, device_of};
use crate::model::work::{Access, Action, Work};

/// Which pages an allocation may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// 4 KiB up to 1 MiB, 2 MiB above.
    HugeFirst,
    /// 2 MiB.
    HugeOnly,
    /// 4 KiB.
    NormalOnly,
    /// 1 GiB out of the set put aside.
    GiantOnly,
}

impl Sim {
    /// Allocates device memory of `len` bytes, the padding included.
    pub fn malloc(&mut self, device: u32, len: u64, policy: Policy) -> Result<u64> {
        if len == 0 {
            return fail(ACL_ERROR_INVALID_PARAM, "allocation of no bytes");
        }
        let pages = match policy {
            Policy::HugeFirst if len <= SMALL_LIMIT => Pages::Small,
            Policy::HugeFirst | Policy::HugeOnly => Pages::Huge,
            Policy::NormalOnly => Pages::Small,
            Policy::GiantOnly => Pages::Giant,
        };
        let Some(taken) = len.checked_next_multiple_of(pages.size()) else {
            return out_of_memory();
        };
        let owner = self.next_number();
        let state = self.device(device);
        state.charge(pages, taken)?;
        let allocation = Allocation {
            requested: len,
            len: taken,
            pages,
            owner,
            imported: false,
        };
        let Some(addr) = state.memory.place(allocation) else {
            state.discharge(pages, taken);
            return out_of_memory();
        };
        let state = self.device(device);
        state.reclaimed.remove(&addr);
        if !self.backing.allocate(addr, taken) {
            let state = self.device(device);
            state.memory.remove(addr);
            state.discharge(pages, taken);
            return fail(
                ACL_ERROR_RT_MEMORY_ALLOCATION,
                "the host has no pages for this",
            );
        }
        Ok(addr)
    }

    /// Frees device memory. Takes effect at once, whatever still uses it.
    pub fn free(&mut self, addr: u64) -> Result<()> {
        let device = device_of(addr).filter(|&device| device < self.config.devices);
        let allocation = device.and_then(|device| {
            self.device(device)
                .memory
                .get(addr)
                .copied()
                .map(|it| (device, it))
        });
        let Some((device, allocation)) = allocation else {
            // After a reset the program may free what the reset took back.
            let forgiven = device.is_some_and(|device| self.device(device).reclaimed.remove(&addr));
            if !forgiven {
                self.hazard(
                    HazardKind::BadFree,
                    device.unwrap_or(0),
                    addr,
                    0,
                    "aclrtFree",
                );
            }
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "free of an address that is not allocated",
            );
        };
        if allocation.imported {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "free of memory imported by key");
        }
        if let Some((_, name)) = self.user_of(addr, allocation.len) {
            self.hazard(
                HazardKind::FreeUnderWork,
                device,
                addr,
                allocation.len,
                name,
            );
        }
        self.drop_plain(device, addr);
        Ok(())
    }

    /// Takes a plain allocation away.
    pub(super) fn drop_plain(&mut self, device: u32, addr: u64) {
        let Some(allocation) = self.device(device).memory.remove(addr) else {
            return;
        };
        if allocation.imported {
            self.backing.release_shared(addr, allocation.requested);
            self.imports.retain(|_, at| *at != addr);
            return;
        }
        self.withdraw_keys(addr);
        self.backing.release(addr, allocation.len);
        self.device(device)
            .discharge(allocation.pages, allocation.len);
    }

    /// True on parts whose kernels do not read past the end of a tensor, where
    /// no padding is added (Ascend950).
    pub fn unpadded(&self) -> bool {
        self.config.soc.starts_with("Ascend950")
    }

    /// Fails unless a range is host memory or live device memory.
    fn check_range(&mut self, device: u32, addr: u64, len: u64, name: &'static str) -> Result<()> {
        if self.mapped(&Access { addr, len }) {
            return Ok(());
        }
        self.hazard(HazardKind::UnmappedAccess, device, addr, len, name);
        fail(
            ACL_ERROR_RT_PARAM_INVALID,
            "address is not mapped device memory",
        )
    }

    fn copy_time(&self, dst: u64, src: u64, len: u64) -> u64 {
        let cost = &self.config.cost;
        let bandwidth = match (is_device(dst), is_device(src)) {
            (true, true) if self.device_at(dst) != self.device_at(src) => cost.peer_bandwidth,
            (true, true) => cost.device_bandwidth,
            _ => cost.host_bandwidth,
        };
        cost.transfer(len, bandwidth)
    }

    /// The device an address belongs to.
    pub fn device_at(&self, addr: u64) -> Option<u32> {
        let plain = device_of(addr).filter(|&device| device < self.config.devices);
        plain.or_else(|| match self.vmm.find(addr)?.1.place {
            crate::model::vmm::Place::Device(device) => Some(device),
            crate::model::vmm::Place::Host => None,
        })
    }

    /// Copies while the caller waits. Not ordered with any stream.
    pub fn copy_now(&mut self, device: u32, dst: u64, src: u64, len: u64) -> Result<()> {
        self.check_range(device, dst, len, "aclrtMemcpy")?;
        self.check_range(device, src, len, "aclrtMemcpy")?;
        let time = self.copy_time(dst, src, len);
        let end = self.clock.now().saturating_add(time);
        self.wait_until(end, CallKind::Memcpy, device);
        self.backing
            .copy(dst, src, len, is_device(dst), is_device(src));
        self.unblock();
        Ok(())
    }

    /// Fills while the caller waits.
    pub fn fill_now(&mut self, device: u32, dst: u64, value: u8, len: u64) -> Result<()> {
        self.check_range(device, dst, len, "aclrtMemset")?;
        let cost = &self.config.cost;
        let time = cost.transfer(len, cost.device_bandwidth);
        let end = self.clock.now().saturating_add(time);
        self.wait_until(end, CallKind::Memset, device);
        if is_device(dst) {
            self.backing.fill(dst, value, len);
        }
        self.unblock();
        Ok(())
    }

    /// Puts a copy on a stream. If one end is pageable host memory the runtime
    /// turns the call into one that waits.
    pub fn copy_async(&mut self, stream: u64, dst: u64, src: u64, len: u64) -> Result<()> {
        let device = self.stream(stream)?.device;
        self.check_range(device, dst, len, "aclrtMemcpyAsync")?;
        self.check_range(device, src, len, "aclrtMemcpyAsync")?;
        let pageable = !self.pinned(dst, len) || !self.pinned(src, len);
        if pageable {
            self.forbid_blocking_copy(stream)?;
        }
        let work = Work {
            nanoseconds: self.copy_time(dst, src, len),
            accesses: smallvec![Access { addr: dst, len }, Access { addr: src, len }],
            action: Some(Action::Copy { dst, src, len }),
            name: "aclrtMemcpyAsync",
        };
        self.submit(stream, work)?;
        if !pageable {
            return Ok(());
        }
        let waited = self.sync_stream(stream, CallKind::MemcpyAsync);
        if waited.is_err() {
            self.withdraw_last(stream);
        }
        waited
    }

    /// Puts a fill on a stream.
    pub fn fill_async(&mut self, stream: u64, dst: u64, value: u8, len: u64) -> Result<()> {
        let device = self.stream(stream)?.device;
        self.check_range(device, dst, len, "aclrtMemsetAsync")?;
        let work = Work {
            nanoseconds: self
                .config
                .cost
                .transfer(len, self.config.cost.device_bandwidth),
            accesses: smallvec![Access { addr: dst, len }],
            action: Some(Action::Fill { dst, value, len }),
            name: "aclrtMemsetAsync",
        };
        self.submit(stream, work)
    }

    /// Free and total bytes of a device.
    pub fn memory_info(&self, device: u32) -> (u64, u64) {
        let state = &self.devices[device as usize];
        (state.free(), state.capacity)
    }
}

fn out_of_memory<T>() -> Result<T> {
    fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "device memory is exhausted")
}
