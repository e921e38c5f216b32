//! What is late in a device's state is brought up to date when its lock is taken, and what hot paths go by is settled when
//! it is given back.

use crate::device::state::State;
use crate::sync::Guarded;

impl Guarded for State {
    #[inline]
    fn entered(&mut self) {
        self.entered_keeping();
        if !self.cache.quick.is_empty() {
            self.give_up_quick();
        }
    }

    #[inline]
    fn entered_keeping(&mut self) {
        self.finish_what_is_late();
        if self.threads.leasing {
            self.recall();
        }
    }

    #[inline]
    fn seen(&mut self) {
        self.events.traffic.seen();
    }

    #[inline]
    fn leaving(&mut self) {
        let always = self.history.recording
            || self.settings.max_split_size != usize::MAX
            || self.settings.base_addr_aligned_size.count_ones() > 1
            || !self.sleep.pools.is_empty();
        if always {
            self.events.traffic.ask_now();
        }
        let noting = self.planning.is_noting();
        self.watched = self.history.recording || noting;
        self.asking = always || self.events_outstanding();
        self.attention = self.asking || self.planning.is_on();
        self.settle_quick(!always && !noting);
        self.settle_marking();
    }

    #[cold]
    fn poisoned(&mut self) {
        self.threads.leases.poison();
    }
}

impl State {
    /// Finishes all that is late but what is kept and what is leased.
    #[inline]
    pub(super) fn finish_what_is_late(&mut self) {
        if self.cache.bounce.block.is_some() {
            self.end_bounce();
        }
        if !self.cache.unread.is_empty() {
            self.read_unread();
        }
        if self.cache.last_freed.block.is_some() {
            self.keep_last_freed();
        }
    }
}
