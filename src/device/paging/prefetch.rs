//! Physical memory obtained ahead of need: while the program goes on, a thread asks the driver for as many pages as
//! the last request lacked. The thread takes no lock but the desk's, on which orders and handles lie; what is done
//! with them is decided by who holds the device's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard as DeskGuard};

use crate::device::DeviceAllocator;
use crate::device::state::{Request, State};
use crate::driver::{Driver, PhysicalHandle};
use crate::ids::DeviceId;
use crate::sync::MutexGuard;

/// Orders, and what became of them. Each page that was ordered is in one place: wanted, at work, made or given up.
#[derive(Debug, Default)]
struct Desk {
    /// Size of the pages wanted, bytes.
    page_size: usize,
    /// Whether they are of the 1 GiB page type.
    huge: bool,
    /// How many the thread is still to begin with.
    wanted: usize,
    /// The thread is asking the driver for one.
    at_work: bool,
    /// Page sizes and handles.
    made: Vec<(usize, PhysicalHandle)>,
    /// Bytes of pages that failed, and of those wanted behind them.
    given_up: usize,
    /// The driver had no memory.
    full: bool,
    closed: bool,
}

impl Desk {
    fn give_up_wanted(&mut self) {
        self.given_up += std::mem::take(&mut self.wanted) * self.page_size;
    }
}

#[derive(Debug, Default)]
struct Office {
    desk: Mutex<Desk>,
    changed: Condvar,
    /// The process in which the thread was made; 0 without one.
    process: AtomicU32,
}

impl Office {
    /// Nothing in a process forked from the thread's: there the desk may stay locked for good, and what is under way
    /// never comes.
    fn desk(&self) -> Option<DeskGuard<'_, Desk>> {
        let process = self.process.load(Ordering::Relaxed);
        (process == 0 || process == std::process::id()).then(|| self.desk.lock())
    }

    /// What the thread does until the desk is closed.
    fn work(&self, driver: &dyn Driver, device: DeviceId) {
        let _leaving = Leaving(self);
        let Some(driver) = driver.virtual_memory() else {
            return;
        };
        let mut desk = self.desk.lock();
        while !desk.closed {
            if desk.wanted == 0 {
                self.changed.wait(&mut desk);
                continue;
            }
            desk.wanted -= 1;
            desk.at_work = true;
            let (page_size, huge) = (desk.page_size, desk.huge);
            let outcome = DeskGuard::unlocked(&mut desk, || {
                driver.malloc_physical(device, page_size, huge)
            });
            desk.at_work = false;
            match outcome {
                Ok(handle) => desk.made.push((page_size, handle)),
                // Who needs the memory will ask for it, and see the error.
                Err(error) => {
                    desk.given_up += page_size;
                    desk.give_up_wanted();
                    desk.full |= error.is_out_of_memory();
                }
            }
            self.changed.notify_all();
        }
    }

    /// Calls off what was not begun, and waits for what was.
    fn settle(&self) {
        let Some(mut desk) = self.desk() else {
            return;
        };
        desk.give_up_wanted();
        while desk.at_work {
            self.changed.wait(&mut desk);
        }
    }
}

/// The thread leaves, be it by a panic in the driver: nobody is to wait for it any more.
struct Leaving<'a>(&'a Office);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut desk = self.0.desk.lock();
        desk.closed = true;
        if std::mem::take(&mut desk.at_work) {
            desk.given_up += desk.page_size;
        }
        desk.give_up_wanted();
        self.0.changed.notify_all();
    }
}

/// The thread of a device that obtains memory ahead, once there is an order for it.
#[derive(Debug, Default)]
pub(in crate::device) struct Prefetcher(Arc<Office>);

impl Prefetcher {
    /// Has `count` more pages obtained; false when none can be.
    fn order(
        &self,
        driver: &Arc<dyn Driver>,
        device: DeviceId,
        (page_size, huge): (usize, bool),
        count: usize,
    ) -> bool {
        let Some(mut desk) = self.0.desk() else {
            return false;
        };
        let others = (desk.wanted > 0 || desk.at_work) && desk.page_size != page_size;
        if desk.closed || others {
            return false;
        }
        if self.0.process.load(Ordering::Relaxed) == 0 {
            self.0.process.store(std::process::id(), Ordering::Relaxed);
            let (office, driver) = (self.0.clone(), driver.clone());
            let thread = std::thread::Builder::new().name("npualloc-prefetch".into());
            if thread.spawn(move || office.work(&*driver, device)).is_err() {
                // Memory comes as it is needed.
                desk.closed = true;
                return false;
            }
        }
        desk.page_size = page_size;
        desk.huge = huge;
        desk.wanted += count;
        self.0.changed.notify_all();
        true
    }

    /// The thread ends; it calls the driver no more once this returns.
    pub fn close(&self) {
        let Some(mut desk) = self.0.desk() else {
            return;
        };
        desk.closed = true;
        drop(desk);
        self.0.changed.notify_all();
        self.0.settle();
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        self.close();
    }
}

impl DeviceAllocator {
    /// Has memory obtained for requests like this one, which lacked `wanted` pages, as far as the settings and what
    /// may be obtained allow. Not while a graph is captured: a capture may forbid calls on other threads.
    pub(super) fn prefetch(
        &self,
        state: &mut State,
        request: &Request,
        page_size: usize,
        wanted: usize,
    ) {
        let most = state.settings.prefetch;
        if most == 0 || state.budget.device_full || state.captures > 0 || self.is_exiting() {
            return;
        }
        let idle = state.paging.pages.of_size(page_size).count() * page_size + state.budget.ahead;
        let bytes = most
            .saturating_sub(idle)
            .min(state.room_to_grow(request))
            .min(state.room_under_limit());
        let count = wanted.min(bytes / page_size);
        let kind = (page_size, state.settings.is_huge_page(page_size));
        if count > 0 && self.prefetcher.order(&self.driver, self.id, kind, count) {
            state.budget.ahead += count * page_size;
        }
    }

    /// Takes in what was obtained ahead.
    pub(super) fn take_prefetched(&self, state: &mut State) {
        if state.budget.ahead == 0 {
            return;
        }
        let Some(mut desk) = self.prefetcher.0.desk() else {
            state.budget.ahead = 0;
            return;
        };
        let given_up = std::mem::take(&mut desk.given_up);
        let made = std::mem::take(&mut desk.made);
        state.budget.device_full |= std::mem::take(&mut desk.full);
        drop(desk);
        state.budget.ahead -= given_up;
        state.ladder.pages_prefetched += made.len() as u64;
        for (page_size, handle) in made {
            state.budget.ahead -= page_size;
            state.paging.pages.put(page_size, handle, None);
        }
    }

    /// The same, after calling off what is not begun and waiting for the rest: nothing is under way then, unless
    /// another thread orders more.
    pub(in crate::device) fn settle_prefetched(&self, state: &mut MutexGuard<'_, State>) {
        if state.budget.ahead > 0 {
            MutexGuard::unlocked(state, || self.prefetcher.0.settle());
            self.take_prefetched(state);
        }
    }
}
