//! What the commands find on a workload whose answer is known.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use predicates::prelude::PredicateBooleanExt as _;
use serde_json::Value;

use crate::traces::{Files, MIB, growing, gzip, npualloc};

pub fn json(arguments: &[&str], status: i32) -> Value {
    let output = npualloc().args(arguments).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Live bytes of `growing` at their peak: 16 tensors of the last size, one more while the last is
/// replaced, and 39 that stayed.
fn peak_live() -> u64 {
    let size = |step: u64| 64 * MIB + step * 512 * 1024;
    16 * size(39) + size(38) + 39 * 12 * MIB
}

const FIXED: &str = "expandable_segments:False";

#[test]
fn replay_compares_settings() {
    let files = Files::new();
    let trace = files.write("t.gz", gzip(growing().as_bytes()));
    let trace = trace.to_str().expect("a name");
    let report = json(
        &["replay", trace, "--capacity", "4GiB", "--json", "--least"],
        0,
    );
    assert_eq!(report["peak_live"], peak_live());
    assert_eq!(report["capacity"], 4u64 << 30);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["conf"], "expandable_segments:False");
    assert_eq!(runs[1]["conf"], "expandable_segments:True");
    let held = |run: &Value| run["peak_held"].as_u64().expect("a number");
    // Fixed segments keep what no longer fits; pages of virtual ones move.
    assert!(held(&runs[0]) > 2 * peak_live(), "{runs:?}");
    assert!(held(&runs[1]) < peak_live() + peak_live() / 5, "{runs:?}");
    for run in runs {
        let least = run["least_capacity"].as_u64().expect("a number");
        assert!((peak_live()..2 * peak_live()).contains(&least), "{run}");
    }
    npualloc()
        .args(["replay", trace, "--conf", "max_split_size_mb:64"])
        .assert()
        .success()
        .stdout(predicates::str::contains("max_split_size_mb:64"))
        .stdout(predicates::str::contains("growing tensors"));
}

#[test]
fn rungs_are_left_out_as_in_the_allocator() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let trace = trace.to_str().expect("a name");
    let held = |skipped: &str| {
        let output = npualloc()
            .args(["replay", trace, "--json", "--capacity", "4GiB"])
            .args(["--conf", "expandable_segments:True"])
            .env("NPUALLOC_SKIP_RUNGS", skipped)
            .output()
            .expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["runs"][0]["peak_held"].as_u64().expect("a number")
    };
    let (all, without) = (held(""), held("moved_pages"));
    assert!(without > all + all / 10, "{all} {without}");
    let stalls = |skipped: &str| {
        let output = npualloc()
            .args(["advise", trace, "--json", "--for", "stalls"])
            .args(["--capacity", "2300MiB"])
            .env("NPUALLOC_SKIP_RUNGS", skipped)
            .output()
            .expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let candidates = report["candidates"].as_array().expect("candidates");
        let found = candidates
            .iter()
            .find(|one| one["conf"] == "expandable_segments:True");
        found.expect("the engine is among them")["stall_ns"].clone()
    };
    assert_ne!(stalls(""), stalls("moved_pages"));
    for command in [
        vec!["replay", trace],
        vec!["advise", trace],
        vec!["fit", trace, "--in", "4GiB"],
        vec!["report", trace],
    ] {
        npualloc()
            .args(command)
            .env("NPUALLOC_SKIP_RUNGS", "moved_page")
            .assert()
            .code(2)
            .stdout("")
            .stderr(predicates::str::contains(
                "NPUALLOC_SKIP_RUNGS: \"moved_page\" is none of",
            ));
    }
    // Not as if it was not set.
    npualloc()
        .args(["replay", trace])
        .env("NPUALLOC_SKIP_RUNGS", OsStr::from_bytes(b"moved_page\xff"))
        .assert()
        .code(2)
        .stderr(predicates::str::contains(
            "NPUALLOC_SKIP_RUNGS: \"moved_page\u{fffd}\" is none of",
        ));
}

