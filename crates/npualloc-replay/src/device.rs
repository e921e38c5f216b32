//! The simulated device as the allocator's driver: every call is counted, costed, and checked for
//! hazards by the simulator.

use ascendcl::model::cost::CallKind;
use ascendcl::model::error::Result as SimResult;
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::memory::Policy;
use ascendcl::model::vmm::Place;
use ascendcl::model::work::{Access, Work};
use ascendcl::{Config, Sim};
use npualloc::driver::{
    Driver, DriverError, DriverResult, EventHandle, MemoryInfo, PhysicalHandle, StreamToken,
    VirtualMemory,
};
use npualloc::ids::{DeviceId, MempoolId, StreamKey};
use parking_lot::Mutex;

/// Flags of an event that streams can wait for (`ACL_EVENT_SYNC`).
const EVENT_SYNC: u32 = 1;

const DEVICE: u32 = 0;

/// A simulated device. Thread-safe.
pub struct SimDevice {
    sim: Mutex<Sim>,
    streams: Vec<u64>,
}

impl SimDevice {
    /// A device with `streams` streams; stream 0 is the default one.
    pub fn new(config: Config, streams: u32) -> Self {
        let mut sim = Sim::new(config);
        let default = sim.device(DEVICE).default_stream;
        let streams = std::iter::once(default)
            .chain((1..streams.max(1)).map(|_| sim.add_stream(DEVICE)))
            .collect();
        Self {
            sim: Mutex::new(sim),
            streams,
        }
    }

    /// Puts a task on a stream that takes `nanoseconds` and touches a range of memory.
    pub fn launch(&self, stream: u32, nanoseconds: u64, addr: usize, bytes: u64) {
        let mut sim = self.sim.lock();
        let mut work = Work {
            nanoseconds,
            name: "replay",
            ..Work::default()
        };
        if bytes > 0 {
            work.accesses.push(Access {
                addr: addr as u64,
                len: bytes,
            });
        }
        let stream = self.streams[stream as usize];
        let submitted = sim.submit(stream, work);
        debug_assert!(submitted.is_ok());
    }

    /// What `after` is given from now on starts when `before` has done what it was given so far.
    pub fn order(&self, before: u32, after: u32) {
        let mark = self.mark(before);
        let _ = self
            .sim
            .lock()
            .wait_event(self.streams[after as usize], mark);
        self.forget(mark);
    }

    /// Waits for a stream, as the traced program did.
    pub fn sync_stream(&self, stream: u32) {
        let stream = self.streams[stream as usize];
        let _ = self.sim.lock().sync_stream(stream, CallKind::Launch);
    }

    /// Waits for the device, as the traced program did.
    pub fn sync_device(&self) {
        let _ = self.sim.lock().sync_device(DEVICE, CallKind::Launch);
    }

    /// A mark on a stream, which [`Self::wait_for`] waits for.
    pub fn mark(&self, stream: u32) -> u64 {
        let mut sim = self.sim.lock();
        let stream = self.streams[stream as usize];
        let event = sim.add_event(DEVICE, EVENT_SYNC, true).unwrap_or(0);
        let _ = sim.record(event, stream);
        event
    }

    /// Waits for what a stream had been given when it was marked, as the traced program did.
    pub fn wait_for(&self, mark: u64) {
        let mut sim = self.sim.lock();
        let _ = sim.sync_event(mark, CallKind::Launch);
    }

    /// A mark is not needed any more.
    pub fn forget(&self, mark: u64) {
        let _ = self.sim.lock().destroy_event(mark);
    }

    /// Reads the simulator.
    pub fn with_sim<T>(&self, read: impl FnOnce(&mut Sim) -> T) -> T {
        read(&mut self.sim.lock())
    }

    fn call<T>(
        &self,
        name: &'static str,
        kind: CallKind,
        bytes: u64,
        act: impl FnOnce(&mut Sim) -> SimResult<T>,
    ) -> DriverResult<T> {
        self.sized_call(name, kind, |_| bytes, act)
    }

