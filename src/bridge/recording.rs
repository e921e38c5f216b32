//! A recording as C++ holds it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::allocator::Allocator;
use super::ffi::{MempoolId as PoolId, RecordedRequest};
use crate::device::DeviceAllocator;
use crate::ids::MempoolId;
use crate::record::{self, RecordError};

/// See the bridge's declarations.
pub struct Recorder {
    recorder: record::Recorder,
    path: PathBuf,
    /// A call panicked (a bug): the recorder may be half changed, and records nothing more.
    broken: AtomicBool,
}

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
    Ok(Box::new(Recorder::new(recorder, path)))
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
    fn new(recorder: record::Recorder, path: PathBuf) -> Self {
        Self {
            recorder,
            path,
            broken: AtomicBool::new(false),
        }
    }

    /// Runs `call`, unless one panicked before; a panic ends here. Rust's own message of it is on standard error.
    fn note<T: Default>(&self, call: impl FnOnce(&record::Recorder) -> T) -> T {
        if self.broken.load(Ordering::Relaxed) {
            return T::default();
        }
        catch_unwind(AssertUnwindSafe(|| call(&self.recorder))).unwrap_or_else(|_| {
            self.broken.store(true, Ordering::Relaxed);
            T::default()
        })
    }

    pub(super) fn allocated(&self, allocator: &Allocator, addr: usize, request: &RecordedRequest) {
        let capacity = || capacity(allocator, request.device);
        let request = record::Request {
            device: request.device,
            bytes: request.bytes,
            stream: request.stream,
            pool: (request.pool.first, request.pool.second),
            stack: request.stack,
        };
        self.note(|recorder| {
            if addr == 0 {
                recorder.failed(&request, capacity);
            } else {
                recorder.allocated(addr, &request, capacity);
            }
        });
    }

    pub(super) fn add_stack(&self, frames: &str) -> u32 {
        self.note(|recorder| recorder.add_stack(frames))
    }

    pub(super) fn freed(&self, addr: usize) {
        self.note(|recorder| recorder.freed(addr));
    }

    pub(super) fn used(&self, addr: usize, stream: usize) {
        self.note(|recorder| recorder.used(addr, stream));
    }

    pub(super) fn stream_waited(&self, stream: usize) {
        self.note(|recorder| recorder.stream_waited(stream));
    }

    pub(super) fn device_waited(&self, device: i32) {
        self.note(|recorder| recorder.device_waited(device));
    }

    pub(super) fn event_recorded(&self, event: usize, stream: usize) {
        self.note(|recorder| recorder.event_recorded(event, stream));
    }

    pub(super) fn event_waited(&self, event: usize) {
        self.note(|recorder| recorder.event_waited(event));
    }

    pub(super) fn pool_released(&self, device: i32, pool: PoolId) {
        self.note(|recorder| recorder.pool_released(device, (pool.first, pool.second)));
    }

    pub(super) fn emptied(&self, device: i32) {
        self.note(|recorder| recorder.emptied(device));
    }

    pub(super) fn mark(&self, label: &str) -> bool {
        self.note(|recorder| recorder.mark(label))
    }

    pub(super) fn finish(&self) -> Result<u64, RecordError> {
        let finished = catch_unwind(AssertUnwindSafe(|| self.recorder.finish())).ok();
        let finished = finished.filter(|_| !self.broken.load(Ordering::Relaxed));
        finished.unwrap_or_else(|| {
            Err(RecordError {
                path: self.path.clone(),
                source: io::Error::other("an internal error (a panic) ended the recording"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_panic_ends_the_recording_and_nothing_else() {
        let path =
            std::env::temp_dir().join(format!("npualloc-panic-{}.trace", std::process::id()));
        let inner = record::Recorder::start(&path, 0, 1 << 30).expect("a file");
        let recorder = Recorder::new(inner, path.clone());
        assert!(recorder.mark("before"));
        recorder.note(|_| -> () { panic!("a bug") });
        assert!(!recorder.mark("after"));
        recorder.freed(4096);
        let failure = recorder.finish().expect_err("it is incomplete").to_string();
        assert!(failure.contains("panic-") && failure.ends_with("ended the recording"));
        let mut text = String::new();
        let file = std::fs::File::open(&path).expect("it was written");
        let mut file = flate2::read::MultiGzDecoder::new(file);
        file.read_to_string(&mut text).expect("readable");
        assert!(text.contains("before") && !text.contains("after"));
        std::fs::remove_file(&path).expect("it is there");
    }
}
