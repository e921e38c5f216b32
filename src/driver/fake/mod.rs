//! A driver without a device, for tests and benchmarks of the core alone: addresses from a counter, a
//! capacity, events completed by hand, and a plan of failures. `inspect` has what tests ask it.

mod inspect;
mod virtual_memory;

pub use inspect::Span;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;

use super::fake_contents::Memory;
use super::{
    Contents, Driver, DriverError, DriverResult, EventHandle, MemoryInfo, OUT_OF_MEMORY_CODE,
    PhysicalHandle, StreamToken, UNSUPPORTED_CODE, VirtualMemory,
};
use crate::ids::{DeviceId, MempoolId, StreamKey};
#[cfg(loom)]
use crate::primitives::atomic::{AtomicUsize, Ordering};

/// Distance between the address spaces of two devices.
const DEVICE_STRIDE: usize = 1 << 44;
const SEGMENT_ALIGN: usize = 2 << 20;

#[derive(Debug, Default)]
struct Device {
    /// Driver allocations by address.
    held: BTreeMap<usize, usize>,
    used: usize,
    next: usize,
    /// Address ranges given back, by size.
    vacant: HashMap<usize, Vec<usize>>,
    /// Reservations by address.
    reserved: BTreeMap<usize, usize>,
    /// Physical memory: bytes, and at how many addresses it is mapped.
    physical: BTreeMap<usize, (usize, usize)>,
    /// Mappings by address.
    mapped: BTreeMap<usize, PhysicalHandle>,
    next_handle: usize,
    /// Taken by somebody else, bytes.
    others: usize,
    /// Addresses that can be reserved, bytes; `None` for any number.
    window: Option<usize>,
}

impl Device {
    /// Addresses nobody has. What was given back is used again.
    fn take_addresses(&mut self, device: DeviceId, bytes: usize) -> usize {
        let size = bytes.next_multiple_of(SEGMENT_ALIGN);
        if let Some(addr) = self.vacant.get_mut(&size).and_then(Vec::pop) {
            return addr;
        }
        self.next += size;
        (device.0 as usize + 1) * DEVICE_STRIDE + self.next - size
    }

    fn return_addresses(&mut self, addr: usize, bytes: usize) {
        let size = bytes.next_multiple_of(SEGMENT_ALIGN);
        self.vacant.entry(size).or_default().push(addr);
    }
}

#[derive(Debug, Default)]
struct Inner {
    devices: HashMap<u32, Device>,
    /// Work submitted to and completed by each stream.
    submitted: HashMap<StreamToken, u64>,
    completed: HashMap<StreamToken, u64>,
    /// What each event waits for.
    events: HashMap<usize, Option<(StreamToken, u64)>>,
    /// Waits of streams that may not be over: which of the work submitted to a stream it is, and what it waits for.
    waits: Vec<Wait>,
    waits_refused: bool,
    next_event: usize,
    calls: BTreeMap<&'static str, u64>,
    total_calls: u64,
    fail_at: Option<(u64, i32)>,
    capturing: bool,
    captured: Option<StreamToken>,
    huge_pages: u64,
    aliasing_refused: bool,
    unnamed: Vec<StreamKey>,
    meanwhile: Option<Meanwhile>,
    afterwards: Option<Meanwhile>,
    /// How long calls take.
    times: HashMap<&'static str, Duration>,
}

/// Work of a stream that ends when another has come so far.
#[derive(Debug, Clone, Copy)]
struct Wait {
    stream: StreamToken,
    position: u64,
    on: StreamToken,
    until: u64,
}

/// What happens elsewhere while a call of a kind is under way.
struct Meanwhile {
    call: &'static str,
    happens: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Meanwhile").field(&self.call).finish()
    }
}

/// See the module's text. Thread-safe.
#[derive(Debug)]
pub struct FakeDriver {
    capacity: usize,
    inner: Mutex<Inner>,
    memory: Option<Memory>,
    #[cfg(loom)]
    turn: AtomicUsize,
}

