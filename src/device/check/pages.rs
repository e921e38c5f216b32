//! The part of the consistency checker that is about physical pages, and about when they were used.

use std::collections::HashMap;

use crate::block::BlockState;
use crate::device::state::State;
use crate::driver::PhysicalHandle;

impl State {
    /// Every handle belongs to one page or is idle; mappings left behind are counted and lead to handles
    /// that exist.
    pub(super) fn check_pages(&self) -> Result<(), String> {
        let mut owners: HashMap<PhysicalHandle, usize> = HashMap::new();
        let tables = || self.segments.iter().filter_map(|(_, s)| s.pages.as_ref());
        let backed =
            tables().flat_map(|pages| (0..pages.touched()).filter_map(|page| pages.handle(page)));
        let idle = (self.paging.pages.sizes()).flat_map(|size| self.paging.pages.of_size(size));
        for handle in backed.chain(idle.map(|(handle, _)| handle)) {
            *owners.entry(handle).or_default() += 1;
        }
        if let Some((handle, count)) = owners.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{handle:?} belongs to {count} pages"));
        }
        // While pages are put to sleep their handles have no numbers.
        for pages in tables().filter(|_| !self.sleep.changing) {
            let backed = (0..pages.touched()).filter_map(|page| {
                let backed = pages.handle(page).zip(pages.number(page));
                backed.or_else(|| pages.stale(page).map(|left| (left.handle, left.number)))
            });
            for (handle, number) in backed {
                if self.paging.numbers.get(handle) != Some(number) {
                    return Err(format!("{handle:?} has another number than {number}"));
                }
            }
        }
        if !self.sleep.changing && !self.paging.numbers.all_known() {
            return Err("a page's number is lost".to_owned());
        }
        if self.budget.growing == 0 && self.paging.numbers.count() > owners.len() {
            return Err("a handle that is gone has a number".to_owned());
        }
        let mut stale = 0;
        for left in tables().flat_map(|pages| pages.stale_pages()) {
            stale += 1;
            // A handle that a thread is about to map belongs to nobody for now.
            if self.budget.growing == 0 && !owners.contains_key(&left.1.handle) {
                return Err(format!(
                    "a mapping leads to {:?}, which is gone",
                    left.1.handle
                ));
            }
        }
        let counted = tables().map(|pages| pages.stale_count()).sum::<usize>();
        if stale != self.paging.stale || counted != self.paging.stale {
            return Err(format!(
                "{stale} mappings left behind, {counted} by tables, {} counted",
                self.paging.stale
            ));
        }
        Ok(())
    }

    /// What is counted along the way equals a recount; unmapped blocks consist of whole pages; pages sleep
    /// only in pools that do.
    pub(super) fn check_page_counts(&self) -> Result<(), String> {
        let mut ranges = HashMap::new();
        for (id, segment) in self.segments.iter() {
            let Some(pages) = &segment.pages else {
                continue;
            };
            *ranges.entry(self.arena[segment.first].list).or_insert(0) += 1;
            if !pages.counts_agree() {
                return Err(format!("the pages of segment {id:?} are miscounted"));
            }
            if pages.asleep() > 0 && !self.sleep.has(segment.pool) {
                return Err(format!(
                    "pages of segment {id:?} sleep in a pool that is awake"
                ));
            }
        }
        for (id, list) in self.lists.iter() {
            let found = ranges.get(&id).copied().unwrap_or(0);
            if list.ranges != found {
                let counted = list.ranges;
                return Err(format!("list {id:?} has {found} ranges, {counted} counted"));
            }
        }
        for (id, block) in self.arena.iter() {
            let pages = self
                .pages_of(id)
                .filter(|_| block.state == BlockState::Unmapped);
            if pages.is_some_and(|pages| {
                let within = pages.within(block.addr, block.end());
                within != pages.touching(block.addr, block.end())
            }) {
                return Err(format!("unmapped block {id:?} ends inside a page"));
            }
        }
        let sizes = self.paging.pages.sizes();
        let idle: usize = sizes
            .map(|size| size * self.paging.pages.of_size(size).count())
            .sum();
        if idle != self.paging.pages.bytes() {
            let counted = self.paging.pages.bytes();
            return Err(format!("{idle} bytes in idle handles, {counted} counted"));
        }
        Ok(())
    }

    /// Nothing was used, freed, waited for or completed later than now.
    pub(super) fn check_clock(&self) -> Result<(), String> {
        let tables = self.segments.iter().filter_map(|(_, s)| s.pages.as_ref());
        let left = tables.flat_map(|pages| pages.stale_pages().map(|(_, stale)| stale.tick));
        let sizes = self.paging.pages.sizes();
        let idle = sizes.flat_map(|size| self.paging.pages.of_size(size));
        let used = idle.filter_map(|(_, used)| Some(used?.tick));
        let segments = self.segments.iter().map(|(_, segment)| segment.idle_since);
        let latest = left
            .chain(used)
            .chain(segments)
            .chain(self.returning().map(|used| used.tick))
            .fold(self.fences.latest(), u64::max);
        if latest > self.tick {
            return Err(format!(
                "something happens at {latest}, and it is {}",
                self.tick
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::config::Settings;
    use crate::device::DeviceAllocator;
    use crate::driver::fake::FakeDriver;
    use crate::ids::{DeviceId, PoolId, StreamKey};

    fn device() -> DeviceAllocator {
        let driver = Arc::new(FakeDriver::new(1 << 30));
        let settings = Settings::parse("expandable_segments:True").expect("valid");
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        device.allocate(12 << 20, StreamKey(0)).expect("fits");
        device.check_consistency().expect("consistent");
        device
    }

    fn broken(device: &DeviceAllocator) -> String {
        let broken = device.check_consistency().expect_err("a broken rule");
        broken.to_string()
    }

    #[test]
    fn a_range_too_many_is_found() {
        let device = device();
        let mut state = device.state.lock();
        let list = state.arena[state.segments.iter().next().expect("one").1.first].list;
        state.lists[list].ranges += 1;
        drop(state);
        assert!(broken(&device).contains("ranges"));
    }

    #[test]
    fn a_time_to_come_is_found() {
        let device = device();
        let mut state = device.state.lock();
        let later = state.tick + 1;
        state.fences.complete(StreamKey(0), later);
        drop(state);
        assert!(broken(&device).contains("happens"));
    }

    #[test]
    fn pages_that_sleep_alone_are_found() {
        let device = device();
        assert!(device.sleep(None).expect("works") > 0);
        device.check_consistency().expect("consistent");
        let mut state = device.state.lock();
        assert!(state.sleep.has(PoolId::DEFAULT));
        state.sleep.pools.clear();
        drop(state);
        assert!(broken(&device).contains("awake"));
    }

    #[test]
    fn part_of_a_page_that_is_unmapped_is_found() {
        let device = device();
        let mut state = device.state.lock();
        let mut unmapped = state.segments.iter().next().expect("one").1.first;
        while state.arena[unmapped].next.is_some() {
            unmapped = state.arena[unmapped].next;
        }
        // The free block before it, of the last page's rest, takes 512 bytes of it.
        let (list, addr) = (state.arena[unmapped].list, state.arena[unmapped].addr);
        let free = state.arena[unmapped].prev;
        state.lists[list].unmapped.remove(&addr);
        state.occupy(free);
        state.arena[free].size += 512;
        state.arena[unmapped].addr += 512;
        state.arena[unmapped].size -= 512;
        state.lists[list].unmapped.insert(addr + 512, unmapped);
        drop(state);
        assert!(broken(&device).contains("page"));
    }
}
