//! Slots, splits and merges.

use super::*;

#[test]
fn a_block_fills_one_cache_line() {
    assert!(size_of::<Block>() <= 64, "{}", size_of::<Block>());
}

#[test]
fn split_and_merge_restore_the_block() {
    let mut arena = BlockArena::default();
    let id = arena.insert(0x1000, 4096, SegmentId(0), ListId(0));
    let front = arena.split_front(id, 1024);
    assert_eq!((arena[front].addr, arena[front].size), (0x1000, 1024));
    assert_eq!((arena[id].addr, arena[id].size), (0x1400, 3072));
    assert_eq!((arena[front].next, arena[id].prev), (id, front));
    arena.merge_right(front, id);
    assert_eq!((arena[front].addr, arena[front].size), (0x1000, 4096));
    assert!(!arena[front].is_split());
    assert_eq!(arena.len(), 1);
    // The slot is reused.
    assert_eq!(arena.insert(0, 512, SegmentId(0), ListId(0)), id);
}

#[test]
fn tidy_slots_are_used_again_in_order() {
    let mut arena = BlockArena::default();
    let insert = |arena: &mut BlockArena| arena.insert(0, 512, SegmentId(0), ListId(0));
    let ids: Vec<BlockId> = (0..100).map(|_| insert(&mut arena)).collect();
    for at in [70, 3, 99, 12, 45] {
        arena.remove(ids[at]);
    }
    arena.tidy();
    let again: Vec<BlockId> = (0..5).map(|_| insert(&mut arena)).collect();
    assert_eq!(again, [3, 12, 45, 70, 99].map(|at| ids[at]));
    assert!(!ids.contains(&insert(&mut arena)));
    assert_eq!(arena.len(), 101);
}
