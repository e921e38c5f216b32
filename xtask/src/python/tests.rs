//! Environments and versions.

use super::*;

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_complete_environment_is_added_to_and_never_made_anew() {
    let (old, new) = (
        list(&["torch==1", "numpy"]),
        list(&["torch==1", "numpy", "scipy"]),
    );
    assert_eq!(next_step(None, &old, true), Step::Create);
    assert_eq!(
        next_step(Some("torch==1\nnumpy"), &old, false),
        Step::Create
    );
    assert_eq!(next_step(Some("torch==1\nnumpy"), &old, true), Step::Ready);
    // Also after a try that failed: the list is the old one until all is there.
    assert_eq!(next_step(Some("torch==1\nnumpy"), &new, true), Step::TopUp);
    let both = union(Some("torch==1\nnumpy"), &new);
    for wanted in [&old, &new] {
        assert_eq!(next_step(Some(&both), wanted, true), Step::Ready);
    }
}

#[test]
fn packages_of_other_places_do_not_count() {
    let pip = pip(Path::new("python"));
    for variable in ELSEWHERE {
        let mut set = pip.0.get_envs();
        assert!(
            set.any(|(name, value)| name == variable && value.is_none()),
            "{variable}"
        );
    }
}

#[test]
fn a_requirement_has_a_name() {
    assert_eq!(name("setuptools<82"), "setuptools");
    assert_eq!(name("torch-npu==2.14.0"), "torch-npu");
    assert_eq!(name("attrs"), "attrs");
}

#[test]
fn the_version_that_apt_offers_is_known_before_it_is_installed() {
    let policy = "python3:\n  Installed: (none)\n  Candidate: 3.12.3-0ubuntu2.1\n  Version table:";
    assert_eq!(candidate(policy).as_deref(), Some("3.12"));
    assert_eq!(candidate("python3:\n  Candidate: (none)"), None);
    assert_eq!(candidate(""), None);
}
