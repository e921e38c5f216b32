//! The lists, and copies.

use std::collections::HashSet;

use super::*;

#[test]
fn all_faults_can_be_planted() {
    let project = Project::locate().unwrap();
    assert!(!read::<core::Copy>(&project).unwrap().is_empty());
    assert!(!read::<shim::Copy>(&project).unwrap().is_empty());
}

#[test]
fn files_that_are_gone_from_the_tree_leave_the_copy() {
    let root = std::env::temp_dir().join(format!("npualloc-copy-{}", std::process::id()));
    let (old, new) = (root.join("src/x.rs"), root.join("src/x/mod.rs"));
    for path in [&old, &new] {
        copy::write_if_changed(path, b"").unwrap();
    }
    copy::remove_others(&root, &HashSet::from([new.clone()])).unwrap();
    assert!(new.exists() && !old.exists());
    fs::remove_dir_all(&root).unwrap();
}
