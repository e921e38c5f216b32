//! Faults, and how they are planted.

use super::*;

#[test]
fn all_faults_can_be_planted() {
    let project = Project::locate().unwrap();
    assert!(!read(&project).unwrap().is_empty());
}

#[test]
fn what_is_no_branch_is_refused() {
    let fault = |from: &str, to: &str| Fault {
        what: String::new(),
        file: String::new(),
        from: from.into(),
        to: to.into(),
        first: First::Unit,
    };
    assert!(fault("a < b", "true").has_two_branches());
    assert!(fault("let _ = a(); b = c;", "").has_two_branches());
    for (from, to) in [
        ("let kept = a;", "let kept = false;"),
        ("if a {", "if true {"),
        ("On if a => B,", "On => B,"),
        ("a || b ||", "a ||"),
        ("a", "b ||"),
    ] {
        assert!(!fault(from, to).has_two_branches(), "{from} {to}");
    }
}

#[test]
fn files_that_are_gone_from_the_tree_leave_the_copy() {
    let root = std::env::temp_dir().join(format!("npualloc-copy-{}", std::process::id()));
    let (old, new) = (root.join("src/x.rs"), root.join("src/x/mod.rs"));
    for path in [&old, &new] {
        write_if_changed(path, b"").unwrap();
    }
    remove_others(&root, &HashSet::from([new.clone()])).unwrap();
    assert!(new.exists() && !old.exists());
    fs::remove_dir_all(&root).unwrap();
}
