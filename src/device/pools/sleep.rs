//! Sleep: the physical memory of a pool's virtual segments goes back to the driver while addresses, blocks
//! and statistics stay; contents are lost. Waking puts new memory at the same addresses.
//!
//! ```text
//! awake --sleep: idle memory is returned, pages under blocks in use are unmapped and freed--> asleep
//!   ^                                                                                          |
//!   +---------------------- wake_up: each of those pages gets memory again --------------------+
//! ```
//!
//! A pool that sleeps serves no request. Blocks in it may be freed; their pages are forgotten then with the
//! next call that returns idle memory or wakes the pool, unless a graph may need them where they are.

use crate::block::BlockState;
use crate::device::DeviceAllocator;
use crate::device::state::State;
use crate::driver::{DriverError, PhysicalHandle, VirtualMemory};
use crate::error::{AllocError, Result};
use crate::ids::{MempoolId, PoolId, SegmentId};
use crate::sync::MutexGuard;

/// A page on its way to sleep, or back.
struct Bed {
    segment: SegmentId,
    page: usize,
    addr: usize,
    size: usize,
}

impl DeviceAllocator {
    /// Returns the physical memory of a private pool, or of the whole device (`None`), to the driver; also
    /// that of blocks in use, whose contents are lost. Waits for the device first. Fixed segments keep what
    /// is in use. Returns the bytes that sleep now, 0 for a pool that sleeps already. After a failure what
    /// was not reached stays awake.
    pub fn sleep(&self, pool: Option<MempoolId>) -> Result<usize> {
        self.alone(|state| self.lay_down(state, pool))
    }

    /// Gives memory to every page of a pool, or of the device, that sleeps. Returns the bytes. Where memory
    /// is short, idle memory of others is returned first, but not while the calling thread captures; after a
    /// failure the rest sleeps on, and the call can be repeated.
    pub fn wake_up(&self, pool: Option<MempoolId>) -> Result<usize> {
        self.alone(|state| self.get_up(state, pool))
    }

    /// Bytes of pages that sleep.
    pub fn asleep_bytes(&self) -> usize {
        self.state.look().asleep_bytes()
    }

    /// Whether the live block at `addr` lies in memory that sleeps, wakes up or is on its way to sleep.
    pub fn is_asleep_at(&self, addr: usize) -> bool {
        let state = self.state.look();
        let block = state.live.get(addr, &state.arena);
        let segment = block.and_then(|id| state.segments.get(state.arena[id].segment));
        segment.is_some_and(|segment| segment.pages.is_some() && state.sleep.has(segment.pool))
    }

