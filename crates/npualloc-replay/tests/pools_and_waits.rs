//! Private pools keep to themselves, and waiting for an event of the device waits for what was there when it was
//! recorded.

use std::path::Path;

use ascendcl::Config;
use npualloc::config::Settings;
use npualloc_replay::replay::{Outcome, Setup, replay};
use npualloc_replay::trace::Trace;

const MIB: u64 = 1 << 20;

/// Replays the lines with fixed segments.
fn run(lines: &str, capacity: u64) -> Outcome {
    let text = format!("# npualloc-trace v1\n{lines}");
    let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a good trace");
    let setup = Setup {
        device: Config {
            capacity,
            ..Config::default()
        },
        settings: Settings::parse("expandable_segments:False").expect("settings"),
        check_every: 1,
    };
    let outcome = replay(&trace, &setup).expect("it runs");
    assert_eq!(outcome.driver_failed_at, None, "{:?}", outcome.message);
    outcome
}

/// A block of 64 MiB that is freed, and another one.
fn twice(pools: (u8, u8), between: &str) -> String {
    let (first, second) = pools;
    let size = 64 * MIB;
    format!("p 0 7\na 0 {size} 0 0 {first}\nf 0\n{between}a 1 {size} 0 0 {second}\n")
}

#[test]
fn a_pools_free_memory_serves_its_own_requests_only() {
    let held = |pools| run(&twice(pools, ""), 1 << 30).peak_held;
    let one = held((0, 0));
    assert!(64 * MIB < one && one < 70 * MIB, "{one}");
    assert_eq!(held((1, 1)), one);
    assert_eq!(held((1, 0)), 2 * one);
    assert_eq!(held((0, 1)), 2 * one);
}

#[test]
fn memory_of_a_pool_is_given_back_once_it_has_no_user() {
    let fails = |between| {
        let outcome = run(&twice((1, 0), between), 100 * MIB);
        outcome.out_of_memory_at
    };
    assert_eq!(fails(""), Some(2));
    assert_eq!(fails("e\n"), Some(3));
    assert_eq!(fails("d 1\n"), None);
}

#[test]
fn what_is_emptied_as_the_program_ends_is_no_call_of_its_work() {
    let pair = "a 0 33554432 0\nf 0\ns *\n";
    let calls = |lines: &str| run(lines, 1 << 30).memory_calls;
    assert_eq!(calls(&format!("{pair}e\n")), calls(pair));
    let again = "a 1 33554432 0\nf 1\n";
    assert!(calls(&format!("{pair}e\n{again}")) > calls(&format!("{pair}{again}")));
}

#[test]
fn the_message_names_the_pool_as_the_program_does() {
    let lines = format!("p 0 7\na 0 {} 0 0 1\na 1 {} 0\n", 40 * MIB, 100 * MIB);
    let message = run(&lines, 100 * MIB).message.expect("out of memory");
    assert!(
        message.contains("stream 0x0, pool (0, 7): 42.00 MiB"),
        "{message}"
    );
}

#[test]
fn an_id_may_come_back() {
    let size = 64 * MIB;
    let lines = format!("p 0 7\na 0 {size} 0 0 1\nd 1\np 0 7\na 1 {size} 0 0 2\nf 0\nf 1\n");
    assert_eq!(run(&lines, 1 << 30).out_of_memory_at, None);
}

#[test]
fn a_wait_covers_what_the_stream_had_been_given_by_then() {
    // Stream 1 uses the block for longer than a driver call takes; whether it has ended decides whether the
    // memory serves again.
    let held = |wait: &str| {
        let (size, uses) = (64 * MIB, "u 0 1\n".repeat(200));
        let lines = format!("a 0 {size} 0\n{uses}f 0\n{wait}\na 1 {size} 0\n");
        run(&lines, 1 << 30).peak_held
    };
    let both = held("m nothing");
    let one = held("s 1");
    assert_eq!(both, 2 * one);
    assert_eq!(held("w 1 1"), one);
    assert_eq!(held("w 1 0"), one);
    assert_eq!(held("w 1 201"), both);
    assert_eq!(held("w 1 100"), both);
    assert_eq!(held("w 0 0"), both);
    assert_eq!(held("w 1 1\nw 1 2"), one);
}
