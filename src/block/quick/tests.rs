//! Which freed blocks are kept, found and given up.

use super::*;
use crate::ids::SegmentId;
use proptest::prelude::*;
use std::collections::HashSet;

const LIST: ListId = ListId(3);

/// Keeps up to so many bytes of either kind.
fn limit(quick: &mut QuickLists, bytes: usize) {
    quick.limit(Limits {
        small: bytes,
        large: bytes,
        largest: usize::MAX,
        stepped: 0,
        beyond: None,
    });
}

/// Quick lists in which a size was asked for often enough, and an arena.
fn asked(size: usize) -> (QuickLists, BlockArena) {
    let mut quick = QuickLists::default();
    limit(&mut quick, usize::MAX);
    let arena = BlockArena::default();
    for _ in 0..3 {
        assert_eq!(quick.take(&arena, LIST, size), Found::Nothing);
    }
    (quick, arena)
}

fn block(arena: &mut BlockArena, size: usize) -> BlockId {
    arena.insert(0, size, SegmentId(0), LIST)
}

/// Whether a block is kept.
fn keep(
    quick: &mut QuickLists,
    arena: &mut BlockArena,
    list: ListId,
    size: usize,
    id: BlockId,
) -> bool {
    let outcome = quick.keep(arena, list, size, id);
    let kept = arena[id].state == BlockState::Kept;
    assert_eq!(outcome == Keep::Kept, kept);
    kept
}

/// Other sizes of the same set.
fn neighbours_of(size: usize) -> impl Iterator<Item = usize> {
    let at = set_of(key_of(LIST, size, SIZE_BITS));
    let shares =
        move |other: &usize| *other != size && set_of(key_of(LIST, *other, SIZE_BITS)) == at;
    (1..).map(|n| n * 512).filter(shares)
}

#[test]
fn a_set_fills_a_cache_line() {
    assert_eq!(size_of::<Set>(), 64);
}

#[test]
fn the_block_kept_last_is_found_first_and_by_its_size_and_list_alone() {
    let (mut quick, mut arena) = asked(1024);
    let ids = [1024; 2].map(|size| block(&mut arena, size));
    for id in ids {
        assert!(keep(&mut quick, &mut arena, LIST, 1024, id));
    }
    assert_eq!(quick.take(&arena, LIST, 1536), Found::Nothing);
    assert_eq!(quick.take(&arena, ListId(4), 1024), Found::Nothing);
    assert_eq!(quick.take(&arena, LIST, 1024), Found::Block(ids[1]));
    assert_eq!(quick.take(&arena, LIST, 1024), Found::Block(ids[0]));
    assert_eq!(quick.take(&arena, LIST, 1024), Found::Nothing);
    assert!(quick.is_empty());
}

#[test]
fn a_size_asked_for_once_is_not_kept() {
    let (mut quick, mut arena) = (QuickLists::default(), BlockArena::default());
    limit(&mut quick, usize::MAX);
    assert_eq!(quick.take(&arena, LIST, 512), Found::Nothing);
    let id = block(&mut arena, 512);
    assert!(!quick.wants(LIST, 512) && !keep(&mut quick, &mut arena, LIST, 512, id));
    assert!(quick.is_empty());
}

#[test]
fn what_no_key_can_tell_is_not_kept() {
    let (mut quick, mut arena) = asked(2 << 30);
    let id = block(&mut arena, 2 << 30);
    assert!(!quick.wants(LIST, 2 << 30) && !keep(&mut quick, &mut arena, LIST, 2 << 30, id));
    let far = ListId(1 << 10);
    for _ in 0..3 {
        assert_eq!(quick.take(&arena, far, 512), Found::Nothing);
    }
    assert!(!quick.wants(far, 512) && !keep(&mut quick, &mut arena, far, 512, id));
    // The largest of the last list that has one.
    let (last, size) = (ListId((1 << 10) - 1), (2 << 30) - 512);
    for _ in 0..3 {
        assert_eq!(quick.take(&arena, last, size), Found::Nothing);
    }
    assert!(quick.wants(last, size) && keep(&mut quick, &mut arena, last, size, id));
}

