//! Pages that sleep in blocks that were freed: nobody needs them any more. Pure.

use crate::device::state::State;
use crate::history::Action;
use crate::ids::PoolId;

impl State {
    /// Forgets pages that sleep in free blocks of the default pool and of pools out of use: no graph needs them at
    /// their addresses, and nobody may be left to wake them up. Not while another thread puts pages to sleep or wakes
    /// them.
    pub(in crate::device) fn forget_sleeping(
        &mut self,
        releasable: impl Fn(&Self, PoolId) -> bool,
    ) {
        if self.sleep.pools.is_empty() || self.sleep.changing {
            return;
        }
        let mut found = Vec::new();
        for (_, list) in self.lists.iter().filter(|(id, _)| id.is_virtual()) {
            let in_use = self.pools.get(list.pool).is_some_and(|p| p.use_count > 0);
            if in_use || !self.sleep.has(list.pool) || !releasable(self, list.pool) {
                continue;
            }
            for id in list.free.iter(&self.arena) {
                if let (Some(range), Some(pages)) = (self.idle_pages(id), self.pages_of(id)) {
                    let asleep: Vec<usize> = range.filter(|&page| pages.is_asleep(page)).collect();
                    found.extend((!asleep.is_empty()).then_some((id, asleep)));
                }
            }
        }
        for (id, asleep) in found {
            self.occupy(id);
            let segment = self.arena[id].segment;
            if let Some(pages) = self.pages_mut(segment) {
                asleep.iter().for_each(|&page| pages.forget_asleep(page));
            }
            let context = self.history.returned(segment);
            self.count_pages(id, &asleep, Action::SegmentUnmap, context);
            self.settle(id);
        }
        self.forget_awake();
    }

    /// Pools without a page that sleeps serve requests again.
    pub(in crate::device) fn forget_awake(&mut self) {
        let segments = &self.segments;
        self.sleep.pools.retain(|pool| {
            let own = segments.iter().filter(|(_, segment)| segment.pool == *pool);
            own.filter_map(|(_, segment)| segment.pages.as_ref())
                .any(|pages| pages.asleep() > 0)
        });
    }
}
