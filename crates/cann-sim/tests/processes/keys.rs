//! Plain memory by key.

use ascend_rs_sys::{
    ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_DRV_INTERNAL_ERROR, ACL_ERROR_RT_NO_PERMISSION,
    ACL_ERROR_RT_PARAM_INVALID as INVALID,
};

use super::Meeting;

const SIZE: usize = 4 << 20;

/// aclrtIpcMemImportByKey: both processes see the same bytes; the importer
/// closes first.
#[test]
fn memory_imported_by_key_has_the_exporters_data() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    owner.get(&format!("write {here} 41"));
    let key = owner.get(&format!("key {here} {SIZE} 65 1"));
    assert_eq!(key.len(), 64, "65 bytes with the NUL");
    let there = user.get(&format!("key_import {key} 0"));
    assert_eq!(user.get(&format!("read {there}")), "41");
    user.get(&format!("write {there} 42"));
    assert_eq!(owner.get(&format!("read {here}")), "42");
    assert_eq!(user.get("stats"), "0 0", "another process's memory");
    assert_eq!(user.refused(&format!("free {there}")), INVALID);
    user.get(&format!("key_close {key}"));
    assert_eq!(user.refused(&format!("read {there}")), INVALID, "closed");
    owner.get(&format!("key_close {key}"));
    owner.get(&format!("free {here}"));
    assert_eq!(owner.get("stats"), "0 0");
}

/// aclrtIpcMemSetImportPid: without the flag, only listed processes import.
#[test]
fn only_listed_processes_import_by_key() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    let key = owner.get(&format!("key {here} {SIZE} 65 0"));
    let import = format!("key_import {key} 0");
    assert_eq!(user.refused(&import), ACL_ERROR_RT_NO_PERMISSION);
    let id = user.id();
    assert_eq!(user.refused(&format!("key_allow {key} {id}")), INVALID);
    owner.get(&format!("key_allow {key} {id}"));
    user.get(&import);
    let twice = user.refused(&import);
    assert_eq!(twice, ACL_ERROR_RT_DRV_INTERNAL_ERROR, "imported already");
}

/// Keys are 65 bytes; exports are of whole pages of plain memory.
#[test]
fn what_is_no_key_or_cannot_be_exported() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    for (size, len, flags) in [(SIZE, 64, 1), (SIZE, 66, 1), (SIZE, 65, 2), (0, 65, 1)] {
        let refused = owner.refused(&format!("key {here} {size} {len} {flags}"));
        assert_eq!(refused, ACL_ERROR_INVALID_PARAM, "{size} {len} {flags}");
    }
    let inside = here.parse::<u64>().unwrap() + 512;
    let refused = owner.refused(&format!("key {inside} 1024 65 1"));
    assert_eq!(refused, INVALID, "inside a page");
    let long = owner.refused(&format!("key {here} {} 65 1", SIZE + 1));
    assert_eq!(long, INVALID, "past the end");
    let key = owner.get(&format!("key {here} {SIZE} 65 1"));
    assert_eq!(
        owner.refused(&format!("key_import {key} 0")),
        INVALID,
        "own"
    );
    let foreign = "0123456789abcdef".repeat(4);
    for key in [foreign.as_str(), "nonsense", "../../etc/passwd"] {
        let refused = user.refused(&format!("key_import {key} 0"));
        assert_eq!(refused, INVALID, "{key}");
        assert_eq!(user.refused(&format!("key_close {key}")), INVALID, "{key}");
    }
    let close = user.refused(&format!("key_close {key}"));
    assert_eq!(close, INVALID, "not imported here");
    owner.get(&format!("key_close {key}"));
    let late = user.refused(&format!("key_import {key} 0"));
    assert_eq!(late, INVALID, "withdrawn");
}

/// Flag ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS: memory of another device.
#[test]
fn memory_of_another_device_needs_peer_access() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    let key = owner.get(&format!("key {here} {SIZE} 65 1"));
    user.get("device 1");
    assert_eq!(user.refused(&format!("key_import {key} 0")), INVALID);
    user.get(&format!("key_import {key} 1"));
}

/// An import takes whole pages of addresses, but has only the bytes that are
/// shared.
#[test]
fn an_import_ends_where_what_is_shared_ends() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    let shared = SIZE - (1 << 20);
    let key = owner.get(&format!("key {here} {shared} 65 1"));
    let there = user.get(&format!("key_import {key} 0"));
    user.get(&format!("fill {there} {shared}"));
    assert_eq!(user.refused(&format!("fill {there} {SIZE}")), INVALID);
    let last = there.parse::<usize>().unwrap() + shared;
    user.get(&format!("read {}", last - 8));
    assert_eq!(user.refused(&format!("read {last}")), INVALID);
}

/// Closing an import under pending work is unmapping under pending work.
#[test]
fn closing_an_import_in_use_is_a_hazard() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    let key = owner.get(&format!("key {here} {SIZE} 65 1"));
    let there = user.get(&format!("key_import {key} 0"));
    user.get(&format!("fill {there} {SIZE}"));
    user.get(&format!("key_close {key}"));
    assert_eq!(user.get("stats"), "0 1");
}

/// What is freed, or taken back by a reset, is not there for new importers; who
/// has imported it may close the import.
#[test]
fn freed_memory_is_not_shared_any_more() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    for take_away in ["free", "reset"] {
        let here = owner.get(&format!("malloc {SIZE}"));
        let keys = [0, 1].map(|_| owner.get(&format!("key {here} {SIZE} 65 1")));
        user.get(&format!("key_import {} 0", keys[0]));
        match take_away {
            "free" => owner.get(&format!("free {here}")),
            _ => owner.get("reset 0"),
        };
        for key in &keys {
            assert_eq!(owner.refused(&format!("key_close {key}")), INVALID);
        }
        user.get(&format!("key_close {}", keys[0]));
        for key in &keys {
            let late = user.refused(&format!("key_import {key} 0"));
            assert_eq!(late, INVALID, "{take_away}");
        }
        owner.get("device 0");
    }
    assert_eq!(user.get("stats"), "0 0");
}

/// A key goes with its export, not with the memory's next owner.
#[test]
fn a_key_that_was_closed_is_forgotten() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    let first = owner.get(&format!("key {here} {SIZE} 65 1"));
    owner.get(&format!("key_close {first}"));
    let second = owner.get(&format!("key {here} {SIZE} 65 1"));
    assert_eq!(user.refused(&format!("key_import {first} 0")), INVALID);
    user.get(&format!("key_import {second} 0"));
}

/// Only the process that owns memory shares it.
#[test]
fn imported_memory_cannot_be_exported() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let here = owner.get(&format!("malloc {SIZE}"));
    let key = owner.get(&format!("key {here} {SIZE} 65 1"));
    let there = user.get(&format!("key_import {key} 0"));
    assert_eq!(user.refused(&format!("key {there} {SIZE} 65 1")), INVALID);
}
