//! The report that `CANN_SIM_REPORT` asks for: a program that ends leaves it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use super::Meeting;

#[test]
fn a_process_that_ends_leaves_its_report() {
    let meeting = Meeting::new();
    let pattern = meeting.directory.join("report-%p.json");
    let mut peer = meeting.peer(&[("CANN_SIM_REPORT", pattern.to_str().unwrap())]);
    let kept = peer.get("malloc 4194304");
    let freed = peer.get("malloc 2097152");
    peer.get(&format!("fill {freed} 64"));
    peer.get(&format!("free {freed}"));
    peer.refused(&format!("free {freed}"));
    let id = peer.id();
    drop(peer);
    let file = meeting.directory.join(format!("report-{id}.json"));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let device = &report["devices"][0];
    assert_eq!(device["leaked"], 4 << 20, "{kept} was not freed");
    assert_eq!(device["peak_used"], 6 << 20);
    let kinds: Vec<_> = device["hazards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["kind"])
        .collect();
    assert_eq!(
        kinds,
        ["free under pending work", "free of an unknown address"]
    );
    let calls = device["calls"].as_array().unwrap();
    let free = calls.iter().find(|it| it["call"] == "aclrtFree").unwrap();
    assert_eq!((&free["count"], &free["failed"]), (&2.into(), &1.into()));
    assert!(free["ns"].as_u64() > Some(0));
}

/// The child has the parent's lock, held for ever by a thread it does not have.
#[test]
fn a_child_forked_during_a_call_ends() {
    let meeting = Meeting::new();
    let mut peer = meeting.peer(&[]);
    assert_eq!(peer.get("fork"), "0", "no report is wanted");
    let pattern = meeting.directory.join("report-%p.json");
    let mut peer = meeting.peer(&[("CANN_SIM_REPORT", pattern.to_str().unwrap())]);
    assert_eq!(peer.get("fork"), "0", "a report is wanted");
    let id = peer.id();
    drop(peer);
    let written = std::fs::read_dir(&meeting.directory).unwrap();
    let names: Vec<_> = written.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, [format!("report-{id}.json").as_str()]);
}

/// Like any other value that cannot be read.
#[test]
fn a_value_that_is_no_text_ends_the_process() {
    for name in ["CANN_SIM_CAPACITY", "CANN_SIM_MODE", "CANN_SIM_REPORT"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "peer::peer", "--nocapture"])
            .env(name, OsStr::from_bytes(b"1\xFF"))
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains(&format!("cann-sim: {name}: ")),
            "{message}"
        );
    }
}
