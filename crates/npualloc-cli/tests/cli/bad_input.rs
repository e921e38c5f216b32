//! Input that can't be used: status 2, a sentence that names what is wrong, no panic.

use std::path::Path;

use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;

use crate::traces::{Files, growing, gzip, npualloc};

fn refused(arguments: &[&str], reason: &str) {
    npualloc()
        .args(arguments)
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains(reason))
        .stderr(contains("panicked").not());
}

/// Every command refuses it, and writes nothing.
fn by_every_command(files: &Files, input: &Path, more: &[&str], reason: &str) {
    let before = files.names();
    let page = files.0.path().join("page.html");
    let input = text(input);
    let mut commands = vec![
        vec!["replay", input],
        vec!["advise", input],
        vec!["report", input, "-o", text(&page)],
    ];
    // It has a capacity of its own.
    if !more.contains(&"--capacity") {
        commands.push(vec!["fit", input, "--in", "1GiB"]);
    }
    for mut command in commands {
        if command[0] == "advise" && more.contains(&"--conf") {
            continue;
        }
        command.extend(more);
        refused(&command, reason);
    }
    assert_eq!(files.names(), before);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

#[test]
fn files_that_are_no_traces() {
    let files = Files::new();
    let good = gzip(growing().as_bytes());
    let mut corrupt = good.clone();
    let middle = corrupt.len() / 2;
    corrupt[middle..middle + 64].fill(0x55);
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", Vec::new(), "not an npualloc trace"),
        ("empty.gz", gzip(b""), "not an npualloc trace"),
        (
            "header",
            b"# npualloc-trace v1\n".to_vec(),
            "holds no event",
        ),
        ("foreign", b"{\"a\": 1}\n".to_vec(), "not an npualloc trace"),
        (
            "newer",
            b"# npualloc-trace v9\n".to_vec(),
            "not an npualloc trace",
        ),
        ("cut.gz", good[..12].to_vec(), "ends in the middle"),
        (
            "cut",
            growing().as_bytes()[..1000].to_vec(),
            "ends in the middle",
        ),
        ("corrupt.gz", corrupt, "corrupt.gz"),
        (
            "random",
            (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect(),
            "not an npualloc trace",
        ),
    ];
    for (name, contents, reason) in cases {
        let path = files.write(name, contents);
        by_every_command(&files, &path, &[], reason);
    }
    refused(&["replay", text(&files.0.path().join("absent"))], "absent");
    refused(&["replay", text(files.0.path())], "directory");
}

#[test]
fn pickles_that_are_no_snapshots() {
    let files = Files::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/npu.pickle");
    let good = std::fs::read(data).expect("the snapshot");
    let mut corrupt = good.clone();
    let middle = corrupt.len() / 2;
    corrupt[middle..middle + 64].fill(0xff);
    let cases: [(&str, &[u8]); 4] = [
        ("cut.pickle", &good[..good.len() / 2]),
        ("corrupt.pickle", &corrupt),
        ("begin.pickle", &good[..1]),
        // pickle.dumps([1, 2])
        (
            "list.pickle",
            b"\x80\x04\x95\x09\0\0\0\0\0\0\0]\x94(K\x01K\x02e.",
        ),
    ];
    for (name, contents) in cases {
        let path = files.write(name, contents);
        by_every_command(&files, &path, &[], name);
    }
}

#[test]
fn files_of_any_size_are_refused_before_they_are_held() {
    let files = Files::new();
    let path = files.write("huge.pickle", [0x80, 4]);
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    // Sparse: it takes no room on the disk.
    file.expect("opened").set_len(1 << 40).expect("as long");
    by_every_command(&files, &path, &[], "huge.pickle");
    let mut endless = b"# npualloc-trace v1\nm ".to_vec();
    endless.resize(1 << 20, b'x');
    let path = files.write("endless", endless);
    by_every_command(&files, &path, &[], "endless");
    // Zeros, a thousandth of their size.
    let path = files.write("bomb.gz", gzip(&vec![0; 1 << 28]));
    by_every_command(&files, &path, &[], "not an npualloc trace");
}

#[test]
fn every_command_checks_settings_and_capacity() {
    let files = Files::new();
    let trace = files.write("t", growing());
    by_every_command(&files, &trace, &["--conf", "colour:blue"], "colour");
    by_every_command(
        &files,
        &trace,
        &["--capacity", "0"],
        "a capacity of 0 bytes",
    );
}

#[test]
fn a_device_of_a_recording_that_has_one() {
    let files = Files::new();
    let trace = files.write("t", growing());
    by_every_command(
        &files,
        &trace,
        &["--device", "1"],
        "a file for each further device",
    );
}

#[test]
fn a_line_without_end_is_named_and_not_shown_whole() {
    let files = Files::new();
    let long = "x".repeat(70_000);
    let trace = files.write("long", format!("# npualloc-trace v1\n{long}\n"));
    let output = npualloc()
        .arg("replay")
        .arg(&trace)
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("longer than 65536 bytes") && errors.len() < 1000,
        "{errors}"
    );
}

#[test]
fn settings_and_sizes_that_make_no_sense() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let trace = text(&trace);
    refused(&["replay", trace, "--conf", "colour:blue"], "colour");
    refused(
        &["replay", trace, "--conf", "max_split_size_mb:1"],
        "max_split_size_mb",
    );
    refused(
        &["replay", trace, "--capacity", "0"],
        "a capacity of 0 bytes",
    );
    refused(
        &["fit", trace, "--in", "0GiB"],
        "a capacity of 0 bytes is outside 2.0 MiB to 512.00 GiB",
    );
    refused(&["fit", trace, "--in", "900TiB"], "outside");
    refused(&["fit", trace, "--in", "many"], "many");
    refused(&["fit", trace], "--in");
    refused(&["frobnicate"], "frobnicate");
    // A capacity in the file is checked like one on the command line.
    let odd = files.write(
        "odd",
        growing().replace("# workload", "# capacity 7\n# workload"),
    );
    refused(
        &["replay", text(&odd)],
        "a capacity of 7 bytes (from the trace's header)",
    );
}
