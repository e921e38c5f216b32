//! Prints the real time, in nanoseconds, that the simulator itself takes for
//! the calls a program makes most.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use ascendcl::ffi::device::aclrtSetDevice;
use ascendcl::ffi::event::{aclrtCreateEventExWithFlag, aclrtQueryEventStatus, aclrtRecordEvent};
use ascendcl::ffi::memory::{aclrtFree, aclrtMallocAlign32};
use ascendcl::ffi::operator::{aclrtLaunchKernel, cannSimOpLaunch};
use ascendcl::ffi::stream::aclrtCreateStream;

const ROUNDS: u32 = 20_000;
const BATCHES: u32 = 30;

/// The mean of the fastest of many batches, so that other load on the machine
/// does not count.
fn time(what: &str, mut call: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    println!("{what:<42} {best:>7.0} ns");
}

fn main() {
    assert_eq!(aclrtSetDevice(0), 0);
    let (mut stream, mut event) = (null_mut::<c_void>(), null_mut::<c_void>());
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    assert_eq!(aclrtCreateEventExWithFlag(&mut event, 1), 0);
    let mut held = Vec::new();
    for size in [1 << 10, 20 << 20] {
        for _ in 0..500 {
            let mut pointer = null_mut();
            assert_eq!(aclrtMallocAlign32(&mut pointer, size, 0), 0);
            held.push(pointer);
        }
    }
    for pointer in held.iter().step_by(3) {
        assert_eq!(aclrtFree(*pointer), 0);
    }
    for size in [1 << 10, 20 << 20] {
        time(&format!("malloc and free of {size} bytes"), || {
            let mut pointer = null_mut();
            black_box(aclrtMallocAlign32(&mut pointer, size, 0));
            black_box(aclrtFree(pointer));
        });
    }
    time("kernel launch", || {
        black_box(aclrtLaunchKernel(event, 1, null_mut(), 0, stream));
    });
    time("second phase of an operator", || {
        black_box(cannSimOpLaunch(
            null_mut(),
            0,
            null_mut(),
            stream,
            c"aclnnAdd".as_ptr(),
        ));
    });
    time("event record", || {
        black_box(aclrtRecordEvent(event, stream));
    });
    let mut status = 0;
    time("event query", || {
        black_box(aclrtQueryEventStatus(event, &mut status));
    });
}
