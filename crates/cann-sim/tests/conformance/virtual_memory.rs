//! Virtual memory. Source of all rules: reference 11-04, the function named,
//! and the runtime's table of driver errors (`common/errcode_manage.cc`).

use ascend_rs_sys::{
    ACL_ERROR_RT_DRV_INTERNAL_ERROR as REFUSED, ACL_ERROR_RT_MEMORY_ALLOCATION,
    ACL_ERROR_RT_PARAM_INVALID as INVALID,
};
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::memory::Pages;
use ascendcl::model::sim::Sim;
use ascendcl::model::vmm::{Place, WINDOW_BASE};

use super::{GIB, MIB, code, hazards, kernel, machine};

const PAGE: u64 = 2 * MIB;

fn handle(sim: &mut Sim, device: u32, len: u64) -> u64 {
    sim.malloc_physical(Place::Device(device), len, Pages::Huge, 4)
        .unwrap()
}

/// aclrtReserveMemAddress: size not 0, alignment 0; svm/v2 of the driver: at
/// most 128 GiB at once.
#[test]
fn reservations_have_limits() {
    let mut sim = machine();
    assert_eq!(code(sim.vmm.reserve(0, 0, 0, 0)), INVALID);
    assert_eq!(code(sim.vmm.reserve(PAGE, PAGE, 0, 0)), INVALID);
    assert_eq!(code(sim.vmm.reserve(PAGE, 0, 0, 2)), INVALID);
    assert_eq!(code(sim.vmm.reserve(128 * GIB + 1, 0, 0, 1)), INVALID);
    assert!(sim.vmm.reserve(128 * GIB, 0, 0, 1).is_ok());
}

/// aclrtReserveMemAddress: the window is 16 TiB to 24 TiB. Driver, svm/v2 `ptr_to_errcode` and svm/v3 `mga.c`: what
/// does not fit in is "out of memory".
#[test]
fn the_window_of_addresses_ends() {
    let mut sim = machine();
    let all: Vec<u64> = (0..64)
        .map(|_| sim.vmm.reserve(128 * GIB, 0, 0, 1).unwrap())
        .collect();
    assert!(
        all.iter()
            .all(|addr| (WINDOW_BASE..WINDOW_BASE + (8 << 40)).contains(addr))
    );
    let more = code(sim.vmm.reserve(PAGE, 0, 0, 1));
    assert_eq!(more, ACL_ERROR_RT_MEMORY_ALLOCATION);
    sim.vmm.release(all[7]).unwrap();
    assert_eq!(sim.vmm.reserve(PAGE, 0, 0, 1), Ok(all[7]));
}

/// aclrtReserveMemAddress, expectPtr: aligned, in the window, not taken.
#[test]
fn an_expected_address_is_honoured_or_refused() {
    let mut sim = machine();
    let wanted = WINDOW_BASE + 4 * GIB;
    assert_eq!(sim.vmm.reserve(4 * MIB, 0, wanted, 0), Ok(wanted));
    assert_eq!(
        code(sim.vmm.reserve(4 * MIB, 0, wanted, 0)),
        INVALID,
        "taken"
    );
    assert_eq!(
        code(sim.vmm.reserve(4 * MIB, 0, wanted + PAGE, 0)),
        INVALID,
        "not aligned"
    );
    assert_eq!(
        code(sim.vmm.reserve(4 * MIB, 0, 1 << 40, 0)),
        INVALID,
        "outside"
    );
}

/// aclrtMallocPhysical: a multiple of the granularity; counts against capacity.
#[test]
fn physical_memory_is_granular_and_limited() {
    let mut sim = machine();
    let device = Place::Device(0);
    assert_eq!(
        code(sim.malloc_physical(device, MIB, Pages::Huge, 4)),
        INVALID
    );
    assert_eq!(
        code(sim.malloc_physical(device, 0, Pages::Huge, 4)),
        INVALID
    );
    let all = handle(&mut sim, 0, GIB);
    let more = sim.malloc_physical(device, PAGE, Pages::Huge, 4);
    assert_eq!(code(more), ACL_ERROR_RT_MEMORY_ALLOCATION);
    sim.free_physical(all).unwrap();
    assert_eq!(sim.devices[0].used, 0);
    assert_eq!(code(sim.free_physical(all)), INVALID, "freed twice");
}