    /// One thread at a time. Contexts are let go without any lock, as by [`Self::unlock`].
    fn alone<T>(&self, work: impl FnOnce(&mut MutexGuard<'_, State>) -> T) -> T {
        let alone = self.exclusive.lock();
        let mut state = self.state.lock();
        let outcome = work(&mut state);
        let graveyard = state.history.take_graveyard();
        drop(state);
        drop(alone);
        drop(graveyard);
        outcome
    }

    fn lay_down(
        &self,
        state: &mut MutexGuard<'_, State>,
        pool: Option<MempoolId>,
    ) -> Result<usize> {
        state.pools_named(pool)?;
        self.refuse_captures(state)?;
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(0);
        };
        self.empty(state, MempoolId::DEFAULT, true)?;
        // Meanwhile a capture may have begun, or the pool been forgotten and another have taken its place.
        self.refuse_captures(state)?;
        let Ok(pools) = state.pools_named(pool) else {
            return Ok(0);
        };
        // From here on they serve nobody, and none is forgotten while pages go.
        for &pool in &pools {
            if !state.sleep.has(pool) {
                state.sleep.pools.push(pool);
            }
        }
        pools.iter().for_each(|&pool| state.pools.hold(pool));
        let (beds, handles): (Vec<Bed>, Vec<PhysicalHandle>) =
            state.backed_pages(&pools).into_iter().unzip();
        let left = state.left_behind();
        // Memory that moved here is mapped where it was until its last use there is over: it stays, with its number.
        let numbers: Vec<Option<u32>> = handles
            .iter()
            .map(|handle| {
                if left.contains_key(handle) {
                    return None;
                }
                state.paging.numbers.part(*handle)
            })
            .collect();
        let leaving: usize = beds.iter().map(|bed| bed.size).sum();
        state.budget.leaving += leaving;
        state.sleep.changing = true;
        // Other threads may have used and freed memory of these pools since the device was waited for.
        let late = state.tick > state.fences.synchronised();
        let (done, freed, failure) = MutexGuard::unlocked(state, || {
            let settled = if late {
                self.driver.synchronize_device(self.id)
            } else {
                Ok(())
            };
            match settled {
                Ok(()) => self.clear_beds(driver, &beds, &handles, &numbers),
                Err(error) => (0, Vec::new(), Some(error)),
            }
        });
        state.sleep.changing = false;
        state.budget.leaving -= leaving;
        pools.iter().for_each(|&pool| state.pools.unhold(pool));
        for (at, number) in numbers.into_iter().enumerate() {
            match number {
                Some(number) if freed.get(at) == Some(&true) => {
                    state.paging.numbers.give_up(number)
                }
                Some(number) => state.paging.numbers.restore(handles[at], number),
                None => (),
            }
        }
        let mut bytes = 0;
        for (at, bed) in beds[..done].iter().enumerate() {
            bytes += bed.size;
            if let Some(pages) = state.pages_mut(bed.segment) {
                pages.doze(bed.page);
            }
            if !freed[at] {
                // It can be had again, and freed with the next call that returns idle memory.
                let used = left.get(&handles[at]).copied();
                let used = used.filter(|used| !state.fences.passed(*used));
                state.paging.pages.put(bed.size, handles[at], used);
            }
        }
        state.budget.device_full = false;
        state.forget_awake();
        failure.map_or(Ok(bytes), |error| Err(error.into()))
    }

    fn refuse_captures(&self, state: &State) -> Result<()> {
        if state.captures == 0 {
            return Ok(());
        }
        Err(AllocError::Sleep {
            what: "no pool can sleep while a graph is captured on device",
            device: self.id,
        })
    }

    /// Unmaps, and frees what has given up its number. Returns how many were unmapped, which of those handles
    /// were freed, and the failure that ended it.
    fn clear_beds(
        &self,
        driver: &dyn VirtualMemory,
        beds: &[Bed],
        handles: &[PhysicalHandle],
        numbers: &[Option<u32>],
    ) -> (usize, Vec<bool>, Option<DriverError>) {
        let mut freed = Vec::with_capacity(beds.len());
        for ((bed, handle), number) in beds.iter().zip(handles).zip(numbers) {
            if let Err(error) = driver.unmap(self.id, bed.addr) {
                return (freed.len(), freed, Some(error));
            }
            if number.is_none() {
                freed.push(false);
                continue;
            }
            let outcome = driver.free_physical(self.id, *handle);
            freed.push(outcome.is_ok());
            if let Err(error) = outcome {
                return (freed.len(), freed, Some(error));
            }
        }
        (freed.len(), freed, None)
    }

    fn get_up(&self, state: &mut MutexGuard<'_, State>, pool: Option<MempoolId>) -> Result<usize> {
        let pools = state.pools_named(pool)?;
        let Some(driver) = self.driver.virtual_memory() else {
            return Ok(0);
        };
        state.forget_sleeping(|_, pool| pools.contains(&pool));
        state.sleep.changing = true;
        let woken = self.wake_pages(state, driver, &pools);
        state.sleep.changing = false;
        state.forget_awake();
        woken
    }

