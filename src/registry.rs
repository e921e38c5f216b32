//! All devices of the process; which of them owns an address.

use std::sync::Arc;

use crate::config::{ConfigError, DebugOptions, Settings};
use crate::debug::{Debug, WatchedDriver};
use crate::device::{BlockHandle, BlockView, Checkpoint, DeviceAllocator, Restored};
use crate::driver::{Driver, StreamToken};
use crate::error::{AllocError, Result};
use crate::history::Context;
use crate::ids::{DeviceId, MempoolId, StreamKey};
use crate::owners::Owners;
use crate::primitives::atomic::{AtomicBool, AtomicI32, Ordering};
use crate::primitives::{BlockingMutex, OnceLock};
use crate::size::MOST_BYTES;

/// More devices than any host has.
pub const MAX_DEVICES: usize = if cfg!(loom) { 2 } else { 64 };

/// The allocator of a process: one [`DeviceAllocator`] for each device. Thread-safe.
pub struct Registry {
    driver: Arc<dyn Driver>,
    settings: BlockingMutex<Settings>,
    pad: usize,
    /// As many as there may be. On the heap, so that no thread's stack has to hold them while this is made.
    devices: Box<[OnceLock<DeviceAllocator>]>,
    count: AtomicI32,
    owners: Owners,
    exiting: AtomicBool,
    /// The checks of the debug mode. With them no request takes the hot path.
    debug: Option<Arc<Debug>>,
}

impl Registry {
    /// A registry without devices. `pad` bytes are added to every request before rounding.
    pub fn new(driver: Arc<dyn Driver>, settings: Settings, pad: usize) -> Self {
        Self::with_debug(driver, settings, pad, DebugOptions::default())
    }

    /// As [`Self::new`], with checks of what the program does.
    pub fn with_debug(
        driver: Arc<dyn Driver>,
        settings: Settings,
        pad: usize,
        options: DebugOptions,
    ) -> Self {
        let debug = options
            .any()
            .then(|| Arc::new(Debug::new(options, driver.clone())));
        let driver = match &debug {
            Some(debug) if options.poison => Arc::new(WatchedDriver::new(driver, debug.clone())),
            _ => driver,
        };
        let pad = pad + debug.as_ref().map_or(0, |debug| debug.pad());
        Self {
            driver,
            settings: BlockingMutex::new(settings),
            pad,
            devices: (0..MAX_DEVICES).map(|_| OnceLock::new()).collect(),
            count: AtomicI32::new(0),
            owners: Owners::default(),
            exiting: AtomicBool::new(false),
            debug,
        }
    }

    /// Makes room for devices `0..count`; never shrinks.
    pub fn init(&self, count: i32) -> Result<()> {
        if count < 0 || count as usize > MAX_DEVICES {
            return Err(AllocError::InvalidDevice {
                device: count.into(),
            });
        }
        let settings = self.settings.lock();
        for index in 0..count {
            let slot = &self.devices[index as usize];
            if slot.get().is_none() {
                let id = DeviceId(index as u32);
                let device =
                    DeviceAllocator::new(id, self.driver.clone(), settings.clone(), self.pad)?;
                if self.debug.is_some() {
                    device.leave_hot_path();
                }
                // The settings lock makes this the only initialiser.
                let _ = slot.set(device);
            }
        }
        // All at once: whoever sees one of them takes the others for there, too.
        self.count.fetch_max(count, Ordering::Release);
        Ok(())
    }

    /// Number of devices made room for.
    pub fn device_count(&self) -> i32 {
        self.count.load(Ordering::Acquire)
    }

    /// The allocator of a device.
    #[inline]
    pub fn device(&self, device: i32) -> Result<&DeviceAllocator> {
        match self.devices.get(device as usize).and_then(OnceLock::get) {
            Some(device) => Ok(device),
            None => Err(AllocError::InvalidDevice {
                device: device.into(),
            }),
        }
    }

