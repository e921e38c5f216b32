//! The least capacity that is enough, and what became of requests that had failed in the recorded run.

use std::fmt::Write;
use std::path::Path;

use ascendcl::Config;
use npualloc::config::Settings;
use npualloc_replay::replay::{Outcome, Setup, replay};
use npualloc_replay::search::{min_capacity, min_capacity_above};
use npualloc_replay::trace::Trace;

const MIB: u64 = 1 << 20;
/// Bytes in which a device's memory is counted.
const GRAIN: u64 = 2 * MIB;
const MOST: u64 = 8 << 30;

fn trace(lines: &str) -> Trace {
    let text = format!("# npualloc-trace v1\n{lines}");
    Trace::parse(Path::new("t"), text.as_bytes()).expect("a good trace")
}

fn fixed(capacity: u64) -> Setup {
    Setup {
        device: Config {
            capacity,
            ..Config::default()
        },
        settings: Settings::parse("expandable_segments:False").expect("settings"),
        check_every: 1,
    }
}

fn run(trace: &Trace, capacity: u64) -> Outcome {
    replay(trace, &fixed(capacity)).expect("it runs")
}

/// Blocks of random sizes that come and go. Fixed segments serve it on 644 MiB, and not on 688 to 702.
fn gap() -> Trace {
    let mut state = 7u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut lines, mut live, mut next) = (String::new(), Vec::<u64>::new(), 0);
    for _ in 0..60 {
        if !live.is_empty() && draw(100) < 48 {
            let freed = live.remove(draw(live.len() as u64) as usize);
            let _ = writeln!(lines, "f {freed}");
        } else {
            let _ = writeln!(lines, "a {next} {} 0", (1 + draw(100)) * MIB);
            live.push(next);
            next += 1;
        }
    }
    trace(&lines)
}

#[test]
fn the_least_found_completes_and_a_grain_less_does_not() {
    let trace = gap();
    for resolution in [1, GRAIN, 16 * MIB] {
        let found = min_capacity(&trace, &fixed(MOST), MOST, resolution).expect("it runs");
        let (least, outcome) = found.expect("it fits somewhere");
        assert!(outcome.completes() && run(&trace, least).completes());
        let less = least - resolution.max(GRAIN);
        assert!(less >= trace.peak_live, "nothing was searched: {least}");
        assert!(!run(&trace, less).completes(), "{resolution}: {less}");
    }
}

#[test]
fn what_is_found_above_a_capacity_is_above_it() {
    let trace = gap();
    let above = |less| {
        let found = min_capacity_above(&trace, &fixed(MOST), less, MOST, GRAIN);
        Some(found.expect("it runs")?.0)
    };
    let given = 690 * MIB;
    assert!(!run(&trace, given).completes());
    let found = above(given).expect("it fits somewhere");
    assert!(found > given && run(&trace, found).completes(), "{found}");
    assert!(!run(&trace, found - GRAIN).completes(), "{found}");
    assert_eq!(above(MOST), None);
}

#[test]
fn a_largest_device_that_is_too_small_is_no_answer() {
    let trace = gap();
    let found = |most| min_capacity(&trace, &fixed(most), most, GRAIN).expect("it runs");
    let (least, _) = found(MOST).expect("it fits somewhere");
    assert!(found(least - GRAIN).is_none() && found(GRAIN).is_none());
    assert_eq!(found(least).map(|(bytes, _)| bytes), Some(least));
}

/// A request that failed when it was recorded.
fn failed(id: u32, bytes: u64) -> String {
    format!("m out of memory: {bytes} bytes\na {id} {bytes} 0\nf {id}\n")
}

#[test]
fn a_failed_request_ends_the_replay_where_the_program_ended_with_it() {
    let (small, large) = (64 * MIB, 4096 * MIB);
    let caught = format!("a 0 {small} 0\n{}{}", failed(1, small), failed(2, large));
    let went_on = trace(&format!("{caught}a 3 {small} 0\n"));
    let ended = trace(&caught);
    let outcome = run(&went_on, 1 << 30);
    assert!(outcome.completes());
    assert_eq!(outcome.failed_served, 1);
    let outcome = run(&ended, 1 << 30);
    // The second request is event 5: markers are events.
    assert_eq!(outcome.out_of_memory_at, Some(5));
    assert_eq!(outcome.failed_served, 1);
    let outcome = run(&ended, MOST);
    assert!(outcome.completes());
    assert_eq!(outcome.failed_served, 2);
}
