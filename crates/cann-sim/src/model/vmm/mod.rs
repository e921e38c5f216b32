//! Virtual memory: reservations, physical handles, mappings. Pure bookkeeping;
//! every rule of the driver is checked here and violating one changes nothing.
//!
//! Sources: the public API reference of `aclrtReserveMemAddress`,
//! `aclrtMallocPhysical`, `aclrtMapMem`, `aclrtUnmapMem` (CANN runtime, chapter
//! 11-04), the runtime's table from driver errors to codes (an invalid value is
//! 107000, what else the driver refuses is 507899), and the public driver where the
//! reference is silent: `svm/v2` for 910B and 910_93, `svm/v3` for 950.

use std::collections::BTreeMap;

use ascend_rs_sys::{
    ACL_ERROR_RT_DRV_INTERNAL_ERROR, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_ERROR_RT_PARAM_INVALID,
};

mod parts;

use super::address_space::AddressSpace;
use super::config::Alias;
use super::cost::PAGE;
use super::error::{Result, fail};
use super::table::{Table, Tag};

pub use parts::{Mapping, Physical, Place, Released, Reservation};

/// First address of the window of reservations (16 TiB).
pub const WINDOW_BASE: u64 = 16 << 40;

/// Bytes of the window (8 TiB: 16 TiB to 24 TiB).
pub const WINDOW_LEN: u64 = 8 << 40;

/// Largest reservation.
pub const MAX_RESERVATION: u64 = 128 << 30;

/// All virtual memory of a process.
#[derive(Debug)]
pub struct Vmm {
    window: AddressSpace,
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    handles: Table<Physical>,
    alias: Alias,
    aliased: usize,
}

const INVALID: i32 = ACL_ERROR_RT_PARAM_INVALID;
const REFUSED: i32 = ACL_ERROR_RT_DRV_INTERNAL_ERROR;

impl Vmm {
    /// Nothing reserved, nothing allocated.
    pub fn new(alias: Alias, handles_again: bool) -> Self {
        Vmm {
            window: AddressSpace::new(WINDOW_BASE, WINDOW_LEN),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            handles: Table::new(Tag::Physical).giving_again(handles_again),
            alias,
            aliased: 0,
        }
    }

    /// Allows or refuses mapping a handle twice from now on.
    pub fn set_alias(&mut self, alias: Alias) {
        self.alias = alias;
    }

    /// Reserves addresses.
    pub fn reserve(&mut self, len: u64, alignment: u64, expect: u64, flags: u64) -> Result<u64> {
        if len == 0 {
            return fail(INVALID, "reservation of no bytes");
        }
        if alignment != 0 {
            return fail(INVALID, "reservation: alignment must be 0");
        }
        if flags > 1 {
            return fail(INVALID, "reservation: flags must be 0 or 1");
        }
        if len > MAX_RESERVATION {
            return fail(INVALID, "reservation of more than 128 GiB");
        }
        let taken = len.next_multiple_of(PAGE);
        let align = if taken >= 1 << 30 { 1 << 30 } else { PAGE };
        let addr = if expect == 0 {
            match self.window.take(taken, align) {
                Some(addr) => addr,
                // The driver tells it from memory that is used up by nothing (svm/v2 `ptr_to_errcode`, svm/v3 `mga.c`).
                None => {
                    return fail(
                        ACL_ERROR_RT_MEMORY_ALLOCATION,
                        "the window of virtual addresses is used up",
                    );
                }
            }
        } else {
            let wanted = if len > 1 << 30 {
                1 << 30
            } else {
                len.next_power_of_two().max(PAGE)
            };
            if !expect.is_multiple_of(wanted) {
                return fail(INVALID, "reservation: expected address is not aligned");
            }
            if expect < WINDOW_BASE || expect.saturating_add(taken) > WINDOW_BASE + WINDOW_LEN {
                return fail(
                    INVALID,
                    "reservation: expected address is outside 16..24 TiB",
                );
            }
            if !self.window.take_at(expect, taken) {
                return fail(INVALID, "reservation: expected address is taken");
            }
            expect
        };
        self.reservations.insert(
            addr,
            Reservation {
                len,
                taken,
                mappings: 0,
                bound: None,
            },
        );
        Ok(addr)
    }

    /// The reservation that begins at `addr`.
    pub fn reservation_at(&self, addr: u64) -> Option<&Reservation> {
        self.reservations.get(&addr)
    }

