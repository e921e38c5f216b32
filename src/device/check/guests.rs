//! The part of the consistency checker that is about blocks which other streams than their own have.

use crate::block::{BlockState, GUEST};
use crate::device::state::State;
use crate::ids::BlockId;
use crate::page::LastUse;

impl State {
    /// Every guest is known, and nothing else is.
    pub(super) fn check_guests(&self) -> Result<(), String> {
        if let Some(home) = self.guests.shared {
            let mut others = self.others_to_share(home);
            if let Some((id, _)) = others.next() {
                return Err(format!("list {id:?} has blocks beside the shared one"));
            }
        }
        let (mut using, mut bytes, mut returning) = (0, 0, 0);
        for (id, block) in self.arena.iter() {
            let guest = block.flags & GUEST != 0;
            if guest && !matches!(block.state, BlockState::Live | BlockState::Pending) {
                return Err(format!("guest {id:?} is {:?}", block.state));
            }
            if guest && !self.guests.using.contains_key(&id) {
                return Err(format!("nobody knows whose guest block {id:?} is"));
            }
            using += usize::from(guest);
            bytes += if guest { block.size } else { 0 };
            returning += usize::from(block.state == BlockState::Returning);
        }
        if bytes != self.guests.bytes {
            return Err(format!(
                "{bytes} bytes in guests, {} counted",
                self.guests.bytes
            ));
        }
        let known = &self.guests.returning;
        let wrong = |&(id, _): &(BlockId, LastUse)| self.arena[id].state != BlockState::Returning;
        if let Some((id, _)) = known.iter().find(wrong) {
            return Err(format!("block {id:?} is not to return"));
        }
        if !known.agrees(|id| &self.arena[id]) {
            return Err("blocks to return have other sizes than noted".to_owned());
        }
        if (using, returning) != (self.guests.using.len(), known.len()) {
            return Err(format!(
                "{using} guests and {returning} blocks to return, {} and {} counted",
                self.guests.using.len(),
                known.len()
            ));
        }
        Ok(())
    }
}
