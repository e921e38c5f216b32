//! How much there is to do with events: when it is much, it is done for several blocks at once.
//!
//! An event costs the host and the device far more than an allocation. As long as blocks with uses on other
//! streams are freed now and then, each gets its event at once, and every allocation asks whether the oldest ones
//! have completed: a block returns as early as it can. A program that does this again and again gets a common
//! event for a few frees, only every [`Traffic::PERIOD`]th allocation asks, and only every [`FENCE_PERIOD`]th of
//! these has events recorded that still lack blocks to share them. Whoever cannot be served from what
//! is free still asks at once. When anybody looks at the allocator's state, everything begins anew, so that what a
//! program sees between two looks differs only where there was much to do in between.

/// Frees with uses, and questions in vain, from which on there is much to do.
const HEAVY: u32 = 16;

/// Allocations that ask, for each that has events recorded.
const FENCE_PERIOD: u32 = 16;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    /// Frees with uses and questions in vain since somebody looked.
    unseen: u32,
    /// Allocations until one asks.
    pause: u32,
    /// Allocations that asked since one had events recorded.
    unfenced: u32,
    /// Looks change nothing.
    stays_heavy: bool,
}

impl Traffic {
    /// Allocations for each that asks.
    pub const PERIOD: u32 = 16;
    /// Blocks that share an event at the most.
    pub const SHARE: usize = 16;

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

    /// An allocation asks.
    pub fn asked(&mut self) {
        self.pause = if self.is_heavy() { Self::PERIOD - 1 } else { 0 };
    }

    /// Whether an allocation that asks has events recorded before.
    pub fn fences(&mut self) -> bool {
        self.unfenced += 1;
        let due = !self.is_heavy() || self.unfenced >= FENCE_PERIOD;
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
        let ask = |traffic: &mut Traffic| {
            let asks = !traffic.pass();
            if asks {
                traffic.asked();
            }
            asks
        };
        for _ in 0..HEAVY {
            assert!(ask(&mut traffic));
            traffic.note();
        }
        let asked = (0..800).filter(|_| ask(&mut traffic)).count();
        assert_eq!(asked, 50);
        traffic.seen();
        assert!(ask(&mut traffic) && ask(&mut traffic));
    }

    #[test]
    fn events_wait_for_more_blocks_only_where_there_is_much_to_do() {
        let mut traffic = Traffic::default();
        for _ in 0..HEAVY {
            assert!(traffic.fences());
            traffic.note();
        }
        let fenced = (0..160).filter(|_| traffic.fences()).count();
        assert_eq!(fenced, 10);
        traffic.seen();
        assert!(traffic.fences() && traffic.fences());
    }
}