    /// Gives a reservation back; it must have no mapping left.
    pub fn release(&mut self, addr: u64) -> Result<Reservation> {
        let Some(reservation) = self.reservations.get(&addr) else {
            return fail(
                INVALID,
                "release of an address that is no reservation's start",
            );
        };
        if reservation.mappings > 0 {
            return fail(REFUSED, "release of a reservation that is mapped");
        }
        let reservation = *reservation;
        self.reservations.remove(&addr);
        self.window.give(addr, reservation.taken);
        Ok(reservation)
    }

    /// Adds a physical handle whose memory was already taken from its device.
    pub fn create(&mut self, physical: Physical) -> u64 {
        self.handles.insert(physical)
    }

    /// A live handle.
    pub fn handle(&self, handle: u64) -> Result<&Physical> {
        match self.handles.get(handle) {
            Some(physical) if physical.references > 0 => Ok(physical),
            _ => fail(INVALID, "unknown physical handle"),
        }
    }

    /// A live handle, to change.
    pub fn handle_mut(&mut self, handle: u64) -> Result<&mut Physical> {
        match self.handles.get_mut(handle) {
            Some(physical) if physical.references > 0 => Ok(physical),
            _ => fail(INVALID, "unknown physical handle"),
        }
    }

    /// All handles whose pages exist.
    pub fn handles(&self) -> impl Iterator<Item = (u64, &Physical)> {
        self.handles.iter()
    }

    /// Gives up a reference to a handle. The pages go with the last reference
    /// and the last mapping.
    pub fn free(&mut self, handle: u64) -> Result<Option<Released>> {
        let physical = self.handle_mut(handle)?;
        physical.references -= 1;
        Ok(self.reap(handle))
    }

    fn reap(&mut self, handle: u64) -> Option<Released> {
        let physical = self.handles.get(handle)?;
        if physical.references > 0 || !physical.mapped.is_empty() {
            return None;
        }
        let Physical {
            place,
            len,
            pages,
            imported,
            exported,
            ..
        } = self.handles.remove(handle)?;
        Some(Released {
            place,
            len,
            pages,
            imported,
            exported,
            handle,
        })
    }

    fn reservation_of(&self, addr: u64, len: u64) -> Result<u64> {
        match self.reservations.range(..=addr).next_back() {
            Some((&start, reservation)) if addr < start + reservation.taken => {
                if addr.saturating_add(len) > start + reservation.taken {
                    return fail(INVALID, "map: runs past the end of the reservation");
                }
                Ok(start)
            }
            _ => fail(INVALID, "map: address is not reserved"),
        }
    }

    /// Maps the whole of a handle.
    pub fn map(
        &mut self,
        addr: u64,
        len: u64,
        offset: u64,
        handle: u64,
        flags: u64,
        owner: u64,
    ) -> Result<Mapping> {
        let alias = self.alias;
        let physical = self.handle(handle)?;
        if offset != 0 || flags != 0 {
            return fail(INVALID, "map: offset and flags must be 0");
        }
        if len != physical.len {
            return fail(INVALID, "map: size is not the size of the handle");
        }
        // Pages of 1 GiB too: `devmm_mem_map_info_check` of svm/v2, `vmm_mmap_para_check` of svm/v3.
        if !addr.is_multiple_of(physical.pages.size()) {
            return fail(INVALID, "map: address is not a multiple of the granularity");
        }
        if alias == Alias::Refuse && !physical.mapped.is_empty() {
            return fail(INVALID, "map: the handle is mapped already");
        }
        let (place, imported) = (physical.place, physical.imported);
        let start = self.reservation_of(addr, len)?;
        if self.overlapping(addr, len).is_some() {
            return fail(REFUSED, "map: part of the range is mapped already");
        }
        let reservation = &self.reservations[&start];
        if let Some((bound, bound_imported)) = reservation.bound {
            if bound != place {
                return fail(INVALID, "map: the reservation is bound to another device");
            }
            if reservation.mappings > 0 && bound_imported != imported {
                return fail(
                    INVALID,
                    "map: local and imported handles in one reservation",
                );
            }
        }
        let mapping = Mapping {
            len,
            handle,
            place,
            owner,
            access: place.access(),
        };
        self.mappings.insert(addr, mapping);
        if let Some(reservation) = self.reservations.get_mut(&start) {
            reservation.mappings += 1;
            reservation.bound = Some((place, imported));
        }
        if let Some(physical) = self.handles.get_mut(handle) {
            physical.mapped.push(addr);
            self.aliased += usize::from(physical.mapped.len() == 2);
        }
        Ok(mapping)
    }

