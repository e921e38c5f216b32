//! Steps on private pools: users, captures, checkpoints.

use npualloc::device::Checkpoint;
use npualloc::error::AllocError;
use npualloc::ids::MempoolId;

use crate::op::POOLS;
use crate::world::{Block, World};

/// A checkpoint, and the live blocks of its device at the time.
pub(crate) struct Saved {
    device: u32,
    checkpoint: Checkpoint,
    blocks: Vec<Block>,
}

/// The name of a private pool; that of the default pool for 0.
pub(crate) fn pool_id(pool: u8) -> MempoolId {
    MempoolId {
        first: 0,
        second: pool.into(),
    }
}

impl World {
    pub(crate) fn add_user(&mut self, device: u32, pool: u8) {
        // The last pool has an allocator of its own, which only a new pool can be given.
        let known = self.device(device).has_pool(pool_id(pool));
        let outcome = self
            .device(device)
            .create_or_incref_pool(pool_id(pool), pool == POOLS && !known);
        let users = self.devices[device as usize].users.entry(pool).or_default();
        match outcome {
            Ok(()) => *users += 1,
            Err(AllocError::PoolState { .. }) => assert_eq!(*users, 0, "pool {pool} is in use"),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn drop_user(&mut self, device: u32, pool: u8) {
        let outcome = self.device(device).release_pool(pool_id(pool));
        let users = self.devices[device as usize].users.entry(pool).or_default();
        assert_eq!(outcome.is_ok(), *users > 0, "{outcome:?}");
        *users = users.saturating_sub(1);
    }

    pub(crate) fn end_capture(&mut self, device: u32) {
        let outcome = self.device(device).mark_capture_end();
        let model = &mut self.devices[device as usize];
        assert_eq!(outcome.is_ok(), model.captures > 0);
        model.captures = model.captures.saturating_sub(1);
        let capturing = self.devices.iter().any(|model| model.captures > 0);
        self.driver.inner.set_capturing(capturing);
    }

    pub(crate) fn save(&mut self, device: u32, pool: u8) {
        match self.device(device).checkpoint(pool_id(pool)) {
            Ok(checkpoint) => {
                let blocks = self
                    .live
                    .iter()
                    .filter(|block| block.device == device)
                    .cloned();
                self.saved = Some(Saved {
                    device,
                    checkpoint,
                    blocks: blocks.collect(),
                });
            }
            Err(AllocError::UnknownPool { .. } | AllocError::PoolState { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        self.failed();
    }

    pub(crate) fn restore(&mut self) {
        let Some(saved) = self.saved.take() else {
            return;
        };
        match self.device(saved.device).restore(&saved.checkpoint) {
            Ok(restored) => {
                for addr in restored.freed {
                    let at = self.live.iter().position(|block| block.addr == addr);
                    self.leave(at.expect("a live block was freed"));
                }
                self.devices[saved.device as usize].allocated += restored.allocated.len() as i64;
                for addr in restored.allocated {
                    let old = saved.blocks.iter().find(|block| block.addr == addr);
                    let old = old.expect("a block of the checkpoint");
                    self.enter(saved.device, addr, old.bytes, old.home, old.pool);
                }
            }
            Err(AllocError::UnknownPool { .. } | AllocError::PoolState { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        self.failed();
    }
}
