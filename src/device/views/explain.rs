//! Where the memory is when there is none left, and what would help: the lines of an out-of-memory message
//! after the stock allocator's own.

use std::fmt::Write;

use super::report::format_size;
use crate::block::BlockState;
use crate::device::state::{Request, State};
use crate::driver::MemoryInfo;
use crate::ids::{MempoolId, StreamKey};

/// Lines about streams and pools that a message has at most.
const MOST_LINES: usize = 8;

/// What one stream holds in one pool, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub pool: MempoolId,
    pub stream: StreamKey,
    pub live: usize,
    /// Freed, but another stream may still use it.
    pub waiting: usize,
    pub free: usize,
    /// The longest free run.
    pub longest: usize,
    /// Free bytes in fixed segments that are partly in use: they can't be given back.
    pub stuck: usize,
}

impl Holding {
    fn reserved(&self) -> usize {
        self.live + self.waiting + self.free
    }
}

/// What is known under the lock when a request has failed.
#[derive(Debug)]
pub(super) struct Situation {
    /// The largest first.
    pub holdings: Vec<Holding>,
    pub stream: StreamKey,
    pub pool: MempoolId,
    pub virtual_memory: bool,
    /// The driver has memory, but had no addresses when it was asked last.
    pub addresses_short: bool,
    pub limit: Option<usize>,
    /// Rounded size of the request.
    pub size: usize,
    /// What was asked of the driver.
    pub alloc_size: usize,
    pub active: usize,
    pub reserved: usize,
    /// Rungs of the ladder, in order.
    pub tried: Vec<&'static str>,
}

impl State {
    /// Everything held, by stream and pool.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let mut holdings: Vec<Holding> = Vec::new();
        for (_, segment) in self.segments.iter() {
            let pool = self.pools.id_of(segment.pool);
            let known = holdings
                .iter()
                .position(|holding| (holding.pool, holding.stream) == (pool, segment.stream));
            let index = known.unwrap_or_else(|| {
                holdings.push(Holding {
                    pool,
                    stream: segment.stream,
                    live: 0,
                    waiting: 0,
                    free: 0,
                    longest: 0,
                    stuck: 0,
                });
                holdings.len() - 1
            });
            let holding = &mut holdings[index];
            let (mut free, mut used) = (0, 0);
            let mut next = segment.first;
            while let Some(id) = next.some() {
                let block = &self.arena[id];
                next = block.next;
                match block.state {
                    BlockState::Live => {
                        holding.live += block.counted();
                        free += block.size - block.counted();
                    }
                    BlockState::Pending => {
                        holding.waiting += block.counted();
                        free += block.size - block.counted();
                    }
                    BlockState::Free | BlockState::Returning => {
                        free += block.size;
                        holding.longest = holding.longest.max(block.size);
                    }
                    // Holds no memory, or memory on its way.
                    _ => continue,
                }
                used += usize::from(matches!(
                    block.state,
                    BlockState::Live | BlockState::Pending
                ));
            }
            holding.free += free;
            if used > 0 && segment.pages.is_none() {
                holding.stuck += free;
            }
        }
        holdings.retain(|holding| holding.reserved() > 0);
        holdings.sort_by_key(|holding| std::cmp::Reverse(holding.reserved()));
        holdings
    }

    /// The situation of a request that failed.
    pub(super) fn situation(
        &self,
        request: &Request,
        alloc_size: usize,
        tried: Vec<&'static str>,
    ) -> Situation {
        Situation {
            holdings: self.holdings(),
            stream: request.stream,
            pool: self.pools.id_of(request.pool),
            virtual_memory: request.virtual_memory,
            addresses_short: request.virtual_memory
                && self.paging.addresses_short
                && !self.budget.device_full,
            limit: self.budget.limit,
            size: request.size,
            alloc_size,
            active: self.stats.blocks.active_bytes() as usize,
            reserved: self.reserved(),
            tried,
        }
    }
}

