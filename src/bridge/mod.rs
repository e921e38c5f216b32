//! The only bridge to C++: declarations shared by both languages. Conversions live beside it; depends
//! on everything below, nothing depends on it.

mod allocator;
mod convert;
mod outcome;
#[cfg(test)]
mod poison_tests;
mod recording;
mod records;
mod statistics;

pub use allocator::{Allocator, new_allocator};
use allocator::{check_config, check_debug};
use outcome::{last_failure, last_oom_report, take_error_message};
use recording::{Recorder, start_recording};
use records::{Checkpoint, Snapshot, Trace};

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
        /// A bug: a panic was caught at the boundary, or has poisoned the device before.
        Internal = 8,
        /// A configuration string that the stock allocator refuses with `c10::ValueError`. For this
        /// and the next three, `code` is what torch_npu appends to the text: thousands of its
        /// sub-module plus kind (1003 = ERR01003), -1 where it appends nothing.
        ConfigValue = 9,
        /// … with `c10::Error`.
        ConfigRuntime = 10,
        /// … with `std::invalid_argument`.
        ConfigNotANumber = 11,
        /// … with `std::out_of_range`.
        ConfigOutOfRange = 12,
        /// The debug mode found memory written that should not have been.
        Damage = 13,
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
        /// Held by segments.
        reserved: usize,
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

    /// Six statistics side by side: allocation, segment, active, inactive_split, allocated_bytes,
    /// reserved_bytes.
    #[derive(Default)]
    struct StatFront {
        of: [StatTriple; 6],
    }

    /// Three of them, active_bytes, inactive_split_bytes and requested_bytes, and what has its place behind them.
    #[derive(Default)]
    struct StatBack {
        of: [StatTriple; 3],
        num_alloc_retries: i64,
        num_ooms: i64,
        oversize_allocations: Stat,
        oversize_segments: Stat,
        num_sync_all_streams: i64,
        num_device_alloc: i64,
        num_device_free: i64,
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
        /// Number of entries of `reserved_by_pool`.
        private_pools: usize,
    }

    /// What has no place in those two. `num_oom_rejections` and `max_split_size` are not side by side: read as a pair just
    /// after each was written, they would come late.
    #[derive(Debug, Clone, Default)]
    struct StatRest {
        num_oom_rejections: i64,
        /// Number of entries of `reserved_by_pool`.
        private_pools: usize,
        max_split_size: i64,
    }

    /// A memory pool as clients name it; (0, 0) is the default pool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct MempoolId {
        first: u64,
        second: u64,
    }

    /// A request for memory, for a recording.
    #[derive(Debug, Clone)]
    struct RecordedRequest {
        device: i32,
        bytes: usize,
        stream: usize,
        pool: MempoolId,
        /// From `add_stack`; 0: not known.
        stack: u32,
    }

    /// Reserved bytes of one private pool.
    #[derive(Debug, Clone)]
    struct PoolReserved {
        pool: MempoolId,
        bytes: StatTriple,
    }

    /// One of the counts of how misses were served.
    #[derive(Debug, Clone)]
    struct LadderCount {
        name: String,
        count: u64,
    }

    /// The physical memory under a block of a virtual segment: handles in address order, from the page
    /// that begins at `addr` (at or before the block). `status` is `NotSupported` for a block of a
    /// fixed segment.
    #[derive(Debug)]
    struct PageView {
        status: Status,
        page_size: usize,
        addr: usize,
        handles: Vec<usize>,
    }

    /// What restoring a checkpoint did: addresses. One may be in both lists.
    #[derive(Debug)]
    struct Restored {
        freed: Vec<usize>,
        allocated: Vec<usize>,
    }

    #[derive(Debug)]
    struct CountOutcome {
        value: usize,
        status: Status,
        code: i32,
    }

    /// A block in a snapshot. `context` is borrowed from the snapshot; 0 = none.
    #[derive(Debug)]
    struct BlockInfo {
        size: usize,
        requested_size: usize,
        allocated: bool,
        active: bool,
        context: usize,
    }

    /// A segment in a snapshot; its blocks are `blocks[first_block..first_block + block_count]` of the
    /// snapshot.
    #[derive(Debug)]
    struct SegmentInfo {
        addr: usize,
        total_size: usize,
        requested_size: usize,
        allocated_size: usize,
        active_size: usize,
        stream: usize,
        is_large: bool,
        is_expandable: bool,
        pool: MempoolId,
        first_block: usize,
        block_count: usize,
        context: usize,
    }

    /// What a trace entry says; the order is that of the stock allocator.
    #[derive(Debug)]
    #[repr(u8)]
    enum TraceAction {
        Alloc = 0,
        FreeRequested = 1,
        FreeCompleted = 2,
        SegmentAlloc = 3,
        SegmentFree = 4,
        SegmentMap = 5,
        SegmentUnmap = 6,
        Snapshot = 7,
        OutOfMemory = 8,
    }

    /// `context` is borrowed from the trace; 0 = none.
    #[derive(Debug)]
    struct TraceEntry {
        action: TraceAction,
        addr: usize,
        size: usize,
        stream: usize,
        pool: MempoolId,
        context: usize,
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

        /// Whether texts can be the `common` and the `config` of an allocator.
        fn check_config(common: &str, config: &str) -> Outcome;
        /// Whether a text can be the `debug` of an allocator.
        fn check_debug(words: &str) -> Outcome;

        /// Makes an allocator over the given driver functions. `config` is the text of
        /// `PYTORCH_NPU_ALLOC_CONF` (empty = defaults), applied to what `common` says, of which only the
        /// keys of all accelerators count. `pad_bytes` is added to every request before
        /// rounding (32 where kernels may read past a tensor's end). `debug` is the text of
        /// `NPUALLOC_DEBUG` (empty = nothing is checked).
        ///
        /// # Safety
        /// The functions in `table` must uphold the contract of `driver_table.h` for as long as the
        /// process lives.
        unsafe fn new_allocator(
            table: &DriverTable,
            common: &str,
            config: &str,
            pad_bytes: usize,
            debug: &str,
        ) -> Result<Box<Allocator>>;

        /// Makes room for devices `0..device_count`; never shrinks.
        fn init(self: &Allocator, device_count: i32) -> Outcome;
        fn device_count(self: &Allocator) -> i32;

        /// The address; 0 is a failure, of which `last_failure` tells. This and the other calls that are made most
        /// often answer in a register: a struct comes back through memory, which is read as a whole before the
        /// stores of its parts are over.
        fn allocate(self: &Allocator, device: i32, bytes: usize, stream: usize) -> usize;
        /// False is a failure, of which `last_failure` tells.
        fn deallocate(self: &Allocator, addr: usize) -> bool;
        /// As `allocate`, from a private pool ((0, 0) = none) and with a context (0 = none), whose
        /// ownership passes to the allocator in every case.
        fn allocate_in(
            self: &Allocator,
            device: i32,
            bytes: usize,
            stream: usize,
            pool: MempoolId,
            context: usize,
        ) -> AllocOutcome;
        /// As `deallocate`, with a context, whose ownership passes to the allocator.
        fn deallocate_with(self: &Allocator, addr: usize, context: usize) -> Outcome;
        /// False is a failure, of which `last_failure` tells.
        fn record_stream(self: &Allocator, addr: usize, stream: StreamToken) -> bool;
        fn erase_stream(self: &Allocator, addr: usize, stream: StreamToken) -> Outcome;
        fn describe_block(self: &Allocator, addr: usize) -> BlockView;
        /// By `BlockView::handle`: a block that is live, or freed and waiting for events. A stale
        /// handle gives `InvalidPointer`.
        fn describe_handle(self: &Allocator, handle: usize) -> BlockView;
        fn erase_stream_by_handle(self: &Allocator, handle: usize, stream: StreamToken) -> Outcome;

        /// `context`: as for `allocate_in`.
        fn empty_cache(self: &Allocator, device: i32, context: usize) -> Outcome;
        /// Unmaps idle memory of virtual segments but keeps the physical memory; returns idle fixed
        /// segments to the driver.
        fn empty_virtual_cache(self: &Allocator, device: i32, context: usize) -> Outcome;
        /// As `empty_cache`, for one private pool only.
        fn empty_pool(self: &Allocator, device: i32, pool: MempoolId, context: usize) -> Outcome;
        fn cache_info(self: &Allocator, device: i32) -> CacheInfo;
        /// Returns every block that waits for events to its pool without waiting for them.
        fn drop_pending_events(self: &Allocator, device: i32) -> Outcome;

        fn device_stats(self: &Allocator, device: i32, out: &mut DeviceStats) -> Outcome;
        /// The same, written where the caller keeps it, which must be all zeros: what was never counted is left out. False is a
        /// failure, of which `last_failure` tells.
        fn device_stats_in_place(
            self: &Allocator,
            device: i32,
            front: &mut StatFront,
            back: &mut StatBack,
            rest: &mut StatRest,
        ) -> bool;
        fn reset_accumulated_stats(self: &Allocator, device: i32) -> Outcome;
        fn reset_peak_stats(self: &Allocator, device: i32) -> Outcome;

        fn memory_fraction(self: &Allocator, device: i32) -> FractionOutcome;
        fn set_memory_fraction(self: &Allocator, device: i32, fraction: f64) -> Outcome;
        /// Applies settings at run time, as `torch.npu.memory._set_allocator_settings` does.
        fn apply_settings(self: &Allocator, settings: &str) -> Outcome;
        /// As `apply_settings`, with every key, as torch's settings for all accelerators do.
        fn apply_any_settings(self: &Allocator, settings: &str) -> Outcome;

        /// Makes the pool with one user, or adds a user. `external`: its memory comes from
        /// `pool_malloc` of the driver table; only a new pool can have that.
        fn create_or_incref_pool(
            self: &Allocator,
            device: i32,
            pool: MempoolId,
            external: bool,
        ) -> Outcome;
        fn release_pool(self: &Allocator, device: i32, pool: MempoolId) -> Outcome;
        fn pool_use_count(self: &Allocator, device: i32, pool: MempoolId) -> CountOutcome;
        fn set_use_on_oom(self: &Allocator, device: i32, pool: MempoolId, on: bool) -> Outcome;
        fn set_no_split(self: &Allocator, device: i32, pool: MempoolId) -> Outcome;
        /// `value` is 1 when the pool's live blocks are exactly `expected`.
        fn check_pool_live_allocations(
            self: &Allocator,
            device: i32,
            pool: MempoolId,
            expected: &[usize],
        ) -> CountOutcome;
        /// Reserved bytes by private pool; empty for a wrong device.
        fn reserved_by_pool(self: &Allocator, device: i32) -> Vec<PoolReserved>;

        /// How requests were served that no free block fitted; empty for a wrong device.
        fn ladder(self: &Allocator, device: i32) -> Vec<LadderCount>;

        /// Returns the physical memory of a pool, or of all (`pool` is not looked at then), to the driver;
        /// addresses stay and contents are lost. `value`: bytes.
        fn sleep(self: &Allocator, device: i32, pool: MempoolId, all: bool) -> CountOutcome;
        /// Gives memory to what sleeps. `value`: bytes.
        fn wake_up(self: &Allocator, device: i32, pool: MempoolId, all: bool) -> CountOutcome;

        fn mark_capture_begin(self: &Allocator, device: i32) -> Outcome;
        fn mark_capture_end(self: &Allocator, device: i32) -> Outcome;
        /// Whether the calling thread's stream is being captured; false for a wrong device.
        fn has_captures_underway(self: &Allocator, device: i32) -> bool;

        type Checkpoint;
        /// The live blocks of a private pool in use.
        fn checkpoint(self: &Allocator, device: i32, pool: MempoolId) -> Result<Box<Checkpoint>>;
        /// Frees the live blocks of the checkpoint's pool and makes the checkpoint's blocks live at
        /// their addresses. On error nothing has changed.
        fn restore(self: &Allocator, device: i32, checkpoint: &Checkpoint) -> Result<Restored>;

        /// The pages under the live block at `addr`, to share them with another process.
        fn pages_under(self: &Allocator, addr: usize) -> PageView;

        /// Marks every block that overlaps the range as hit by a memory error; `value` is how many.
        fn mark_damaged(self: &Allocator, device: i32, addr: usize, bytes: usize) -> CountOutcome;
        fn mark_all_damaged(self: &Allocator, device: i32) -> Outcome;
        /// `value` is 1 when the live block at `addr` is marked.
        fn is_damaged(self: &Allocator, addr: usize) -> CountOutcome;
        fn clear_damaged(self: &Allocator, addr: usize) -> Outcome;

        /// Starts or stops recording on every device. `record`: 0 never, 1 state, 2 alloc, 3 all.
        fn record_history(self: &Allocator, enabled: bool, capacity: usize, record: u8) -> Outcome;
        fn is_history_enabled(self: &Allocator, device: i32) -> bool;
        /// From now on entries are kept for `take_undelivered_trace` too, on every device.
        fn attach_trace_trackers(self: &Allocator);

        type Trace;
        /// The recorded entries of a device, oldest first; empty for a wrong device.
        fn trace(self: &Allocator, device: i32) -> Box<Trace>;
        /// Takes the entries that the trackers have not seen.
        fn take_undelivered_trace(self: &Allocator, device: i32) -> Box<Trace>;
        fn entries(self: &Trace) -> Vec<TraceEntry>;

        type Snapshot;
        /// Every segment of a device (of one pool, unless (0, 0)); empty for a wrong device.
        fn snapshot(self: &Allocator, device: i32, pool: MempoolId) -> Box<Snapshot>;
        fn segments(self: &Snapshot) -> Vec<SegmentInfo>;
        fn blocks(self: &Snapshot) -> Vec<BlockInfo>;

        type Recorder;
        /// Records to a file what is asked of the allocator from now on, and first what is alive.
        /// `device` is the one whose trace has the path itself; below 0: the one that is used first.
        fn start_recording(allocator: &Allocator, device: i32, path: &str)
        -> Result<Box<Recorder>>;
        /// After the allocation; `addr` is 0 where it failed for want of memory.
        fn allocated(
            self: &Recorder,
            allocator: &Allocator,
            addr: usize,
            request: &RecordedRequest,
        );
        /// Makes a stack known, for `stack` of later allocations (0: not known): frames separated by tabs, the
        /// innermost first.
        fn add_stack(self: &Recorder, frames: &str) -> u32;
        /// Before the free.
        fn freed(self: &Recorder, addr: usize);
        fn used(self: &Recorder, addr: usize, stream: usize);
        fn stream_waited(self: &Recorder, stream: usize);
        fn device_waited(self: &Recorder, device: i32);
        /// An event of the device, by its handle, was recorded on a stream.
        fn event_recorded(self: &Recorder, event: usize, stream: usize);
        fn event_waited(self: &Recorder, event: usize);
        /// A private pool lost its last user.
        fn pool_released(self: &Recorder, device: i32, pool: MempoolId);
        fn emptied(self: &Recorder, device: i32);
        /// False once the recording is over.
        fn mark(self: &Recorder, label: &str) -> bool;
        /// Writes what is left; the bytes written. Further calls have no effect.
        fn finish(self: &Recorder) -> Result<u64>;

        /// From now on frees are dropped and the driver is not called: the runtime is going away.
        fn begin_process_exit(self: &Allocator);

        /// The debug mode's checks of all that a device holds, after waiting for it. `value` is how many
        /// bytes were looked at: 0 where no contents are checked.
        fn check_memory(self: &Allocator, device: i32) -> CountOutcome;

        /// Verifies every invariant of every device; the error names the first one broken.
        fn check_consistency(self: &Allocator) -> Result<()>;

        /// The outcome of this thread's last failure.
        fn last_failure() -> Outcome;
        /// The text of this thread's last failure; empty when there is none.
        fn take_error_message() -> String;
        /// The numbers of this thread's last out-of-memory failure.
        fn last_oom_report() -> OomReport;
    }
}
