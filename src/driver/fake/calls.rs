//! What the driver without a device does when it is called.

use super::virtual_memory::INVALID_CODE;
use super::{FakeDriver, Wait};
use crate::driver::{
    Contents, Driver, DriverError, DriverResult, EventHandle, MemoryInfo, OUT_OF_MEMORY_CODE,
    StreamToken, VirtualMemory,
};
use crate::ids::{DeviceId, MempoolId, StreamKey};

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
        let event = inner.event_numbers.take();
        inner.events.insert(event, None);
        Ok(EventHandle(event))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        let mut inner = self.enter("event_destroy")?;
        if inner.events.remove(&event.0).is_some() {
            inner.for_streams.remove(&event.0);
            inner.event_numbers.give_back(event.0);
        }
        Ok(())
    }

    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()> {
        let mut inner = self.enter("event_record")?;
        let position = inner.submitted.get(&stream).copied().unwrap_or(0);
        inner.events.insert(event.0, Some((stream, position)));
        inner.for_streams.remove(&event.0);
        if let Some(afterwards) = inner.afterwards.take() {
            drop(inner);
            (afterwards.happens)();
        }
        Ok(())
    }

    fn event_record_for_streams(
        &self,
        event: EventHandle,
        stream: StreamToken,
    ) -> DriverResult<()> {
        self.event_record(event, stream)?;
        self.inner.lock().for_streams.insert(event.0);
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
        self.event_record_for_streams(event, token)
    }

    fn report_bug(&self, text: &str) {
        self.inner.lock().bugs.push(text.to_owned());
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
        if !inner.for_streams.contains(&event.0) {
            return Err(DriverError {
                call: "stream_wait",
                code: INVALID_CODE,
            });
        }
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
        self.copy(addr, into);
        Ok(())
    }
}