/// aclrtMapMem: offset 0, flags 0, size equal to the handle's, address a
/// multiple of the granularity and reserved.
#[test]
fn only_whole_handles_are_mapped_on_reserved_pages() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let two = handle(&mut sim, 0, 2 * PAGE);
    assert_eq!(
        code(sim.map(base, PAGE, 0, two, 0)),
        INVALID,
        "part of a handle"
    );
    assert_eq!(
        code(sim.map(base, 2 * PAGE, PAGE, two, 0)),
        INVALID,
        "offset"
    );
    assert_eq!(code(sim.map(base, 2 * PAGE, 0, two, 1)), INVALID, "flags");
    assert_eq!(
        code(sim.map(base + MIB, 2 * PAGE, 0, two, 0)),
        INVALID,
        "misaligned"
    );
    assert_eq!(
        code(sim.map(base + 3 * PAGE, 2 * PAGE, 0, two, 0)),
        INVALID,
        "past the end"
    );
    assert_eq!(
        code(sim.map(base + 64 * GIB, 2 * PAGE, 0, two, 0)),
        INVALID,
        "not reserved"
    );
    assert_eq!(
        code(sim.map(base, 2 * PAGE, 0, 12345, 0)),
        INVALID,
        "no handle"
    );
    sim.map(base + PAGE, 2 * PAGE, 0, two, 0).unwrap();
}

/// aclrtMapMem: a range is mapped once.
#[test]
fn a_range_cannot_be_mapped_twice() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let (first, second) = (handle(&mut sim, 0, 2 * PAGE), handle(&mut sim, 0, 2 * PAGE));
    sim.map(base, 2 * PAGE, 0, first, 0).unwrap();
    assert_eq!(code(sim.map(base + PAGE, 2 * PAGE, 0, second, 0)), REFUSED);
    sim.unmap(base).unwrap();
    sim.map(base + PAGE, 2 * PAGE, 0, second, 0).unwrap();
}

/// aclrtMapMem: one reservation binds neither two devices nor local and
/// imported handles at a time. Driver, svm/v2 `devmm_ioctl_mem_unmap`: the device
/// stays settled when nothing is mapped any more.
#[test]
fn a_reservation_is_bound_to_one_device_and_one_origin() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let (here, there) = (handle(&mut sim, 0, PAGE), handle(&mut sim, 1, PAGE));
    let imported = sim.import_physical(0, PAGE, 4, None).unwrap();
    sim.map(base, PAGE, 0, here, 0).unwrap();
    assert_eq!(code(sim.map(base + PAGE, PAGE, 0, there, 0)), INVALID);
    assert_eq!(code(sim.map(base + PAGE, PAGE, 0, imported, 0)), INVALID);
    sim.unmap(base).unwrap();
    assert_eq!(code(sim.map(base + PAGE, PAGE, 0, there, 0)), INVALID);
    sim.map(base + PAGE, PAGE, 0, imported, 0).unwrap();
    sim.unmap(base + PAGE).unwrap();
    sim.vmm.release(base).unwrap();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    sim.map(base + PAGE, PAGE, 0, there, 0).unwrap();
}

/// aclrtMapMem twice with one handle: memory is counted once.
#[test]
fn a_handle_at_two_addresses_takes_memory_once() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let page = handle(&mut sim, 0, PAGE);
    sim.map(base, PAGE, 0, page, 0).unwrap();
    sim.map(base + PAGE, PAGE, 0, page, 0).unwrap();
    assert_eq!(sim.devices[0].used, PAGE);
    sim.free_physical(page).unwrap();
    sim.unmap(base).unwrap();
    assert_eq!(sim.devices[0].used, PAGE, "the other mapping keeps it");
    sim.unmap(base + PAGE).unwrap();
    assert_eq!(sim.devices[0].used, 0);
}

