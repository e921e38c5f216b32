//! A driver that tells the checks of memory that goes back to the runtime.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Debug;
use crate::driver::{
    Contents, Driver, DriverError, DriverResult, EventHandle, MemoryInfo, PhysicalHandle,
    StreamToken, UNSUPPORTED_CODE, VirtualMemory,
};
use crate::ids::{DeviceId, MempoolId, StreamKey};

/// Passes everything on. A page has one address here: poison is known by address.
pub struct WatchedDriver {
    inner: Arc<dyn Driver>,
    debug: Arc<Debug>,
    /// Bytes by address: what `malloc` and `pool_malloc` gave, and what is mapped.
    plain: Mutex<HashMap<usize, usize>>,
    mapped: Mutex<HashMap<usize, (usize, DeviceId, PhysicalHandle)>>,
}

impl WatchedDriver {
    /// A driver whose memory `debug` checks.
    pub fn new(inner: Arc<dyn Driver>, debug: Arc<Debug>) -> Self {
        Self {
            inner,
            debug,
            plain: Mutex::default(),
            mapped: Mutex::default(),
        }
    }

    fn gave(&self, addr: DriverResult<usize>, bytes: usize) -> DriverResult<usize> {
        if let Ok(addr) = addr {
            self.plain.lock().insert(addr, bytes);
        }
        addr
    }

    /// Memory goes, unless the driver refuses.
    fn releasing(
        &self,
        device: DeviceId,
        addr: usize,
        free: impl FnOnce() -> DriverResult<()>,
    ) -> DriverResult<()> {
        // Before it is anybody else's.
        let bytes = self.plain.lock().remove(&addr);
        if let Some(bytes) = bytes {
            self.debug.released(device, addr, bytes);
        }
        let freed = free();
        if let (Some(bytes), true) = (bytes, freed.is_err()) {
            self.plain.lock().insert(addr, bytes);
        }
        freed
    }

    /// The driver's virtual memory, which [`Driver::virtual_memory`] has found to be there.
    fn inner_virtual(&self, call: &'static str) -> DriverResult<&dyn VirtualMemory> {
        self.inner.virtual_memory().ok_or(DriverError {
            call,
            code: UNSUPPORTED_CODE,
        })
    }
}

impl Driver for WatchedDriver {
    fn malloc(&self, device: DeviceId, bytes: usize, huge_1g: bool) -> DriverResult<usize> {
        self.gave(self.inner.malloc(device, bytes, huge_1g), bytes)
    }

    fn free(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        self.releasing(device, addr, || self.inner.free(device, addr))
    }

    fn memory_info(&self, device: DeviceId) -> DriverResult<MemoryInfo> {
        self.inner.memory_info(device)
    }

    fn synchronize_device(&self, device: DeviceId) -> DriverResult<()> {
        self.inner.synchronize_device(device)
    }

    fn event_create(&self, device: DeviceId) -> DriverResult<EventHandle> {
        self.inner.event_create(device)
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        self.inner.event_destroy(event)
    }

    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()> {
        self.inner.event_record(event, stream)
    }

    fn event_record_for_streams(
        &self,
        event: EventHandle,
        stream: StreamToken,
    ) -> DriverResult<()> {
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
        self.inner.stream_wait(device, stream, event)
    }

    fn event_query(&self, event: EventHandle) -> DriverResult<bool> {
        self.inner.event_query(event)
    }

    fn event_synchronize(&self, event: EventHandle) -> DriverResult<()> {
        self.inner.event_synchronize(event)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.inner
            .virtual_memory()
            .map(|_| self as &dyn VirtualMemory)
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
        self.gave(self.inner.pool_malloc(device, pool, bytes), bytes)
    }

    fn pool_free(&self, device: DeviceId, pool: MempoolId, addr: usize) -> DriverResult<()> {
        self.releasing(device, addr, || self.inner.pool_free(device, pool, addr))
    }

    fn release_external_caches(&self, device: DeviceId) -> DriverResult<()> {
        self.inner.release_external_caches(device)
    }

    fn contents(&self) -> Option<&dyn Contents> {
        self.inner.contents()
    }

    fn stack(&self) -> Option<String> {
        self.inner.stack()
    }

    fn report_bug(&self, text: &str) {
        self.inner.report_bug(text);
    }
}

impl VirtualMemory for WatchedDriver {
    fn reserve_address(&self, device: DeviceId, bytes: usize) -> DriverResult<usize> {
        self.inner_virtual("reserve_address")?
            .reserve_address(device, bytes)
    }

    fn release_address(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        self.inner_virtual("release_address")?
            .release_address(device, addr)
    }

    fn malloc_physical(
        &self,
        device: DeviceId,
        bytes: usize,
        huge_1g: bool,
    ) -> DriverResult<PhysicalHandle> {
        self.inner_virtual("malloc_physical")?
            .malloc_physical(device, bytes, huge_1g)
    }

    fn free_physical(&self, device: DeviceId, handle: PhysicalHandle) -> DriverResult<()> {
        self.inner_virtual("free_physical")?
            .free_physical(device, handle)
    }

    fn map(
        &self,
        device: DeviceId,
        addr: usize,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> DriverResult<()> {
        let elsewhere = self
            .mapped
            .lock()
            .values()
            .any(|(_, on, at)| (*on, *at) == (device, handle));
        if elsewhere {
            return Err(DriverError {
                call: "map",
                code: UNSUPPORTED_CODE,
            });
        }
        self.inner_virtual("map")?
            .map(device, addr, bytes, handle)?;
        self.mapped.lock().insert(addr, (bytes, device, handle));
        Ok(())
    }

    fn unmap(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let mapping = self.mapped.lock().get(&addr).copied();
        if let Some((bytes, ..)) = mapping {
            self.debug.released(device, addr, bytes);
        }
        self.inner_virtual("unmap")?.unmap(device, addr)?;
        self.mapped.lock().remove(&addr);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::config::{DebugOptions, Settings};
    use crate::driver::fake::FakeDriver;
    use crate::ids::{MempoolId, StreamKey};
    use crate::registry::Registry;

    const MIB: usize = 1 << 20;
    const GIB: usize = 1 << 30;
    const HOME: StreamKey = StreamKey(1);

    /// It is poisoned anew before it goes.
    #[test]
    fn memory_that_could_not_be_freed_is_watched_still() {
        let driver = Arc::new(FakeDriver::backed(GIB));
        let settings = Settings::parse("expandable_segments:False").expect("valid");
        let options = DebugOptions::parse("poison").expect("valid");
        let registry = Registry::with_debug(driver.clone(), settings, 32, options);
        registry.init(1).expect("one");
        let device = registry.device(0).expect("there");
        let addr = registry.allocate(0, 40 * MIB, HOME).expect("fits");
        registry.deallocate(addr).expect("live");
        let failing = driver.clone();
        driver.meanwhile("free", move || failing.fail_call(0, 507_000));
        assert!(device.empty_cache(MempoolId::DEFAULT).is_err());
        assert_eq!(driver.held(0).0, 1, "it stays cached");
        assert_eq!(registry.allocate(0, 40 * MIB, HOME).expect("fits"), addr);
        registry.deallocate(addr).expect("live");
        registry.empty_cache(0, MempoolId::DEFAULT).expect("works");
        assert_eq!(driver.held(0).0, 0);
        // New memory, at the same address.
        let again = registry.allocate(0, 40 * MIB, HOME).expect("fits");
        assert_eq!(again, addr);
        registry
            .check_memory(0)
            .expect("nobody wrote to freed memory");
    }
}
