//! Driver functions supplied by the embedding C++ program (`include/npualloc/driver_table.h`).

mod log;
mod table;

use log::Log;
pub use table::DriverTable;

use super::{
    Contents, Driver, DriverError, DriverResult, EventHandle, MemoryInfo, OUT_OF_MEMORY_CODE,
    PhysicalHandle, StreamToken, UNSUPPORTED_CODE, VirtualMemory,
};
use crate::ids::{DeviceId, MempoolId, StreamKey};

/// Bytes of a stack's text.
const MOST_STACK: usize = 4096;

/// A [`Driver`] over a [`DriverTable`].
pub struct ForeignDriver {
    table: DriverTable,
    log: Log,
}

// SAFETY: the table's contract says that its functions and `user` may be used from any thread.
unsafe impl Send for ForeignDriver {}
// SAFETY: as above.
unsafe impl Sync for ForeignDriver {}

fn check(call: &'static str, code: i32) -> DriverResult<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(DriverError { call, code })
    }
}

/// What a call that succeeded gave. No memory is at 0, which stands for no address everywhere else.
fn placed(call: &'static str, done: DriverResult<()>, addr: usize) -> DriverResult<usize> {
    done?;
    let code = OUT_OF_MEMORY_CODE;
    if addr == 0 {
        return Err(DriverError { call, code });
    }
    Ok(addr)
}

impl ForeignDriver {
    /// Destroys a client context: what a [`crate::history::Context`] does at its end.
    pub fn drop_context(&self) -> impl Fn(usize) + Send + Sync + 'static {
        let driver = Self { ..*self };
        move |context| {
            let driver = &driver;
            if let Some(function) = driver.table.context_drop {
                // SAFETY: `new`'s contract; the context is owned by the caller and used no more.
                unsafe { function(driver.table.user, context) }
            }
        }
    }

    /// # Safety
    /// The functions in `table` must uphold the contract of `driver_table.h` as long as the process
    /// lives.
    pub unsafe fn new(table: DriverTable) -> Self {
        let log = Log::new(&table);
        Self { table, log }
    }
}

/// Calls one function of the table.
macro_rules! call {
    ($self:ident . $name:ident ( $($arg:expr),* )) => {
        check(
            stringify!($name),
            // SAFETY: `new`'s contract: the function is valid, takes these arguments and does not
            // throw; out-parameters point to live locals.
            unsafe { ($self.table.$name)($self.table.user, $($arg),*) },
        )
    };
}

/// Calls a function that the table may lack.
macro_rules! optional_call {
    ($self:ident . $name:ident ( $($arg:expr),* )) => {
        match $self.table.$name {
            None => Err(DriverError { call: stringify!($name), code: UNSUPPORTED_CODE }),
            // SAFETY: as for `call!`.
            Some(function) => check(stringify!($name), unsafe {
                function($self.table.user, $($arg),*)
            }),
        }
    };
}

impl Driver for ForeignDriver {
    fn malloc(&self, device: DeviceId, bytes: usize, huge_1g: bool) -> DriverResult<usize> {
        let mut addr = 0;
        let done = call!(self.malloc(device.0 as i32, bytes, huge_1g.into(), &raw mut addr));
        let what = format_args!("malloc of {bytes} bytes at {addr:#x}");
        self.log.call(device, &done, what);
        placed("malloc", done, addr)
    }

    fn free(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let done = call!(self.free(device.0 as i32, addr));
        self.log
            .call(device, &done, format_args!("free of {addr:#x}"));
        done
    }

    fn memory_info(&self, device: DeviceId) -> DriverResult<MemoryInfo> {
        let mut info = MemoryInfo { free: 0, total: 0 };
        call!(self.memory_info(device.0 as i32, &raw mut info.free, &raw mut info.total))?;
        Ok(info)
    }

    fn synchronize_device(&self, device: DeviceId) -> DriverResult<()> {
        let done = call!(self.synchronize_device(device.0 as i32));
        self.log
            .call(device, &done, format_args!("waited for the device"));
        done
    }

    fn event_create(&self, device: DeviceId) -> DriverResult<EventHandle> {
        let mut event = 0;
        call!(self.event_create(device.0 as i32, &raw mut event))?;
        Ok(EventHandle(event))
    }

    fn event_destroy(&self, event: EventHandle) -> DriverResult<()> {
        call!(self.event_destroy(event.0))
    }

    fn event_record(&self, event: EventHandle, stream: StreamToken) -> DriverResult<()> {
        call!(self.event_record(event.0, stream))
    }

    fn event_record_for_streams(
        &self,
        event: EventHandle,
        stream: StreamToken,
    ) -> DriverResult<()> {
        optional_call!(self.event_record_for_streams(event.0, stream))
    }

    fn event_record_fence(
        &self,
        device: DeviceId,
        event: EventHandle,
        stream: StreamKey,
    ) -> DriverResult<()> {
        optional_call!(self.event_record_fence(device.0 as i32, event.0, stream.0))
    }

    fn orders_streams(&self) -> bool {
        self.table.stream_wait.is_some()
    }

    fn stream_wait(
        &self,
        device: DeviceId,
        stream: StreamKey,
        event: EventHandle,
    ) -> DriverResult<()> {
        optional_call!(self.stream_wait(device.0 as i32, stream.0, event.0))
    }

