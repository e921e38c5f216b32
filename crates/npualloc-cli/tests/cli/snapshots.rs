//! Memory snapshots as traces. The program they were taken of keeps 3 MiB from before its history, 4
//! weights of 2 MiB, and in each of 3 steps makes 1 MiB and then three times 4 MiB that it keeps and 1 MiB
//! that replaces the last.

use std::path::{Path, PathBuf};

use predicates::str::contains;
use serde_json::Value;

use crate::traces::{Files, MIB, npualloc};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn replay(path: &Path) -> Value {
    replay_with(path, &[])
}

fn replay_with(path: &Path, more: &[&str]) -> Value {
    let output = npualloc()
        .args(["replay", "--json", "--conf", "expandable_segments:False"])
        .args(more)
        .arg(path)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_snapshot_replays_as_the_program_it_was_taken_of() {
    let npu = replay(&data("npu.pickle"));
    assert_eq!(npu["peak_live"], 25 * MIB);
    // 26 allocations and the marker where the history begins. 22 were freed, but the last one that another
    // stream uses was still waiting for it.
    assert_eq!(npu["events"], 26 + 1 + 21);
    let cuda = replay(&data("cuda.pickle"));
    assert_eq!(
        (&cuda["peak_live"], &cuda["events"]),
        (&npu["peak_live"], &npu["events"])
    );
}

#[test]
fn private_pools_stay_apart_and_end_with_their_last_user() {
    let pools = replay(&data("npu_pools.pickle"));
    // 8 allocations, 3 frees, and pool (0, 2), of which nothing is left at the end.
    assert_eq!(pools["events"], 8 + 3 + 1, "{pools}");
    assert_eq!(pools["private_pools"], 2);
    assert_eq!(pools["peak_live"], (6 + 6 + 40) * MIB);
    // Segments, MiB: 20 for the weights, 20 and 32 for each pool, 42 for the last. The idle 32 of pool (0, 1),
    // which is still there, are nobody else's; both segments of the other make room.
    let fits = |capacity: u64| {
        let capacity = (capacity * MIB).to_string();
        let run = &replay_with(&data("npu_pools.pickle"), &["--capacity", &capacity])["runs"][0];
        run["out_of_memory_at"].is_null()
    };
    assert!(fits(20 + 2 * (20 + 32)));
    assert!(!fits(20 + 2 * (20 + 32) - 2));
}

#[test]
fn a_report_shows_the_stacks() {
    let files = Files::new();
    let page = files.0.path().join("page.html");
    npualloc()
        .arg("report")
        .arg(data("npu.pickle"))
        .arg("-o")
        .arg(&page)
        .assert()
        .success();
    let text = std::fs::read_to_string(page).expect("written");
    assert!(
        text.contains(r"attention at train.py:4\nlayer at train.py:7"),
        "no stack"
    );
}

#[test]
fn pickles_that_are_no_snapshots_are_refused_and_run_nothing() {
    let files = Files::new();
    let good = std::fs::read(data("npu.pickle")).expect("read");
    let harm = files.0.path().join("harm");
    // os.system("touch …"), as pickle.dumps writes it.
    let command = format!("touch {}", harm.display());
    let mut evil = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c".to_vec();
    evil.push(command.len() as u8);
    evil.extend_from_slice(command.as_bytes());
    evil.extend_from_slice(b"\x85R.");
    for (name, contents, reason) in [
        ("evil", evil, "only plain data"),
        (
            "cut",
            good[..good.len() - 100].to_vec(),
            "ends in the middle",
        ),
        (
            "number",
            b"\x80\x04K\x01.".to_vec(),
            "not a memory snapshot",
        ),
        ("empty", b"\x80\x04}.".to_vec(), "\"segments\" is missing"),
        ("magic", b"\x80".to_vec(), "not a pickle"),
    ] {
        let path = files.write(name, contents);
        npualloc()
            .arg("replay")
            .arg(&path)
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains(reason));
    }
    assert!(!harm.exists());
    npualloc()
        .args(["replay", "--device", "7"])
        .arg(data("npu.pickle"))
        .assert()
        .code(2)
        .stderr(contains("no device 7"));
}

/// A text, a list and a dictionary as `pickle.dumps` writes them.
fn text(value: &str) -> Vec<u8> {
    [&[0x8c, value.len() as u8], value.as_bytes()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [&b"]("[..], &items.concat(), b"e"].concat()
}

fn dictionary(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(key, value)| [text(key), value.clone()].concat())
        .collect();
    [&b"}("[..], &pairs.concat(), b"u"].concat()
}

#[test]
fn a_snapshot_with_sizes_that_are_none_is_refused() {
    let files = Files::new();
    let small = |value: u8| vec![b'K', value];
    let negative = b"\x8a\x01\xfb".to_vec();
    // 2^63.
    let huge = b"\x8a\x09\0\0\0\0\0\0\0\x80\0".to_vec();
    let entry = |action: &str, pairs: &[(&str, Vec<u8>)]| {
        dictionary(&[&[("action", text(action)), ("stream", small(0))], pairs].concat())
    };
    let sized = |size: Vec<u8>| entry("alloc", &[("addr", small(1)), ("size", size)]);
    let block = |pairs: &[(&str, Vec<u8>)]| {
        let block = dictionary(&[&[("state", text("active_allocated"))], pairs].concat());
        dictionary(&[
            ("device", small(0)),
            ("stream", small(0)),
            ("address", small(1)),
            ("blocks", list(&[block])),
        ])
    };
    let run = |segments: &[Vec<u8>], entries: &[Vec<u8>]| {
        let snapshot = dictionary(&[
            ("segments", list(segments)),
            ("device_traces", list(&[list(entries)])),
        ]);
        let path = files.write("it", [&b"\x80\x04"[..], &snapshot, b"."].concat());
        npualloc()
            .args(["fit", "--in", "1GiB", "-q"])
            .arg(&path)
            .assert()
    };
    run(&[], &[sized(small(5))]).success();
    run(&[block(&[("size", small(5))])], &[]).success();
    let entries = [
        sized(negative.clone()),
        sized(huge),
        sized(text("b")),
        sized(b"G\x3f\xf0\0\0\0\0\0\0".to_vec()),
        entry("alloc", &[("addr", small(1))]),
        entry("oom", &[("addr", small(1))]),
        entry("free_completed", &[("addr", small(1))]),
    ];
    for entry in entries {
        let refused = run(&[], &[entry]).code(2);
        refused.stderr(contains("an entry without a usable size"));
    }
    let nowhere = entry("alloc", &[("size", small(5))]);
    let refused = run(&[], &[nowhere]).code(2);
    refused.stderr(contains("an entry without a usable addr"));
    let refused = run(&[block(&[("size", negative.clone())])], &[]).code(2);
    refused.stderr(contains("a block without a usable size"));
    let odd = block(&[("size", small(5)), ("requested_size", negative)]);
    let refused = run(&[odd], &[]).code(2);
    refused.stderr(contains("a block without a usable requested_size"));
}
