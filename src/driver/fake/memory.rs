//! What the fake driver's memory holds, where it has contents.

use std::collections::HashMap;

use parking_lot::Mutex;

const PAGE: usize = 4096;

/// Bytes by address; what was never written is 0. Thread-safe.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pages: Mutex<HashMap<usize, Box<[u8; PAGE]>>>,
}

impl Memory {
    /// Other memory is at these addresses now: it holds zeros.
    pub fn renew(&self, addr: usize, bytes: usize) {
        let gone = |page: usize| page + PAGE > addr && page < addr + bytes;
        self.pages.lock().retain(|page, _| !gone(*page));
    }

    pub fn fill(&self, addr: usize, bytes: usize, value: u8) {
        let mut pages = self.pages.lock();
        let mut at = addr;
        while at < addr + bytes {
            let start = at - at % PAGE;
            let end = (start + PAGE).min(addr + bytes);
            let page = pages.entry(start).or_insert_with(|| Box::new([0; PAGE]));
            page[at - start..end - start].fill(value);
            at = end;
        }
    }

    pub fn read(&self, addr: usize, into: &mut [u8]) {
        let pages = self.pages.lock();
        let mut at = addr;
        let mut rest = into;
        while !rest.is_empty() {
            let start = at - at % PAGE;
            let count = (start + PAGE - at).min(rest.len());
            let (part, others) = rest.split_at_mut(count);
            match pages.get(&start) {
                Some(page) => part.copy_from_slice(&page[at - start..at - start + count]),
                None => part.fill(0),
            }
            (rest, at) = (others, at + count);
        }
    }
}