    /// Whether a handle's latest mapping shows other memory than the ones before it.
    pub fn is_apart(&mut self, handle: u64) -> bool {
        let apart = self.alias == Alias::Apart;
        apart && self.handle(handle).is_ok_and(|it| it.mapped.len() > 1)
    }

    fn overlapping(&self, addr: u64, len: u64) -> Option<u64> {
        let (&start, mapping) = self.mappings.range(..addr + len).next_back()?;
        (start + mapping.len > addr).then_some(start)
    }

    /// The mapping that begins at `addr`.
    pub fn mapping_at(&self, addr: u64) -> Result<Mapping> {
        match self.mappings.get(&addr) {
            Some(mapping) => Ok(*mapping),
            None => fail(INVALID, "address is no mapping's start"),
        }
    }

    /// The mapping that holds `addr`, with its start.
    pub fn find(&self, addr: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=addr).next_back()?;
        (addr < start + mapping.len).then_some((start, mapping))
    }

    /// Undoes the mapping that begins at `addr`; returns it and, if this was
    /// what kept them, the pages.
    pub fn unmap(&mut self, addr: u64) -> Result<(Mapping, Option<Released>)> {
        let mapping = self.mapping_at(addr)?;
        self.mappings.remove(&addr);
        if let Some((_, reservation)) = self.reservations.range_mut(..=addr).next_back() {
            // Where its pages lie stays settled, as `devmm_ioctl_mem_unmap` of svm/v2 has it.
            reservation.mappings -= 1;
        }
        if let Some(physical) = self.handles.get_mut(mapping.handle) {
            physical.mapped.retain(|&at| at != addr);
            self.aliased -= usize::from(physical.mapped.len() == 1);
        }
        Ok((mapping, self.reap(mapping.handle)))
    }

    /// Grants devices access to a mapping, which must be named exactly, or takes it
    /// from them. What other devices may do stays as it was.
    pub fn set_access(&mut self, addr: u64, len: u64, devices: &[(u32, bool)]) -> Result<()> {
        match self.mappings.get_mut(&addr) {
            Some(mapping) if mapping.len == len => {
                for &(device, granted) in devices {
                    let bit = 1 << device;
                    mapping.access = (mapping.access & !bit) | if granted { bit } else { 0 };
                }
                Ok(())
            }
            _ => fail(INVALID, "access: not the address and size of a mapping"),
        }
    }

    /// Makes a mapping inaccessible until access is granted.
    pub fn withhold_access(&mut self, addr: u64) {
        if let Some(mapping) = self.mappings.get_mut(&addr) {
            mapping.access = 0;
        }
    }

    /// True if a handle is mapped more than once.
    pub fn any_aliases(&self) -> bool {
        self.aliased > 0
    }

    /// Other addresses of the pages behind a range, each with its bytes. Empty
    /// unless a handle is mapped more than once.
    pub fn aliases(&self, addr: u64, len: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        if !self.any_aliases() {
            return found;
        }
        let end = addr.saturating_add(len);
        let mut at = addr;
        while at < end
            && let Some((start, mapping)) = self.find(at)
        {
            let part = (start + mapping.len).min(end) - at;
            if let Some(physical) = self.handles.get(mapping.handle) {
                let others = physical.mapped.iter().filter(|&&other| other != start);
                found.extend(others.map(|other| (other + (at - start), part)));
            }
            at += part;
        }
        found
    }

    /// Marks a handle as shared under a number.
    pub fn export(&mut self, handle: u64, shareable: u64) -> Result<()> {
        let physical = self.handle_mut(handle)?;
        if physical.exported.is_some() {
            return fail(REFUSED, "export: the handle is exported already");
        }
        if physical.imported {
            return fail(INVALID, "export: the handle was imported");
        }
        if physical.place == Place::Host {
            return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "export: host memory");
        }
        physical.exported = Some(shareable);
        Ok(())
    }

    /// Live reservations in address order.
    pub fn reservations(&self) -> impl Iterator<Item = (u64, &Reservation)> {
        self.reservations
            .iter()
            .map(|(&addr, reservation)| (addr, reservation))
    }

    /// Live mappings in address order.
    pub fn mappings(&self) -> impl Iterator<Item = (u64, &Mapping)> {
        self.mappings.iter().map(|(&addr, mapping)| (addr, mapping))
    }
}
