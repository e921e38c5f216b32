//! Requests that failed in the recorded run: those that the program caught, and the one that ended it.

use predicates::str::contains;

use crate::commands::json;
use crate::traces::{Files, MIB, npualloc};

/// A batch size is searched for: 40 GiB and 20 GiB are refused, 10 GiB work.
fn caught() -> String {
    let gib = |count: u64| count << 30;
    format!(
        "# npualloc-trace v1\n# capacity {0}\na 0 {1} 0\nm out of memory: {2} bytes\na 1 {2} 0\nf 1\n\
         m out of memory: {3} bytes\na 2 {3} 0\nf 2\na 3 {4} 0\nm done\nf 3\nf 0\n",
        gib(16),
        gib(4),
        gib(40),
        gib(20),
        gib(10)
    )
}

/// The program ends when 12 GiB are refused; what it had is freed on its way out.
fn ended() -> String {
    let asked = 12u64 << 30;
    format!(
        "# npualloc-trace v1\n# capacity {0}\na 0 {1} 0\nm out of memory: {asked} bytes\na 1 {asked} 0\nf 1\n\
         f 0\ns *\n",
        16u64 << 30,
        8u64 << 30
    )
}

#[test]
fn a_run_that_caught_its_failures_fits_where_it_ran() {
    let files = Files::new();
    let trace = files.write("t", caught());
    let trace = trace.to_str().expect("a name");
    let report = json(&["fit", trace, "--in", "16GiB", "--json"], 0);
    assert_eq!(report["peak_live"], 14u64 << 30);
    assert_eq!(report["failed_requests"], 2);
    for fit in report["settings"].as_array().expect("settings") {
        assert_eq!(
            (&fit["fits"], &fit["failed_served"]),
            (&true.into(), &0.into())
        );
        let least = fit["least_capacity"].as_u64().expect("a number");
        assert!((14 << 30..15 << 30).contains(&least), "{fit}");
    }
    npualloc()
        .args(["fit", trace, "--in", "32GiB"])
        .assert()
        .code(0)
        .stdout(contains("failed requests served"))
        .stdout(contains("1 of 2"));
    json(&["fit", trace, "--in", "12GiB", "--json"], 1);
    let report = json(&["replay", trace, "--json"], 0);
    for run in report["runs"].as_array().expect("runs") {
        assert!(run["out_of_memory_at"].is_null(), "{run}");
        assert!(run["peak_held"].as_u64() >= Some(14 << 30), "{run}");
    }
    let report = json(&["advise", trace, "--json"], 0);
    assert_eq!(report["candidates"][0]["failed_served"], 0);
    let page = files.0.path().join("page.html");
    npualloc()
        .args(["report", trace, "-o"])
        .arg(page)
        .assert()
        .success()
        .stdout(contains("completes"))
        .stdout(contains("0 of 2"));
}

#[test]
fn a_run_that_ended_with_a_failure_does_not_fit_where_that_cannot_be_served() {
    let files = Files::new();
    let trace = files.write("t", ended());
    let trace = trace.to_str().expect("a name");
    let report = json(&["fit", trace, "--in", "16GiB", "--json"], 1);
    assert_eq!(report["peak_live"], 8u64 << 30);
    for fit in report["settings"].as_array().expect("settings") {
        let least = fit["least_capacity"].as_u64().expect("a number");
        assert!((20 << 30..21 << 30).contains(&least), "{fit}");
        let place = fit["out_of_memory"].as_str().expect("a place");
        assert!(
            place.contains("out of memory: 12884901888 bytes"),
            "{place}"
        );
    }
    let report = json(&["fit", trace, "--in", "24GiB", "--json"], 0);
    assert_eq!(report["settings"][0]["failed_served"], 1);
}

#[test]
fn a_request_beyond_any_device_is_one_that_failed() {
    let files = Files::new();
    for asked in [1u64 << 60, u64::MAX] {
        let lines = format!("m out of memory: {asked} bytes\na 1 {asked} 0\nf 1\na 2 {MIB} 0\n");
        let trace = files.write("t", format!("# npualloc-trace v1\na 0 {MIB} 0\n{lines}"));
        let trace = trace.to_str().expect("a name");
        let report = json(&["fit", trace, "--in", "1GiB", "--json"], 0);
        assert_eq!(report["peak_live"], 2 * MIB);
    }
}

/// As `torch.npu.memory._dump_snapshot` has it: 30 GiB alive, 40 GiB refused on 64 GiB.
#[test]
fn a_snapshot_of_a_failure_has_the_request_that_failed() {
    let files = Files::new();
    let snapshot = files.write("oom.pickle", out_of_memory_snapshot());
    let snapshot = snapshot.to_str().expect("a name");
    let report = json(&["fit", snapshot, "--in", "64GiB", "--json"], 1);
    assert_eq!(
        (&report["peak_live"], &report["failed_requests"]),
        (&(30u64 << 30).into(), &1.into())
    );
    for fit in report["settings"].as_array().expect("settings") {
        let least = fit["least_capacity"].as_u64().expect("a number");
        assert!((70 << 30..72 << 30).contains(&least), "{fit}");
    }
    json(&["fit", snapshot, "--in", "80GiB", "--json"], 0);
    json(&["advise", snapshot, "--capacity", "64GiB", "--json"], 1);
}

/// A pickle of protocol 2.
fn out_of_memory_snapshot() -> Vec<u8> {
    let gib = |count: u64| int(count << 30);
    let live = |addr| vec![("addr", int(addr)), ("size", gib(30)), ("stream", int(0))];
    let mut alloc = live(1 << 40);
    alloc.push(("action", text("alloc")));
    let oom = dict(&[
        ("action", text("oom")),
        ("device_free", gib(34)),
        ("size", gib(40)),
        ("stream", int(0)),
    ]);
    let traces = list(&[list(&[dict(&alloc), oom])]);
    let snapshot = dict(&[("segments", list(&[])), ("device_traces", traces)]);
    [b"\x80\x02".as_slice(), &snapshot, b"."].concat()
}

fn int(number: u64) -> Vec<u8> {
    [b"\x8a\x08".as_slice(), &number.to_le_bytes()].concat()
}

fn text(text: &str) -> Vec<u8> {
    let length = (text.len() as u32).to_le_bytes();
    [b"X".as_slice(), &length, text.as_bytes()].concat()
}

fn list(elements: &[Vec<u8>]) -> Vec<u8> {
    [b"](".as_slice(), &elements.concat(), b"e"].concat()
}

fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs: Vec<u8> = pairs
        .iter()
        .flat_map(|(key, value)| [text(key), value.clone()].concat())
        .collect();
    [b"}(".as_slice(), &pairs, b"u"].concat()
}
