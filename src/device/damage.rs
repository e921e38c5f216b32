//! Uncorrectable memory errors: which blocks they hit.

use super::DeviceAllocator;
use super::state::State;
use crate::block::{BlockState, DAMAGED};
use crate::ids::BlockId;

impl State {
    /// A free has to look at the block from now on.
    fn damage(&mut self, id: BlockId) {
        self.arena.marks.clear(id);
        self.arena[id].flags |= DAMAGED;
    }
}

impl DeviceAllocator {
    /// Marks every block that overlaps `[addr, addr + len)`; returns how many. A mark goes when the
    /// block is handed out again.
    pub fn mark_damaged(&self, addr: usize, len: usize) -> usize {
        let mut state = self.state.lock();
        let hit: Vec<_> = state
            .arena
            .iter()
            .filter(|(_, block)| block.state != BlockState::Unmapped)
            .filter(|(_, block)| block.addr < addr.saturating_add(len) && addr < block.end())
            .map(|(id, _)| id)
            .collect();
        for &id in &hit {
            state.damage(id);
        }
        hit.len()
    }

    /// Marks every active block.
    pub fn mark_all_damaged(&self) {
        let mut state = self.state.lock();
        let active: Vec<_> = state
            .arena
            .iter()
            .filter(|(_, block)| matches!(block.state, BlockState::Live | BlockState::Pending))
            .map(|(id, _)| id)
            .collect();
        for id in active {
            state.damage(id);
        }
    }

    /// Whether the live block at `addr` is marked; `None` when there is no such block.
    pub fn is_damaged(&self, addr: usize) -> Option<bool> {
        let state = self.state.look();
        Some(state.arena[state.live.get(addr, &state.arena)?].flags & DAMAGED != 0)
    }

    /// Takes the mark of the live block at `addr` away; false when there is no such block.
    pub fn clear_damaged(&self, addr: usize) -> bool {
        // Whoever has the address asks every device: of those that are poisoned, only the block's own fails.
        if self.is_damaged(addr).is_none() {
            return false;
        }
        let mut state = self.state.lock();
        let Some(id) = state.live.get(addr, &state.arena) else {
            return false;
        };
        state.arena[id].flags &= !DAMAGED;
        true
    }
}
