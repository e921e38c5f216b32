//! Which functions of the host a call waits for. Source: reference 10,
//! aclrtLaunchHostFunc: the function comes in the order of its stream.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ascendcl::ffi::control::cannSimAdvance;
use ascendcl::ffi::device::{aclrtResetDevice, aclrtSetDevice, aclrtSynchronizeDevice};
use ascendcl::ffi::event::{
    aclrtCreateEventExWithFlag, aclrtDestroyEvent, aclrtRecordEvent, aclrtSynchronizeEvent,
};
use ascendcl::ffi::stream::{
    aclrtCreateStream, aclrtDestroyStream, aclrtLaunchHostFunc, aclrtStreamWaitEvent,
    aclrtSynchronizeStream,
};
use parking_lot::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(aclrtSetDevice(0), 0);
    guard
}

fn stream() -> *mut c_void {
    let mut stream = null_mut();
    assert_eq!(aclrtCreateStream(&mut stream), 0);
    stream
}

fn event() -> *mut c_void {
    let mut event = null_mut();
    assert_eq!(aclrtCreateEventExWithFlag(&mut event, 1), 0);
    event
}

#[test]
fn a_wait_is_not_for_functions_of_other_streams() {
    extern "C" fn wait(argument: *mut c_void) {
        // SAFETY: the test passes a receiver that outlives the stream.
        let receiver = unsafe { &*argument.cast::<Receiver<()>>() };
        let _ = receiver.recv_timeout(Duration::from_secs(30));
    }
    let _turn = turn();
    let (sender, mut receiver) = channel::<()>();
    let (busy, idle, event) = (stream(), stream(), event());
    let argument = (&raw mut receiver).cast();
    assert_eq!(aclrtLaunchHostFunc(busy, Some(wait), argument), 0);
    assert_eq!(cannSimAdvance(1_000_000), 0);
    let begin = Instant::now();
    assert_eq!(aclrtSynchronizeStream(idle), 0);
    assert_eq!(aclrtRecordEvent(event, idle), 0);
    assert_eq!(aclrtSynchronizeEvent(event), 0);
    assert_eq!(aclrtSetDevice(1), 0);
    assert_eq!(aclrtSynchronizeDevice(), 0);
    assert_eq!(aclrtResetDevice(1), 0);
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(aclrtSetDevice(0), 0);
    sender.send(()).unwrap();
    assert_eq!(aclrtSynchronizeStream(busy), 0);
    assert_eq!((aclrtDestroyStream(busy), aclrtDestroyStream(idle)), (0, 0));
    assert_eq!(aclrtDestroyEvent(event), 0);
}

/// Its own, those of streams whose events it waited for, and all of a device.
#[test]
fn a_wait_is_for_the_functions_that_come_before() {
    static DONE: AtomicBool = AtomicBool::new(false);
    extern "C" fn late(_: *mut c_void) {
        std::thread::sleep(Duration::from_millis(200));
        DONE.store(true, Ordering::Release);
    }
    let _turn = turn();
    let (first, second, third) = (stream(), stream(), stream());
    let (one, two) = (event(), event());
    let synchronised: [&dyn Fn() -> i32; 5] = [
        &|| aclrtSynchronizeStream(first),
        &|| aclrtSynchronizeEvent(one),
        &|| aclrtSynchronizeStream(third),
        &|| aclrtSynchronizeEvent(two),
        &|| aclrtSynchronizeDevice(),
    ];
    for (index, synchronise) in synchronised.into_iter().enumerate() {
        DONE.store(false, Ordering::Release);
        assert_eq!(aclrtLaunchHostFunc(first, Some(late), null_mut()), 0);
        assert_eq!(aclrtRecordEvent(one, first), 0);
        assert_eq!(aclrtStreamWaitEvent(second, one), 0);
        assert_eq!(aclrtRecordEvent(two, second), 0);
        assert_eq!(aclrtStreamWaitEvent(third, two), 0);
        assert_eq!(synchronise(), 0);
        assert!(DONE.load(Ordering::Acquire), "{index}");
    }
    assert_eq!((aclrtDestroyEvent(one), aclrtDestroyEvent(two)), (0, 0));
    for stream in [first, second, third] {
        assert_eq!(aclrtDestroyStream(stream), 0);
    }
}
