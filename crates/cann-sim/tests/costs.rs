//! What exported calls cost on the virtual clock, and which of them a fault
//! plan picks by size. The costs are those of the table in
//! `docs/run-without-npu.md`.

mod support;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use ascend_rs_sys::*;
use ascendcl::ffi::control::{cannSimNow, cannSimSetFaults};
use ascendcl::ffi::device::aclrtSetDevice;
use ascendcl::ffi::host_memory::{
    aclrtFreeHost, aclrtHostRegisterV2, aclrtHostUnregister, aclrtMallocHost,
};
use ascendcl::ffi::memory::{aclrtFree, aclrtFreeWithDevSync, aclrtMallocAlign32};
use ascendcl::ffi::vmm::{
    aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem, aclrtMemSetAccess, aclrtReleaseMemAddress,
    aclrtReserveMemAddress, aclrtUnmapMem,
};
use parking_lot::{Mutex, MutexGuard};

use support::{HUGE_PAGES, READ_AND_WRITE};

static TURN: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    assert_eq!(cannSimSetFaults(c"".as_ptr()), 0);
    assert_eq!(aclrtSetDevice(0), 0);
    guard
}

/// Name of a call, its code, and what it cost.
type Step = (&'static str, aclError, u64);

/// Makes, uses and takes away memory of every kind, in this order.
fn steps(size: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut timed = |name, call: &mut dyn FnMut() -> aclError| {
        let before = cannSimNow();
        let code = call();
        steps.push((name, code, cannSimNow() - before));
    };
    let mut access = READ_AND_WRITE;
    let (mut plain, mut host) = (null_mut(), null_mut());
    let (mut base, mut handle) = (null_mut::<c_void>(), null_mut());
    let mut own = vec![0u8; size];
    let own = own.as_mut_ptr().cast::<c_void>();
    timed("aclrtMalloc", &mut || {
        aclrtMallocAlign32(&mut plain, size, 0)
    });
    timed("aclrtFree", &mut || aclrtFree(plain));
    timed("aclrtMallocHost", &mut || aclrtMallocHost(&mut host, size));
    timed("aclrtFreeHost", &mut || aclrtFreeHost(host));
    timed("aclrtHostRegister", &mut || {
        aclrtHostRegisterV2(own, size as u64, 0)
    });
    timed("aclrtHostUnregister", &mut || aclrtHostUnregister(own));
    timed("aclrtReserveMemAddress", &mut || {
        aclrtReserveMemAddress(&mut base, size, 0, null_mut(), 1)
    });
    timed("aclrtMallocPhysical", &mut || {
        aclrtMallocPhysical(&mut handle, size, &HUGE_PAGES, 0)
    });
    timed("aclrtMapMem", &mut || aclrtMapMem(base, size, 0, handle, 0));
    timed("aclrtMemSetAccess", &mut || {
        aclrtMemSetAccess(base, size, &mut access, 1)
    });
    timed("aclrtUnmapMem", &mut || aclrtUnmapMem(base));
    timed("aclrtFreePhysical", &mut || aclrtFreePhysical(handle));
    timed("aclrtReleaseMemAddress", &mut || {
        aclrtReleaseMemAddress(base)
    });
    steps
}

/// Base and per page of 2 MiB, as the user's page has them.
#[test]
fn calls_cost_their_base_and_their_pages() {
    let _turn = turn();
    let table = [
        ("aclrtMalloc", 66_000, 300),
        ("aclrtFree", 40_000, 100),
        ("aclrtMallocHost", 50_000, 200),
        ("aclrtFreeHost", 30_000, 100),
        ("aclrtHostRegister", 20_000, 200),
        ("aclrtHostUnregister", 20_000, 100),
        ("aclrtReserveMemAddress", 2_000, 0),
        ("aclrtMallocPhysical", 0, 29_000),
        ("aclrtMapMem", 2_000, 37_000),
        ("aclrtMemSetAccess", 1_000, 36_000),
        ("aclrtUnmapMem", 2_000, 34_000),
        ("aclrtFreePhysical", 0, 24_000),
        ("aclrtReleaseMemAddress", 2_000, 0),
    ];
    for (size, pages) in [(2 * MIB, 1), (20 * MIB, 10)] {
        let expected = table.map(|(name, base, per_page)| (name, 0, base + pages * per_page));
        assert_eq!(steps(size), expected, "{pages} pages");
    }
}

/// Calls that take memory away name it by its address; a plan sees its size.
#[test]
fn a_fault_plan_sees_the_size_of_what_is_taken_away() {
    let _turn = turn();
    for name in [
        "aclrtFree",
        "aclrtFreeHost",
        "aclrtHostUnregister",
        "aclrtUnmapMem",
        "aclrtFreePhysical",
        "aclrtReleaseMemAddress",
    ] {
        let plan = CString::new(format!("{name}:min=4m,times=1,code=207018")).unwrap();
        assert_eq!(cannSimSetFaults(plan.as_ptr()), 0);
        let failed = |size| {
            let failed: Vec<_> = steps(size)
                .into_iter()
                .filter(|(_, code, _)| *code == 207018)
                .map(|(name, ..)| name)
                .collect();
            failed
        };
        assert!(failed(2 * MIB).is_empty(), "{name}: too small");
        assert_eq!(failed(4 * MIB), [name]);
    }
    assert_eq!(cannSimSetFaults(c"".as_ptr()), 0);
}

/// The size does not depend on the variant of the call.
#[test]
fn a_free_that_synchronises_costs_its_pages() {
    let _turn = turn();
    let mut plain = null_mut();
    assert_eq!(aclrtMallocAlign32(&mut plain, 20 * MIB, 0), 0);
    let before = cannSimNow();
    assert_eq!(aclrtFreeWithDevSync(plain), 0);
    assert_eq!(cannSimNow() - before, 41_000);
}
