use std::fmt::Write as _;
use std::path::Path;

use npualloc_replay::pools;
use npualloc_replay::replay::{Observer, replay_observed};
use npualloc_replay::trace::{Event, Trace};

use super::*;
use crate::runs;

const FIXED: &str = "expandable_segments:False";
const VIRTUAL: &str = "expandable_segments:True";

/// Follows a replay, and asks for all of what it should have come to wherever segments changed.
struct Checked {
    ranges: Ranges,
    /// Events at which they did.
    events: usize,
}

impl Checked {
    fn check(&mut self, at: usize, block: Option<&BlockView>, allocator: &DeviceAllocator) {
        let mut entries = allocator.take_undelivered_trace();
        entries.retain(|entry| {
            use Action::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
            matches!(
                entry.action,
                SegmentAlloc | SegmentFree | SegmentMap | SegmentUnmap
            )
        });
        self.ranges.follow(at as u32, &entries, block, allocator);
        if entries.is_empty() {
            return;
        }
        self.events += 1;
        let expected: Vec<_> = allocator
            .snapshot(MempoolId::DEFAULT)
            .iter()
            .map(|info| {
                let owner = Owner {
                    stream: info.stream.0 as u32,
                    pool: self.ranges.number_of(&info.pool),
                    large: info.large,
                    page: info.page_size.unwrap_or(0) as u64,
                };
                (info.addr as u64, info.total_size as u64, owner)
            })
            .collect();
        drop(allocator.take_undelivered_trace());
        let held = self.ranges.held.values().map(|it| &self.ranges.all[*it]);
        let held: Vec<_> = held
            .map(|range| (range.addr, range.size, range.owner))
            .collect();
        assert_eq!(held, expected, "event {at}");
    }
}

impl Observer for Checked {
    fn begin(&mut self, allocator: &DeviceAllocator) {
        allocator.attach_trace_trackers();
    }

    fn after(&mut self, at: usize, _: &Event, addr: usize, allocator: &DeviceAllocator) {
        self.check(at, allocator.describe_block(addr).as_ref(), allocator);
    }
}

fn follow(conf: &str, text: &str) -> Checked {
    let text = format!("# npualloc-trace v1\n{text}");
    let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a trace");
    let capacity = runs::capacity(None, &trace).expect("a capacity");
    let setup = runs::setup(runs::settings(conf).expect("settings"), capacity);
    let mut checked = Checked {
        ranges: Ranges::new(pools::ids(&trace.pools).zip(1..).collect()),
        events: 0,
    };
    let outcome = replay_observed(&trace, &setup, &mut checked).expect("replayed");
    assert_eq!(outcome.message, None);
    checked
}

/// Whose it is, since when and until when, of every range.
fn lives(checked: &Checked) -> Vec<(u32, u16, u32, Option<u32>)> {
    let ranges = checked.ranges.all.iter();
    ranges
        .map(|range| {
            let owner = range.owner;
            (owner.stream, owner.pool, range.begins, range.ends)
        })
        .collect()
}

/// Of 64 MiB no second segment has room: the first is given back for it, and the driver gives its address out
/// again.
#[test]
fn an_address_taken_again_within_an_event_is_another_range() {
    let first = "# capacity 67108864\np 7 7\na 0 41943040 0\n";
    let other = follow(FIXED, &format!("{first}f 0\ns *\na 1 41943040 1 0 1\n"));
    assert_eq!(other.ranges.all[0].addr, other.ranges.all[1].addr);
    assert_eq!(lives(&other), [(0, 0, 0, Some(3)), (1, 1, 3, None)]);
    // The owner is the same, and so is the size: what is as large as `max_split_size_mb` is for larger requests.
    let oversize = "expandable_segments:False,max_split_size_mb:20";
    let small = "# capacity 33554432\na 0 5242880 0\nf 0\ns *\na 1 5242880 0\n";
    let same = follow(oversize, small);
    assert_eq!(same.ranges.all[0].addr, same.ranges.all[1].addr);
    assert_eq!(lives(&same), [(0, 0, 0, Some(3)), (0, 0, 3, None)]);
}

/// Blocks of some sizes in some order on `streams` streams and in `pools` pools, the default one among them, at most
/// `most` bytes at once.
fn program(seed: u64, steps: usize, streams: u64, pools: u64, most: u64) -> String {
    let mut seed = seed;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut text = (1..pools).fold(String::new(), |text, pool| text + &format!("p {pool} 0\n"));
    let (mut live, mut bytes) = (Vec::new(), 0);
    for block in 0..steps {
        let size = [1000, 300 << 10, 3 << 20, 7 << 20, 41 << 20][draw(5) as usize] + draw(1 << 20);
        while bytes + size > most {
            let (freed, size) = live.swap_remove(draw(live.len() as u64) as usize);
            let _ = writeln!(text, "f {freed}");
            bytes -= size;
        }
        let _ = writeln!(text, "a {block} {size} {} 0 {}", draw(streams), draw(pools));
        if draw(4) == 0 {
            let _ = writeln!(text, "u {block} {}", draw(streams));
        }
        if draw(100) == 0 {
            text.push_str("e\n");
        }
        live.push((block, size));
        bytes += size;
    }
    text
}

#[test]
fn what_is_followed_in_hand_is_what_there_is() {
    let most = 600u64 << 20;
    for (streams, pools) in [(1, 1), (3, 1), (8, 1), (1, 3), (2, 2)] {
        // Little enough that memory is given back, and pages move.
        let capacity = (pools + 1) * most;
        let text = format!("# capacity {capacity}\n") + &program(1, 2000, streams, pools, most);
        for conf in [
            FIXED,
            VIRTUAL,
            "expandable_segments:True,segment_size_mb:64",
        ] {
            let checked = follow(conf, &text);
            assert!(checked.events > 20, "{conf}: {}", checked.events);
        }
    }
}

/// Streams come to share their blocks when the program with the seed 65 gets a new segment.
#[test]
fn what_is_followed_in_hand_is_what_there_is_in_other_programs() {
    let most = 600u64 << 20;
    for seed in (45..=75).step_by(2) {
        for (streams, pools) in [(3, 1), (3, 4)] {
            let capacity = (pools + 1) * most + (100 << 20);
            let program = program(seed * 7919, 400, streams, pools, most);
            follow(VIRTUAL, &format!("# capacity {capacity}\n{program}"));
        }
    }
}

/// A snapshot takes as long as there are blocks.
#[test]
fn no_snapshot_is_taken_for_new_segments() {
    let program = |pools| program(1, 2000, 1, pools, 4 << 30);
    for (conf, pools, least) in [(VIRTUAL, 1, 100), (FIXED, 1, 20), (VIRTUAL, 40, 100)] {
        let text = "# capacity 68719476736\n".to_owned() + &program(pools);
        let checked = follow(conf, &text);
        assert!(checked.events > least, "{conf}: {}", checked.events);
        assert_eq!(checked.ranges.snapshots, 0, "{conf}, {pools} pools");
    }
}
