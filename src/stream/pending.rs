//! Events recorded at free time, in the order of their streams.

use std::collections::VecDeque;

use crate::driver::{EventHandle, StreamToken};
use crate::ids::BlockId;

/// A block that waits for one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingUse {
    /// Recorded behind the block's last use on the stream.
    pub event: EventHandle,
    /// The waiting block.
    pub block: BlockId,
    /// Streams can be made to wait for it.
    pub for_streams: bool,
    /// Of the blocks that share the event, this comes last in the queue: after it nobody needs the event.
    pub last: bool,
}

/// One queue for each stream: a stream's events complete in order, so only the heads need asking.
#[derive(Debug, Default)]
pub struct PendingEvents {
    queues: Vec<(StreamToken, VecDeque<PendingUse>)>,
    len: usize,
}

impl PendingEvents {
    /// Number of events outstanding.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is outstanding.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds blocks that wait for the same event, which was recorded after all others on its stream, and whether streams can
    /// wait for it.
    pub fn push_all(
        &mut self,
        stream: StreamToken,
        (event, for_streams): (EventHandle, bool),
        blocks: &[(StreamToken, BlockId)],
    ) {
        for (at, (_, block)) in blocks.iter().enumerate() {
            let last = at + 1 == blocks.len();
            self.push(
                stream,
                PendingUse {
                    event,
                    block: *block,
                    for_streams,
                    last,
                },
            );
        }
    }

    /// Adds a block that waits for an event to the event's stream's queue.
    pub fn push(&mut self, stream: StreamToken, pending: PendingUse) {
        self.len += 1;
        if let Some((_, queue)) = self.queues.iter_mut().find(|(of, _)| *of == stream) {
            queue.push_back(pending);
        } else {
            self.queues.push((stream, VecDeque::from([pending])));
        }
    }

    /// Number of streams that have had events.
    pub fn streams(&self) -> usize {
        self.queues.len()
    }

    /// The oldest event of the `index`-th stream.
    #[inline]
    pub fn head(&self, index: usize) -> Option<PendingUse> {
        self.queues.get(index)?.1.front().copied()
    }

    /// Takes the oldest event of the `index`-th stream out.
    pub fn pop(&mut self, index: usize) -> Option<PendingUse> {
        let pending = self.queues.get_mut(index)?.1.pop_front()?;
        self.len -= 1;
        Some(pending)
    }

    /// Takes the event of `block` on `stream` out.
    pub fn take(&mut self, stream: StreamToken, block: BlockId) -> Option<PendingUse> {
        let (_, queue) = self.queues.iter_mut().find(|(of, _)| *of == stream)?;
        let at = queue.iter().position(|pending| pending.block == block)?;
        self.len -= 1;
        let mut taken = queue.remove(at)?;
        // Who comes last now of those that share the event?
        if let Some(before) = at.checked_sub(1).and_then(|at| queue.get_mut(at))
            && taken.last
            && before.event == taken.event
        {
            before.last = true;
            taken.last = false;
        }
        Some(taken)
    }

    /// Takes the events on `stream` up to that of `block` out, oldest first, with all blocks that share them.
    pub fn take_through(&mut self, stream: StreamToken, block: BlockId) -> Vec<PendingUse> {
        let Some((_, queue)) = self.queues.iter_mut().find(|(of, _)| *of == stream) else {
            return Vec::new();
        };
        let Some(at) = queue.iter().position(|pending| pending.block == block) else {
            return Vec::new();
        };
        let event = queue[at].event;
        let alike = queue.iter().skip(at).take_while(|p| p.event == event);
        let count = at + alike.count();
        self.len -= count;
        queue.drain(..count).collect()
    }

    /// Puts back what [`Self::take_through`] took, in front of all others on the stream.
    pub fn put_back(&mut self, stream: StreamToken, taken: Vec<PendingUse>) {
        if let Some((_, queue)) = self.queues.iter_mut().find(|(of, _)| *of == stream) {
            self.len += taken.len();
            taken.into_iter().rev().for_each(|it| queue.push_front(it));
        }
    }

    /// Takes everything out, oldest first within a stream.
    pub fn drain(&mut self) -> Vec<(StreamToken, PendingUse)> {
        self.len = 0;
        self.queues
            .iter_mut()
            .flat_map(|(stream, queue)| queue.drain(..).map(|pending| (*stream, pending)))
            .collect()
    }

    /// Every outstanding event.
    pub fn iter(&self) -> impl Iterator<Item = (StreamToken, PendingUse)> + '_ {
        self.queues
            .iter()
            .flat_map(|(stream, queue)| queue.iter().map(|pending| (*stream, *pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamToken = StreamToken {
        id: 7,
        device: 0,
        reserved: 0,
    };

    #[test]
    fn blocks_that_share_an_event_are_taken_together_and_put_back_in_order() {
        let mut pending = PendingEvents::default();
        for (event, blocks) in [(1, vec![10]), (2, vec![20, 21, 22]), (3, vec![30])] {
            let blocks: Vec<_> = blocks.into_iter().map(|id| (STREAM, BlockId(id))).collect();
            pending.push_all(STREAM, (EventHandle(event), false), &blocks);
        }
        let all: Vec<_> = pending.iter().collect();
        let taken = pending.take_through(STREAM, BlockId(21));
        let blocks: Vec<u32> = taken.iter().map(|taken| taken.block.0).collect();
        assert_eq!((blocks, pending.len()), (vec![10, 20, 21, 22], 1));
        assert!(pending.take_through(STREAM, BlockId(21)).is_empty());
        pending.put_back(STREAM, taken);
        assert_eq!(
            (pending.iter().collect::<Vec<_>>(), pending.len()),
            (all, 5)
        );
    }
}
