//! A block that is freed and handed out again and again, with nothing else going on in between.

use super::freeing::LastFreed;
use crate::block::Place;
use crate::device::state::State;
use crate::ids::{BlockId, StreamKey};
use crate::size::MOST_BYTES;

/// Stands for no request: none has so many bytes, see [`MOST_BYTES`].
const NO_REQUEST: usize = usize::MAX;

/// A block that was handed out again as it lay after its free, as long as it was the only one that anything
/// happened to since. Then the reasons for which it may be taken still hold, and that it came and went can
/// be counted later. Its entry stays in the address map, its state is `Live`, whichever side it is on.
///
/// What each operation looks at lies in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(in crate::device) struct Bounce {
    /// [`BlockId::NONE`]: there is no such block, and the rest means nothing.
    pub block: BlockId,
    /// Frees since.
    frees: u32,
    /// Bytes to be asked for; 0 while the client has it.
    in_bytes: usize,
    addr: usize,
    stream: StreamKey,
    /// Bytes the client asks for, every time.
    requested: usize,
    entry: Place,
    /// What its merge would change in the statistics of inactive splits.
    split: (i64, i64),
}

impl Bounce {
    pub const NONE: Self = Self {
        block: BlockId::NONE,
        entry: Place::NONE,
        addr: 0,
        stream: StreamKey(0),
        requested: 0,
        split: (0, 0),
        in_bytes: NO_REQUEST,
        frees: 0,
    };

    /// The client has it now.
    #[inline]
    fn begin(
        freed: LastFreed,
        addr: usize,
        stream: StreamKey,
        requested: usize,
        split: (i64, i64),
    ) -> Self {
        Self {
            block: freed.block,
            entry: freed.entry,
            addr,
            stream,
            requested,
            split,
            in_bytes: 0,
            frees: 0,
        }
    }

    /// Hands the block out again, if it is there and the request is the same as before. `bytes` is not 0.
    #[inline]
    pub fn take(&mut self, bytes: usize, stream: StreamKey) -> Option<usize> {
        debug_assert!(bytes <= MOST_BYTES);
        if bytes != self.in_bytes || stream != self.stream {
            return None;
        }
        self.in_bytes = 0;
        Some(self.addr)
    }

    /// Takes the block back, if that is the one at `addr` and the client has it.
    #[inline]
    pub fn put(&mut self, addr: usize) -> bool {
        if addr != self.addr || self.in_bytes != 0 || self.frees == u32::MAX {
            return false;
        }
        self.in_bytes = self.requested;
        self.frees += 1;
        true
    }
}

impl State {
    /// The block freed last was handed out again as it lay, and may come and go from now on: not while blocks wait for
    /// events, since nothing would ask for them.
    #[inline]
    pub(super) fn begin_bounce(
        &mut self,
        freed: LastFreed,
        addr: usize,
        stream: StreamKey,
        requested: usize,
        split: (i64, i64),
    ) {
        if !self.attention {
            self.cache.bounce = Bounce::begin(freed, addr, stream, requested, split);
        }
    }

    /// Counts what was not counted. The block is live after that, or the one freed last.
    #[cold]
    #[inline(never)]
    pub(super) fn end_bounce(&mut self) {
        let bounce = std::mem::replace(&mut self.cache.bounce, Bounce::NONE);
        let id = bounce.block;
        let inside = bounce.in_bytes != 0;
        let times = bounce.frees - u32::from(inside);
        let block = &mut self.arena[id];
        block.generation = block.generation.wrapping_add(times as u16);
        let (size, small) = (block.counted() as i64, block.list.is_small());
        self.tick += u64::from(times);
        self.stats.blocks.bounced(
            small,
            i64::from(times),
            size,
            bounce.requested as i64,
            bounce.split,
        );
        if inside {
            self.arena.marks.clear(id);
            self.note_freed(id);
            self.cache.last_freed = LastFreed {
                block: id,
                entry: bounce.entry,
            };
        }
    }
}
