//! The driver without a device, watched. It knows which memory the client holds and which work may still
//! run on memory that was given back, and complains when memory is taken away or handed out too early.
//!
//! Work is counted, not run: a use of a block ends with the last work submitted to the stream before the
//! block was freed.

use npualloc::driver::fake::{FakeDriver, Span};
use npualloc::driver::{
    Driver, DriverResult, EventHandle, MemoryInfo, PhysicalHandle, StreamToken, VirtualMemory,
};
use npualloc::ids::{DeviceId, MempoolId, StreamKey};
use parking_lot::Mutex;

/// Memory that work may still run on.
#[derive(Debug)]
struct Busy {
    device: u32,
    start: usize,
    end: usize,
    spans: Vec<Span>,
    /// Streams, and how far each must get.
    until: Vec<(StreamToken, u64)>,
}

#[derive(Debug, Default)]
struct Ledger {
    busy: Vec<Busy>,
    /// Live blocks: device, start, end.
    live: Vec<(u32, usize, usize)>,
    /// The calling thread captures: the device may not be waited for.
    capturing: bool,
}

/// See the module's text. Thread-safe.
pub struct Watched {
    /// The driver that does the work.
    pub inner: FakeDriver,
    ledger: Mutex<Ledger>,
}

/// The stream of an allocation as the driver without a device knows it.
pub fn token(device: u32, stream: u8) -> StreamToken {
    StreamToken {
        id: stream.into(),
        device: device as i32,
        reserved: 0,
    }
}

fn overlap(one: &Span, other: &Span) -> bool {
    one.handle == other.handle
        && one.start < other.start + other.bytes
        && other.start < one.start + one.bytes
}

impl Watched {
    /// Devices of `capacity` bytes each.
    pub fn new(capacity: usize) -> Self {
        Self {
            inner: FakeDriver::new(capacity),
            ledger: Mutex::new(Ledger::default()),
        }
    }

    /// From now on waiting for the device is, or is no longer, forbidden.
    pub fn forbid_waiting(&self, forbidden: bool) {
        self.ledger.lock().capturing = forbidden;
    }

    fn is_done(&self, until: &(StreamToken, u64)) -> bool {
        self.inner.progress(until.0).1 >= until.1
    }

    /// A block was handed out on `home`. Returns the memory under it.
    ///
    /// # Panics
    /// When part of it has no memory, is in use, or may be.
    pub fn handed_out(
        &self,
        device: u32,
        addr: usize,
        bytes: usize,
        home: StreamToken,
    ) -> Vec<Span> {
        let spans = self
            .inner
            .spans(device, addr, bytes)
            .unwrap_or_else(|| panic!("no memory under part of the block at {addr:#x}"));
        let mut ledger = self.ledger.lock();
        ledger
            .busy
            .retain(|busy| !busy.until.iter().all(|until| self.is_done(until)));
        for busy in ledger.busy.iter().filter(|busy| busy.device == device) {
            let touched = busy
                .spans
                .iter()
                .any(|old| spans.iter().any(|new| overlap(old, new)));
            for until in busy
                .until
                .iter()
                .filter(|until| touched && !self.is_done(until))
            {
                // Work of one stream is in order, and after what that stream waits for.
                let ordered = until.0 == home || self.inner.runs_after(home, until.0, until.1);
                assert!(
                    ordered,
                    "{addr:#x} was handed out on {home:?} while {:#x} is in use on {:?}",
                    busy.start, until.0
                );
            }
        }
        ledger.live.push((device, addr, addr + bytes));
        spans
    }

    /// A block is about to be freed; `users` used it besides its own stream.
    pub fn freed(
        &self,
        device: u32,
        addr: usize,
        spans: &[Span],
        home: StreamToken,
        users: &[StreamToken],
    ) {
        let mut ledger = self.ledger.lock();
        let at = ledger
            .live
            .iter()
            .position(|live| (live.0, live.1) == (device, addr));
        let (_, start, end) = ledger.live.swap_remove(at.expect("a live block"));
        let until = users.iter().chain([&home]);
        let until = until
            .map(|user| (*user, self.inner.progress(*user).0))
            .collect();
        ledger.busy.push(Busy {
            device,
            start,
            end,
            spans: spans.to_vec(),
            until,
        });
    }

    /// Memory at an address is about to go.
    fn going(&self, device: u32, addr: usize, what: &str) {
        let Some(bytes) = self.inner.size_at(device, addr) else {
            return;
        };
        let ledger = self.ledger.lock();
        let inside = |start: usize, end: usize| start < addr + bytes && addr < end;
        for (_, start, end) in ledger.live.iter().filter(|live| live.0 == device) {
            assert!(
                !inside(*start, *end),
                "{what} under the live block at {start:#x}"
            );
        }
        for busy in ledger.busy.iter().filter(|busy| busy.device == device) {
            if inside(busy.start, busy.end) {
                for until in &busy.until {
                    assert!(
                        self.is_done(until),
                        "{what} at {addr:#x} while {:#x} is in use on {:?}",
                        busy.start,
                        until.0
                    );
                }
            }
        }
    }