    fn event_query(&self, event: EventHandle) -> DriverResult<bool> {
        let mut completed = 0;
        call!(self.event_query(event.0, &raw mut completed))?;
        Ok(completed != 0)
    }

    fn event_synchronize(&self, event: EventHandle) -> DriverResult<()> {
        call!(self.event_synchronize(event.0))
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        let table = &self.table;
        let complete = table.reserve_address.is_some()
            && table.release_address.is_some()
            && table.malloc_physical.is_some()
            && table.free_physical.is_some()
            && table.map.is_some()
            && table.unmap.is_some();
        complete.then_some(self)
    }

    fn run_free_callbacks(&self, device: DeviceId) -> DriverResult<bool> {
        let mut freed = 0;
        call!(self.run_free_callbacks(device.0 as i32, &raw mut freed))?;
        Ok(freed != 0)
    }

    fn is_capturing(&self, device: DeviceId) -> bool {
        let mut capturing = 0;
        self.table.is_capturing.is_some()
            && optional_call!(self.is_capturing(device.0 as i32, &raw mut capturing)).is_ok()
            && capturing != 0
    }

    fn is_stream_capturing(&self, stream: StreamToken) -> bool {
        let mut capturing = 0;
        self.table.is_stream_capturing.is_some()
            && optional_call!(self.is_stream_capturing(stream, &raw mut capturing)).is_ok()
            && capturing != 0
    }

    fn pool_malloc(&self, device: DeviceId, pool: MempoolId, bytes: usize) -> DriverResult<usize> {
        let (device, mut addr) = (device.0 as i32, 0);
        let done =
            optional_call!(self.pool_malloc(device, pool.first, pool.second, bytes, &raw mut addr));
        placed("pool_malloc", done, addr)
    }

    fn pool_free(&self, device: DeviceId, pool: MempoolId, addr: usize) -> DriverResult<()> {
        optional_call!(self.pool_free(device.0 as i32, pool.first, pool.second, addr))
    }

    fn release_external_caches(&self, device: DeviceId) -> DriverResult<()> {
        call!(self.release_external_caches(device.0 as i32))
    }

    fn contents(&self) -> Option<&dyn Contents> {
        let table = &self.table;
        let complete = table.settle.is_some() && table.fill.is_some() && table.read.is_some();
        complete.then_some(self)
    }

    fn report_bug(&self, text: &str) {
        self.log.bug(text);
    }

    fn stack(&self) -> Option<String> {
        let function = self.table.stack?;
        let mut text = vec![0; MOST_STACK];
        // SAFETY: `new`'s contract: the function writes at most as many bytes as it is told there are, and
        // returns how many.
        let length = unsafe { function(self.table.user, text.as_mut_ptr(), text.len()) };
        text.truncate(length);
        (length > 0).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}

impl Contents for ForeignDriver {
    fn settle(&self, device: DeviceId) -> DriverResult<()> {
        optional_call!(self.settle(device.0 as i32))
    }

    fn fill(&self, device: DeviceId, addr: usize, bytes: usize, value: u8) -> DriverResult<()> {
        optional_call!(self.fill(device.0 as i32, addr, bytes, value))
    }

    fn read(&self, device: DeviceId, addr: usize, into: &mut [u8]) -> DriverResult<()> {
        optional_call!(self.read(device.0 as i32, addr, into.len(), into.as_mut_ptr()))
    }
}

impl VirtualMemory for ForeignDriver {
    fn reserve_address(&self, device: DeviceId, bytes: usize) -> DriverResult<usize> {
        let mut addr = 0;
        let done = optional_call!(self.reserve_address(device.0 as i32, bytes, &raw mut addr));
        let what = format_args!("reservation of {bytes} bytes at {addr:#x}");
        self.log.call(device, &done, what);
        placed("reserve_address", done, addr)
    }

    fn release_address(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let done = optional_call!(self.release_address(device.0 as i32, addr));
        let what = format_args!("release of the reservation at {addr:#x}");
        self.log.call(device, &done, what);
        done
    }

    fn malloc_physical(
        &self,
        device: DeviceId,
        bytes: usize,
        huge_1g: bool,
    ) -> DriverResult<PhysicalHandle> {
        let (number, mut handle) = (device.0 as i32, 0);
        let done =
            optional_call!(self.malloc_physical(number, bytes, huge_1g.into(), &raw mut handle));
        let what = format_args!("physical memory of {bytes} bytes, handle {handle:#x}");
        self.log.call(device, &done, what);
        done.map(|()| PhysicalHandle(handle))
    }

    fn free_physical(&self, device: DeviceId, handle: PhysicalHandle) -> DriverResult<()> {
        let done = optional_call!(self.free_physical(device.0 as i32, handle.0));
        let what = format_args!("physical memory freed, handle {:#x}", handle.0);
        self.log.call(device, &done, what);
        done
    }

    fn map(
        &self,
        device: DeviceId,
        addr: usize,
        bytes: usize,
        handle: PhysicalHandle,
    ) -> DriverResult<()> {
        let done = optional_call!(self.map(device.0 as i32, addr, bytes, handle.0));
        let what = format_args!("handle {:#x} mapped at {addr:#x}", handle.0);
        self.log.call(device, &done, what);
        done
    }

    fn unmap(&self, device: DeviceId, addr: usize) -> DriverResult<()> {
        let done = optional_call!(self.unmap(device.0 as i32, addr));
        self.log
            .call(device, &done, format_args!("unmapped {addr:#x}"));
        done
    }
}
