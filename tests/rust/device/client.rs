//! A program's view of a device, counted call by call.

use crate::*;
use npualloc::stats::{PoolStat, Stat};
use proptest::prelude::*;

/// What a program does.
#[derive(Debug, Clone)]
pub enum Op {
    Alloc(usize),
    Free(usize),
    /// Blocks, one after the other, are freed, and as large ones allocated.
    Replace(usize, usize),
    /// A use on another stream, and that it is over.
    Use(usize),
    ResetPeaks,
}

/// At most so many blocks are replaced at once.
pub fn op(most: usize) -> impl Strategy<Value = Op> {
    let often = prop::sample::select(vec![400usize, 4000, 70_000, MIB, 3 * MIB]);
    prop_oneof![
        3 => prop_oneof![often, 1usize..300_000].prop_map(Op::Alloc),
        3 => any::<usize>().prop_map(Op::Free),
        3 => (any::<usize>(), 1..most).prop_map(|(at, count)| Op::Replace(at, count)),
        1 => any::<usize>().prop_map(Op::Use),
        1 => Just(Op::ResetPeaks),
    ]
}

/// What is expected of the small pool, of the large one, and of both.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected([Stat; 3]);

impl Expected {
    fn change(&mut self, small: bool, by: usize, freed: bool) {
        let by = by as i64;
        for stat in [usize::from(!small), 2] {
            let stat = &mut self.0[stat];
            if freed {
                stat.current -= by;
                stat.freed += by;
            } else {
                stat.current += by;
                stat.allocated += by;
                stat.peak = stat.peak.max(stat.current);
            }
        }
    }

    fn of(stat: &PoolStat) -> Self {
        Self([stat.pool(true), stat.pool(false), stat.aggregate()])
    }
}

/// The client's view of a device, counted call by call.
pub struct Client {
    pub device: DeviceAllocator,
    pub live: Vec<(usize, usize)>,
    /// Blocks, their bytes, and bytes asked for.
    expected: [Expected; 3],
}

impl Client {
    /// Of a device that has handed nothing out.
    pub fn new(device: DeviceAllocator) -> Self {
        Self {
            device,
            live: Vec::new(),
            expected: Default::default(),
        }
    }

    pub fn count(&mut self, bytes: usize, freed: bool) {
        let rounded = (bytes + 32).next_multiple_of(512);
        for (expected, by) in self.expected.iter_mut().zip([1, rounded, bytes]) {
            expected.change(rounded <= MIB, by, freed);
        }
    }

    pub fn alloc(&mut self, bytes: usize, stream: StreamKey) {
        self.live
            .push((self.device.allocate(bytes, stream).expect("fits"), bytes));
        self.count(bytes, false);
    }

    pub fn free(&mut self, at: usize) -> usize {
        let (addr, bytes) = self.live.swap_remove(at % self.live.len());
        assert!(self.device.deallocate(addr));
        self.count(bytes, true);
        bytes
    }

    pub fn step(&mut self, op: Op) {
        match op {
            Op::Alloc(bytes) => self.alloc(bytes, S0),
            Op::ResetPeaks => self.reset_peaks(),
            _ if self.live.is_empty() => {}
            Op::Free(at) => {
                self.free(at);
            }
            Op::Replace(at, count) => {
                for turn in 0..count {
                    let bytes = self.free(at.wrapping_add(turn * 31));
                    self.alloc(bytes, S0);
                }
            }
            Op::Use(at) => {
                let (addr, _) = self.live[at % self.live.len()];
                assert!(self.device.record_stream(addr, SIDE));
                assert!(self.device.erase_stream(addr, SIDE));
            }
        }
    }

    fn reset_peaks(&mut self) {
        self.device.reset_peak_stats();
        let stats = self
            .expected
            .iter_mut()
            .flat_map(|expected| &mut expected.0);
        stats.for_each(|stat| stat.peak = stat.current);
    }

    /// Blocks, bytes, and bytes asked for are what was counted, at their peaks too.
    pub fn check(&self) {
        let (stats, _) = self.device.stats();
        let shown = [
            &stats.allocation,
            &stats.allocated_bytes,
            &stats.requested_bytes,
        ];
        assert_eq!(shown.map(Expected::of), self.expected);
        assert_eq!(stats.active, stats.allocation);
        self.device.check_consistency().expect("consistent");
    }
}