    /// A call that takes away what an address or a handle names, and costs what that is long.
    fn release<T>(
        &self,
        name: &'static str,
        kind: CallKind,
        object: usize,
        act: impl FnOnce(&mut Sim) -> SimResult<T>,
    ) -> DriverResult<T> {
        self.sized_call(name, kind, |sim| sim.len_of(kind, object as u64), act)
    }

    fn sized_call<T>(
        &self,
        name: &'static str,
        kind: CallKind,
        bytes: impl FnOnce(&Sim) -> u64,
        act: impl FnOnce(&mut Sim) -> SimResult<T>,
    ) -> DriverResult<T> {
        let mut sim = self.sim.lock();
        let bytes = bytes(&sim);
        let outcome = sim.begin(kind, DEVICE, bytes).and_then(|()| act(&mut sim));
        sim.finish(kind, DEVICE, bytes, outcome.is_ok());
        outcome.map_err(|failure| DriverError {
            call: name,
            code: failure.code,
        })
    }
}

impl Driver for SimDevice {
    fn malloc(&self, _: DeviceId, bytes: usize, _: bool) -> DriverResult<usize> {
        self.call("malloc", CallKind::Malloc, bytes as u64, |sim| {
            sim.malloc(DEVICE, bytes as u64, Policy::HugeFirst)
        })
        .map(|addr| addr as usize)
    }

    fn free(&self, _: DeviceId, addr: usize) -> DriverResult<()> {
        self.release("free", CallKind::Free, addr, |sim| sim.free(addr as u64))
    }

    fn memory_info(&self, _: DeviceId) -> DriverResult<MemoryInfo> {
        self.call("memory_info", CallKind::MemInfo, 0, |sim| {
            let total = sim.config.capacity as usize;
            let free = sim.device(DEVICE).free() as usize;
            Ok(MemoryInfo { free, total })
        })
    }

    fn synchronize_device(&self, _: DeviceId) -> DriverResult<()> {
        self.call("synchronize_device", CallKind::SyncDevice, 0, |sim| {
            sim.sync_device(DEVICE, CallKind::SyncDevice)
        })
    }

    fn event_create(&self, _: DeviceId) -> DriverResult<EventHandle> {
        self.call("event_create", CallKind::CreateEvent, 0, |sim| {
            sim.add_event(DEVICE, EVENT_SYNC, true)
        })
        .map(|event| EventHandle(event as usize))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        self.call("event_destroy", CallKind::DestroyEvent, 0, |sim| {
            sim.destroy_event(event.0 as u64)
        })
    }

    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()> {
        let stream = self.streams[stream.id as usize];
        self.call("event_record", CallKind::RecordEvent, 0, |sim| {
            sim.record(event.0 as u64, stream)
        })
    }

    fn event_record_for_streams(
        &self,
        event: EventHandle,
        stream: StreamToken,
    ) -> DriverResult<()> {
        self.event_record(event, stream)
    }

    fn event_record_fence(
        &self,
        _: DeviceId,
        event: EventHandle,
        stream: StreamKey,
    ) -> DriverResult<()> {
        let stream = self.streams[stream.0];
        self.call("event_record_fence", CallKind::RecordEvent, 0, |sim| {
            sim.record(event.0 as u64, stream)
        })
    }

    fn orders_streams(&self) -> bool {
        true
    }

    fn stream_wait(&self, _: DeviceId, stream: StreamKey, event: EventHandle) -> DriverResult<()> {
        let stream = self.streams[stream.0];
        self.call("stream_wait", CallKind::WaitEvent, 0, |sim| {
            sim.wait_event(stream, event.0 as u64)
        })
    }

    fn event_query(&self, event: EventHandle) -> DriverResult<bool> {
        self.call("event_query", CallKind::QueryEvent, 0, |sim| {
            sim.event_complete(event.0 as u64)
        })
    }

