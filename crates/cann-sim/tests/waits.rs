//! aclrtQueryEventWaitStatus: whether the streams that wait for an event have got
//! past their waits (header acl_rt.h; torch_npu destroys events by it, as
//! `EventManager::QueryAndDestroyEvent` does).

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::control::{cannSimAdvance, cannSimLaunch, cannSimSetKernelTime};
use ascendcl::ffi::device::aclrtSetDevice;
use ascendcl::ffi::event::{
    aclrtCreateEventWithFlag, aclrtDestroyEvent, aclrtQueryEvent, aclrtQueryEventStatus,
    aclrtQueryEventWaitStatus, aclrtRecordEvent,
};
use ascendcl::ffi::memory::{aclrtFree, aclrtMalloc};
use ascendcl::ffi::stream::{
    aclrtCreateStream, aclrtDestroyStream, aclrtStreamAbort, aclrtStreamWaitEvent,
    aclrtSynchronizeStream, aclrtValueWait, aclrtValueWrite,
};
use parking_lot::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

const KERNEL: u64 = 10_000_000;

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(cannSimSetKernelTime(KERNEL), 0);
    guard
}

fn stream() -> *mut c_void {
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    stream
}

fn event() -> *mut c_void {
    let mut event = null_mut();
    assert_eq!(aclrtCreateEventWithFlag(&mut event, ACL_EVENT_SYNC), 0);
    event
}

/// Whether the event is recorded, and whether all have waited for it.
fn status(event: *mut c_void) -> (bool, bool) {
    let (mut recorded, mut older, mut waited) = (9, 9, 9);
    assert_eq!(aclrtQueryEventStatus(event, &mut recorded), 0);
    assert_eq!(aclrtQueryEvent(event, &mut older), 0);
    assert_eq!(aclrtQueryEventWaitStatus(event, &mut waited), 0);
    let recorded = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE;
    assert_eq!(older == 0, recorded);
    (recorded, waited == ACL_EVENT_WAIT_STATUS_COMPLETE)
}

#[test]
fn a_stream_gets_to_its_wait_after_the_record() {
    let _turn = turn();
    let (one, two, event) = (stream(), stream(), event());
    assert_eq!(cannSimLaunch(one, 0, 0), 0);
    assert_eq!(aclrtRecordEvent(event, one), 0);
    for _ in 0..4 {
        assert_eq!(cannSimLaunch(two, 0, 0), 0);
    }
    assert_eq!(aclrtStreamWaitEvent(two, event), 0);
    assert_eq!(status(event), (false, false));
    assert_eq!(cannSimAdvance(2 * KERNEL), 0);
    assert_eq!(status(event), (true, false));
    assert_eq!(cannSimAdvance(2 * KERNEL), 0);
    assert_eq!(status(event), (true, true));
    assert_eq!((aclrtDestroyStream(one), aclrtDestroyStream(two)), (0, 0));
    assert_eq!(aclrtDestroyEvent(event), 0);
}

/// A stream that waits for a value comes to the wait for the event when that is
/// there, or never if it is aborted.
#[test]
fn a_wait_behind_another_is_not_over_before_it() {
    let _turn = turn();
    let (one, two, writer, event) = (stream(), stream(), stream(), event());
    let mut flag = null_mut();
    assert_eq!(aclrtMalloc(&mut flag, 64, 0), 0);
    for aborted in [false, true] {
        assert_eq!(aclrtValueWrite(flag, 0, 0, writer), 0);
        assert_eq!(aclrtSynchronizeStream(writer), 0);
        assert_eq!(aclrtRecordEvent(event, one), 0);
        assert_eq!(aclrtValueWait(flag, 1, ACL_STREAM_WAIT_VALUE_EQ, two), 0);
        assert_eq!(aclrtStreamWaitEvent(two, event), 0);
        assert_eq!(cannSimAdvance(KERNEL), 0);
        assert_eq!(status(event), (true, false));
        if aborted {
            assert_eq!(aclrtStreamAbort(two), 0);
        } else {
            assert_eq!(aclrtValueWrite(flag, 1, 0, writer), 0);
            assert_eq!(aclrtSynchronizeStream(two), 0);
        }
        assert_eq!(status(event), (true, true), "aborted: {aborted}");
    }
    for stream in [one, two, writer] {
        assert_eq!(aclrtDestroyStream(stream), 0);
    }
    assert_eq!((aclrtDestroyEvent(event), aclrtFree(flag)), (0, 0));
}
