//! A child of `fork` has the parent's pages.

use super::Meeting;

/// torch_npu's exit handler resets the device, also in a child that ends by `exit`.
#[test]
fn a_child_leaves_the_parents_memory_alone() {
    let meeting = Meeting::new();
    let (mut owner, mut user) = meeting.backed_pair();
    let [first, second] = [(); 2].map(|()| owner.get("malloc 4194304"));
    for addr in [&first, &second] {
        owner.get(&format!("write {addr} 41"));
    }
    let key = owner.get(&format!("key {first} 4194304 65 1"));
    let handle = owner.get("physical");
    let shared = owner.get(&format!("export {handle} 1"));
    assert_eq!(owner.get(&format!("fork_and_reset {second}")), "0");
    for addr in [&first, &second] {
        assert_eq!(owner.get(&format!("read {addr}")), "41");
    }
    let there = user.get(&format!("key_import {key} 0"));
    assert_eq!(user.get(&format!("read {there}")), "41");
    user.get(&format!("import {shared} 0"));
    assert_eq!(owner.get("stats"), format!("{} 0", 10 << 20));
}
