//! No memory behind device addresses. Copies to a device are dropped, copies
//! from one give zeros, so that results do not depend on what was in the
//! host's buffer. Host memory (pinned virtual memory) is real all the same,
//! because the program reads and writes it.

use std::collections::HashMap;

use super::Backing;
use super::pages::Pages;

/// A backing without device memory.
#[derive(Debug, Default)]
pub struct Phantom {
    host: Pages,
    host_handles: HashMap<u64, ()>,
    words: HashMap<u64, u64>,
}

impl Backing for Phantom {
    fn allocate(&mut self, _addr: u64, _len: u64) -> bool {
        true
    }

    fn release(&mut self, addr: u64, len: u64) {
        if !self.words.is_empty() {
            self.words.retain(|&at, _| at < addr || at >= addr + len);
        }
    }

    fn create(&mut self, handle: u64, len: u64, host: bool) -> bool {
        if !host {
            return true;
        }
        self.host_handles.insert(handle, ());
        self.host.create(handle, len, true)
    }

    fn destroy(&mut self, handle: u64) {
        if self.host_handles.remove(&handle).is_some() {
            self.host.destroy(handle);
        }
    }

    fn map(&mut self, addr: u64, len: u64, handle: u64) -> bool {
        !self.host_handles.contains_key(&handle) || self.host.map(addr, len, handle)
    }

    fn map_apart(&mut self, _addr: u64, _len: u64) -> bool {
        true
    }

    fn unmap(&mut self, addr: u64, len: u64, handle: u64) {
        if self.host_handles.contains_key(&handle) {
            self.host.unmap(addr, len, handle);
        }
        self.release(addr, len);
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64, dst_device: bool, src_device: bool) {
        match (dst_device, src_device) {
            (false, false) => self.host.copy(dst, src, len, false, false),
            (false, true) => self.host.fill(dst, 0, len),
            (true, _) => {}
        }
    }

    fn fill(&mut self, dst: u64, value: u8, len: u64) {
        if !self.words.is_empty() {
            let word = u64::from_ne_bytes([value; 8]);
            for (&at, old) in &mut self.words {
                if at >= dst && at < dst + len {
                    *old = word;
                }
            }
        }
    }

    fn read_word(&self, addr: u64) -> u64 {
        self.words.get(&addr).copied().unwrap_or(0)
    }

    fn write_word(&mut self, addr: u64, value: u64) {
        self.words.insert(addr, value);
    }

    fn real(&self) -> bool {
        false
    }

    fn share(&self, _handle: u64) -> Option<String> {
        None
    }

    fn share_plain(&self, _addr: u64) -> Option<(String, u64)> {
        None
    }

    fn allocate_shared(&mut self, _addr: u64, _len: u64, _source: Option<(&str, u64)>) -> bool {
        true
    }

    fn release_shared(&mut self, addr: u64, len: u64) {
        self.release(addr, len);
    }

    fn adopt(&mut self, _handle: u64, _len: u64, _path: &str) -> bool {
        true
    }
}
