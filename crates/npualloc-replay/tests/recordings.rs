//! What the recorder writes, read back.

use std::path::{Path, PathBuf};
use std::process::Command;

use npualloc::record::{Recorder, Request};
use npualloc_replay::trace::Trace;

fn request(bytes: usize) -> Request {
    Request {
        device: 0,
        bytes,
        stream: 7,
        pool: (0, 0),
        stack: 0,
    }
}

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}_{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_failed_request_is_read_as_one_whatever_its_size() {
    let place = Place::new("failed");
    let path = place.0.join("t.gz");
    let recorder = Recorder::start(&path, 0, 1 << 36).expect("started");
    let stack = recorder.add_stack("f a.py:1");
    recorder.allocated(0x1000, &request(512), || 0);
    for bytes in [1 << 40, 1 << 60, usize::MAX] {
        let pool = (0, bytes as u64);
        recorder.failed(
            &Request {
                stack,
                pool,
                ..request(bytes)
            },
            || 0,
        );
    }
    recorder.allocated(0x2000, &request(100), || 0);
    recorder.finish().expect("written");
    let trace = Trace::read(&path).expect("a good trace");
    assert_eq!(
        (trace.failed.as_slice(), trace.peak_live),
        ([1, 2, 3].as_slice(), 612)
    );
}

const CHILD: &str = "NPUALLOC_TEST_RECORDING";

/// Sizes that compress badly.
fn pairs(recorder: &Recorder, count: usize) {
    let mut random = 1u64;
    for addr in 1..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        recorder.allocated(addr, &request((random >> 30) as usize), || 0);
        recorder.freed(addr);
    }
}

fn record(path: &Path) {
    let recorder = Recorder::start(path, 0, 0).expect("started");
    pairs(&recorder, 200_000);
    assert!(recorder.finish().is_err());
}

#[test]
fn a_recording_that_is_cut_anywhere_is_read_up_to_there() {
    let place = Place::new("cut");
    let path = place.0.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    pairs(&recorder, 20_000);
    recorder.finish().expect("written");
    let file = std::fs::read(&path).expect("there");
    let whole = Trace::read(&path).expect("a good trace");
    let mut before = 0;
    for end in (100..file.len()).step_by(4999).chain([file.len() - 1]) {
        let trace = Trace::read_from(&path, &file[..end]).expect("a trace");
        let events = trace.events.len();
        assert!(trace.torn && events >= before, "{end}");
        assert_eq!(trace.events, whole.events[..events], "{end}");
        before = events;
    }
    // All of it but the checksum.
    assert_eq!(before, whole.events.len());
}

/// A limit of the process stands for a full disk.
#[test]
fn what_was_written_before_the_disk_was_full_is_readable() {
    if let Some(path) = std::env::var_os(CHILD) {
        return record(Path::new(&path));
    }
    let place = Place::new("full");
    let path = place.0.join("t.gz");
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 600; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "what_was_written_before_the_disk_was_full_is_readable",
            "--nocapture",
        ])
        .env(CHILD, &path)
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("t.gz: File too large"), "{errors}");
    let trace = Trace::read(&path).expect("a good trace");
    assert!(trace.blocks > 10_000, "{} blocks", trace.blocks);
}
