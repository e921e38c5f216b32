//! Statistics of a device, as C++ asks for them.

use super::allocator::Allocator;
use super::convert::{device_stats, other_stats, triples};
use super::ffi::{DeviceStats, Outcome, Stat, StatCounts, StatTriple, Status};
use super::outcome::outcome;

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
        front: &mut [StatTriple],
        back: &mut [StatTriple],
        oversize: &mut [Stat],
        counts: &mut StatCounts,
    ) -> Outcome {
        let (Ok(front), Ok(back), Ok(oversize)) =
            (front.try_into(), back.try_into(), oversize.try_into())
        else {
            return Outcome {
                status: Status::InvalidArgument,
                code: 0,
            };
        };
        outcome(|| {
            let device = self.registry.device(device)?;
            device.read_counters(|stats, max_split_size, private_pools| {
                triples(stats, front, back);
                (counts.max_split_size, counts.private_pools) = (max_split_size, private_pools);
                other_stats(stats, oversize, counts);
            });
            Ok(())
        })
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
