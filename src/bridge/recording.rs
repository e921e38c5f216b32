//! A recording as C++ holds it.

use super::allocator::Allocator;
use super::ffi::{MempoolId as PoolId, RecordedRequest};
use crate::device::DeviceAllocator;
use crate::ids::MempoolId;
use crate::record::{self, RecordError};

/// See the bridge's declarations.
pub struct Recorder(record::Recorder);

fn capacity(allocator: &Allocator, device: i32) -> u64 {
    let device = allocator.registry.device(device);
    device.map_or(0, |device| device.capacity() as u64)
}

/// What is alive already comes first. `device` below 0: the path is that of the device used first.
pub(super) fn start_recording(
    allocator: &Allocator,
    device: i32,
    path: &str,
) -> Result<Box<Recorder>, RecordError> {
    let path = record::expand(path, std::env::var("RANK").ok().as_deref());
    let recorder = if device < 0 {
        record::Recorder::open(&path)?
    } else {
        record::Recorder::start(&path, device, capacity(allocator, device))?
    };
    for device in allocator.registry.devices() {
        // What can't be read of a poisoned device is left out.
        let _ = allocator.catch(|| {
            add_live_blocks(&recorder, allocator, device);
            Ok(())
        });
    }
    Ok(Box::new(Recorder(recorder)))
}

fn add_live_blocks(recorder: &record::Recorder, allocator: &Allocator, device: &DeviceAllocator) {
    let id = device.id().0 as i32;
    for segment in device.snapshot(MempoolId::DEFAULT) {
        let mut addr = segment.addr;
        for block in &segment.blocks {
            if block.allocated {
                let request = record::Request {
                    device: id,
                    bytes: block.requested,
                    stream: segment.stream.0,
                    pool: (segment.pool.first, segment.pool.second),
                    stack: 0,
                };
                recorder.allocated(addr, &request, || capacity(allocator, id));
            }
            addr += block.size;
        }
    }
}

impl Recorder {
    pub(super) fn allocated(&self, allocator: &Allocator, addr: usize, request: &RecordedRequest) {
        let capacity = || capacity(allocator, request.device);
        let request = record::Request {
            device: request.device,
            bytes: request.bytes,
            stream: request.stream,
            pool: (request.pool.first, request.pool.second),
            stack: request.stack,
        };
        if addr == 0 {
            self.0.failed(&request, capacity);
        } else {
            self.0.allocated(addr, &request, capacity);
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

    pub(super) fn stream_waited(&self, stream: usize) {
        self.0.stream_waited(stream);
    }

    pub(super) fn device_waited(&self, device: i32) {
        self.0.device_waited(device);
    }

    pub(super) fn event_recorded(&self, event: usize, stream: usize) {
        self.0.event_recorded(event, stream);
    }

    pub(super) fn event_waited(&self, event: usize) {
        self.0.event_waited(event);
    }

    pub(super) fn pool_released(&self, device: i32, pool: PoolId) {
        self.0.pool_released(device, (pool.first, pool.second));
    }

    pub(super) fn emptied(&self, device: i32) {
        self.0.emptied(device);
    }

    pub(super) fn mark(&self, label: &str) -> bool {
        self.0.mark(label)
    }

    pub(super) fn finish(&self) -> Result<u64, RecordError> {
        self.0.finish()
    }
}