impl Situation {
    /// The lines, each with a newline before it.
    pub(super) fn explain(&self, info: MemoryInfo) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            // Writing to memory does not fail.
            let _ = write!(text, "\n{words}");
        };
        let sum = |part: fn(&Holding) -> usize| self.holdings.iter().map(part).sum::<usize>();
        let own = self
            .holdings
            .iter()
            .find(|holding| (holding.pool, holding.stream) == (self.pool, self.stream));
        let (own_free, own_longest) = own.map_or((0, 0), |own| (own.free, own.longest));
        let longest = self.holdings.iter().map(|h| h.longest).max().unwrap_or(0);
        line(format!(
            "The request's stream and pool have {} free, the longest run {}; the longest run of all is {}.",
            format_size(own_free),
            format_size(own_longest),
            format_size(longest),
        ));
        for holding in self.holdings.iter().take(MOST_LINES) {
            line(format!(
                "  stream {:#x}, {}: {} reserved ({} live, {} waiting for other streams, {} free in runs \
                 of at most {})",
                holding.stream.0,
                name(holding.pool),
                format_size(holding.reserved()),
                format_size(holding.live),
                format_size(holding.waiting),
                format_size(holding.free),
                format_size(holding.longest),
            ));
        }
        if self.holdings.len() > MOST_LINES {
            let rest = &self.holdings[MOST_LINES..];
            let bytes: usize = rest.iter().map(Holding::reserved).sum();
            line(format!("  {} more hold {}", rest.len(), format_size(bytes)));
        }
        let outside = info.total.saturating_sub(info.free + self.reserved);
        if info.total > 0 {
            line(format!(
                "Outside of this allocator {} of the device are in use.",
                format_size(outside)
            ));
        }
        if !self.tried.is_empty() {
            line(format!("Tried: {}.", self.tried.join(", ")));
        }
        for advice in self.advice(info.total, outside, sum(|h| h.waiting), sum(|h| h.stuck)) {
            line(format!("- {advice}"));
        }
        text
    }

    /// What would help and is not done already.
    fn advice(&self, total: usize, outside: usize, waiting: usize, stuck: usize) -> Vec<String> {
        let mut advice = Vec::new();
        let needed = self.active + self.size;
        let room = self.limit.unwrap_or(total).min(total);
        if total > 0 && needed > room {
            advice.push(format!(
                "What is in use and the request are {} together, more than the {} there are: the program \
                 must need less (smaller batches, recomputation, sharding).",
                format_size(needed),
                format_size(room),
            ));
        }
        if let Some(limit) = self.limit
            && total > limit
            && self.active + self.alloc_size <= total
        {
            advice.push(
                "The limit (per_process_memory_fraction, set_per_process_memory_fraction) refuses it, not \
                 the device."
                    .to_owned(),
            );
        }
        if !self.virtual_memory && needed <= room && stuck >= self.size {
            advice.push(format!(
                "{} are free between blocks in use: PYTORCH_NPU_ALLOC_CONF=expandable_segments:True lets \
                 them move.",
                format_size(stuck),
            ));
        }
        if self.addresses_short {
            advice.push(
                "The driver has no addresses left for another range: use fewer streams and pools, or \
                 PYTORCH_NPU_ALLOC_CONF=expandable_segments:False."
                    .to_owned(),
            );
        }
        if waiting >= self.size {
            advice.push(format!(
                "{} wait for work on other streams (record_stream): wait for those streams earlier.",
                format_size(waiting),
            ));
        }
        if outside >= self.alloc_size {
            advice.push("Other processes, or this one outside of PyTorch, hold enough.".to_owned());
        }
        if std::env::var_os("NPUALLOC_TRACE").is_none() {
            advice.push(
                "NPUALLOC_TRACE=<file> records what the program asks for; `npualloc report` and \
                 `npualloc advise` show where the memory goes and what would help."
                    .to_owned(),
            );
        }
        advice
    }
}

fn name(pool: MempoolId) -> String {
    if pool == MempoolId::DEFAULT {
        "default pool".to_owned()
    } else {
        format!("pool ({}, {})", pool.first, pool.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn situation() -> Situation {
        Situation {
            holdings: vec![Holding {
                pool: MempoolId::DEFAULT,
                stream: StreamKey(0),
                live: 4 * GIB,
                waiting: 0,
                free: 3 * GIB,
                longest: GIB,
                stuck: 3 * GIB,
            }],
            stream: StreamKey(0),
            pool: MempoolId::DEFAULT,
            virtual_memory: false,
            addresses_short: false,
            limit: None,
            size: 2 * GIB,
            alloc_size: 2 * GIB,
            active: 4 * GIB,
            reserved: 7 * GIB,
            tried: vec!["a new segment"],
        }
    }

    const INFO: MemoryInfo = MemoryInfo {
        free: GIB,
        total: 8 * GIB,
    };

    #[test]
    fn advice_is_given_only_where_it_is_not_followed_already() {
        let fixed = situation().explain(INFO);
        assert!(fixed.contains("expandable_segments:True"), "{fixed}");
        let moving = Situation {
            virtual_memory: true,
            ..situation()
        };
        assert!(!moving.explain(INFO).contains("expandable_segments"));
        let hopeless = Situation {
            active: 7 * GIB,
            ..situation()
        };
        let text = hopeless.explain(INFO);
        assert!(text.contains("must need less") && !text.contains("expandable"));
        let limited = Situation {
            limit: Some(5 * GIB),
            ..situation()
        };
        assert!(
            limited
                .explain(INFO)
                .contains("per_process_memory_fraction")
        );
    }

    #[test]
    fn memory_of_others_is_what_is_neither_free_nor_held() {
        let text = situation().explain(INFO);
        assert!(text.contains("Outside of this allocator 0 bytes"), "{text}");
        let full = MemoryInfo {
            free: 0,
            total: 12 * GIB,
        };
        let text = situation().explain(full);
        assert!(
            text.contains("Outside of this allocator 5.00 GiB"),
            "{text}"
        );
        assert!(text.contains("hold enough"), "{text}");
        assert!(text.contains("Tried: a new segment."), "{text}");
    }
}