impl FakeDriver {
    /// Devices of `capacity` bytes each.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            inner: Mutex::new(Inner::default()),
            memory: None,
            #[cfg(loom)]
            turn: AtomicUsize::new(0),
        }
    }

    /// As [`Self::new`], with memory that keeps what is written to it.
    pub fn backed(capacity: usize) -> Self {
        Self {
            memory: Some(Memory::default()),
            ..Self::new(capacity)
        }
    }

    /// A program writes to memory.
    pub fn write(&self, addr: usize, bytes: usize, value: u8) {
        self.memory.iter().for_each(|m| m.fill(addr, bytes, value));
    }

    fn renew(&self, addr: usize, bytes: usize) {
        self.memory.iter().for_each(|m| m.renew(addr, bytes));
    }

    /// From now on no fence can be recorded on a stream, as on those the client does not know.
    pub fn unname(&self, stream: StreamKey) {
        self.inner.lock().unnamed.push(stream);
    }

    /// The `n`-th driver call from now (0 = the next one) fails with `code`.
    pub fn fail_call(&self, n: u64, code: i32) {
        let mut inner = self.inner.lock();
        inner.fail_at = Some((inner.total_calls + n, code));
    }

    /// Withdraws a planned failure; true when it has not happened.
    pub fn withdraw_failure(&self) -> bool {
        self.inner.lock().fail_at.take().is_some()
    }

    /// From now on a handle can be mapped at one address only.
    pub fn refuse_aliasing(&self) {
        self.inner.lock().aliasing_refused = true;
    }

    /// From now on no stream can be made to wait for another.
    pub fn refuse_waits(&self) {
        self.inner.lock().waits_refused = true;
    }

    /// During the next call of a kind (the trait's method name) `happens` is called, once: what another
    /// thread does meanwhile. It may call the allocator, if that has released its lock for the call.
    pub fn meanwhile(&self, call: &'static str, happens: impl FnOnce() + Send + 'static) {
        let happens = Box::new(happens);
        self.inner.lock().meanwhile = Some(Meanwhile { call, happens });
    }

    /// As [`Self::meanwhile`], once the next event was recorded, before the call returns.
    pub fn meanwhile_recorded(&self, happens: impl FnOnce() + Send + 'static) {
        let (call, happens) = ("event_record", Box::new(happens));
        self.inner.lock().afterwards = Some(Meanwhile { call, happens });
    }

    /// From now on a call of a kind (the trait's method name) takes so long; other threads go on meanwhile.
    pub fn take_time(&self, call: &'static str, time: Duration) {
        self.inner.lock().times.insert(call, time);
    }

    /// Whether a planned failure has yet to happen.
    pub fn failure_is_planned(&self) -> bool {
        self.inner.lock().fail_at.is_some()
    }

    /// Another process holds `bytes` of the device from now on.
    pub fn set_others(&self, device: u32, bytes: usize) {
        self.inner.lock().devices.entry(device).or_default().others = bytes;
    }

    /// No more than `bytes` of addresses can be reserved on the device at once from now on.
    pub fn limit_addresses(&self, device: u32, bytes: usize) {
        self.inner.lock().devices.entry(device).or_default().window = Some(bytes);
    }

    /// Submits work to a stream: events recorded from now on wait for it.
    pub fn submit(&self, stream: StreamToken) {
        *self.inner.lock().submitted.entry(stream).or_default() += 1;
    }

    /// The calling thread's stream is, or is no longer, being captured.
    pub fn set_capturing(&self, capturing: bool) {
        self.inner.lock().capturing = capturing;
    }

    /// The stream is being captured, by any thread, or none is any longer.
    pub fn capture(&self, stream: Option<StreamToken>) {
        self.inner.lock().captured = stream;
    }

    /// Pages of the 1 GiB page type that were asked for.
    pub fn huge_pages(&self) -> u64 {
        self.inner.lock().huge_pages
    }

    /// The stream finishes everything submitted.
    pub fn finish(&self, stream: StreamToken) {
        let mut inner = self.inner.lock();
        let submitted = inner.submitted.get(&stream).copied().unwrap_or(0);
        inner.complete(stream, submitted);
    }

    fn enter(&self, call: &'static str) -> DriverResult<parking_lot::MutexGuard<'_, Inner>> {
        // Other threads may go on before a call.
        #[cfg(loom)]
        self.turn.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        if let Some(meanwhile) = inner.meanwhile.take_if(|planned| planned.call == call) {
            drop(inner);
            (meanwhile.happens)();
            inner = self.inner.lock();
        }
        if let Some(time) = inner.times.get(call).copied() {
            drop(inner);
            std::thread::sleep(time);
            inner = self.inner.lock();
        }
        *inner.calls.entry(call).or_default() += 1;
        let at = inner.total_calls;
        inner.total_calls += 1;
        match inner.fail_at {
            Some((n, code)) if n == at => {
                inner.fail_at = None;
                Err(DriverError { call, code })
            }
            _ => Ok(inner),
        }
    }
}

