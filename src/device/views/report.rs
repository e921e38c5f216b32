//! The out-of-memory report.

use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::MemoryInfo;
use crate::error::OomReport;
use crate::stats::Lane;
use crate::sync::MutexGuard;

/// A size as the stock allocator prints it: bytes up to 1 KiB, then two decimals.
pub fn format_size(bytes: usize) -> String {
    const UNITS: [(usize, &str); 3] = [(1 << 20, "KiB"), (1 << 30, "MiB"), (usize::MAX, "GiB")];
    if bytes <= 1024 {
        return format!("{bytes} bytes");
    }
    let mut divisor = 1024.0;
    for (limit, unit) in UNITS {
        if bytes <= limit {
            return format!("{:.2} {unit}", bytes as f64 / divisor);
        }
        divisor *= 1024.0;
    }
    unreachable!("the last unit has no limit")
}

impl DeviceAllocator {
    /// Builds the report: reads the bookkeeping, then asks the driver with the lock released.
    #[cold]
    pub(in crate::device) fn report(
        &self,
        state: MutexGuard<'_, State>,
        request: &Request,
        alloc_size: usize,
        tried: Vec<&'static str>,
        code: i32,
    ) -> OomReport {
        let situation = state.situation(request, alloc_size, tried);
        let requested = request.requested;
        let limit = state.budget.limit;
        let allocated = state.stats.blocks.current(Lane::AllocatedBytes) as usize;
        let active = state.stats.blocks.active_bytes() as usize;
        let reserved = state.reserved();
        drop(state);
        // The report is still worth having when the driver can't answer.
        let info = self
            .driver
            .memory_info(self.id)
            .unwrap_or(MemoryInfo { free: 0, total: 0 });
        let allowed = limit
            .map(|limit| format!("{} allowed; ", format_size(limit)))
            .unwrap_or_default();
        let message = format!(
            "NPU out of memory. Tried to allocate {} (NPU {}; {} total capacity; {} already allocated; \
             {} current active; {} free; {allowed}{} reserved in total by PyTorch).\
             If reserved memory is >> allocated memory try setting max_split_size_mb to avoid \
             fragmentation.{}",
            format_size(alloc_size),
            self.id.0,
            format_size(info.total),
            format_size(allocated),
            format_size(active),
            format_size(info.free),
            format_size(reserved),
            situation.explain(info),
        );
        OomReport {
            device: self.id,
            requested,
            alloc_size,
            limit,
            device_total: info.total,
            device_free: info.free,
            allocated,
            reserved,
            code,
            addresses_short: situation.addresses_short,
            message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::format_size;

    #[test]
    fn sizes_read_as_in_the_stock_message() {
        assert_eq!(format_size(1024), "1024 bytes");
        assert_eq!(format_size(1025), "1.00 KiB");
        assert_eq!(format_size(60 << 30), "60.00 GiB");
        assert_eq!(format_size((1 << 20) + (1 << 19)), "1.50 MiB");
        assert_eq!(format_size(1 << 20), "1024.00 KiB");
    }
}