#[test]
fn no_more_is_kept_than_the_limit() {
    const SIZE: usize = 1 << 20;
    let (mut quick, mut arena) = asked(SIZE);
    let ids: Vec<_> = (0..5).map(|_| block(&mut arena, SIZE)).collect();
    limit(&mut quick, SIZE - 512);
    assert_eq!(quick.keep(&mut arena, LIST, SIZE, ids[0]), Keep::Full);
    limit(&mut quick, 4 * SIZE);
    let kept = ids.iter().map(|id| quick.keep(&mut arena, LIST, SIZE, *id));
    let [yes, no] = [Keep::Kept, Keep::Full];
    assert_eq!(kept.collect::<Vec<_>>(), [yes, yes, yes, yes, no]);
    assert_eq!(quick.pop(&arena), Some(ids[3]));
    assert!(keep(&mut quick, &mut arena, LIST, SIZE, ids[4]));
    limit(&mut quick, 0);
    assert!(!quick.is_on() && !quick.wants(LIST, SIZE));
    assert_eq!(quick.keep(&mut arena, LIST, SIZE, ids[0]), Keep::Full);
    let left = std::iter::from_fn(|| quick.pop(&arena));
    assert_eq!(left.collect::<Vec<_>>(), [ids[4], ids[2], ids[1], ids[0]]);
}

#[test]
fn without_room_for_large_blocks_only_small_sizes_are_looked_for() {
    let (mut quick, mut arena) = asked(8 << 20);
    let ids = [8 << 20, 1 << 20].map(|size| block(&mut arena, size));
    quick.limit(Limits {
        small: usize::MAX,
        large: 0,
        largest: 1 << 20,
        stepped: 1 << 20,
        beyond: Some(0),
    });
    assert!(quick.is_on() && !quick.keeps_large());
    assert!(!quick.wants(LIST, 8 << 20) && !quick.may_keep(8 << 20));
    let outcome = quick.keep(&mut arena, LIST, 8 << 20, ids[0]);
    assert_eq!(outcome, Keep::Unwanted);
    for _ in 0..3 {
        assert_eq!(quick.take(&arena, LIST, 1 << 20), Found::Nothing);
    }
    assert!(quick.may_keep(1 << 20) && keep(&mut quick, &mut arena, LIST, 1 << 20, ids[1]));
    assert_eq!(quick.take(&arena, LIST, 1 << 20), Found::Block(ids[1]));
    // One more than a step of 64 KiB.
    assert_eq!(quick.size_of_block((960 << 10) + 512), 1 << 20);
    assert_eq!(quick.size_of_block((1 << 20) + 512), (1 << 20) + 512);
}

#[test]
fn small_and_large_blocks_have_limits_of_their_own() {
    const LARGE: usize = MOST_STEPPED + 512;
    let (mut quick, mut arena) = asked(LARGE);
    for _ in 0..3 {
        assert_eq!(quick.take(&arena, LIST, MOST_STEPPED), Found::Nothing);
    }
    quick.limit(Limits {
        small: MOST_STEPPED,
        large: LARGE,
        largest: LARGE,
        stepped: MOST_STEPPED,
        beyond: Some(0),
    });
    for size in [MOST_STEPPED, LARGE] {
        let ids = [0; 2].map(|_| block(&mut arena, size));
        let kept = ids.map(|id| quick.keep(&mut arena, LIST, size, id));
        assert_eq!(kept, [Keep::Kept, Keep::Full]);
    }
    while let Some(id) = quick.pop(&arena) {
        let size = arena[id].size;
        arena[id].state = BlockState::Pending;
        assert_eq!(quick.keep(&mut arena, LIST, size, id), Keep::Kept);
        assert_eq!(quick.take_unasked(&arena, LIST, size), Some(id));
        assert_eq!(quick.take_unasked(&arena, LIST, size), None);
    }
    assert_eq!((quick.bytes, quick.len), ([0, 0], 0));
}

