use super::*;
use crate::ids::{ListId, SegmentId};
use proptest::prelude::*;
use std::collections::HashMap;

fn block(arena: &mut BlockArena, addr: usize) -> BlockId {
    arena.insert(addr, 512, SegmentId(0), ListId(0))
}

proptest! {
    #[test]
    fn agrees_with_a_hash_map(ops in prop::collection::vec((any::<bool>(), 1usize..600), 1..4000)) {
        let mut arena = BlockArena::default();
        let mut map = AddrMap::default();
        let mut model = HashMap::new();
        // Every third address shares its tag with another one.
        let addr_of = |key: usize| if key.is_multiple_of(3) { (key / 3) * 512 + (1 << 41) } else { key * 512 };
        for (add, key) in ops {
            let addr = addr_of(key);
            if add {
                let id = block(&mut arena, addr);
                if model.insert(addr, id).is_some() {
                    map.remove(addr, &arena);
                }
                map.insert(addr, id);
            } else {
                prop_assert_eq!(map.remove(addr, &arena), model.remove(&addr));
            }
            prop_assert_eq!(map.len(), model.len());
        }
        for key in 0..600 {
            let addr = addr_of(key);
            prop_assert_eq!(map.get(addr, &arena), model.get(&addr).copied());
        }
        prop_assert_eq!(map.iter().count(), model.len());
    }
}

#[test]
fn grows_and_keeps_everything() {
    let mut arena = BlockArena::default();
    let mut map = AddrMap::default();
    let ids: Vec<BlockId> = (1..=100_000usize)
        .map(|n| block(&mut arena, n << 21))
        .collect();
    for (n, id) in ids.iter().enumerate() {
        map.insert((n + 1) << 21, *id);
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(map.get((n + 1) << 21, &arena), Some(*id));
    }
    assert_eq!(map.get(3, &arena), None);
    assert_eq!(map.get((1 << 21) + 8, &arena), None);
    assert_eq!(map.get(0, &arena), None);
    // Who does not hold the lock is told where a block will be looked up.
    let signals = map.signals();
    for n in [1, 77, 100_000usize] {
        let tag = tag_of(n << 21);
        let bucket: *const Bucket = map.buckets.at(map.home(tag));
        assert_eq!(signals.see().bucket_of(hash_of(tag)), Some(bucket.addr()));
    }
    let held = map.heap_bytes();
    map.shrink();
    assert_eq!(map.heap_bytes(), held, "most of it is used");
    for (n, id) in ids[..99_990].iter().enumerate() {
        assert_eq!(map.remove((n + 1) << 21, &arena), Some(*id));
    }
    map.shrink();
    assert_eq!(map.heap_bytes(), AddrMap::default().heap_bytes());
    assert_eq!(
        signals.see().bucket_of(hash_of(tag_of(1 << 21))),
        None,
        "few"
    );
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(map.get((n + 1) << 21, &arena), (n >= 99_990).then_some(*id));
    }
    assert_eq!(map.iter().count(), 10);
}
