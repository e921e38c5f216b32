//! A driver that fails with some settings: the others are compared all the same.

use std::fmt::Write as _;

use predicates::str::contains;

use crate::commands::json;
use crate::traces::{Files, MIB, npualloc};

/// So many private pools that a range of addresses for each is more than there is: each is as large as the device.
fn pools() -> String {
    let mut text = String::from("# npualloc-trace v1\n");
    for pool in 1..=400 {
        let _ = writeln!(
            text,
            "p {pool} 0\nm pool {pool}\na {} {MIB} 0 0 {pool}",
            pool - 1
        );
    }
    text
}

const FAILURE: &str = "reserve_address failed";

#[test]
fn settings_with_which_the_driver_fails_are_named_beside_the_others() {
    let files = Files::new();
    let trace = files.write("t", pools());
    let trace = trace.to_str().expect("a name");
    npualloc()
        .args(["replay", trace])
        .assert()
        .success()
        .stdout(contains("yes"))
        .stdout(contains(FAILURE))
        .stdout(contains("(pool "));
    let report = json(&["replay", trace, "--json", "--least"], 0);
    let runs = &report["runs"];
    assert!(runs[0]["driver_failed_at"].is_null(), "{runs}");
    let at = runs[1]["driver_failed_at"].as_u64().expect("a number");
    assert!(at < 800 && runs[1]["out_of_memory_at"].is_null(), "{runs}");
    let report = json(&["fit", trace, "--in", "64GiB", "--json"], 0);
    let settings = &report["settings"];
    assert_eq!(
        (&settings[0]["fits"], &settings[1]["fits"]),
        (&true.into(), &false.into())
    );
    assert!(settings[1]["least_capacity"].is_null(), "{settings}");
    let failure = settings[1]["driver_failure"].as_str().expect("a text");
    assert!(failure.starts_with(FAILURE), "{failure}");
    let report = json(&["advise", trace, "--json"], 0);
    let advice = report["advice"].as_str().expect("a text");
    assert!(advice.contains("expandable_segments:False"), "{advice}");
}

#[test]
fn nothing_is_known_where_the_driver_fails_with_all_of_them() {
    let files = Files::new();
    let trace = files.write("t", pools());
    let page = files.0.path().join("page.html");
    let page = page.to_str().expect("a name");
    for command in [vec!["fit", "--in", "64GiB"], vec!["report", "-o", page]] {
        npualloc()
            .args(command)
            .args(["--conf", "expandable_segments:True"])
            .arg(&trace)
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains(FAILURE))
            .stderr(contains("at event "));
    }
    assert_eq!(files.names(), ["t"]);
}
