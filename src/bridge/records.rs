//! Snapshots and traces as C++ reads them: they own the contexts that their rows refer to.

use std::sync::Arc;

use super::allocator::Allocator;
use super::ffi::{self, TraceAction};
use crate::device::{self, SegmentInfo};
use crate::error::AllocError;
use crate::history::{Action, Context, TraceEntry};

/// The entries of a device.
pub struct Trace(Vec<TraceEntry>);

/// The segments of a device.
pub struct Snapshot(Vec<SegmentInfo>);

/// The live blocks of a private pool.
pub struct Checkpoint(device::Checkpoint);

fn borrow(context: &Option<Arc<Context>>) -> usize {
    context.as_ref().map_or(0, |context| context.handle())
}

fn action(action: Action) -> TraceAction {
    match action {
        Action::Alloc => TraceAction::Alloc,
        Action::FreeRequested => TraceAction::FreeRequested,
        Action::FreeCompleted => TraceAction::FreeCompleted,
        Action::SegmentAlloc => TraceAction::SegmentAlloc,
        Action::SegmentFree => TraceAction::SegmentFree,
        Action::SegmentMap => TraceAction::SegmentMap,
        Action::SegmentUnmap => TraceAction::SegmentUnmap,
        Action::Snapshot => TraceAction::Snapshot,
        Action::OutOfMemory => TraceAction::OutOfMemory,
    }
}

impl Allocator {
    pub(super) fn trace(&self, device: i32) -> Box<Trace> {
        let entries = self.guard(|| Ok(self.registry.device(device)?.trace()));
        Box::new(Trace(entries.unwrap_or_default()))
    }

    pub(super) fn take_undelivered_trace(&self, device: i32) -> Box<Trace> {
        let entries = self.guard(|| Ok(self.registry.device(device)?.take_undelivered_trace()));
        Box::new(Trace(entries.unwrap_or_default()))
    }

    pub(super) fn checkpoint(
        &self,
        device: i32,
        pool: ffi::MempoolId,
    ) -> Result<Box<Checkpoint>, AllocError> {
        let checkpoint = self.catch(|| self.registry.device(device)?.checkpoint(pool.into()))?;
        Ok(Box::new(Checkpoint(checkpoint)))
    }

    pub(super) fn restore(
        &self,
        device: i32,
        checkpoint: &Checkpoint,
    ) -> Result<ffi::Restored, AllocError> {
        let restored = self.catch(|| self.registry.restore(device, &checkpoint.0))?;
        Ok(ffi::Restored {
            freed: restored.freed,
            allocated: restored.allocated,
        })
    }

    pub(super) fn snapshot(&self, device: i32, pool: ffi::MempoolId) -> Box<Snapshot> {
        let segments = self.guard(|| Ok(self.registry.device(device)?.snapshot(pool.into())));
        Box::new(Snapshot(segments.unwrap_or_default()))
    }
}

impl Trace {
    pub(super) fn entries(&self) -> Vec<ffi::TraceEntry> {
        let convert = |entry: &TraceEntry| ffi::TraceEntry {
            action: action(entry.action),
            addr: entry.addr,
            size: entry.size,
            stream: entry.stream.0,
            pool: entry.pool.into(),
            context: borrow(&entry.context),
        };
        self.0.iter().map(convert).collect()
    }
}

impl Snapshot {
    pub(super) fn segments(&self) -> Vec<ffi::SegmentInfo> {
        let mut first_block = 0;
        let convert = |segment: &SegmentInfo| {
            let block_count = segment.blocks.len();
            first_block += block_count;
            ffi::SegmentInfo {
                addr: segment.addr,
                total_size: segment.total_size,
                requested_size: segment.requested_size,
                allocated_size: segment.allocated_size,
                active_size: segment.active_size,
                stream: segment.stream.0,
                is_large: segment.large,
                is_expandable: segment.page_size.is_some(),
                pool: segment.pool.into(),
                first_block: first_block - block_count,
                block_count,
                context: borrow(&segment.context),
            }
        };
        self.0.iter().map(convert).collect()
    }

    pub(super) fn blocks(&self) -> Vec<ffi::BlockInfo> {
        let blocks = self.0.iter().flat_map(|segment| &segment.blocks);
        blocks
            .map(|block| ffi::BlockInfo {
                size: block.size,
                requested_size: block.requested,
                allocated: block.allocated,
                active: block.active,
                context: borrow(&block.context),
            })
            .collect()
    }
}
