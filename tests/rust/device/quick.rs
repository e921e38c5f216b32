//! Freed blocks that are kept as they are: nobody sees that they are, and memory is not lost to them.

use super::few_sizes::come_back;
use crate::*;
use npualloc::config::SkippedRungs;
use npualloc::device::BlockInfo;
use npualloc::history::RecordContext;
use proptest::prelude::*;

/// A device whose engine the driver decides, without some ways to find memory.
pub(super) fn device_skipping(capacity: usize, config: &str, skipped: &str) -> DeviceAllocator {
    let mut settings = settings_by_default(config);
    settings.skipped_rungs =
        SkippedRungs::from_environment(|_| Some(skipped.to_owned())).expect("known");
    let driver = Arc::new(FakeDriver::new(capacity));
    DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device")
}

/// A device whose engine the driver decides.
pub(super) fn by_default(capacity: usize) -> (Arc<FakeDriver>, DeviceAllocator) {
    let (driver, settings) = (Arc::new(FakeDriver::new(capacity)), settings_by_default(""));
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    (driver, device)
}

const A: usize = 5 * MIB - 32;
const B: usize = 6 * MIB - 32;

/// Three blocks side by side of two sizes, the first and the last of the same, which were asked for a few times; the first
/// two were freed. What else is live is much more.
fn two_freed(device: &DeviceAllocator, [a, b]: [usize; 2]) -> [usize; 3] {
    for _ in 0..8 {
        device.allocate(64 * MIB, S0).expect("fits");
    }
    let small = device.allocate(4096, S0).expect("fits");
    let mut at = [0; 3];
    for _ in 0..4 {
        at.iter().rev().for_each(|addr| {
            device.deallocate(*addr);
        });
        at = [a, b, a].map(|bytes| device.allocate(bytes, S0).expect("fits"));
    }
    assert_eq!([at[1], at[2]], [at[0] + a + 32, at[0] + a + b + 64]);
    assert!(device.deallocate(at[0]) && device.deallocate(at[1]));
    // Another free, so that theirs are finished.
    assert!(device.deallocate(small));
    at
}

