//! The only bridge to C++: declarations shared by both languages. Conversions live beside it; depends
//! on everything below, nothing depends on it.

mod allocator;
mod outcome;

pub use allocator::{Allocator, new_allocator};
use outcome::{last_oom_report, take_error_message};

#[cxx::bridge(namespace = "npualloc::ffi")]
pub mod ffi {
    /// Outcome of a call, by value, so that the hot path carries no string. The text belonging to a
    /// failure is read with `take_error_message` on the same thread.
    #[derive(Debug)]
    #[repr(u8)]
    enum Status {
        Ok = 0,
        /// The device (or the configured limit) has no room, after everything reclaimable went back.
        OutOfMemory = 1,
        /// Refused by policy (`throw_on_npumalloc_oom`) before asking the driver.
        Rejected = 2,
        /// The address is not a live allocation of this allocator.
        InvalidPointer = 3,
        /// Device index out of range, or `init` was not called for it.
        InvalidDevice = 4,
        InvalidArgument = 5,
        /// The driver failed; `code` holds its error.
        DriverError = 6,
        NotSupported = 7,
        /// A bug: a panic was caught at the boundary.
        Internal = 8,
    }

    #[derive(Debug)]
    struct AllocOutcome {
        addr: usize,
        status: Status,
        /// The driver's error code where `status` is `DriverError` or `OutOfMemory`, else 0.
        code: i32,
    }

    #[derive(Debug)]
    struct Outcome {
        status: Status,
        code: i32,
    }

    #[derive(Debug)]
    struct FractionOutcome {
        value: f64,
        status: Status,
        code: i32,
    }

    /// A live block as seen from outside. `handle` is valid until the block's last use is over (freed
    /// and its events complete), never 0.
    #[derive(Debug)]
    struct BlockView {
        status: Status,
        device: i32,
        stream: usize,
        addr: usize,
        size: usize,
        requested_size: usize,
        base_addr: usize,
        base_size: usize,
        handle: usize,
    }

    #[derive(Debug)]
    struct CacheInfo {
        status: Status,
        /// Bytes in free blocks.
        total: usize,
        /// Largest free block, bytes.
        largest: usize,
    }

    /// What an out-of-memory observer is told.
    #[derive(Debug, Clone)]
    struct OomReport {
        device: i32,
        /// Bytes the failed request would have asked of the driver.
        alloc_size: usize,
        /// The configured limit, or the device's capacity.
        limit: usize,
        device_total: usize,
        device_free: usize,
        allocated: usize,
    }

    #[derive(Debug, Clone, Default)]
    struct Stat {
        current: i64,
        peak: i64,
        allocated: i64,
        freed: i64,
    }

    #[derive(Debug, Clone, Default)]
    struct StatTriple {
        aggregate: Stat,
        small_pool: Stat,
        large_pool: Stat,
    }

    #[derive(Debug, Clone, Default)]
    struct DeviceStats {
        allocation: StatTriple,
        segment: StatTriple,
        active: StatTriple,
        inactive_split: StatTriple,
        allocated_bytes: StatTriple,
        reserved_bytes: StatTriple,
        active_bytes: StatTriple,
        inactive_split_bytes: StatTriple,
        requested_bytes: StatTriple,
        oversize_allocations: Stat,
        oversize_segments: Stat,
        num_alloc_retries: i64,
        num_ooms: i64,
        num_sync_all_streams: i64,
        num_device_alloc: i64,
        num_device_free: i64,
        num_oom_rejections: i64,
        max_split_size: i64,
    }

    unsafe extern "C++" {
        include!("npualloc/driver_table.h");
        #[namespace = "npualloc"]
        type DriverTable = crate::driver::foreign::DriverTable;
        #[namespace = "npualloc"]
        type StreamToken = crate::driver::StreamToken;
    }

    extern "Rust" {
        type Allocator;

        /// Makes an allocator over the given driver functions. `config` is the text of
        /// `PYTORCH_NPU_ALLOC_CONF` (empty = defaults). `pad_bytes` is added to every request before
        /// rounding (32 where kernels may read past a tensor's end).
        ///
        /// # Safety
        /// The functions in `table` must uphold the contract of `driver_table.h` for as long as the
        /// process lives.
        unsafe fn new_allocator(
            table: &DriverTable,
            config: &str,
            pad_bytes: usize,
        ) -> Result<Box<Allocator>>;

        /// Makes room for devices `0..device_count`; never shrinks.
        fn init(self: &Allocator, device_count: i32) -> Outcome;
        fn device_count(self: &Allocator) -> i32;

        fn allocate(self: &Allocator, device: i32, bytes: usize, stream: usize) -> AllocOutcome;
        fn deallocate(self: &Allocator, addr: usize) -> Outcome;
        fn record_stream(self: &Allocator, addr: usize, stream: StreamToken) -> Outcome;
        fn erase_stream(self: &Allocator, addr: usize, stream: StreamToken) -> Outcome;
        fn describe_block(self: &Allocator, addr: usize) -> BlockView;
        /// By `BlockView::handle`: a block that is live, or freed and waiting for events. A stale
        /// handle gives `InvalidPointer`.
        fn describe_handle(self: &Allocator, handle: usize) -> BlockView;
        fn erase_stream_by_handle(self: &Allocator, handle: usize, stream: StreamToken) -> Outcome;

        fn empty_cache(self: &Allocator, device: i32) -> Outcome;
        fn cache_info(self: &Allocator, device: i32) -> CacheInfo;
        /// Returns every block that waits for events to its pool without waiting for them.
        fn drop_pending_events(self: &Allocator, device: i32) -> Outcome;

        fn device_stats(self: &Allocator, device: i32, out: &mut DeviceStats) -> Outcome;
        fn reset_accumulated_stats(self: &Allocator, device: i32) -> Outcome;
        fn reset_peak_stats(self: &Allocator, device: i32) -> Outcome;

        fn memory_fraction(self: &Allocator, device: i32) -> FractionOutcome;
        fn set_memory_fraction(self: &Allocator, device: i32, fraction: f64) -> Outcome;
        /// Applies settings at run time, as `torch.npu.memory._set_allocator_settings` does.
        fn apply_settings(self: &Allocator, settings: &str) -> Result<()>;

        /// From now on frees are dropped and the driver is not called: the runtime is going away.
        fn begin_process_exit(self: &Allocator);

        /// Verifies every invariant of every device; the error names the first one broken.
        fn check_consistency(self: &Allocator) -> Result<()>;

        /// The text of this thread's last failure; empty when there is none.
        fn take_error_message() -> String;
        /// The numbers of this thread's last out-of-memory failure.
        fn last_oom_report() -> OomReport;
    }
}