/// aclrtUnmapMem: takes a mapping's start and undoes the whole of it.
#[test]
fn unmap_takes_the_start_of_a_mapping() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let two = handle(&mut sim, 0, 2 * PAGE);
    assert_eq!(code(sim.unmap(base)), INVALID, "nothing mapped");
    sim.map(base, 2 * PAGE, 0, two, 0).unwrap();
    assert_eq!(code(sim.unmap(base + PAGE)), INVALID, "inside a mapping");
    sim.unmap(base).unwrap();
    assert_eq!(code(sim.unmap(base)), INVALID, "twice");
}

/// aclrtFreePhysical: "only after aclrtUnmapMem is the memory really released".
#[test]
fn physical_memory_goes_with_its_last_mapping() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let page = handle(&mut sim, 0, PAGE);
    sim.map(base, PAGE, 0, page, 0).unwrap();
    sim.free_physical(page).unwrap();
    assert_eq!(sim.devices[0].used, PAGE);
    assert_eq!(
        code(sim.map(base + PAGE, PAGE, 0, page, 0)),
        INVALID,
        "the handle is gone"
    );
    sim.unmap(base).unwrap();
    assert_eq!(sim.devices[0].used, 0);
}

/// aclrtReleaseMemAddress: the range must be unmapped first.
#[test]
fn a_mapped_reservation_cannot_be_released() {
    let mut sim = machine();
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let page = handle(&mut sim, 0, PAGE);
    sim.map(base + PAGE, PAGE, 0, page, 0).unwrap();
    assert_eq!(code(sim.vmm.release(base)), REFUSED);
    assert_eq!(code(sim.vmm.release(base + PAGE)), INVALID, "not a start");
    sim.unmap(base + PAGE).unwrap();
    sim.vmm.release(base).unwrap();
    assert_eq!(code(sim.vmm.release(base)), INVALID);
}

/// aclrtMemSetAccess: address and size of a mapping; aclrtMemMapNoAccess: not
/// accessible until then.
#[test]
fn access_is_granted_to_whole_mappings() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let page = handle(&mut sim, 0, PAGE);
    sim.map(base, PAGE, 0, page, 0).unwrap();
    sim.vmm.withhold_access(base);
    sim.submit(stream, kernel(base, 8)).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::UnmappedAccess]);
    let half = sim.vmm.set_access(base, PAGE / 2, &[(0, true)]);
    assert_eq!(code(half), INVALID);
    sim.vmm.set_access(base, PAGE, &[(0, true)]).unwrap();
    sim.submit(stream, kernel(base, 8)).unwrap();
    assert_eq!(hazards(&sim).len(), 1);
    sim.vmm.set_access(base, PAGE, &[(0, false)]).unwrap();
    sim.submit(stream, kernel(base, 8)).unwrap();
    assert_eq!(hazards(&sim).len(), 2);
}

/// aclrtMemSetAccess: of the devices it names; pages in the host's memory are
/// every device's.
#[test]
fn access_is_each_device_s_own() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    let page = handle(&mut sim, 0, PAGE);
    sim.map(base, PAGE, 0, page, 0).unwrap();
    let access = |sim: &Sim| sim.vmm.mapping_at(base).unwrap().access;
    assert_eq!(access(&sim), 0b01, "the owner's");
    sim.vmm.set_access(base, PAGE, &[(1, false)]).unwrap();
    sim.submit(stream, kernel(base, 8)).unwrap();
    assert_eq!(hazards(&sim), [], "the owner keeps it");
    sim.vmm.set_access(base, PAGE, &[(1, true)]).unwrap();
    assert_eq!(access(&sim), 0b11);
    let both = [(0, false), (1, false), (1, true)];
    sim.vmm.set_access(base, PAGE, &both).unwrap();
    assert_eq!(access(&sim), 0b10, "in order");
    let base = sim.vmm.reserve(PAGE, 0, 0, 1).unwrap();
    let own = sim.malloc_physical(Place::Host, PAGE, Pages::Huge, 4);
    sim.map(base, PAGE, 0, own.unwrap(), 0).unwrap();
    assert_eq!(sim.vmm.mapping_at(base).unwrap().access, u16::MAX);
}

