//! What tests ask the driver without a device.

use std::collections::BTreeMap;

use super::FakeDriver;
use crate::driver::{PhysicalHandle, StreamToken};

/// Memory under a range of addresses that lies in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The physical memory; 0 for a driver allocation, which has no handle.
    pub handle: usize,
    /// Where it begins: an offset in the physical memory, or the address in a driver allocation.
    pub start: usize,
    /// Bytes.
    pub bytes: usize,
}

impl FakeDriver {
    /// Number of calls of a kind (the trait's method name).
    pub fn calls(&self, kind: &str) -> u64 {
        self.inner.lock().calls.get(kind).copied().unwrap_or(0)
    }

    /// Those that people were told of.
    pub fn bugs(&self) -> Vec<String> {
        self.inner.lock().bugs.clone()
    }

    /// Number of calls of all kinds.
    pub fn total_calls(&self) -> u64 {
        self.inner.lock().total_calls
    }

    /// Whether what is submitted to `stream` from now on runs after the work of another up to `until`, by waits.
    pub fn runs_after(&self, stream: StreamToken, on: StreamToken, until: u64) -> bool {
        let inner = self.inner.lock();
        let mut reached = vec![(stream, u64::MAX)];
        let mut at = 0;
        while let Some(&(stream, position)) = reached.get(at) {
            if stream == on && position >= until && at > 0 {
                return true;
            }
            let mut before = inner.waits.iter().filter(|wait| {
                let next = (wait.on, wait.until);
                wait.stream == stream && wait.position <= position && !reached.contains(&next)
            });
            let next: Vec<_> = before.by_ref().map(|wait| (wait.on, wait.until)).collect();
            reached.extend(next);
            at += 1;
        }
        false
    }

    /// Driver allocations held on a device: count and bytes.
    pub fn held(&self, device: u32) -> (usize, usize) {
        let inner = self.inner.lock();
        inner
            .devices
            .get(&device)
            .map_or((0, 0), |d| (d.held.len(), d.used))
    }

    /// Physical handles and reservations held on a device: counts.
    pub fn held_virtual(&self, device: u32) -> (usize, usize) {
        let inner = self.inner.lock();
        inner
            .devices
            .get(&device)
            .map_or((0, 0), |d| (d.physical.len(), d.reserved.len()))
    }

    /// Bytes of physical memory mapped on a device.
    pub fn mapped_bytes(&self, device: u32) -> usize {
        let inner = self.inner.lock();
        inner.devices.get(&device).map_or(0, |d| {
            d.physical
                .values()
                .filter(|(_, mappings)| *mappings > 0)
                .map(|(bytes, _)| bytes)
                .sum()
        })
    }

    /// What is mapped at an address of a device.
    pub fn mapping(&self, device: u32, addr: usize) -> Option<PhysicalHandle> {
        let inner = self.inner.lock();
        inner.devices.get(&device)?.mapped.get(&addr).copied()
    }

    /// How much work was submitted to a stream, and how much of it is done.
    pub fn progress(&self, stream: StreamToken) -> (u64, u64) {
        let inner = self.inner.lock();
        let count = |of: &std::collections::HashMap<StreamToken, u64>| {
            of.get(&stream).copied().unwrap_or(0)
        };
        (count(&inner.submitted), count(&inner.completed))
    }

    /// The memory under `bytes` at `addr`; `None` when part of it has none.
    pub fn spans(&self, device: u32, addr: usize, bytes: usize) -> Option<Vec<Span>> {
        let inner = self.inner.lock();
        let slot = inner.devices.get(&device)?;
        let (mut at, end) = (addr, addr + bytes);
        if let Some((base, size)) = slot.held.range(..=addr).next_back()
            && end <= base + size
        {
            let (handle, start) = (0, addr);
            return Some(vec![Span {
                handle,
                start,
                bytes,
            }]);
        }
        let mut spans = Vec::new();
        while at < end {
            let (base, handle) = slot.mapped.range(..=at).next_back()?;
            let (size, _) = slot.physical.get(&handle.0)?;
            let start = at - base;
            if start >= *size {
                return None;
            }
            let bytes = (size - start).min(end - at);
            let handle = handle.0;
            spans.push(Span {
                handle,
                start,
                bytes,
            });
            at += bytes;
        }
        Some(spans)
    }

    /// The driver allocation, or the physical memory, that each of these blocks lies in: its address or handle, and bytes.
    pub fn under(&self, device: u32, blocks: &[(usize, usize)]) -> BTreeMap<(bool, usize), usize> {
        let mut found = BTreeMap::new();
        for &(addr, bytes) in blocks {
            for span in self.spans(device, addr, bytes).unwrap_or_default() {
                let inner = self.inner.lock();
                let Some(slot) = inner.devices.get(&device) else {
                    continue;
                };
                if let Some((size, _)) = slot.physical.get(&span.handle) {
                    found.insert((true, span.handle), *size);
                } else if let Some((base, size)) = slot.held.range(..=addr).next_back() {
                    found.insert((false, *base), *size);
                }
            }
        }
        found
    }

    /// Bytes in the driver allocation or mapping that begins at `addr`.
    pub fn size_at(&self, device: u32, addr: usize) -> Option<usize> {
        let inner = self.inner.lock();
        let slot = inner.devices.get(&device)?;
        let mapped = || Some(slot.physical.get(&slot.mapped.get(&addr)?.0)?.0);
        slot.held.get(&addr).copied().or_else(mapped)
    }
}
