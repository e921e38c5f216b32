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
        (
            "cut.gz",
            good[..good.len() / 2].to_vec(),
            "ends in the middle",
        ),
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
        for command in [
            vec!["replay", text(&path)],
            vec!["advise", text(&path)],
            vec!["fit", text(&path), "--in", "1GiB"],
        ] {
            refused(&command, reason);
        }
    }
    refused(&["replay", text(&files.0.path().join("absent"))], "absent");
    refused(&["replay", text(files.0.path())], "directory");
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
    refused(&["fit", trace, "--in", "0GiB"], "a capacity of 0 bytes");
    refused(&["fit", trace, "--in", "900TiB"], "outside");
    refused(&["fit", trace, "--in", "many"], "many");
    refused(&["fit", trace], "--in");
    refused(&["frobnicate"], "frobnicate");
    // A capacity in the file is checked like one on the command line.
    let odd = files.write(
        "odd",
        growing().replace("# workload", "# capacity 7\n# workload"),
    );
    refused(&["replay", text(&odd)], "a capacity of 7 bytes");
}