    /// Physical memory is about to go.
    fn freeing(&self, device: DeviceId, handle: PhysicalHandle) {
        let ledger = self.ledger.lock();
        for busy in ledger.busy.iter().filter(|busy| busy.device == device.0) {
            if busy.spans.iter().any(|span| span.handle == handle.0) {
                let done = busy.until.iter().all(|until| self.is_done(until));
                assert!(
                    done,
                    "{handle:?} is freed while {:#x} is in use",
                    busy.start
                );
            }
        }
    }

    fn waiting(&self, what: &str) {
        assert!(!self.ledger.lock().capturing, "{what} during a capture");
    }
}

impl Driver for Watched {
    fn malloc(&self, device: DeviceId, bytes: usize, huge_1g: bool) -> DriverResult<usize> {
        self.inner.malloc(device, bytes, huge_1g)
    }

    fn free(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        self.going(device.0, addr, "free");
        self.inner.free(device, addr)
    }

    fn memory_info(&self, device: DeviceId) -> DriverResult<MemoryInfo> {
        self.inner.memory_info(device)
    }

    fn synchronize_device(&self, device: DeviceId) -> DriverResult<()> {
        self.waiting("synchronize_device");
        self.inner.synchronize_device(device)
    }

    fn event_create(&self, device: DeviceId) -> DriverResult<EventHandle> {
        self.inner.event_create(device)
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        self.inner.event_destroy(event)
    }

    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()> {
        self.waiting("event_record");
        self.inner.event_record(event, stream)
    }

    fn event_record_for_streams(
        &self,
        event: EventHandle,
        stream: StreamToken,
    ) -> DriverResult<()> {
        self.waiting("event_record");
        self.inner.event_record_for_streams(event, stream)
    }

    fn event_record_fence(
        &self,
        device: DeviceId,
        event: EventHandle,
        stream: StreamKey,
    ) -> DriverResult<()> {
        self.inner.event_record_fence(device, event, stream)
    }

    fn orders_streams(&self) -> bool {
        self.inner.orders_streams()
    }

    fn stream_wait(
        &self,
        device: DeviceId,
        stream: StreamKey,
        event: EventHandle,
    ) -> DriverResult<()> {
        self.waiting("stream_wait");
        self.inner.stream_wait(device, stream, event)
    }

    fn event_query(&self, event: EventHandle) -> DriverResult<bool> {
        self.inner.event_query(event)
    }

    fn event_synchronize(&self, event: EventHandle) -> DriverResult<()> {
        self.waiting("event_synchronize");
        self.inner.event_synchronize(event)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        Some(self)
    }

    fn run_free_callbacks(&self, device: DeviceId) -> DriverResult<bool> {
        self.inner.run_free_callbacks(device)
    }

    fn is_capturing(&self, device: DeviceId) -> bool {
        self.inner.is_capturing(device)
    }

    fn is_stream_capturing(&self, stream: StreamToken) -> bool {
        self.inner.is_stream_capturing(stream)
    }

    fn pool_malloc(&self, device: DeviceId, pool: MempoolId, bytes: usize) -> DriverResult<usize> {
        self.inner.pool_malloc(device, pool, bytes)
    }

    fn pool_free(&self, device: DeviceId, pool: MempoolId, addr: usize) -> DriverResult<()> {
        self.going(device.0, addr, "pool_free");
        self.inner.pool_free(device, pool, addr)
    }

    fn release_external_caches(&self, device: DeviceId) -> DriverResult<()> {
        self.inner.release_external_caches(device)
    }
}

impl VirtualMemory for Watched {
    fn reserve_address(&self, device: DeviceId, bytes: usize) -> DriverResult<usize> {
        self.inner.reserve_address(device, bytes)
    }

    fn release_address(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        self.inner.release_address(device, addr)
    }

    fn malloc_physical(
        &self,
        device: DeviceId,
        bytes: usize,
        huge_1g: bool,
    ) -> DriverResult<PhysicalHandle> {
        self.inner.malloc_physical(device, bytes, huge_1g)
    }

    fn free_physical(&self, device: DeviceId, handle: PhysicalHandle) -> DriverResult<()> {
        self.freeing(device, handle);
        self.inner.free_physical(device, handle)
    }

    fn map(
        &self,
        device: DeviceId,
        addr: usize,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> DriverResult<()> {
        self.inner.map(device, addr, bytes, handle)
    }

    fn unmap(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        self.going(device.0, addr, "unmap");
        self.inner.unmap(device, addr)
    }
}
