//! Statistics of a device, as C++ asks for them.

use super::allocator::Allocator;
use super::convert::{device_stats, other_stats, triples};
use super::ffi::{DeviceStats, Outcome, StatBack, StatCounts, StatFront, StatPair};
use super::outcome::{guard, outcome};

impl Allocator {
    pub(super) fn device_stats(&self, device: i32, out: &mut DeviceStats) -> Outcome {
        outcome(|| {
            let device = self.registry.device(device)?;
            device.read_counters(|stats, max_split_size, private_pools| {
                device_stats(out, stats, max_split_size, private_pools);
            });
            Ok(())
        })
    }

    pub(super) fn device_stats_in_place(
        &self,
        device: i32,
        front: &mut StatFront,
        back: &mut StatBack,
        oversize: &mut StatPair,
        counts: &mut StatCounts,
    ) -> bool {
        guard(|| {
            let device = self.registry.device(device)?;
            device.read_counters(|stats, max_split_size, private_pools| {
                triples(stats, &mut front.of, &mut back.of);
                (counts.max_split_size, counts.private_pools) = (max_split_size, private_pools);
                other_stats(stats, &mut oversize.of, counts);
            });
            Ok(())
        })
        .is_ok()
    }

    pub(super) fn reset_accumulated_stats(&self, device: i32) -> Outcome {
        outcome(|| {
            self.registry.device(device)?.reset_accumulated_stats();
            Ok(())
        })
    }

    pub(super) fn reset_peak_stats(&self, device: i32) -> Outcome {
        outcome(|| {
            self.registry.device(device)?.reset_peak_stats();
            Ok(())
        })
    }
}