impl Inner {
    /// The token of a stream that the driver can name. A stream has one number here, however it is named.
    fn token(
        &self,
        call: &'static str,
        device: DeviceId,
        stream: StreamKey,
    ) -> DriverResult<StreamToken> {
        if self.unnamed.contains(&stream) {
            let code = UNSUPPORTED_CODE;
            return Err(DriverError { call, code });
        }
        Ok(StreamToken {
            id: stream.0 as i64,
            device: device.0 as i32,
            reserved: 0,
        })
    }

    /// A stream has come so far, and so have those it waited for.
    fn complete(&mut self, stream: StreamToken, position: u64) {
        let completed = self.completed.entry(stream).or_default();
        *completed = (*completed).max(position);
        while let Some(at) = self.waits.iter().position(|wait| {
            let reached = self.completed.get(&wait.stream).copied();
            reached.unwrap_or(0) >= wait.position
        }) {
            let over = self.waits.swap_remove(at);
            self.complete(over.on, over.until);
        }
    }
}

impl Driver for FakeDriver {
    fn malloc(&self, device: DeviceId, bytes: usize, _huge_1g: bool) -> DriverResult<usize> {
        let mut inner = self.enter("malloc")?;
        let capacity = self.capacity;
        let slot = inner.devices.entry(device.0).or_default();
        if bytes > capacity.saturating_sub(slot.used + slot.others) {
            return Err(DriverError {
                call: "malloc",
                code: OUT_OF_MEMORY_CODE,
            });
        }
        let addr = slot.take_addresses(device, bytes);
        slot.used += bytes;
        slot.held.insert(addr, bytes);
        self.renew(addr, bytes);
        Ok(addr)
    }

    fn free(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let mut inner = self.enter("free")?;
        let slot = inner.devices.entry(device.0).or_default();
        match slot.held.remove(&addr) {
            Some(bytes) => {
                slot.used -= bytes;
                slot.return_addresses(addr, bytes);
                Ok(())
            }
            None => Err(DriverError {
                call: "free",
                code: 107_000,
            }),
        }
    }

    fn memory_info(&self, device: DeviceId) -> DriverResult<MemoryInfo> {
        let inner = self.enter("memory_info")?;
        let slot = inner.devices.get(&device.0);
        let used = slot.map_or(0, |d| d.used + d.others);
        Ok(MemoryInfo {
            free: self.capacity.saturating_sub(used),
            total: self.capacity,
        })
    }

    fn synchronize_device(&self, _device: DeviceId) -> DriverResult<()> {
        let mut inner = self.enter("synchronize_device")?;
        inner.completed = inner.submitted.clone();
        inner.waits.clear();
        Ok(())
    }