    fn event_synchronize(&self, event: EventHandle) -> DriverResult<()> {
        self.call("event_synchronize", CallKind::SyncEvent, 0, |sim| {
            sim.sync_event(event.0 as u64, CallKind::SyncEvent)
        })
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        Some(self)
    }

    fn run_free_callbacks(&self, _: DeviceId) -> DriverResult<bool> {
        Ok(false)
    }

    fn is_capturing(&self, _: DeviceId) -> bool {
        false
    }

    fn is_stream_capturing(&self, _: StreamToken) -> bool {
        false
    }

    fn pool_malloc(&self, device: DeviceId, _: MempoolId, bytes: usize) -> DriverResult<usize> {
        self.malloc(device, bytes, false)
    }

    fn pool_free(&self, device: DeviceId, _: MempoolId, addr: usize) -> DriverResult<()> {
        self.free(device, addr)
    }

    fn release_external_caches(&self, _: DeviceId) -> DriverResult<()> {
        Ok(())
    }
}

impl VirtualMemory for SimDevice {
    fn reserve_address(&self, _: DeviceId, bytes: usize) -> DriverResult<usize> {
        self.call(
            "reserve_address",
            CallKind::ReserveAddress,
            bytes as u64,
            |sim| sim.vmm.reserve(bytes as u64, 0, 0, 1),
        )
        .map(|addr| addr as usize)
    }

    fn release_address(&self, _: DeviceId, addr: usize) -> DriverResult<()> {
        self.release("release_address", CallKind::ReleaseAddress, addr, |sim| {
            sim.vmm.release(addr as u64).map(drop)
        })
    }

    fn malloc_physical(&self, _: DeviceId, bytes: usize, _: bool) -> DriverResult<PhysicalHandle> {
        self.call(
            "malloc_physical",
            CallKind::MallocPhysical,
            bytes as u64,
            |sim| sim.malloc_physical(Place::Device(DEVICE), bytes as u64, Pages::Huge, 0),
        )
        .map(|handle| PhysicalHandle(handle as usize))
    }

    fn free_physical(&self, _: DeviceId, handle: PhysicalHandle) -> DriverResult<()> {
        self.release("free_physical", CallKind::FreePhysical, handle.0, |sim| {
            sim.free_physical(handle.0 as u64)
        })
    }

    fn map(
        &self,
        _: DeviceId,
        addr: usize,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> DriverResult<()> {
        self.call("map", CallKind::Map, bytes as u64, |sim| {
            sim.map(addr as u64, bytes as u64, 0, handle.0 as u64, 0)
        })
    }

    fn unmap(&self, _: DeviceId, addr: usize) -> DriverResult<()> {
        self.release("unmap", CallKind::Unmap, addr, |sim| sim.unmap(addr as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The costs in `docs/run-without-npu.md`: base, and for each 2 MiB.
    #[test]
    fn driver_calls_cost_their_base_and_their_pages() {
        let device = SimDevice::new(Config::default(), 1);
        let id = DeviceId(0);
        let bytes = 20 << 20;
        let addr = device.reserve_address(id, bytes).unwrap();
        let handle = device.malloc_physical(id, bytes, false).unwrap();
        device.map(id, addr, bytes, handle).unwrap();
        device.unmap(id, addr).unwrap();
        device.free_physical(id, handle).unwrap();
        device.release_address(id, addr).unwrap();
        let plain = device.malloc(id, bytes, false).unwrap();
        device.free(id, plain).unwrap();
        let cost = |kind| device.with_sim(|sim| sim.device(DEVICE).ledger.call(kind).ns);
        for (kind, expected) in [
            (CallKind::ReserveAddress, 2_000),
            (CallKind::MallocPhysical, 290_000),
            (CallKind::Map, 372_000),
            (CallKind::Unmap, 342_000),
            (CallKind::FreePhysical, 240_000),
            (CallKind::ReleaseAddress, 2_000),
            (CallKind::Malloc, 69_000),
            (CallKind::Free, 41_000),
        ] {
            assert_eq!(cost(kind), expected, "{}", kind.name());
        }
    }
}
