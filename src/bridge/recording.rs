//! A recording as C++ holds it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::allocator::Allocator;
use super::ffi::{MempoolId as PoolId, RecordedRequest};
use crate::device::{DeviceAllocator, SegmentInfo};
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

fn broken(path: &Path) -> RecordError {
    RecordError {
        path: path.to_owned(),
        source: io::Error::other("an internal error (a panic) ended the recording"),
    }
}

/// What is alive already comes first. `device` below 0: the path is that of the device used first.
pub(super) fn start_recording(
    allocator: &Allocator,
    device: i32,
    path: &str,
) -> Result<Box<Recorder>, RecordError> {
    let path = record::expand(path, std::env::var("RANK").ok().as_deref());
    let opened = catch_unwind(AssertUnwindSafe(|| {
        if device < 0 {
            record::Recorder::open(&path)
        } else {
            record::Recorder::start(&path, device, capacity(allocator, device))
        }
    }));
    let recorder = opened.unwrap_or_else(|_| Err(broken(&path)))?;
    let recorder = Recorder::new(recorder, path);
    for device in allocator.registry.devices() {
        // What can't be read of a poisoned device is left out.
        let segments = allocator.catch(|| Ok(device.snapshot(MempoolId::DEFAULT)));
        recorder.note(|recorder| {
            add_live_blocks(recorder, allocator, device, &segments.unwrap_or_default());
        });
    }
    Ok(Box::new(recorder))
}

fn add_live_blocks(
    recorder: &record::Recorder,
    allocator: &Allocator,
    device: &DeviceAllocator,
    segments: &[SegmentInfo],
) {
    let id = device.id().0 as i32;
    for segment in segments {
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
        finished.unwrap_or_else(|| Err(broken(&self.path)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use super::*;
    use crate::config::Settings;
    use crate::driver::fake::FakeDriver;
    use crate::registry::Registry;

    /// The driver panics as it is asked for a device's capacity, be it when the file is made or under the recorder's lock.
    #[test]
    fn a_panic_as_a_recording_begins_ends_it_too() {
        let driver = Arc::new(FakeDriver::new(1 << 30));
        let settings = Settings::parse("").expect("valid");
        let allocator = Allocator::over(Registry::new(driver.clone(), settings, 32));
        assert!(allocator.registry.init(1).is_ok());
        assert_ne!(allocator.allocate(0, 4096, 0), 0);
        let path =
            std::env::temp_dir().join(format!("npualloc-begin-{}.trace", std::process::id()));
        let name = path.to_str().expect("plain");
        for device in [0, -1] {
            driver.meanwhile("memory_info", || panic!("a driver that panics"));
            let begun = start_recording(&allocator, device, name);
            let failure = begun.and_then(|recorder| recorder.finish());
            let failure = failure.expect_err("it is incomplete").to_string();
            assert!(failure.ends_with("ended the recording"), "{failure}");
        }
        assert_ne!(allocator.allocate(0, 4096, 0), 0);
        std::fs::remove_file(&path).expect("it was written");
    }

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
