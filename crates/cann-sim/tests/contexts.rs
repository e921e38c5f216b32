//! A stream belongs to its device's context, and a thread works on streams of its
//! own context only. Source: the runtime's `api_impl.cc`, where what puts work on a
//! stream or takes it away compares its context with the thread's
//! (`RT_ERROR_STREAM_CONTEXT`), and what waits for it or asks for its state does not.

use std::ffi::c_void;
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::capture::{aclmdlRICaptureBegin, aclmdlRICaptureGetInfo};
use ascendcl::ffi::control::cannSimLaunch;
use ascendcl::ffi::copy::{aclrtMemcpyAsync, aclrtMemsetAsync};
use ascendcl::ffi::device::{
    aclrtCreateContext, aclrtDestroyContext, aclrtGetCurrentContext, aclrtGetDevice,
    aclrtSetCurrentContext, aclrtSetDevice,
};
use ascendcl::ffi::event::{
    aclrtCreateEvent, aclrtDestroyEvent, aclrtRecordEvent, aclrtResetEvent,
};
use ascendcl::ffi::memory::{aclrtFree, aclrtMalloc};
use ascendcl::ffi::operator::aclrtLaunchKernel;
use ascendcl::ffi::stream::{
    aclrtCreateStream, aclrtDestroyStream, aclrtDestroyStreamForce, aclrtGetStreamId,
    aclrtLaunchHostFunc, aclrtStreamAbort, aclrtStreamGetId, aclrtStreamQuery,
    aclrtStreamWaitEvent, aclrtSubscribeReport, aclrtSynchronizeStream,
    aclrtSynchronizeStreamWithTimeout, aclrtUnSubscribeReport, aclrtValueWait, aclrtValueWrite,
};

/// What a test works with: all of device 0.
#[derive(Clone, Copy)]
struct Things {
    stream: usize,
    event: usize,
    memory: usize,
}

impl Things {
    fn new() -> Self {
        assert_eq!(aclrtSetDevice(0), 0);
        let (mut stream, mut event, mut memory) = (null_mut(), null_mut(), null_mut());
        assert_eq!(aclrtCreateStream(&mut stream), 0);
        assert_eq!(aclrtCreateEvent(&mut event), 0);
        assert_eq!(aclrtMalloc(&mut memory, 4096, 0), 0);
        assert_eq!(aclrtRecordEvent(event, stream), 0);
        Things {
            stream: stream as usize,
            event: event as usize,
            memory: memory as usize,
        }
    }

    fn stream(self) -> *mut c_void {
        self.stream as *mut c_void
    }

    fn drop(self) {
        assert_eq!(aclrtSetDevice(0), 0);
        assert_eq!(aclrtFree(self.memory as *mut c_void), 0);
        assert_eq!(aclrtDestroyEvent(self.event as *mut c_void), 0);
        assert_eq!(aclrtDestroyStream(self.stream()), 0);
    }

    /// Everything that works on a stream, with the code it gives.
    fn work(self) -> Vec<(&'static str, aclError)> {
        extern "C" fn nothing(_: *mut c_void) {}
        let stream = self.stream();
        let (event, memory) = (self.event as *mut c_void, self.memory as *mut c_void);
        let other = memory.wrapping_byte_add(64);
        vec![
            ("record", aclrtRecordEvent(event, stream)),
            ("wait", aclrtStreamWaitEvent(stream, event)),
            ("reset", aclrtResetEvent(event, stream)),
            ("fill", aclrtMemsetAsync(memory, 64, 0, 64, stream)),
            ("copy", aclrtMemcpyAsync(other, 64, memory, 64, 3, stream)),
            ("write", aclrtValueWrite(memory, 0, 0, stream)),
            ("wait value", aclrtValueWait(memory, 0, 0, stream)),
            (
                "kernel",
                aclrtLaunchKernel(null_mut(), 1, null_mut(), 0, stream),
            ),
            ("range", cannSimLaunch(stream, memory as u64, 64)),
            (
                "function",
                aclrtLaunchHostFunc(stream, Some(nothing), null_mut()),
            ),
            ("abort", aclrtStreamAbort(stream)),
        ]
    }