#[test]
fn blocks_have_few_sizes_only_where_that_is_wanted() {
    let mut quick = QuickLists::default();
    assert_eq!(quick.size_of_block(69 << 10), 69 << 10);
    quick.limit(Limits {
        small: 1,
        large: 1,
        largest: 1,
        stepped: MOST_STEPPED,
        beyond: Some(0),
    });
    assert_eq!(quick.size_of_block(69 << 10), 72 << 10);
    limit(&mut quick, usize::MAX);
    assert_eq!(quick.size_of_block(69 << 10), 69 << 10);
}

#[test]
fn a_block_larger_than_the_largest_is_not_kept() {
    const LARGE: usize = 64 << 20;
    for (largest, outcome) in [(LARGE, Keep::Kept), (LARGE - 512, Keep::Unwanted)] {
        let (mut quick, mut arena) = asked(LARGE);
        quick.limit(Limits {
            small: usize::MAX,
            large: usize::MAX,
            largest,
            stepped: 0,
            beyond: None,
        });
        let id = block(&mut arena, LARGE);
        assert_eq!(quick.keep(&mut arena, LIST, LARGE, id), outcome);
    }
}

#[test]
fn no_more_blocks_of_a_size_are_kept_than_can_be_merged_soon() {
    let (mut quick, mut arena) = asked(512);
    let ids: Vec<_> = (0..300).map(|_| block(&mut arena, 512)).collect();
    let kept = ids
        .iter()
        .filter(|id| keep(&mut quick, &mut arena, LIST, 512, **id));
    assert_eq!(kept.count(), 255);
    assert_eq!(quick.keep(&mut arena, LIST, 512, ids[299]), Keep::Unwanted);
    // Nor of all sizes.
    let mut kept = 255;
    for size in (2..=20).map(|units| units * 512) {
        for _ in 0..3 {
            quick.take(&arena, LIST, size);
        }
        for _ in 0..255 {
            let id = block(&mut arena, size);
            kept += usize::from(keep(&mut quick, &mut arena, LIST, size, id));
        }
    }
    assert_eq!(kept, 4096);
    // Sizes that nobody asks for are to make room.
    let id = block(&mut arena, 20 * 512);
    let outcome = quick.keep(&mut arena, LIST, 20 * 512, id);
    assert_eq!(outcome, Keep::Full);
}

#[test]
fn slots_that_hold_blocks_are_told_by_kind() {
    const LARGE: usize = MOST_STEPPED + 512;
    for (size, large) in [(512, false), (MOST_STEPPED, false), (LARGE, true)] {
        let (mut quick, mut arena) = asked(size);
        let slots = |quick: &mut QuickLists| {
            [false, true].map(|large| quick.holding(None, large, false).collect::<Vec<_>>())
        };
        assert_eq!(slots(&mut quick), [[], []]);
        let id = block(&mut arena, size);
        assert!(keep(&mut quick, &mut arena, LIST, size, id));
        let told = slots(&mut quick);
        let numbers = told.each_ref().map(Vec::len);
        assert_eq!(numbers, [usize::from(!large), usize::from(large)]);
        let of = |quick: &mut QuickLists, list| quick.holding(Some(list), large, false).count();
        assert_eq!([of(&mut quick, LIST), of(&mut quick, ListId(4))], [1, 0]);
        let slot = told[usize::from(large)][0];
        assert_eq!(quick.pop_of(&arena, slot), Some(id));
        assert_eq!(slots(&mut quick), [[], []]);
    }
}

#[test]
fn who_merges_all_does_not_forget_what_was_asked_for() {
    let (mut quick, mut arena) = asked(512);
    let id = block(&mut arena, 512);
    for _ in 0..2 {
        arena[id].state = BlockState::Pending;
        assert!(keep(&mut quick, &mut arena, LIST, 512, id));
        assert_eq!((quick.pop(&arena), quick.pop(&arena)), (Some(id), None));
    }
}