    fn wake_pages(
        &self,
        state: &mut MutexGuard<'_, State>,
        driver: &dyn VirtualMemory,
        pools: &[PoolId],
    ) -> Result<usize> {
        let mut bytes = 0;
        let mut emptied = false;
        for bed in state.sleeping_pages(pools) {
            let handle = loop {
                let idle = state
                    .paging
                    .pages
                    .take(bed.size, 1, |_, used| used.is_none())
                    .pop();
                if let Some((handle, _)) = idle {
                    break handle;
                }
                let failure = if state.room_under_limit() < bed.size {
                    AllocError::Sleep {
                        what: "the memory limit leaves no room to wake up on device",
                        device: self.id,
                    }
                } else {
                    let huge = state.settings.is_huge_page(bed.size);
                    state.budget.growing += bed.size;
                    let fresh = MutexGuard::unlocked(state, || {
                        driver.malloc_physical(self.id, bed.size, huge)
                    });
                    state.budget.growing -= bed.size;
                    match fresh {
                        Ok(handle) => break handle,
                        Err(error) if error.is_out_of_memory() => error.into(),
                        Err(error) => return Err(error.into()),
                    }
                };
                // Waiting for the device would break a capture.
                if emptied || self.in_capture(state) {
                    return Err(failure);
                }
                emptied = true;
                self.empty(state, MempoolId::DEFAULT, true)?;
            };
            state.budget.growing += bed.size;
            let mapped =
                MutexGuard::unlocked(state, || driver.map(self.id, bed.addr, bed.size, handle));
            state.budget.growing -= bed.size;
            if let Err(error) = mapped {
                state.paging.pages.put(bed.size, handle, None);
                return Err(error.into());
            }
            let number = state.paging.numbers.give(handle);
            if let Some(pages) = state.pages_mut(bed.segment) {
                pages.wake(bed.page, handle, number);
            }
            bytes += bed.size;
        }
        Ok(bytes)
    }
}

impl State {
    fn pools_named(&self, pool: Option<MempoolId>) -> Result<Vec<PoolId>> {
        match pool {
            None => {
                let private = self.pools.iter().map(|(pool, _)| pool);
                Ok(std::iter::once(PoolId::DEFAULT).chain(private).collect())
            }
            Some(MempoolId::DEFAULT) => Ok(vec![PoolId::DEFAULT]),
            Some(id) => match self.pools.find(id) {
                Some(pool) => Ok(vec![pool]),
                None => Err(AllocError::UnknownPool { pool: id }),
            },
        }
    }

    /// The pages with memory in these pools, but for those that another thread is changing.
    fn backed_pages(&self, pools: &[PoolId]) -> Vec<(Bed, PhysicalHandle)> {
        let mut found = Vec::new();
        for (id, segment) in self.segments.iter() {
            let Some(pages) = segment
                .pages
                .as_ref()
                .filter(|_| pools.contains(&segment.pool))
            else {
                continue;
            };
            let mut next = segment.first;
            let mut done = 0;
            while let Some(block) = next.some().map(|id| &self.arena[id]) {
                let touching = pages.touching(block.addr, block.end());
                if block.state != BlockState::Busy {
                    for page in touching.start.max(done)..touching.end.min(pages.touched()) {
                        if let Some(handle) = pages.handle(page) {
                            found.push((Bed::of(id, pages.addr_of(page), page, pages), handle));
                        }
                    }
                }
                done = touching.end;
                next = block.next;
            }
        }
        found
    }

    fn sleeping_pages(&self, pools: &[PoolId]) -> Vec<Bed> {
        let mut found = Vec::new();
        for (id, segment) in self.segments.iter() {
            if let Some(pages) = segment
                .pages
                .as_ref()
                .filter(|_| pools.contains(&segment.pool))
            {
                let asleep = (0..pages.touched()).filter(|&page| pages.is_asleep(page));
                found.extend(asleep.map(|page| Bed::of(id, pages.addr_of(page), page, pages)));
            }
        }
        found
    }
}

impl Bed {
    fn of(segment: SegmentId, addr: usize, page: usize, pages: &crate::page::PageTable) -> Self {
        Self {
            segment,
            page,
            addr,
            size: pages.page_size(),
        }
    }
}