    /// Everything that takes a stream away or captures it.
    fn ends(self) -> Vec<(&'static str, aclError)> {
        let stream = self.stream();
        vec![
            ("capture", aclmdlRICaptureBegin(stream, 0)),
            ("destroy", aclrtDestroyStream(stream)),
            ("force", aclrtDestroyStreamForce(stream)),
        ]
    }

    /// Everything that waits for a stream or asks for its work.
    fn waits(self) -> Vec<(&'static str, aclError)> {
        let stream = self.stream();
        vec![
            ("synchronize", aclrtSynchronizeStream(stream)),
            ("in time", aclrtSynchronizeStreamWithTimeout(stream, 1000)),
            ("query", aclrtStreamQuery(stream, &mut 0)),
        ]
    }

    /// Everything that names a stream and needs no context.
    fn names(self) -> Vec<(&'static str, aclError)> {
        let stream = self.stream();
        vec![
            ("number", aclrtStreamGetId(stream, &mut 0)),
            ("its older name", aclrtGetStreamId(stream, &mut 0)),
            (
                "capture's state",
                aclmdlRICaptureGetInfo(stream, &mut 0, &mut null_mut()),
            ),
            ("subscribe", aclrtSubscribeReport(1, stream)),
            ("unsubscribe", aclrtUnSubscribeReport(1, stream)),
        ]
    }
}

#[track_caller]
fn all(code: aclError, calls: Vec<(&'static str, aclError)>) {
    for (call, got) in calls {
        assert_eq!(got, code, "{call}");
    }
}

#[test]
fn a_stream_of_another_device_takes_no_work() {
    let things = Things::new();
    all(0, things.work());
    assert_eq!(aclrtSetDevice(1), 0);
    all(ACL_ERROR_RT_STREAM_CONTEXT, things.work());
    all(ACL_ERROR_RT_STREAM_CONTEXT, things.ends());
    all(0, things.waits());
    all(0, things.names());
    things.drop();
}

#[test]
fn a_thread_without_a_device_puts_nothing_on_a_stream() {
    let things = Things::new();
    std::thread::spawn(move || {
        all(ACL_ERROR_RT_CONTEXT_NULL, things.work());
        all(ACL_ERROR_RT_CONTEXT_NULL, things.ends());
        all(ACL_ERROR_RT_CONTEXT_NULL, things.waits());
        all(0, things.names());
    })
    .join()
    .unwrap();
    things.drop();
}

fn current_context() -> *mut c_void {
    let mut context = null_mut();
    assert_eq!(aclrtGetCurrentContext(&mut context), 0);
    context
}

/// `ApiImpl::SetDevice` makes the device's own context current in place of the thread's,
/// `ApiImpl::ContextSetCurrent` brings that one back.
#[test]
fn choosing_a_device_takes_a_context_of_the_program_s_away() {
    assert_eq!(aclrtSetDevice(0), 0);
    let first = current_context();
    let mut own = null_mut();
    assert_eq!(aclrtCreateContext(&mut own, 0), 0);
    assert_eq!((current_context(), own != first), (own, true));
    assert_eq!(aclrtSetDevice(1), 0);
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(current_context(), first);
    assert_eq!(aclrtSetDevice(1), 0);
    assert_eq!(aclrtSetCurrentContext(own), 0);
    let mut device = -1;
    assert_eq!((aclrtGetDevice(&mut device), device), (0, 0));
    assert_eq!(current_context(), own);
    assert_eq!(aclrtDestroyContext(own), 0);
    assert_eq!(aclrtSetCurrentContext(own), ACL_ERROR_RT_CONTEXT_NULL);
    assert_eq!(aclrtSetCurrentContext(first), 0);
}