    /// Every device.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceAllocator> {
        self.devices.iter().map_while(OnceLock::get)
    }

    /// A block of at least `bytes` for use on `stream` of `device`. Returns its address; 0 for 0 bytes.
    #[inline]
    pub fn allocate(&self, device: i32, bytes: usize, stream: StreamKey) -> Result<usize> {
        match self.allocate_cached(device, bytes, stream) {
            Some(addr) => Ok(addr),
            None => self.allocate_in(device, bytes, stream, MempoolId::DEFAULT, None),
        }
    }

    /// As [`Self::allocate`], if that takes no more than to hand out a block that is free now.
    #[inline]
    pub(crate) fn allocate_cached(
        &self,
        device: i32,
        bytes: usize,
        stream: StreamKey,
    ) -> Option<usize> {
        let device = self.devices.get(device as usize)?.get()?;
        // 0 is below all, too.
        if bytes.wrapping_sub(1) >= MOST_BYTES {
            return None;
        }
        device.allocate_cached(bytes, stream)
    }

    /// As [`Self::allocate`], from a private pool and with the client's context.
    #[inline(never)]
    pub fn allocate_in(
        &self,
        device: i32,
        bytes: usize,
        stream: StreamKey,
        pool: MempoolId,
        context: Option<Arc<Context>>,
    ) -> Result<usize> {
        let device = self.device(device)?;
        if bytes == 0 {
            return Ok(0);
        }
        let Some(debug) = &self.debug else {
            return device.allocate_in(bytes, stream, pool, context);
        };
        debug.raise()?;
        let addr = device.allocate_in(bytes, stream, pool, context.clone())?;
        // Another thread can't free it before it knows it.
        if let Some(block) = device.describe_block(addr) {
            debug.allocated(device, &block);
        }
        Ok(addr)
    }

    /// What `ask` answers on the device that owns `addr`; `None` when no device answers.
    #[inline]
    fn ask_owner<T>(&self, addr: usize, ask: impl Fn(&DeviceAllocator) -> Option<T>) -> Option<T> {
        let known = self.owners.get(addr);
        let answer = known
            .and_then(|index| self.devices.get(index)?.get())
            .and_then(&ask);
        answer.or_else(|| self.find_owner(addr, known, &ask))
    }

    /// Asks every device but the one already asked, and remembers which one answered.
    #[cold]
    fn find_owner<T>(
        &self,
        addr: usize,
        asked: Option<usize>,
        ask: &dyn Fn(&DeviceAllocator) -> Option<T>,
    ) -> Option<T> {
        let others = self.devices().enumerate();
        let (index, answer) = others
            .filter(|(index, _)| Some(*index) != asked)
            .find_map(|(index, device)| Some((index, ask(device)?)))?;
        self.owners.set(addr, index);
        Some(answer)
    }

    /// As [`Self::deallocate`], with the client's context.
    #[inline(never)]
    pub fn deallocate_with(&self, addr: usize, context: Option<Arc<Context>>) -> Result<()> {
        if addr == 0 {
            return Ok(());
        }
        let freed = match &self.debug {
            None => self.ask_owner(addr, |device| {
                device.deallocate_with(addr, context.clone()).then_some(())
            }),
            Some(debug) => self.ask_owner(addr, |device| {
                // It takes nothing back, and what it has may be in use after all: nothing is written there.
                if device.is_poisoned() {
                    return None;
                }
                device.describe_block(addr)?;
                let held = debug.freeing(device, addr)?;
                let freed = device.deallocate_with(addr, context.clone());
                debug.freed(held, freed);
                freed.then_some(())
            }),
        };
        freed.map_or_else(|| self.unknown_pointer(addr), Ok)
    }

    /// Gives the block at `addr` back. Null is ignored. Once the process exits nothing happens.
    #[inline]
    pub fn deallocate(&self, addr: usize) -> Result<()> {
        if self.deallocate_plain(addr) {
            return Ok(());
        }
        self.deallocate_with(addr, None)
    }

    /// As [`Self::deallocate`], if that takes no more than to note that a block is free; false otherwise.
    #[inline]
    pub(crate) fn deallocate_plain(&self, addr: usize) -> bool {
        let owner = self.owners.get(addr);
        let device = owner.and_then(|index| self.devices.get(index)?.get());
        device.is_some_and(|device| device.deallocate_plain(addr))
    }

    #[cold]
    fn unknown_pointer(&self, addr: usize) -> Result<()> {
        if self.exiting.load(Ordering::Acquire) {
            Ok(())
        } else {
            self.unanswered(addr)
        }
    }

    /// No device knows the address. A poisoned one does not tell what it has: nothing is done then.
    #[cold]
    fn unanswered(&self, addr: usize) -> Result<()> {
        if self.devices().any(DeviceAllocator::is_poisoned) {
            Ok(())
        } else {
            Err(self.invalid_pointer(addr))
        }
    }

    #[cold]
    fn invalid_pointer(&self, addr: usize) -> AllocError {
        let history = self.debug.as_ref().map(|debug| debug.explain(addr));
        match history.filter(|history| !history.is_empty()) {
            Some(history) => AllocError::ExplainedPointer { addr, history },
            None => AllocError::InvalidPointer { addr },
        }
    }

    /// Gives everything that is free in a device's pool back. In the debug mode memory is checked first; of the
    /// default pool damage is an error, and nothing is given back then.
    pub fn empty_cache(&self, device: i32, pool: MempoolId) -> Result<()> {
        let device = self.device(device)?;
        if let Some(debug) = &self.debug {
            debug.check(device);
            // Private pools are emptied as their owners end, in destructors: an error there would abort the program.
            if pool == MempoolId::DEFAULT {
                debug.raise()?;
            }
        }
        device.empty_cache(pool)
    }

    /// The debug mode's checks of everything a device holds, after waiting for it; and what was found so
    /// far. Returns how many bytes were looked at: 0 where no contents are checked.
    pub fn check_memory(&self, device: i32) -> Result<usize> {
        let device = self.device(device)?;
        let Some(debug) = &self.debug else {
            return Ok(0);
        };
        let bytes = debug.check(device);
        debug.raise()?;
        Ok(bytes)
    }

    /// As [`DeviceAllocator::sleep`]. In the debug mode memory is checked first, since contents are lost;
    /// damage is an error, and nothing sleeps then.
    pub fn sleep(&self, device: i32, pool: Option<MempoolId>) -> Result<usize> {
        let device = self.device(device)?;
        if let Some(debug) = &self.debug {
            debug.check(device);
            debug.raise()?;
        }
        device.sleep(pool)
    }

    /// As [`DeviceAllocator::wake_up`].
    pub fn wake_up(&self, device: i32, pool: Option<MempoolId>) -> Result<usize> {
        let device = self.device(device)?;
        if let Some(debug) = &self.debug {
            debug.waking(device);
        }
        device.wake_up(pool)
    }

    /// Brings a pool back to a checkpoint.
    pub fn restore(&self, device: i32, checkpoint: &Checkpoint) -> Result<Restored> {
        let device = self.device(device)?;
        let restored = device.restore(checkpoint)?;
        if let Some(debug) = &self.debug {
            debug.restored(device, &restored.freed, &restored.allocated);
        }
        Ok(restored)
    }

    /// Notes that the block at `addr` is used on `stream` too.
    pub fn record_stream(&self, addr: usize, stream: StreamToken) -> Result<()> {
        self.ask_owner(addr, |device| {
            device.record_stream(addr, stream).then_some(())
        })
        .map_or_else(|| self.unanswered(addr), Ok)
    }

    /// Takes back a `record_stream`.
    pub fn erase_stream(&self, addr: usize, stream: StreamToken) -> Result<()> {
        self.ask_owner(addr, |device| {
            device.erase_stream(addr, stream).then_some(())
        })
        .map_or_else(|| self.unanswered(addr), Ok)
    }

    /// As [`Self::erase_stream`] by handle, for a block that may already have been freed.
    pub fn erase_stream_of(
        &self,
        device: i32,
        handle: BlockHandle,
        stream: StreamToken,
    ) -> Result<()> {
        let device = self.device(device)?;
        if device.erase_stream_of(handle, stream) || device.is_poisoned() {
            Ok(())
        } else {
            Err(AllocError::InvalidPointer {
                addr: handle.block.index(),
            })
        }
    }

    /// The live block that starts at `addr`, and its device.
    pub fn describe_block(&self, addr: usize) -> Result<(DeviceId, BlockView)> {
        self.ask_owner(addr, |device| {
            Some((device.id(), device.describe_block(addr)?))
        })
        .ok_or_else(|| self.invalid_pointer(addr))
    }

    /// The block of a handle: live, or waiting for events.
    pub fn describe_handle(
        &self,
        device: i32,
        handle: BlockHandle,
    ) -> Result<(DeviceId, BlockView)> {
        let device = self.device(device)?;
        let block = device
            .describe_handle(handle)
            .ok_or(AllocError::InvalidPointer {
                addr: handle.block.index(),
            })?;
        Ok((device.id(), block))
    }

    /// Changes settings at run time, for all devices or, on error, for none. Takes only the keys that may
    /// change then.
    pub fn apply_settings(&self, text: &str) -> Result<()> {
        self.change_settings(|settings| settings.apply_runtime(text))
    }

    /// As [`Self::apply_settings`], with every key. The page type stays what it was once devices are there, as
    /// in the stock allocator, which looks at it once.
    pub fn apply_any_settings(&self, text: &str) -> Result<()> {
        self.change_settings(|settings| {
            let mut changed = settings.apply_any(text)?;
            if self.devices().next().is_some() {
                changed.page_size_1g = settings.page_size_1g;
            }
            Ok(changed)
        })
    }

    fn change_settings(
        &self,
        change: impl FnOnce(&Settings) -> std::result::Result<Settings, ConfigError>,
    ) -> Result<()> {
        let mut settings = self.settings.lock();
        let changed = change(&settings)?;
        for device in self.devices() {
            device.apply_settings(changed.clone());
        }
        *settings = changed;
        Ok(())
    }

    /// From now on the driver is not called on a free: the runtime is going away with the process.
    pub fn begin_process_exit(&self) {
        self.exiting.store(true, Ordering::Release);
        if let Some(debug) = &self.debug {
            debug.begin_process_exit();
        }
        self.devices().for_each(DeviceAllocator::begin_process_exit);
    }

    /// The error of the device whose lock is at that address, and that a panic went through: see
    /// [`DeviceAllocator::blame`].
    #[cfg(not(loom))]
    #[cold]
    pub(crate) fn blame(&self, lock: usize, text: Option<&str>) -> Option<AllocError> {
        self.devices().find_map(|device| device.blame(lock, text))
    }

    /// Verifies every invariant of every device.
    pub fn check_consistency(&self) -> Result<()> {
        self.devices()
            .try_for_each(DeviceAllocator::check_consistency)
    }
}
