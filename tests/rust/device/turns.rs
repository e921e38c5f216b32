//! Streams that need memory by turns, on a device that has plenty.

use crate::*;
use npualloc::config::SkippedRungs;

const BLOCKS: usize = 8;
const SIZE: usize = 512 * MIB - 4096;

/// What two streams that take turns make a device do: driver calls for memory in the last of `turns`, and bytes held.
fn after(turns: usize, mut settings: Settings) -> (u64, usize) {
    settings.skipped_rungs =
        SkippedRungs::from_environment(|_| Some("lent_blocks".to_owned())).expect("known");
    let driver = Arc::new(FakeDriver::new(64 * GIB));
    driver.refuse_aliasing();
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    let calls = || {
        let kinds = ["malloc_physical", "map", "unmap", "free_physical"];
        kinds.map(|kind| driver.calls(kind)).iter().sum::<u64>()
    };
    let mut last = 0;
    for _ in 0..turns {
        let before = calls();
        for stream in [S1, S2] {
            let blocks: Vec<usize> = (0..BLOCKS)
                .map(|_| device.allocate(SIZE, stream).expect("fits"))
                .collect();
            for addr in blocks {
                assert!(device.deallocate(addr));
            }
        }
        last = calls() - before;
    }
    device.check_consistency().expect("consistent");
    (last, driver.held_virtual(0).0)
}

#[test]
fn nothing_moves_any_more_after_some_turns_where_virtual_segments_were_not_asked_for() {
    let settings = || settings_by_default("");
    let (first, held) = after(2, settings());
    assert!(first > 0);
    assert!(
        held < 2 * BLOCKS * 512 * MIB,
        "more is held only bit by bit"
    );
    let (last, held) = after(8, settings());
    assert_eq!(last, 0);
    // What each stream needs at its peak, in whole pages.
    assert!(held <= 2 * (BLOCKS * 512 + 20) * MIB, "{held}");
}

#[test]
fn memory_moves_at_every_turn_where_virtual_segments_were_asked_for() {
    let settings = Settings::parse("expandable_segments:True").expect("valid");
    let (last, held) = after(8, settings);
    assert!(last > 0);
    let needed = BLOCKS * 512 * MIB;
    assert!(held <= needed + needed / 10, "{held}");
}