/// aclrtMemExportToShareableHandle: handle and shared handle are one to one;
/// a second export fails.
#[test]
fn a_handle_is_exported_once() {
    let mut sim = machine();
    let page = handle(&mut sim, 0, PAGE);
    sim.vmm.export(page, 1).unwrap();
    assert_eq!(code(sim.vmm.export(page, 2)), REFUSED);
    let imported = sim.import_physical(0, PAGE, 4, None).unwrap();
    assert_eq!(code(sim.vmm.export(imported, 3)), INVALID);
    assert_eq!(
        sim.devices[0].used, PAGE,
        "imported memory is another process's"
    );
}

/// aclrtUnmapMem synchronises nothing: under pending work it is a fault.
#[test]
fn unmap_under_work_is_a_hazard() {
    let mut sim = machine();
    let stream = sim.add_stream(0);
    let base = sim.vmm.reserve(4 * PAGE, 0, 0, 1).unwrap();
    for page in 0..2 {
        let handle = handle(&mut sim, 0, PAGE);
        sim.map(base + page * PAGE, PAGE, 0, handle, 0).unwrap();
    }
    sim.submit(stream, kernel(base + PAGE - 8, 16)).unwrap();
    assert_eq!(hazards(&sim), [], "a range over two mappings is mapped");
    sim.unmap(base + PAGE).unwrap();
    assert_eq!(hazards(&sim), [HazardKind::UnmapUnderWork]);
    sim.submit(stream, kernel(base + PAGE - 8, 16)).unwrap();
    assert_eq!(hazards(&sim).last(), Some(&HazardKind::UnmappedAccess));
}

/// aclrtMapMem with pages of 1 GiB. Driver, svm/v2 `devmm_mem_map_info_check` and
/// svm/v3 `vmm_mmap_para_check`: the address is a multiple of 1 GiB.
#[test]
fn giant_pages_are_mapped_at_multiples_of_their_size() {
    let config = ascendcl::Config {
        capacity: 4 * GIB,
        huge_1g_pages: 1,
        ..Default::default()
    };
    let mut sim = Sim::new(config);
    let giant = sim.malloc_physical(Place::Device(0), GIB, Pages::Giant, 10);
    let giant = giant.unwrap();
    let base = sim.vmm.reserve(3 * GIB, 0, 0, 1).unwrap();
    assert_eq!(code(sim.map(base + PAGE, GIB, 0, giant, 0)), INVALID);
    sim.map(base + GIB, GIB, 0, giant, 0).unwrap();
}

/// aclrtMallocPhysical, ACL_HBM_MEM_HUGE1G: pages put aside, granularity 1 GiB.
#[test]
fn giant_physical_pages_are_counted() {
    let config = ascendcl::Config {
        capacity: 4 * GIB,
        huge_1g_pages: 1,
        ..Default::default()
    };
    let mut sim = Sim::new(config);
    let device = Place::Device(0);
    assert_eq!(
        code(sim.malloc_physical(device, PAGE, Pages::Giant, 10)),
        INVALID
    );
    let giant = sim.malloc_physical(device, GIB, Pages::Giant, 10).unwrap();
    let more = sim.malloc_physical(device, GIB, Pages::Giant, 10);
    assert_eq!(code(more), ACL_ERROR_RT_MEMORY_ALLOCATION);
    sim.free_physical(giant).unwrap();
    assert_eq!(sim.devices[0].giant_pages, 1);
}