#[test]
fn a_size_is_given_up_when_only_others_are_asked_for() {
    let (mut quick, mut arena) = asked(4096);
    let others: Vec<usize> = neighbours_of(4096).take(4).collect();
    for size in &others[..3] {
        for _ in 0..3 {
            assert_eq!(quick.take(&arena, LIST, *size), Found::Nothing);
        }
    }
    let mut ids = Vec::new();
    for size in [4096].iter().chain(&others[..3]) {
        ids.push(block(&mut arena, *size));
        assert!(keep(
            &mut quick,
            &mut arena,
            LIST,
            *size,
            ids[ids.len() - 1]
        ));
    }
    // Four sizes answer for it by turns, eight times each; the first of them is the first to have done so.
    for _ in 0..28 {
        assert_eq!(quick.take(&arena, LIST, others[3]), Found::Nothing);
    }
    let Found::Stale(slot) = quick.take(&arena, LIST, others[3]) else {
        panic!("nothing is given up");
    };
    assert_eq!(quick.pop_of(&arena, slot), Some(ids[0]));
    assert_eq!(quick.pop_of(&arena, slot), None);
    quick.forget(slot);
    // Now it is the other's.
    for _ in 0..3 {
        assert_eq!(quick.take(&arena, LIST, others[3]), Found::Nothing);
    }
    assert!(quick.wants(LIST, others[3]) && !quick.wants(LIST, 4096));
    assert_eq!(quick.take(&arena, LIST, others[0]), Found::Block(ids[1]));
}

#[test]
fn what_was_asked_for_since_the_last_look_is_told() {
    let (mut quick, mut arena) = asked(512);
    let ids: Vec<_> = (0..2).map(|_| block(&mut arena, 512)).collect();
    for id in &ids {
        assert!(keep(&mut quick, &mut arena, LIST, 512, *id));
    }
    for id in ids.into_iter().rev() {
        let mut unused = || quick.holding(None, false, true).count();
        assert_eq!([unused(), unused()], [0, 1]);
        assert_eq!(quick.take(&arena, LIST, 512), Found::Block(id));
    }
}

proptest! {
    /// Whatever is done, a block that was kept comes out once, for its own size, and its bytes are counted.
    #[test]
    fn what_is_kept_comes_out_once(ops in prop::collection::vec((0u32..5, 1usize..300), 1..600)) {
        let (mut quick, mut arena) = (QuickLists::default(), BlockArena::default());
        let most = 900 * 512;
        limit(&mut quick, most);
        let mut kept = HashSet::new();
        for (op, n) in ops {
            // Some often, and more than there is room for.
            let size = if n < 200 { n % 20 + 1 } else { n } * 512;
            match op {
                0..3 => match quick.take(&arena, LIST, size) {
                    Found::Block(id) => prop_assert!(kept.remove(&(id, size))),
                    Found::Nothing => {}
                    Found::Stale(slot) => {
                        while let Some(id) = quick.pop_of(&arena, slot) {
                            prop_assert!(kept.remove(&(id, arena[id].size)));
                        }
                        quick.forget(slot);
                    }
                },
                3 => {
                    let id = block(&mut arena, size);
                    let wanted = quick.wants(LIST, size);
                    if keep(&mut quick, &mut arena, LIST, size, id) {
                        prop_assert!(wanted);
                        kept.insert((id, size));
                    }
                }
                _ => if n == 1 {
                    while let Some(id) = quick.pop(&arena) {
                        prop_assert!(kept.remove(&(id, arena[id].size)));
                    }
                    prop_assert!(kept.is_empty());
                },
            }
            let bytes: usize = kept.iter().map(|(_, size)| size).sum();
            prop_assert!(bytes == quick.bytes[0] && bytes <= most);
            prop_assert_eq!(quick.is_empty(), kept.is_empty());
        }
    }
}
