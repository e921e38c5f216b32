//! One device's state machine. Depends on every module above it in the list of `lib.rs`.
//!
//! Two types, whose methods the folders group: `State` is the bookkeeping under the device's lock, pure; the methods of
//! [`DeviceAllocator`] add the effects: they call the driver, always with the lock released (except to query an event).
//! `State` is made of parts, each the matter of one folder, where its type is. Of the methods of these two types, those of a
//! folder call only those of folders above it in this list (a test of `xtask` sees to that); what a folder offers to the
//! others is `pub(in crate::device)`.
//!
//! | | what lives there |
//! |---|---|
//! | `state` | what the lock protects, and sums of it |
//! | `blocks` | what happens to a block and to a segment |
//! | `policy` | how much may be held, how large what is obtained is |
//! | `streams` | when freed memory may be used again, and by which stream |
//! | `paging` | virtual segments: where memory is mapped, which memory moves |
//! | `reclaim` | what goes back to the driver |
//! | `growth` | new memory for a request: mapped, or a segment of the driver's |
//! | `planning` | programs that repeat themselves: large blocks lie where no memory has to move |
//! | `hot` | requests served from cache, and frees |
//! | `history`, `damage`, `poison` | what is recorded, what an error of the memory or a panic leaves |
//! | `views` | what is said of memory |
//! | `ladder` | what a request climbs that the cache does not serve |
//! | `pools` | private pools: captures, checkpoints, sleep |
//! | `check` | that all of it is consistent |

mod blocks;
mod check;
mod damage;
mod growth;
mod history;
mod hot;
mod ladder;
mod paging;
mod planning;
// The bridge asks, which models have not.
#[cfg_attr(loom, allow(dead_code))]
mod poison;
mod policy;
mod pools;
mod reclaim;
mod state;
mod streams;
#[cfg(test)]
mod tests;
mod views;

pub use pools::{Checkpoint, Restored};
pub use state::BlockHandle;
pub use views::{BlockInfo, BlockView, PageView, SegmentInfo, format_size};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Settings;
use crate::driver::Driver;
use crate::error::{AllocError, Result};
use crate::ids::DeviceId;
use crate::lease::Leases;
use crate::primitives::{BlockingMutex, OnceLock};
use crate::signals::Signals;
use crate::sync::{Mutex, MutexGuard};
use paging::prefetch::Prefetcher;
use state::State;

/// The allocator of one device. Thread-safe: one lock around the bookkeeping, released around every
/// blocking driver call. Devices share no cache lines, nor the pairs of lines that processors fetch together.
#[repr(align(128))]
pub struct DeviceAllocator {
    id: DeviceId,
    driver: Arc<dyn Driver>,
    /// Added to every request before rounding, bytes.
    pad: usize,
    signals: Arc<Signals>,
    /// What threads do without the lock; theirs are taken after `state`.
    leases: Arc<Leases>,
    state: Mutex<State>,
    /// Held by the thread that puts pools to sleep, or wakes them; taken before `state`.
    exclusive: BlockingMutex<()>,
    /// Held by the thread that tries the driver; taken before `state`, and by threads that may hold the Python
    /// interpreter's lock: its holder waits for no work of the device.
    trying: BlockingMutex<()>,
    prefetcher: Prefetcher,
    exiting: AtomicBool,
    /// What the panic said that poisoned `state`, once somebody caught it.
    #[cfg_attr(loom, allow(dead_code))]
    panic: OnceLock<String>,
}

impl DeviceAllocator {
    /// An allocator that holds nothing yet. Calls no driver function: a device that nobody uses is left alone. Fails where
    /// the settings' memory fraction is none.
    pub fn new(
        id: DeviceId,
        driver: Arc<dyn Driver>,
        settings: Settings,
        pad: usize,
    ) -> Result<Self> {
        let fraction = settings.per_process_memory_fraction;
        check_fraction(fraction)?;
        let state = State::new(settings);
        let device = Self {
            id,
            driver,
            pad,
            signals: state.threads.signals.clone(),
            leases: state.threads.leases.clone(),
            state: Mutex::new(state),
            exclusive: BlockingMutex::new(()),
            trying: BlockingMutex::new(()),
            prefetcher: Prefetcher::default(),
            exiting: AtomicBool::new(false),
            panic: OnceLock::new(),
        };
        let mut state = device.state.lock();
        device.settle_engine(&mut state);
        state.budget.share = (fraction < 1.0).then_some(fraction);
        drop(state);
        Ok(device)
    }

    /// The device.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// Replaces the settings; blocks and segments stay as they are. Nothing where the device is poisoned: all devices are
    /// told at once.
    pub fn apply_settings(&self, settings: Settings) {
        let Some(mut state) = self.state.lock_if_sound() else {
            return;
        };
        state.settings = settings;
        self.settle_engine(&mut state);
    }

    /// From now on no driver function is called: the runtime is going away with the process.
    pub fn begin_process_exit(&self) {
        self.exiting.store(true, Ordering::Release);
        self.prefetcher.close();
    }

    /// Whether the calling thread's stream is being captured into a graph.
    #[inline]
    fn in_capture(&self, state: &State) -> bool {
        state.captures > 0 && self.driver.is_capturing(self.id)
    }

    /// Releases the lock, then lets contexts go: dropping one may take the Python interpreter's lock.
    #[inline]
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        if state.history.active || state.history.has_graveyard() {
            let graveyard = state.history.take_graveyard();
            drop(state);
            drop(graveyard);
        }
    }

    fn is_exiting(&self) -> bool {
        self.exiting.load(Ordering::Acquire)
    }

    /// The share of the device's memory this process may reserve.
    pub fn memory_fraction(&self) -> Result<f64> {
        let mut state = self.state.lock();
        self.settle_limit(&mut state)?;
        let Some(limit) = state.budget.limit else {
            return Ok(1.0);
        };
        drop(state);
        let total = self.driver.memory_info(self.id)?.total;
        Ok(limit as f64 / total as f64)
    }

    /// Limits what this process may reserve to a share of the device's memory, in [0, 1]; 1 removes the
    /// limit. Memory already reserved stays.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        check_fraction(fraction)?;
        let limit = if fraction < 1.0 {
            Some((fraction * self.driver.memory_info(self.id)?.total as f64) as usize)
        } else {
            None
        };
        let mut state = self.state.lock();
        (state.budget.limit, state.budget.share) = (limit, None);
        Ok(())
    }

    /// Makes the limit of the share that the settings name. With the first request that needs memory: asking a device
    /// for its capacity may make the process a context there.
    fn settle_limit(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        if state.budget.share.is_some() {
            let memory = MutexGuard::unlocked(state, || self.driver.memory_info(self.id))?;
            if let Some(share) = state.budget.share.take() {
                state.budget.limit = Some((share * memory.total as f64) as usize);
            }
        }
        Ok(())
    }
}

fn check_fraction(fraction: f64) -> Result<()> {
    if (0.0..=1.0).contains(&fraction) {
        Ok(())
    } else {
        Err(AllocError::InvalidFraction { fraction })
    }
}
