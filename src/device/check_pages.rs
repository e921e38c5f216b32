//! The part of the consistency checker that is about physical pages.

use std::collections::HashMap;

use super::state::State;
use crate::driver::PhysicalHandle;

impl State {
    /// Every handle belongs to one page or is idle; mappings left behind are counted and lead to handles
    /// that exist.
    pub(super) fn check_pages(&self) -> Result<(), String> {
        let mut owners: HashMap<PhysicalHandle, usize> = HashMap::new();
        let tables = || self.segments.iter().filter_map(|(_, s)| s.pages.as_ref());
        let backed =
            tables().flat_map(|pages| (0..pages.touched()).filter_map(|page| pages.handle(page)));
        let idle = (self.pages.sizes()).flat_map(|size| self.pages.of_size(size));
        for handle in backed.chain(idle.map(|(handle, _)| handle)) {
            *owners.entry(handle).or_default() += 1;
        }
        if let Some((handle, count)) = owners.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{handle:?} belongs to {count} pages"));
        }
        let mut stale = 0;
        for left in tables().flat_map(|pages| pages.stale_pages()) {
            stale += 1;
            // A handle that a thread is about to map belongs to nobody for now.
            if self.growing == 0 && !owners.contains_key(&left.1.handle) {
                return Err(format!(
                    "a mapping leads to {:?}, which is gone",
                    left.1.handle
                ));
            }
        }
        let counted = tables().map(|pages| pages.stale_count()).sum::<usize>();
        if stale != self.stale || counted != self.stale {
            return Err(format!(
                "{stale} mappings left behind, {counted} by tables, {} counted",
                self.stale
            ));
        }
        Ok(())
    }
}
