//! Physical handles that back no address.

use std::collections::BTreeMap;

use crate::driver::PhysicalHandle;

/// The idle handles of a device, by size. Any range of any stream or pool may take them.
#[derive(Debug, Default)]
pub struct PagePool {
    idle: BTreeMap<usize, Vec<PhysicalHandle>>,
    bytes: usize,
}

impl PagePool {
    /// Bytes in idle handles.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an idle handle.
    pub fn put(&mut self, page_size: usize, handle: PhysicalHandle) {
        self.idle.entry(page_size).or_default().push(handle);
        self.bytes += page_size;
    }

    /// Takes up to `count` handles of a size.
    pub fn take(&mut self, page_size: usize, count: usize) -> Vec<PhysicalHandle> {
        let Some(idle) = self.idle.get_mut(&page_size) else {
            return Vec::new();
        };
        let taken = idle.split_off(idle.len().saturating_sub(count));
        self.bytes -= taken.len() * page_size;
        taken
    }

    /// The sizes of which there are idle handles.
    pub fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let some = self.idle.iter().filter(|(_, handles)| !handles.is_empty());
        some.map(|(size, _)| *size)
    }
}
