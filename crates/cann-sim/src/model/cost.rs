//! The kinds of driver calls and what each costs the calling thread.
//!
//! Every constant is an assumption and a knob: no figure is published for
//! AscendCL. Orders of magnitude come from published measurements of CUDA's
//! virtual memory calls for one 2 MiB page (reserve 2 µs, create 29, map 2,
//! set access 37, unmap 34, release 24) and of `cudaMalloc` under
//! fragmentation (66–140 µs).

macro_rules! call_kinds {
    ($($kind:ident $name:literal $base:literal $per_page:literal;)*) => {
        /// A kind of call that is counted, costed and can be made to fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum CallKind { $($kind),* }

        /// All kinds, in the order of their numbers.
        pub const CALL_KINDS: &[CallKind] = &[$(CallKind::$kind),*];

        impl CallKind {
            /// The C function (or the first of the family) of this kind.
            pub fn name(self) -> &'static str {
                match self { $(CallKind::$kind => $name),* }
            }

            /// Default cost in nanoseconds: for the call, and for each 2 MiB page.
            const fn default_cost(self) -> (u64, u64) {
                match self { $(CallKind::$kind => ($base, $per_page)),* }
            }
        }
    };
}

call_kinds! {
    Malloc "aclrtMalloc" 66_000 300;
    Free "aclrtFree" 40_000 100;
    MallocHost "aclrtMallocHost" 50_000 200;
    FreeHost "aclrtFreeHost" 30_000 100;
    HostRegister "aclrtHostRegister" 20_000 200;
    HostUnregister "aclrtHostUnregister" 20_000 100;
    ReserveAddress "aclrtReserveMemAddress" 2_000 0;
    ReleaseAddress "aclrtReleaseMemAddress" 2_000 0;
    MallocPhysical "aclrtMallocPhysical" 0 29_000;
    FreePhysical "aclrtFreePhysical" 0 24_000;
    Map "aclrtMapMem" 2_000 37_000;
    Unmap "aclrtUnmapMem" 2_000 34_000;
    SetAccess "aclrtMemSetAccess" 1_000 36_000;
    ExportHandle "aclrtMemExportToShareableHandle" 10_000 0;
    ImportHandle "aclrtMemImportFromShareableHandle" 30_000 0;
    IpcExport "aclrtIpcMemGetExportKey" 30_000 0;
    IpcImport "aclrtIpcMemImportByKey" 60_000 0;
    IpcClose "aclrtIpcMemClose" 30_000 0;
    MemInfo "aclrtGetMemInfo" 5_000 0;
    Memcpy "aclrtMemcpy" 8_000 0;
    MemcpyAsync "aclrtMemcpyAsync" 2_000 0;
    Memset "aclrtMemset" 8_000 0;
    MemsetAsync "aclrtMemsetAsync" 2_000 0;
    CreateStream "aclrtCreateStream" 50_000 0;
    DestroyStream "aclrtDestroyStream" 50_000 0;
    QueryStream "aclrtStreamQuery" 300 0;
    SyncStream "aclrtSynchronizeStream" 2_000 0;
    SyncDevice "aclrtSynchronizeDevice" 4_000 0;
    CreateEvent "aclrtCreateEvent" 1_000 0;
    DestroyEvent "aclrtDestroyEvent" 500 0;
    RecordEvent "aclrtRecordEvent" 1_000 0;
    WaitEvent "aclrtStreamWaitEvent" 1_000 0;
    ResetEvent "aclrtResetEvent" 1_000 0;
    QueryEvent "aclrtQueryEventStatus" 300 0;
    SyncEvent "aclrtSynchronizeEvent" 2_000 0;
    Value "aclrtValueWrite" 1_000 0;
    Launch "launch" 2_000 0;
    HostCallback "aclrtLaunchHostFunc" 3_000 0;
    CaptureBegin "aclmdlRICaptureBegin" 10_000 0;
    CaptureEnd "aclmdlRICaptureEnd" 50_000 0;
    Replay "aclmdlRIExecuteAsync" 10_000 0;
    SetDevice "aclrtSetDevice" 200 0;
    ResetDevice "aclrtResetDevice" 1_000_000 0;
    Uce "aclrtGetMemUceInfo" 20_000 0;
    Other "other" 100 0;
}

/// Calls that obtain, return, map or unmap device memory.
pub const MEMORY_CALLS: [CallKind; 9] = [
    CallKind::Malloc,
    CallKind::Free,
    CallKind::ReserveAddress,
    CallKind::ReleaseAddress,
    CallKind::MallocPhysical,
    CallKind::FreePhysical,
    CallKind::Map,
    CallKind::Unmap,
    CallKind::SetAccess,
];

/// Size of a huge page, the unit of the per-page costs.
pub const PAGE: u64 = 2 << 20;

/// What calls cost the host, and work costs the device.
#[derive(Debug, Clone)]
pub struct CostModel {
    call: Vec<(u64, u64)>,
    /// Nanoseconds of one kernel.
    pub kernel_ns: u64,
    /// Bytes a second between host and device.
    pub host_bandwidth: u64,
    /// Bytes a second inside a device.
    pub device_bandwidth: u64,
    /// Bytes a second between two devices.
    pub peer_bandwidth: u64,
}

impl Default for CostModel {
    fn default() -> Self {
        CostModel {
            call: CALL_KINDS.iter().map(|kind| kind.default_cost()).collect(),
            kernel_ns: 10_000,
            host_bandwidth: 20_000_000_000,
            device_bandwidth: 800_000_000_000,
            peer_bandwidth: 25_000_000_000,
        }
    }
}

impl CostModel {
    /// Nanoseconds a call of this kind takes for `bytes` bytes.
    pub fn call(&self, kind: CallKind, bytes: u64) -> u64 {
        let (base, per_page) = self.call[kind as usize];
        if per_page == 0 {
            base
        } else {
            base.saturating_add(per_page.saturating_mul(bytes.div_ceil(PAGE)))
        }
    }

    /// Changes what a call costs.
    pub fn set_call(&mut self, kind: CallKind, base: u64, per_page: u64) {
        self.call[kind as usize] = (base, per_page);
    }

    /// Nanoseconds to move `bytes` at `bandwidth` bytes a second, with the time
    /// of a kernel as the least.
    pub fn transfer(&self, bytes: u64, bandwidth: u64) -> u64 {
        let time = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1));
        self.kernel_ns
            .saturating_add(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// The kind whose C name this is.
pub fn kind_by_name(name: &str) -> Option<CallKind> {
    CALL_KINDS.iter().copied().find(|kind| kind.name() == name)
}
