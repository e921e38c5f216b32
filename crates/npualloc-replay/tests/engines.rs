//! Both engines on made-up workloads over the simulated device: nothing touches memory that is not mapped
//! or unmaps memory under work, and virtual segments do without synchronising the device.

use std::fmt::Write;
use std::path::Path;

use ascendcl::Config;
use ascendcl::model::config::Alias;
use npualloc::config::Settings;
use npualloc_replay::replay::{Outcome, Setup, replay};
use npualloc_replay::synthetic;
use npualloc_replay::trace::Trace;

const MIB: u64 = 1 << 20;
/// Of large blocks on a device of less than 14 GiB.
const PAGE: u64 = 4 * MIB;

/// Tensors that are replaced again and again by slightly larger ones, with short-lived ones between.
fn growing_tensors() -> Trace {
    let mut text = String::from("# npualloc-trace v1\n");
    let mut next = 0;
    let mut alloc = |text: &mut String, bytes: u64| {
        let _ = writeln!(text, "a {next} {bytes} 0");
        next += 1;
        next - 1
    };
    let mut tensors: Vec<u64> = (0..16).map(|_| alloc(&mut text, 64 * MIB)).collect();
    for step in 1..=200 {
        for tensor in &mut tensors {
            let larger = alloc(&mut text, 64 * MIB + step * 96 * 1024);
            let scratch = alloc(&mut text, 3 * MIB);
            let _ = writeln!(text, "f {tensor}\nf {scratch}");
            *tensor = larger;
        }
    }
    Trace::parse(Path::new("growing"), text.as_bytes()).expect("a good trace")
}

/// Buffers filled on one stream and used on another, of sizes that change from round to round.
fn two_streams() -> Trace {
    let mut text = String::from("# npualloc-trace v1\n");
    let mut next = 0;
    for round in 0..60 {
        let first = next;
        for index in 0..12 {
            let bytes = (5 + (round * 7 + index * 11) % 60) * MIB + 512 * index;
            let _ = writeln!(text, "a {next} {bytes} {}", index % 2);
            let _ = writeln!(text, "u {next} {}", (index + 1) % 2);
            next += 1;
        }
        for id in first..next {
            let _ = writeln!(text, "f {id}");
        }
    }
    Trace::parse(Path::new("streams"), text.as_bytes()).expect("a good trace")
}

/// Each layer's parameters are gathered on one stream and used on another.
fn sharded() -> Trace {
    let text = synthetic::sharded(12, 20, 3);
    Trace::parse(Path::new("sharded"), text.as_bytes()).expect("a good trace")
}

fn run(trace: &Trace, conf: &str, capacity: u64, alias: Alias) -> Outcome {
    let setup = Setup {
        device: Config {
            capacity: capacity.next_multiple_of(2 * MIB),
            alias,
            ..Config::default()
        },
        settings: Settings::parse(conf).expect("good settings"),
        check_every: 97,
    };
    let outcome = replay(trace, &setup).expect("no failure");
    assert_eq!(outcome.driver_failed_at, None, "{:?}", outcome.message);
    outcome
}

#[test]
fn growing_tensors_fit_a_device_little_larger_than_they_are() {
    let trace = growing_tensors();
    // 16 tensors of about 80 MiB: a page of 4 MiB, as devices so small have, is a twentieth of one.
    let capacity = trace.peak_live + trace.peak_live / 8;
    let tight = run(&trace, "expandable_segments:True", capacity, Alias::Refuse);
    assert_eq!(tight.out_of_memory_at, None);
    assert_eq!((tight.device_syncs, tight.hazards), (0, 0));
    // Lengthening: far fewer pages move than the 16 × 200 replacements have (20 or more each).
    let held_pages = tight.peak_held / PAGE;
    let moved = tight.memory_calls - 2 * held_pages;
    assert!(moved < 16 * 200, "{moved} calls to move memory");
    let fixed = run(&trace, "expandable_segments:False", capacity, Alias::Refuse);
    let pressed = fixed.out_of_memory_at.is_some() || fixed.device_syncs > 0;
    assert!(
        pressed,
        "the capacity presses nobody: the test shows nothing"
    );
}

#[test]
fn no_engine_unmaps_or_frees_memory_under_work() {
    for trace in [growing_tensors(), two_streams(), sharded()] {
        for conf in ["expandable_segments:True", "expandable_segments:False"] {
            for percent in [105, 120, 200] {
                let capacity = trace.peak_live * percent / 100;
                let outcome = run(&trace, conf, capacity, Alias::Allow);
                assert_eq!(outcome.hazards, 0, "{conf} at {percent} %");
            }
        }
    }
}

#[test]
fn memory_of_one_stream_serves_another() {
    let trace = two_streams();
    // Twelve blocks, each of which may leave most of a page.
    let capacity = trace.peak_live + trace.peak_live / 6;
    let tight = run(&trace, "expandable_segments:True", capacity, Alias::Refuse);
    assert_eq!(tight.out_of_memory_at, None);
    assert_eq!((tight.device_syncs, tight.hazards), (0, 0));
}

#[test]
fn blocks_that_come_back_are_waited_for_where_many_pages_would_move() {
    let trace = sharded();
    let capacity = trace.peak_live + trace.peak_live / 50;
    let ample = 2 * trace.peak_live;
    for alias in [Alias::Allow, Alias::Refuse] {
        let tight = run(&trace, "expandable_segments:True", capacity, alias);
        assert_eq!(tight.out_of_memory_at, None);
        assert_eq!((tight.device_syncs, tight.hazards), (0, 0));
        // A gathered layer has about 100 pages, and 12 × 2 × 20 layers are gathered: moving them takes 48,000 calls.
        let held = tight.peak_held / PAGE;
        let moved = tight.memory_calls - 2 * held;
        assert!(moved < 3000, "{moved} calls to move memory");
        let loose = run(&trace, "expandable_segments:True", ample, alias);
        let held = loose.peak_held as f64 / trace.peak_live as f64;
        assert!(held < 1.08, "{held} times what is live");
    }
    let fixed = run(
        &trace,
        "expandable_segments:False",
        trace.peak_live * 5 / 4,
        Alias::Refuse,
    );
    assert_eq!(fixed.out_of_memory_at, None);
    assert!(fixed.device_syncs < 10, "{} waits", fixed.device_syncs);
}

#[test]
fn addresses_are_reserved_at_once_also_where_pages_do_not_divide_the_most_there_may_be() {
    let text = format!("# npualloc-trace v1\na 0 {} 0\n", 50 * MIB);
    let trace = Trace::parse(Path::new("one"), text.as_bytes()).expect("a good trace");
    let conf = "expandable_segments:True,segment_size_mb:20";
    let outcome = run(&trace, conf, 256 << 30, Alias::Allow);
    let reserved = outcome
        .calls
        .iter()
        .find(|(name, _)| *name == "aclrtReserveMemAddress");
    // The try of the driver, and the range.
    assert_eq!(reserved.map(|(_, calls)| *calls), Some(2));
}
