//! The second phase of operators: what an executor stands for, and how often. Source:
//! the reference of the two-phase interface: an executor that was not made
//! repeatable is gone once it was launched.

use std::ffi::c_void;
use std::ptr::null_mut;

use ascendcl::ffi::control::{Stats, cannSimGetStats, cannSimResetStats, cannSimSetFaults};
use ascendcl::ffi::device::{aclrtSetDevice, aclrtSynchronizeDevice};
use ascendcl::ffi::memory::{aclrtFree, aclrtMallocAlign32};
use ascendcl::ffi::operator::cannSimOpLaunch;
use ascendcl::ops::objects::{Prepared, Tensor, objects};
use parking_lot::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(cannSimSetFaults(c"".as_ptr()), 0);
    assert_eq!(aclrtSetDevice(0), 0);
    assert_eq!(cannSimResetStats(0), 0);
    guard
}

fn counts() -> (u64, u64) {
    let mut stats = Stats::default();
    assert_eq!(cannSimGetStats(0, &mut stats), 0);
    (stats.tasks, stats.hazards)
}

fn malloc(size: usize) -> *mut c_void {
    let mut pointer = null_mut();
    assert_eq!(aclrtMallocAlign32(&mut pointer, size, 0), 0);
    pointer
}

fn tensor(data: *mut c_void, dtype: i32, offset: i64, count: i64) -> Tensor {
    Tensor {
        data: data as u64,
        dtype,
        dims: vec![count],
        strides: vec![1],
        offset,
    }
}

/// The executor of an operator on one tensor.
fn executor(tensor: &Tensor) -> *mut c_void {
    let prepared = Prepared {
        accesses: tensor.access().into_iter().collect(),
        kernel: None,
    };
    objects().executors.insert(prepared) as *mut c_void
}

fn launch(executor: *mut c_void) -> i32 {
    cannSimOpLaunch(null_mut(), 0, executor, null_mut(), c"aclnnRelu".as_ptr())
}

#[test]
fn an_executor_is_launched_once() {
    let _turn = turn();
    let memory = malloc(4 * MIB);
    let executor = executor(&tensor(memory, 0, 0, 64));
    assert_eq!(launch(executor), 0);
    assert_eq!(aclrtSynchronizeDevice(), 0);
    assert_ne!(launch(executor), 0, "gone");
    assert_eq!((counts(), aclrtFree(memory)), ((1, 0), 0));
    assert_ne!(launch(0x1234 as *mut c_void), 0, "none that was given out");
    assert_eq!(
        launch(null_mut()),
        0,
        "an operator whose arguments have no known end"
    );
    assert_eq!(aclrtSynchronizeDevice(), 0);
}

#[test]
fn an_executor_whose_launch_failed_is_still_there() {
    let _turn = turn();
    let memory = malloc(4 * MIB);
    let executor = executor(&tensor(memory, 0, 0, 64));
    assert_eq!(cannSimSetFaults(c"launch:nth=1,code=507899".as_ptr()), 0);
    assert_eq!(launch(executor), 507899);
    assert_eq!(launch(executor), 0);
    assert_eq!(aclrtFree(memory), 0);
    assert_eq!(counts(), (1, 1), "freed under the operator's work");
    assert_eq!(aclrtSynchronizeDevice(), 0);
}

/// Elements of less than a byte lie side by side: `ACL_INT4`, `ACL_UINT1`,
/// `ACL_FLOAT6_*`, `ACL_FLOAT4_*`.
#[test]
fn elements_of_less_than_a_byte_touch_memory() {
    let _turn = turn();
    for (dtype, bits) in [(29, 4u64), (30, 1), (38, 6), (39, 6), (40, 4), (41, 4)] {
        let access = tensor(4096 as *mut c_void, dtype, 8, 3).access().unwrap();
        let (addr, len) = (4096 + bits, (3 * bits).div_ceil(8));
        assert_eq!((access.addr, access.len), (addr, len), "{dtype}");
        let odd = tensor(4096 as *mut c_void, dtype, 9, 8).access().unwrap();
        let (first, end) = (9 * bits / 8, (17 * bits).div_ceil(8));
        assert_eq!((odd.addr, odd.len), (4096 + first, end - first), "{dtype}");
    }
    let memory = malloc(4 * MIB);
    assert_eq!(launch(executor(&tensor(memory, 29, 0, 64))), 0);
    assert_eq!(aclrtFree(memory), 0);
    assert_eq!(counts(), (1, 1));
    assert_eq!(aclrtSynchronizeDevice(), 0);
}
