//! A driver without a device, for tests and benchmarks of the core alone: addresses from a counter, a
//! capacity, events completed by hand, and a plan of failures. `calls` and `virtual_memory` have what it does when it is
//! called, `inspect` what tests ask it.

mod calls;
mod inspect;
mod memory;
mod virtual_memory;

pub use inspect::Span;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;

use self::memory::Memory;
use super::{DriverError, DriverResult, PhysicalHandle, StreamToken, UNSUPPORTED_CODE};
use crate::ids::{DeviceId, StreamKey};
#[cfg(loom)]
use crate::primitives::atomic::{AtomicUsize, Ordering};

/// Distance between the address spaces of two devices.
const DEVICE_STRIDE: usize = 1 << 44;
const SEGMENT_ALIGN: usize = 2 << 20;
/// Behind the addresses of a device: where the contents of physical memory are kept.
const PHYSICAL: usize = 1 << 43;
/// Distance between two pieces of it.
const PHYSICAL_STRIDE: usize = 1 << 31;

/// Names of the runtime's objects. As the objects' addresses would be, those given back are given again, the last one first.
#[derive(Debug, Default)]
struct Numbers {
    last: usize,
    vacant: Vec<usize>,
}

impl Numbers {
    fn take(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            self.last += 1;
            self.last
        })
    }

    fn give_back(&mut self, number: usize) {
        self.vacant.push(number);
    }
}

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
    handle_numbers: Numbers,
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
    /// Events whose last record streams may wait for.
    for_streams: HashSet<usize>,
    /// Waits of streams that may not be over: which of the work submitted to a stream it is, and what it waits for.
    waits: Vec<Wait>,
    waits_refused: bool,
    event_numbers: Numbers,
    calls: BTreeMap<&'static str, u64>,
    total_calls: u64,
    fail_at: Option<(u64, i32)>,
    capturing: bool,
    captured: Option<StreamToken>,
    huge_pages: u64,
    aliasing_refused: bool,
    aliases_apart: bool,
    unnamed: Vec<StreamKey>,
    meanwhile: Option<Meanwhile>,
    afterwards: Option<Meanwhile>,
    bugs: Vec<String>,
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
        let Some(memory) = &self.memory else { return };
        for (place, bytes) in self.places(addr, bytes) {
            memory.fill(place, bytes, value);
        }
    }

    /// Copies memory; what keeps nothing is 0.
    fn copy(&self, addr: usize, into: &mut [u8]) {
        let Some(memory) = &self.memory else {
            return into.fill(0);
        };
        let mut rest = into;
        for (place, bytes) in self.places(addr, rest.len()) {
            let (part, others) = rest.split_at_mut(bytes);
            memory.read(place, part);
            rest = others;
        }
    }

    /// Where what is at addresses is kept: with the physical memory, wherever that is mapped.
    fn places(&self, addr: usize, bytes: usize) -> Vec<(usize, usize)> {
        let device = addr / DEVICE_STRIDE - 1;
        let apart = self.inner.lock().aliases_apart;
        let spans = self.spans(device as u32, addr, bytes).filter(|_| !apart);
        let place = |span: Span| match span.handle {
            0 => (span.start, span.bytes),
            handle => (
                (device + 1) * DEVICE_STRIDE + PHYSICAL + handle * PHYSICAL_STRIDE + span.start,
                span.bytes,
            ),
        };
        spans.map_or(vec![(addr, bytes)], |spans| {
            spans.into_iter().map(place).collect()
        })
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

    /// From now on each address has memory of its own, although a handle can be mapped at several.
    pub fn keep_aliases_apart(&self) {
        self.inner.lock().aliases_apart = true;
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
