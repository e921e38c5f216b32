//! Events.

use ascend_rs_sys::{
    ACL_ERROR_RT_PARAM_INVALID as INVALID, ACL_EVENT_IPC, ACL_EVENT_RECORDED_STATUS_COMPLETE,
    ACL_EVENT_SYNC,
};

use super::Meeting;

/// aclrtIpcOpenEventHandle: the other process can wait for the event and query
/// it. What the exporter recorded has completed by then (see `ffi/event.rs`).
#[test]
fn an_event_is_seen_by_another_process() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let event = owner.get(&format!("event {ACL_EVENT_IPC}"));
    let memory = owner.get("malloc 4194304");
    owner.get(&format!("fill {memory} 4194304"));
    owner.get(&format!("record {event}"));
    let complete = ACL_EVENT_RECORDED_STATUS_COMPLETE.to_string();
    assert_eq!(owner.get(&format!("query {event}")), complete);
    let handle = owner.get(&format!("event_handle {event}"));
    let opened = user.get(&format!("event_open {handle}"));
    assert_eq!(user.get(&format!("query {opened}")), complete);
    user.get(&format!("wait {opened}"));
    user.get(&format!("synchronize {opened}"));
    // Both processes may record it.
    user.get(&format!("record {opened}"));
    owner.get(&format!("record {event}"));
}

/// Only events made for it are shared, and not with their own process.
#[test]
fn events_that_cannot_be_shared() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let plain = owner.get(&format!("event {ACL_EVENT_SYNC}"));
    let refused = owner.refused(&format!("event_handle {plain}"));
    assert_eq!(refused, INVALID, "not made with ACL_EVENT_IPC");
    let event = owner.get(&format!("event {ACL_EVENT_IPC}"));
    let handle = owner.get(&format!("event_handle {event}"));
    let own = owner.refused(&format!("event_open {handle}"));
    assert_eq!(own, INVALID, "its own process");
    assert_eq!(user.refused("event_open nonsense"), INVALID);
}