    fn event_create(&self, _device: DeviceId) -> DriverResult<EventHandle> {
        let mut inner = self.enter("event_create")?;
        inner.next_event += 1;
        let event = inner.next_event;
        inner.events.insert(event, None);
        Ok(EventHandle(event))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        let mut inner = self.enter("event_destroy")?;
        inner.events.remove(&event.0);
        Ok(())
    }

    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()> {
        let mut inner = self.enter("event_record")?;
        let position = inner.submitted.get(&stream).copied().unwrap_or(0);
        inner.events.insert(event.0, Some((stream, position)));
        if let Some(afterwards) = inner.afterwards.take() {
            drop(inner);
            (afterwards.happens)();
        }
        Ok(())
    }

    fn event_record_fence(
        &self,
        device: DeviceId,
        event: EventHandle,
        stream: StreamKey,
    ) -> DriverResult<()> {
        let inner = self.inner.lock();
        let token = inner.token("event_record_fence", device, stream)?;
        drop(inner);
        self.event_record(event, token)
    }

    fn orders_streams(&self) -> bool {
        !self.inner.lock().waits_refused
    }

    fn stream_wait(
        &self,
        device: DeviceId,
        stream: StreamKey,
        event: EventHandle,
    ) -> DriverResult<()> {
        let mut inner = self.enter("stream_wait")?;
        let stream = inner.token("stream_wait", device, stream)?;
        if let Some(Some((on, until))) = inner.events.get(&event.0).copied() {
            let submitted = inner.submitted.entry(stream).or_default();
            *submitted += 1;
            let position = *submitted;
            inner.waits.push(Wait {
                stream,
                position,
                on,
                until,
            });
        }
        Ok(())
    }

    fn event_query(&self, event: EventHandle) -> DriverResult<bool> {
        let inner = self.enter("event_query")?;
        Ok(match inner.events.get(&event.0) {
            Some(Some((stream, position))) => {
                inner.completed.get(stream).copied().unwrap_or(0) >= *position
            }
            _ => true,
        })
    }

    fn event_synchronize(&self, event: EventHandle) -> DriverResult<()> {
        let mut inner = self.enter("event_synchronize")?;
        if let Some(Some((stream, position))) = inner.events.get(&event.0).copied() {
            inner.complete(stream, position);
        }
        Ok(())
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        Some(self)
    }

    fn run_free_callbacks(&self, _device: DeviceId) -> DriverResult<bool> {
        self.enter("run_free_callbacks").map(|_| false)
    }

    fn is_capturing(&self, _device: DeviceId) -> bool {
        self.inner.lock().capturing
    }

    fn is_stream_capturing(&self, stream: StreamToken) -> bool {
        self.inner.lock().captured == Some(stream)
    }

    fn pool_malloc(&self, device: DeviceId, _pool: MempoolId, bytes: usize) -> DriverResult<usize> {
        self.malloc(device, bytes, false)
    }

    fn pool_free(&self, device: DeviceId, _pool: MempoolId, addr: usize) -> DriverResult<()> {
        self.free(device, addr)
    }

    fn release_external_caches(&self, _device: DeviceId) -> DriverResult<()> {
        self.enter("release_external_caches").map(drop)
    }

    /// Memory that keeps nothing takes writes all the same, as a simulator without backing does.
    fn contents(&self) -> Option<&dyn Contents> {
        Some(self)
    }

    fn stack(&self) -> Option<String> {
        Some("a frame of the test".to_owned())
    }
}

impl Contents for FakeDriver {
    fn settle(&self, _device: DeviceId) -> DriverResult<()> {
        let mut inner = self.enter("settle")?;
        inner.completed = inner.submitted.clone();
        inner.waits.clear();
        Ok(())
    }

    fn fill(&self, _device: DeviceId, addr: usize, bytes: usize, value: u8) -> DriverResult<()> {
        drop(self.enter("fill")?);
        self.write(addr, bytes, value);
        Ok(())
    }

    fn read(&self, _device: DeviceId, addr: usize, into: &mut [u8]) -> DriverResult<()> {
        drop(self.enter("read")?);
        match &self.memory {
            Some(memory) => memory.read(addr, into),
            None => into.fill(0),
        }
        Ok(())
    }
}