#[test]
fn replay_names_the_event_at_which_memory_runs_out() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let trace = trace.to_str().expect("a name");
    // Event 0 is the marker. The padding makes each segment 66 MiB, of which 15 have room.
    npualloc()
        .args(["replay", trace, "--capacity", "1GiB", "--conf", FIXED])
        .assert()
        .success()
        .stdout(predicates::str::contains(
            "out of memory at event 16 (step 0)",
        ));
}

#[test]
fn fit_says_how_much_is_missing_with_its_exit_status() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let trace = trace.to_str().expect("a name");
    let yes = json(&["fit", trace, "--in", "64g", "--json"], 0);
    assert_eq!(
        (&yes["fits"], &yes["settings"][0]["missing"]),
        (&true.into(), &0.into())
    );
    let no = json(
        &["fit", trace, "--in", "1GiB", "--json", "--conf", FIXED],
        1,
    );
    assert_eq!(no["fits"], false);
    let fit = &no["settings"][0];
    let missing = fit["missing"].as_u64().expect("a number");
    assert_eq!(
        missing + (1 << 30),
        fit["least_capacity"].as_u64().expect("a number")
    );
    assert!(missing > peak_live() - (1 << 30));
    // What it says is enough is enough, and 1 % less than that is not.
    let least = fit["least_capacity"].as_u64().expect("a number");
    for (bytes, status) in [(least, 0), (least - least / 100, 1)] {
        let bytes = bytes.to_string();
        npualloc()
            .args(["fit", trace, "--conf", FIXED, "--in", &bytes])
            .assert()
            .code(status);
    }
}

#[test]
fn what_no_device_holds_has_no_least_capacity() {
    let files = Files::new();
    let trace = files.write("t", "# npualloc-trace v1\na 0 700000000000 0\n");
    let trace = trace.to_str().expect("a name");
    let fit = json(&["fit", trace, "--in", "64GiB", "--json"], 1);
    let advise = json(&["advise", trace, "--json"], 1);
    assert_eq!(advise["advice"], Value::Null);
    let replay = json(&["replay", trace, "--least", "--json"], 0);
    for (report, rows) in [
        (&fit, "settings"),
        (&advise, "candidates"),
        (&replay, "runs"),
    ] {
        let rows = report[rows].as_array().expect("rows");
        assert!(!rows.is_empty());
        for row in rows {
            assert_eq!(row["least_capacity"], Value::Null, "{row}");
        }
    }
    for command in [&["fit", trace, "--in", "64GiB"][..], &["advise", trace]] {
        npualloc()
            .args(command)
            .assert()
            .code(1)
            .stdout(predicates::str::contains("more than any device has"))
            .stdout(predicates::str::contains("Least memory").not());
    }
}

#[test]
fn advice_is_a_line_to_paste_and_holds_what_it_promises() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let trace = trace.to_str().expect("a name");
    let report = json(&["advise", trace, "--json"], 0);
    let advice = report["advice"].as_str().expect("a text");
    let conf = advice
        .strip_prefix("PYTORCH_NPU_ALLOC_CONF=")
        .expect("a line to paste");
    let best = &report["candidates"][0];
    assert_eq!(best["conf"], conf);
    let least = best["least_capacity"].as_u64().expect("a number");
    let defaults = report["candidates"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["conf"] == FIXED))
        .and_then(|one| one["least_capacity"].as_u64())
        .expect("the defaults are among them");
    assert!(least < defaults);
    npualloc()
        .args(["fit", trace, "--conf", conf, "--in", &least.to_string()])
        .assert()
        .code(0);
    let stalls = json(
        &[
            "advise",
            trace,
            "--json",
            "--for",
            "stalls",
            "--capacity",
            "2500MiB",
        ],
        0,
    );
    let all = stalls["candidates"].as_array().expect("candidates");
    let times: Vec<_> = all.iter().map(|one| one["stall_ns"].as_u64()).collect();
    let known: Vec<_> = times.iter().flatten().collect();
    // The first may be simpler settings that are as good within 1 %.
    assert!(known[1..].is_sorted(), "{times:?}");
    let least = **known.iter().min().expect("some complete");
    assert!(*known[0] <= least + least / 100, "{times:?}");
    assert!(
        times[..known.len()].iter().all(Option::is_some),
        "{times:?}"
    );
}

