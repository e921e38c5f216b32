//! How much there is to do with events: when it is much, it is done for several blocks at once.
//!
//! An event costs the host and the device far more than an allocation. As long as blocks with uses on other
//! streams are freed now and then, each gets its event at once, and every allocation asks whether the oldest ones
//! have completed: a block returns as early as it can. A program that does this again and again gets a common
//! event for a few frees, only one allocation in [`Pace::ask`] asks, and only one in [`Pace::fence`] has events
//! recorded that still lack blocks to share them. While memory is ample all of this is done for more blocks at once.
//! Whoever cannot be served from what is free still asks at once. When anybody looks at the allocator's state,
//! everything begins anew, so that what a program sees between two looks differs only where there was much to do in
//! between.

/// Frees with uses, and questions in vain, from which on there is much to do.
const HEAVY: u32 = 16;

/// How much is done at once where there is much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Allocations for each that asks.
    ask: u32,
    /// Allocations for each that has events recorded.
    fence: u32,
    /// Blocks that share an event at the most.
    pub blocks: usize,
    /// The part of what is active that may be without an event.
    pub share: usize,
}

const USUAL: Pace = Pace {
    ask: 32,
    fence: 256,
    blocks: 16,
    share: 512,
};

/// While memory is ample. An event costs more than the call that records it: torch_npu's queue wakes up for it.
const AMPLE: Pace = Pace {
    ask: 64,
    fence: 1024,
    blocks: 64,
    share: 16,
};

/// See the module's text.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// Frees with uses and questions in vain since somebody looked.
    unseen: u32,
    /// Allocations until one asks.
    pause: u32,
    /// What that was at first.
    whole_pause: u32,
    pace: Pace,
    /// Allocations since one had events recorded.
    unfenced: u32,
    /// Looks change nothing.
    stays_heavy: bool,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            unseen: 0,
            pause: 0,
            whole_pause: 0,
            pace: USUAL,
            unfenced: 0,
            stays_heavy: false,
        }
    }
}

impl Traffic {
    /// How much is done at once.
    #[inline]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Somebody looks.
    #[inline]
    pub fn seen(&mut self) {
        if !self.stays_heavy {
            *self = Self::default();
        }
    }

    /// Much to do from now on.
    pub fn stay_heavy(&mut self) {
        (self.unseen, self.stays_heavy) = (HEAVY, true);
    }

    /// A block with uses was freed, or an event asked that has not completed.
    pub fn note(&mut self) {
        self.unseen = self.unseen.saturating_add(1);
    }

    /// Whether there is much to do.
    #[inline]
    pub fn is_heavy(&self) -> bool {
        self.unseen >= HEAVY
    }

    /// Whether this allocation need not ask.
    #[inline]
    pub fn pass(&mut self) -> bool {
        let passes = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        passes
    }

    /// An allocation asks; whether memory is ample.
    pub fn asked(&mut self, ample: bool) {
        self.pace = if ample { AMPLE } else { USUAL };
        self.pause = if self.is_heavy() {
            self.pace.ask - 1
        } else {
            0
        };
        self.whole_pause = self.pause;
    }

    /// Whether an allocation that asks has events recorded before.
    pub fn fences(&mut self) -> bool {
        self.unfenced += self.whole_pause + 1;
        let due = !self.is_heavy() || self.unfenced >= self.pace.fence;
        if due {
            self.unfenced = 0;
        }
        due
    }

    /// The next allocation is to ask.
    #[inline]
    pub fn ask_now(&mut self) {
        self.pause = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocation_asks_until_there_is_much_to_do() {
        let mut traffic = Traffic::default();
        let ask = |traffic: &mut Traffic, ample| {
            let asks = !traffic.pass();
            if asks {
                traffic.asked(ample);
            }
            asks
        };
        for _ in 0..HEAVY {
            assert!(ask(&mut traffic, true));
            traffic.note();
        }
        let mut asked = |ample| (0..3200).filter(|_| ask(&mut traffic, ample)).count();
        assert_eq!([asked(true), asked(false)], [50, 100]);
        traffic.seen();
        assert!(ask(&mut traffic, true) && ask(&mut traffic, true));
    }

    #[test]
    fn events_wait_for_more_blocks_only_where_there_is_much_to_do() {
        let mut traffic = Traffic::default();
        let fence = |traffic: &mut Traffic, ample| {
            let fences = traffic.fences();
            traffic.asked(ample);
            fences
        };
        for _ in 0..HEAVY {
            assert!(fence(&mut traffic, true));
            traffic.note();
        }
        // Once in 256 allocations, 32 of which go by until the next one that asks; in 1,024, and 64.
        let mut fenced = |ample| (0..161).filter(|_| fence(&mut traffic, ample)).count();
        assert_eq!([fenced(false), fenced(true)], [20, 10]);
        traffic.seen();
        assert!(traffic.fences() && traffic.fences());
    }
}
