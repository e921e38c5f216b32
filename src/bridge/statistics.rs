//! Statistics of a device, as C++ asks for them.

use super::allocator::Allocator;
use super::convert::{device_stats, front_and_back};
use super::ffi::{DeviceStats, Outcome, StatBack, StatFront, StatRest};

impl Allocator {
    pub(super) fn device_stats(&self, device: i32, out: &mut DeviceStats) -> Outcome {
        self.outcome(|| {
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
        rest: &mut StatRest,
    ) -> bool {
        self.guard(|| {
            let device = self.registry.device(device)?;
            device.read_counters(|stats, max_split_size, private_pools| {
                front_and_back(stats, front, back);
                rest.num_oom_rejections = stats.num_oom_rejections;
                (rest.max_split_size, rest.private_pools) = (max_split_size, private_pools);
            });
            Ok(())
        })
        .is_ok()
    }

    pub(super) fn reset_accumulated_stats(&self, device: i32) -> Outcome {
        self.outcome(|| {
            self.registry.device(device)?.reset_accumulated_stats();
            Ok(())
        })
    }

    pub(super) fn reset_peak_stats(&self, device: i32) -> Outcome {
        self.outcome(|| {
            self.registry.device(device)?.reset_peak_stats();
            Ok(())
        })
    }
}
