//! Physical handles.

use ascend_rs_sys::{
    ACL_ERROR_RT_DRV_INTERNAL_ERROR, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_NO_PERMISSION,
    ACL_ERROR_RT_PARAM_INVALID as INVALID,
};

use super::{Meeting, Peer};

/// Flag of an export without a list of importers.
const ANYBODY: &str = "1";

/// Maps a handle and gives the address.
fn mapped(peer: &mut Peer, handle: &str) -> String {
    let addr = peer.get("reserve");
    peer.get(&format!("map {addr} {handle}"));
    addr
}

/// aclrtMemExportToShareableHandle: both processes see the same pages.
#[test]
fn an_imported_handle_has_the_exporters_data() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let handle = owner.get("physical");
    let here = mapped(&mut owner, &handle);
    owner.get(&format!("write {here} 41"));
    let shared = owner.get(&format!("export {handle} {ANYBODY}"));
    let imported = user.get(&format!("import {shared} 0"));
    let there = mapped(&mut user, &imported);
    assert_eq!(user.get(&format!("read {there}")), "41");
    user.get(&format!("write {there} 42"));
    assert_eq!(owner.get(&format!("read {here}")), "42");
    assert_eq!(user.get("stats"), "0 0", "another process's memory");
    // The importer lets go first.
    user.get(&format!("unmap {there}"));
    user.get(&format!("free_physical {imported}"));
    owner.get(&format!("unmap {here}"));
    owner.get(&format!("free_physical {handle}"));
    assert_eq!(owner.get("stats"), "0 0");
}

/// The same through the second version of the interface.
#[test]
fn the_second_version_shares_data_too() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let handle = owner.get("physical");
    let here = mapped(&mut owner, &handle);
    let shared = owner.get(&format!("export2 {handle} 0 1"));
    let refused = user.refused(&format!("import2 {shared} 1"));
    assert_eq!(refused, ACL_ERROR_RT_NO_PERMISSION);
    let id = user.id();
    owner.get(&format!("allow2 {shared} 1 {id}"));
    let imported = user.get(&format!("import2 {shared} 1"));
    let there = mapped(&mut user, &imported);
    user.get(&format!("write {there} 7"));
    assert_eq!(owner.get(&format!("read {here}")), "7");
}

/// aclrtMemSetPidToShareableHandle: without the flag that drops the list, only
/// processes on it may import.
#[test]
fn only_listed_processes_import() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let mut stranger = meeting.peer(&[("CANN_SIM_MODE", "backed")]);
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export {handle} 0"));
    let import = format!("import {shared} 0");
    assert_eq!(user.refused(&import), ACL_ERROR_RT_NO_PERMISSION);
    let id = user.id();
    assert_eq!(stranger.refused(&format!("allow {shared} {id}")), INVALID);
    owner.get(&format!("allow {shared} {id}"));
    user.get(&import);
    assert_eq!(stranger.refused(&import), ACL_ERROR_RT_NO_PERMISSION);
}

/// Flag ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION: anybody may import, also
/// when somebody is named.
#[test]
fn naming_an_importer_does_not_shut_out_the_others() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export {handle} {ANYBODY}"));
    let id = owner.id();
    owner.get(&format!("allow {shared} {id}"));
    user.get(&format!("import {shared} 0"));
}

/// Reference 11-04: the shared handle ends when the exporter's memory goes.
#[test]
fn a_freed_handle_is_not_shared_any_more() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export {handle} {ANYBODY}"));
    let here = mapped(&mut owner, &handle);
    let early = user.get(&format!("import {shared} 0"));
    owner.get(&format!("unmap {here}"));
    owner.get(&format!("free_physical {handle}"));
    // Its file may have the descriptor of the first.
    owner.get("physical");
    assert_eq!(user.refused(&format!("import {shared} 0")), INVALID);
    let there = mapped(&mut user, &early);
    assert_eq!(user.get(&format!("read {there}")), "0", "imported before");
}

/// Handle and shared handle are one to one; an import stays an import.
#[test]
fn exports_and_imports_that_are_refused() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export {handle} {ANYBODY}"));
    let again = owner.refused(&format!("export {handle} {ANYBODY}"));
    assert_eq!(again, ACL_ERROR_RT_DRV_INTERNAL_ERROR, "a second export");
    let own = owner.refused(&format!("import {shared} 0"));
    assert_eq!(own, INVALID, "in the exporting process");
    assert_eq!(user.refused("import 12345 0"), INVALID, "nothing shared");
    let imported = user.get(&format!("import {shared} 0"));
    let export = user.refused(&format!("export {imported} {ANYBODY}"));
    assert_eq!(export, INVALID, "an imported handle");
    assert_eq!(owner.refused("export 12345 1"), INVALID, "no handle");
    let other = owner.get("physical");
    let flags = owner.refused(&format!("export {other} 2"));
    assert_eq!(flags, INVALID, "unknown flags");
}

/// aclrtMapMem: one reservation binds local or imported handles, not both.
#[test]
fn a_reservation_does_not_mix_imported_and_own_handles() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export {handle} {ANYBODY}"));
    let imported = user.get(&format!("import {shared} 0"));
    let addr = mapped(&mut user, &imported);
    let own = user.get("physical");
    let next = addr.parse::<u64>().unwrap() + (2 << 20);
    assert_eq!(user.refused(&format!("map {next} {own}")), INVALID);
}

/// The second version: fabric handles exist on A3 parts only.
#[test]
fn fabric_handles_need_a_part_that_has_them() {
    let meeting = Meeting::new();
    let mut owner = meeting.peer(&[]);
    let handle = owner.get("physical");
    let fabric = owner.refused(&format!("export2 {handle} 1 2"));
    assert_eq!(fabric, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    assert_eq!(owner.refused(&format!("export2 {handle} 1 9")), INVALID);
    let knobs = [("CANN_SIM_SOC", "Ascend910_9391")];
    let (mut owner, mut user) = (meeting.peer(&knobs), meeting.peer(&knobs));
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export2 {handle} 1 2"));
    user.get(&format!("import2 {shared} 2"));
}

/// An export that failed changes nothing: the next one is the first.
#[test]
fn a_handle_whose_export_failed_can_be_exported() {
    let meeting = Meeting::new();
    let occupied = meeting.directory.join("occupied");
    std::fs::write(&occupied, "").unwrap();
    let mut owner = meeting.peer(&[("CANN_SIM_IPC_DIR", occupied.to_str().unwrap())]);
    let handle = owner.get("physical");
    let export = format!("export {handle} {ANYBODY}");
    assert_eq!(owner.refused(&export), ACL_ERROR_RT_DRV_INTERNAL_ERROR);
    std::fs::remove_file(&occupied).unwrap();
    owner.get(&export);
    assert_eq!(
        owner.refused(&export),
        ACL_ERROR_RT_DRV_INTERNAL_ERROR,
        "twice"
    );
}