#[test]
fn a_block_that_is_kept_is_handed_out_as_it_lies() {
    let (_, device) = by_default(4 * GIB);
    let at = two_freed(&device, [A, B]);
    // Merged with the first, it would be split at its front.
    assert_eq!(device.allocate(B, S0).expect("fits"), at[1]);
    assert_eq!(device.allocate(A, S0).expect("fits"), at[0]);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_block_that_waited_for_another_stream_is_kept_as_well() {
    let (driver, device) = by_default(4 * GIB);
    for _ in 0..8 {
        device.allocate(64 * MIB, S0).expect("fits");
    }
    for _ in 0..4 {
        let addr = device.allocate(A, S0).expect("fits");
        assert!(device.deallocate(addr));
    }
    let small = device.allocate(4096, S0).expect("fits");
    assert!(device.deallocate(small));
    let [left, addr] = [B, A].map(|bytes| device.allocate(bytes, S0).expect("fits"));
    device.allocate(64 * MIB, S0).expect("fits");
    assert_eq!(addr, left + B + 32, "side by side");
    assert!(device.record_stream(addr, token(2)));
    driver.submit(token(2));
    assert!(device.deallocate(left) && device.deallocate(addr));
    driver.finish(token(2));
    // Asks for events, and gets what was freed before.
    assert_eq!(device.allocate(4096, S0).expect("fits"), small);
    // Merged with what is free on its left it would be split at the front.
    assert_eq!(device.allocate(A, S0).expect("fits"), addr);
    device.check_consistency().expect("consistent");
    assert!(device.deallocate(addr));
    assert!(!device.deallocate(addr), "once");
}

#[test]
fn whoever_looks_sees_blocks_merged() {
    let (_, device) = by_default(4 * GIB);
    let at = two_freed(&device, [A, B]);
    assert_eq!(device.describe_block(at[0]), None);
    let mut seen = Vec::new();
    for segment in device.snapshot(MempoolId::DEFAULT) {
        let mut addr = segment.addr;
        for block in &segment.blocks {
            let end = addr + block.size;
            if addr < at[2] && at[0] < end {
                // What was free before them belongs to it too.
                seen.push((addr <= at[0], end));
            }
            addr = end;
        }
    }
    assert_eq!(seen, [(true, at[2])], "one block");
    assert_ne!(device.allocate(B, S0).expect("fits"), at[1]);
}

#[test]
fn a_block_that_is_kept_is_not_freed_again_and_no_stream_uses_it() {
    let (_, device) = by_default(4 * GIB);
    let at = two_freed(&device, [A, B]);
    for addr in &at[..2] {
        assert!(!device.deallocate(*addr));
        assert!(!device.record_stream(*addr, SIDE));
    }
    assert!(device.record_stream(at[2], SIDE) && device.deallocate(at[2]));
    assert_eq!(device.allocate(B, S0).expect("fits"), at[1]);
    device.check_consistency().expect("consistent");
}

#[test]
fn memory_is_not_asked_for_while_blocks_that_are_kept_would_do() {
    let (driver, device) = by_default(4 * GIB);
    let at = two_freed(&device, [A, B]);
    let mapped = driver.mapped_bytes(0);
    // What is free besides is used up first; the last one needs new memory.
    let mut got = Vec::new();
    while driver.mapped_bytes(0) == mapped {
        got.push(device.allocate(A + B + 32, S0).expect("fits"));
    }
    assert!(got.contains(&at[0]), "merged, they served a request");
    device.check_consistency().expect("consistent");
}

#[test]
fn no_large_block_is_kept_where_virtual_segments_were_asked_for_memory_is_short_or_it_is_switched_off()
 {
    for (capacity, config, skipped) in [
        (4 * GIB, "expandable_segments:True", ""),
        (4 * GIB, "expandable_segments:False", ""),
        (536 * MIB, "", ""),
        (4 * GIB, "", "kept_blocks"),
    ] {
        let device = device_skipping(capacity, config, skipped);
        let at = two_freed(&device, [A, B]);
        let found = device.allocate(B, S0).expect("fits");
        assert_ne!(found, at[1], "{capacity} {config} {skipped}: not as it lay");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn small_blocks_are_kept_where_virtual_segments_were_asked_for() {
    const SMALL: [usize; 2] = [(40 << 10) - 32, (56 << 10) - 32];
    for (capacity, config, skipped, kept) in [
        (4 * GIB, "", "", true),
        (4 * GIB, "expandable_segments:True", "", true),
        (4 * GIB, "expandable_segments:False", "", false),
        (560 * MIB, "expandable_segments:True", "", false),
        (4 * GIB, "expandable_segments:True", "kept_blocks", false),
    ] {
        let device = device_skipping(capacity, config, skipped);
        let at = two_freed(&device, SMALL);
        let found = device.allocate(SMALL[1], S0).expect("fits");
        let as_it_lay = found == at[1];
        assert_eq!(as_it_lay, kept, "{capacity} {config} {skipped}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn what_is_not_asked_for_any_more_makes_room_for_what_is() {
    let (_, device) = by_default(4 * GIB);
    let large = 8 * MIB - 32;
    for _ in 0..32 {
        device.allocate(64 * MIB, S0).expect("fits");
    }
    let cycle = |bytes: usize, count: usize| {
        let at: Vec<_> = (0..count)
            .map(|_| device.allocate(bytes, S0).expect("fits"))
            .collect();
        for addr in &at {
            assert!(device.deallocate(*addr));
        }
        at
    };
    cycle(large, 64);
    cycle(large, 64);
    // The block freed last is handed out as it lies anyway; the one before it where it is kept.
    let is_kept = |bytes: usize| {
        let at = cycle(bytes, 4);
        cycle(bytes, 4)[1] == at[2]
    };
    let other = 16 * MIB - 32;
    assert!(!is_kept(other), "there is no room");
    for _ in 0..400 {
        is_kept(other);
    }
    assert!(is_kept(other), "there is room for it now");
    device.check_consistency().expect("consistent");
}

#[test]
fn a_block_that_is_kept_serves_no_request_that_is_far_too_large() {
    for bits in 48..60 {
        let (_, device) = by_default(4 * GIB);
        two_freed(&device, [A, B]);
        let found = device.allocate((1 << bits) + A, S0);
        assert!(found.is_err(), "2^{bits} bytes and {A}: {found:x?}");
        device.check_consistency().expect("consistent");
    }
}

#[test]
fn a_block_that_takes_much_of_what_may_be_kept_is_merged() {
    // An eighth of what is held may be kept, and a tenth of that in one block, but 64 MiB in any case.
    for (gib, mib, kept) in [(0, 32, true), (4, 96, false), (16, 96, true)] {
        let (_, device) = by_default(64 * GIB);
        for _ in 0..gib {
            device.allocate(GIB, S0).expect("fits");
        }
        let sizes = [mib * MIB - 32, (mib + 1) * MIB - 32];
        let at = two_freed(&device, sizes);
        let second = device.allocate(sizes[1], S0).expect("fits");
        // Merged with the first, it is split at its front.
        assert_eq!(second, at[usize::from(kept)], "{mib} MiB beside {gib} GiB");
        device.check_consistency().expect("consistent");
    }
}

const KIB: usize = 1 << 10;

/// Blocks of 832, 640 and 576 KiB that fill a page, of sizes that were asked for a few times.
fn full_page(device: &DeviceAllocator) -> [usize; 3] {
    for _ in 0..8 {
        device.allocate(64 * MIB, S0).expect("fits");
    }
    let mut at = [0; 3];
    for _ in 0..5 {
        at.iter().for_each(|addr| {
            device.deallocate(*addr);
        });
        at = [832, 640, 576].map(|size| device.allocate(size * KIB - 32, S0).expect("fits"));
    }
    assert_eq!([at[1] - at[0], at[2] - at[0]], [832 * KIB, 1472 * KIB]);
    at
}

#[test]
fn kept_blocks_far_below_a_request_are_merged_before_memory_is_asked_for() {
    let (driver, device) = by_default(4 * GIB);
    full_page(&device);
    let mut at = [0; 8];
    for _ in 0..5 {
        at.iter().for_each(|addr| {
            device.deallocate(*addr);
        });
        at = [0; 8].map(|_| device.allocate(256 * KIB - 32, S0).expect("fits"));
    }
    let calls = driver.calls("map");
    // The others keep their pages from moving.
    at[1..7]
        .iter()
        .for_each(|addr| assert!(device.deallocate(*addr)));
    let got = device.allocate(MIB - 32, S0).expect("fits");
    assert!(at.contains(&got), "merged, they serve it");
    assert_eq!(driver.calls("map"), calls);
    device.check_consistency().expect("consistent");
}

#[test]
fn a_larger_block_that_is_kept_is_split_before_all_others_are_merged() {
    let (driver, device) = by_default(4 * GIB);
    let at = full_page(&device);
    let calls = driver.calls("map");
    assert!(device.deallocate(at[0]) && device.deallocate(at[1]));
    assert_eq!(device.allocate(768 * KIB - 32, S0).expect("fits"), at[0]);
    // Merged with the former, it would be split behind it.
    assert_eq!(device.allocate(640 * KIB - 32, S0).expect("fits"), at[1]);
    assert_eq!(driver.calls("map"), calls);
    device.check_consistency().expect("consistent");
}

#[test]
fn kept_blocks_of_about_a_size_are_merged_before_all_others() {
    let (driver, device) = by_default(4 * GIB);
    let at = full_page(&device);
    let calls = driver.calls("map");
    at.iter().for_each(|addr| assert!(device.deallocate(*addr)));
    // The two largest are enough.
    assert_eq!(device.allocate(MIB - 32, S0).expect("fits"), at[0]);
    assert_eq!(device.allocate(576 * KIB - 32, S0).expect("fits"), at[2]);
    assert_eq!(driver.calls("map"), calls);
    device.check_consistency().expect("consistent");
}

#[test]
fn what_a_former_request_left_over_does_not_count_against_the_next() {
    let (_, device) = by_default(4 * GIB);
    device.allocate(64 * MIB, S0).expect("fits");
    device.allocate(4096, S0).expect("fits");
    come_back(&device, 70_000);
    let addr = device.allocate(70_000, S0).expect("fits");
    // What would merge with it to its right.
    let behind = device.allocate(4096, S0).expect("fits");
    assert!(device.deallocate(addr));
    device.record_history(true, 10, RecordContext::All);
    let before = device.stats().0.allocated_bytes.current();
    // All of the block, not from those that are kept.
    assert_eq!(device.allocate((72 << 10) - 32, S0).expect("fits"), addr);
    let counted = device.stats().0.allocated_bytes.current() - before;
    assert_eq!(counted, 72 << 10);
    assert_eq!(device.describe_block(addr).expect("live").size, 72 << 10);
    assert!(device.deallocate(behind));
    device.check_consistency().expect("consistent");
}

#[derive(Debug, Clone)]
enum Op {
    Alloc(usize, usize),
    Free(usize),
    /// The newest blocks are freed, and as many of the same sizes allocated, some times.
    Cycle(usize, u8),
    Use(usize),
    Look,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![
        prop::sample::select(vec![400usize, 4000, 70_000, MIB, 3 * MIB, 12 * MIB]),
        1usize..300_000,
    ];
    prop_oneof![
        4 => (size, 0usize..2).prop_map(|(bytes, stream)| Op::Alloc(bytes, stream)),
        3 => any::<usize>().prop_map(Op::Free),
        3 => (1usize..12, 2u8..5).prop_map(|(count, times)| Op::Cycle(count, times)),
        1 => any::<usize>().prop_map(Op::Use),
        1 => Just(Op::Look),
    ]
}

/// With the padding and the rounding.
fn rounded(bytes: usize) -> usize {
    (bytes + 32).next_multiple_of(512)
}

proptest! {
    /// Blocks never overlap, and what is allocated is what the client has, whether blocks are kept or not.
    #[test]
    fn figures_of_live_blocks_are_right_while_blocks_are_kept(
        ops in prop::collection::vec(op(), 1..150), capacity in prop::sample::select(vec![256 * MIB, 8 * GIB])
    ) {
        let (driver, device) = by_default(capacity);
        // Much that is live, so that much may be kept.
        device.allocate(128 * MIB, S0).expect("fits");
        let mut live: Vec<(usize, usize, StreamKey)> = Vec::new();
        let mut held = rounded(128 * MIB);
        let alloc = |live: &mut Vec<(usize, usize, StreamKey)>, bytes: usize, stream: StreamKey| {
            let Ok(addr) = device.allocate(bytes, stream) else { return 0 };
            let overlaps = live.iter().any(|(other, size, _)| addr < other + size && *other < addr + bytes);
            assert!(!overlaps, "{addr:#x} overlaps a live block");
            live.push((addr, bytes, stream));
            rounded(bytes)
        };
        for op in ops {
            match op {
                Op::Alloc(bytes, stream) => held += alloc(&mut live, bytes, StreamKey(stream)),
                Op::Cycle(count, times) => for _ in 0..times {
                    let cycled = live.split_off(live.len().saturating_sub(count));
                    for (addr, bytes, _) in &cycled {
                        prop_assert!(device.deallocate(*addr));
                        held -= rounded(*bytes);
                    }
                    for (_, bytes, stream) in cycled {
                        held += alloc(&mut live, bytes, stream);
                    }
                },
                Op::Look => device.check_consistency().expect("consistent"),
                _ if live.is_empty() => {}
                Op::Free(at) => {
                    let (addr, bytes, _) = live.swap_remove(at % live.len());
                    prop_assert!(device.deallocate(addr));
                    prop_assert!(!device.deallocate(addr));
                    held -= rounded(bytes);
                }
                Op::Use(at) => {
                    let (addr, ..) = live[at % live.len()];
                    prop_assert!(device.record_stream(addr, SIDE));
                    driver.submit(SIDE);
                    driver.finish(SIDE);
                }
            }
        }
        device.check_consistency().expect("consistent");
        let (stats, _) = device.stats();
        prop_assert_eq!(stats.allocated_bytes.current(), held as i64);
        prop_assert_eq!(stats.allocation.current(), live.len() as i64 + 1);
        let mut shown = 0;
        for segment in device.snapshot(MempoolId::DEFAULT) {
            let sizes = |which: fn(&BlockInfo) -> bool| -> usize {
                segment.blocks.iter().filter(|block| which(block)).map(|block| block.size).sum()
            };
            prop_assert_eq!(sizes(|_| true), segment.total_size);
            prop_assert_eq!(sizes(|block| block.allocated), segment.allocated_size);
            for pair in segment.blocks.windows(2) {
                prop_assert!(pair[0].active || pair[1].active, "free neighbours");
            }
            shown += segment.allocated_size;
        }
        prop_assert_eq!(shown, held);
        for (addr, ..) in live {
            prop_assert!(device.deallocate(addr));
        }
        device.empty_cache(MempoolId::DEFAULT).expect("works");
        device.check_consistency().expect("consistent");
    }
}
