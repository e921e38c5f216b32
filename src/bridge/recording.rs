//! A recording as C++ holds it.

use super::allocator::Allocator;
use crate::device::DeviceAllocator;
use crate::ids::MempoolId;
use crate::record::{self, RecordError};

/// See the bridge's declarations.
pub struct Recorder(record::Recorder);

fn capacity(allocator: &Allocator, device: i32) -> u64 {
    let device = allocator.registry.device(device);
    device.map_or(0, |device| device.capacity() as u64)
}

/// What is alive already comes first.
pub(super) fn start_recording(
    allocator: &Allocator,
    device: i32,
    path: &str,
) -> Result<Box<Recorder>, RecordError> {
    let path = record::expand(path, std::env::var("RANK").ok().as_deref());
    let recorder = record::Recorder::start(&path, device, capacity(allocator, device))?;
    for device in allocator.registry.devices() {
        add_live_blocks(&recorder, allocator, device);
    }
    Ok(Box::new(Recorder(recorder)))
}

fn add_live_blocks(recorder: &record::Recorder, allocator: &Allocator, device: &DeviceAllocator) {
    let id = device.id().0 as i32;
    for segment in device.snapshot(MempoolId::DEFAULT) {
        let mut addr = segment.addr;
        for block in &segment.blocks {
            if block.allocated {
                let capacity = || capacity(allocator, id);
                recorder.allocated(id, addr, block.requested, segment.stream.0, 0, capacity);
            }
            addr += block.size;
        }
    }
}

impl Recorder {
    pub(super) fn allocated(
        &self,
        allocator: &Allocator,
        device: i32,
        addr: usize,
        bytes: usize,
        stream: usize,
        stack: u32,
    ) {
        let capacity = || capacity(allocator, device);
        if addr == 0 {
            self.0.failed(device, bytes, stream, stack, capacity);
        } else {
            self.0
                .allocated(device, addr, bytes, stream, stack, capacity);
        }
    }

    pub(super) fn add_stack(&self, frames: &str) -> u32 {
        self.0.add_stack(frames)
    }

    pub(super) fn freed(&self, addr: usize) {
        self.0.freed(addr);
    }

    pub(super) fn used(&self, addr: usize, stream: usize) {
        self.0.used(addr, stream);
    }

    pub(super) fn synchronized(&self, stream: usize, everything: bool) {
        self.0.synchronized((!everything).then_some(stream));
    }

    pub(super) fn emptied(&self, device: i32) {
        self.0.emptied(device);
    }

    pub(super) fn mark(&self, label: &str) {
        self.0.mark(label);
    }

    pub(super) fn finish(&self) -> Result<u64, RecordError> {
        self.0.finish()
    }
}