#[test]
fn what_completes_nowhere_is_not_advised() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let trace = trace.to_str().expect("a name");
    let advise = ["advise", trace, "--for", "stalls", "--capacity", "1GiB"];
    let report = json(&[&advise[..], &["--json"]].concat(), 1);
    assert_eq!(report["completes"], false);
    assert_eq!(report["advice"], Value::Null);
    npualloc()
        .args(advise)
        .assert()
        .code(1)
        .stdout(predicates::str::contains("PYTORCH_NPU_ALLOC_CONF").not())
        .stdout(predicates::str::contains("--for memory"));
    // Settings that complete on more are worth knowing.
    let report = json(&["advise", trace, "--capacity", "1GiB", "--json"], 1);
    assert_eq!(report["completes"], false);
    assert!(report["advice"].is_string(), "{}", report["advice"]);
}

/// A trace that fixed segments serve on 644 MiB, and not on 688 to 702.
fn gap() -> String {
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = String::from("# npualloc-trace v1\n");
    let mut live: Vec<u64> = Vec::new();
    let mut next = 0;
    for _ in 0..60 {
        if !live.is_empty() && draw(100) < 48 {
            let freed = live.remove(draw(live.len() as u64) as usize);
            let _ = writeln!(text, "f {freed}");
        } else {
            let _ = writeln!(text, "a {next} {} 0", (1 + draw(100)) * MIB);
            live.push(next);
            next += 1;
        }
    }
    text
}

#[test]
fn what_fits_in_less_alone_lacks_what_is_enough_above() {
    let files = Files::new();
    let trace = files.write("t", gap());
    let trace = trace.to_str().expect("a name");
    let fit = |capacity: u64, status: i32| {
        let bytes = capacity.to_string();
        let report = json(
            &["fit", trace, "--in", &bytes, "--json", "--conf", FIXED],
            status,
        );
        report["settings"][0].clone()
    };
    let capacity = 690 * MIB;
    assert_eq!(fit(644 * MIB, 0)["fits"], true);
    let lacking = fit(capacity, 1);
    let least = lacking["least_capacity"].as_u64().expect("a number");
    let missing = lacking["missing"].as_u64().expect("a number");
    assert!(missing > 0, "{lacking}");
    assert_eq!(least, capacity + missing, "{lacking}");
    assert_eq!(fit(least, 0)["fits"], true);
}

/// As a recording is whose process was killed.
#[test]
fn a_compressed_trace_that_was_cut_is_read_up_to_there() {
    let files = Files::new();
    let whole = gzip(growing().as_bytes());
    let complete = files.write("whole.gz", &whole);
    let path = files.write("cut.gz", &whole[..whole.len() / 2]);
    for (trace, torn) in [(&complete, false), (&path, true)] {
        let trace = trace.to_str().expect("a name");
        let page = format!("{trace}.html");
        for command in [
            vec!["replay", trace],
            vec!["advise", trace, "--for", "stalls"],
            vec!["fit", trace, "--in", "64GiB"],
            vec!["report", trace, "-o", &page],
        ] {
            let report = json(&[&command[..], &["--json"]].concat(), 0);
            assert_eq!(report["torn"], torn, "{command:?}");
        }
        let page = std::fs::read_to_string(page).expect("written");
        assert!(page.contains(&format!("\"torn\":{torn}")));
    }
    let output = npualloc()
        .args(["--json", "replay"])
        .arg(&path)
        .output()
        .expect("it runs");
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = result["events"].as_u64().expect("a number");
    assert!(events > 100 && events < growing().lines().count() as u64 - 2);
    let errors = String::from_utf8(output.stderr).expect("text");
    let expected = format!(
        "warning: {}: the file was cut; the {events} events before that are read\n",
        path.display()
    );
    assert_eq!(errors, expected);
}
