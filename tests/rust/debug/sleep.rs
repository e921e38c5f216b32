//! Memory that sleeps under the debug mode.

use super::*;

/// Calls that look at or write to memory.
fn touches(bench: &Bench) -> [u64; 2] {
    ["fill", "read"].map(|kind| bench.driver.calls(kind))
}

#[test]
fn what_sleeps_is_left_alone_and_wakes_without_a_red_zone() {
    for words in ["redzones", "redzones,poison,history"] {
        let bench = over(
            FakeDriver::backed(1 << 30),
            "expandable_segments:True",
            words,
        );
        let [kept, freed, last] = [1000, 3 * MIB, 700].map(|bytes| bench.allocate(bytes));
        assert!(bench.registry.sleep(0, None).unwrap() > 0);
        let before = touches(&bench);
        assert_eq!(bench.registry.check_memory(0).unwrap(), 0);
        bench.free(freed);
        assert_eq!(touches(&bench), before, "{words}");
        // Other memory is there now.
        bench.registry.wake_up(0, None).unwrap();
        assert_eq!(bench.registry.check_memory(0).unwrap(), 0);
        bench.is_sound();
        bench.free(kept);
        bench.is_sound();
        // New blocks are watched again, at the old places too.
        let again = bench.allocate(1000);
        assert_eq!(again, kept);
        bench.driver.write(again + 1000, 1, 1);
        assert!(bench.damage().contains("past the end"));
        bench.free(last);
        bench.is_sound();
    }
}

#[test]
fn a_pool_sleeps_while_others_are_watched() {
    let bench = over(
        FakeDriver::backed(1 << 30),
        "expandable_segments:True",
        "redzones,poison",
    );
    let device = bench.registry.device(0).unwrap();
    device.create_or_incref_pool(CAPTURE_POOL, false).unwrap();
    let inside = bench
        .registry
        .allocate_in(0, 1000, S0, CAPTURE_POOL, None)
        .unwrap();
    let outside = bench.allocate(1000);
    bench.registry.sleep(0, Some(CAPTURE_POOL)).unwrap();
    let zone = bench.size(outside) - 1000;
    assert_eq!(bench.registry.check_memory(0).unwrap(), zone);
    bench.driver.write(outside + 1000, 1, 1);
    let text = bench.damage();
    assert!(
        text.contains("past the end") && !text.contains("block 1 "),
        "{text}"
    );
    bench.registry.wake_up(0, Some(CAPTURE_POOL)).unwrap();
    bench.is_sound();
    bench.free(inside);
    bench.is_sound();
}

#[test]
fn damage_is_told_before_its_traces_are_lost() {
    let bench = over(
        FakeDriver::backed(1 << 30),
        "expandable_segments:True",
        "redzones",
    );
    let addr = bench.allocate(1000);
    bench.driver.write(addr + 1000, 1, 1);
    let mapped = bench.driver.mapped_bytes(0);
    assert!(matches!(
        bench.registry.sleep(0, None),
        Err(AllocError::Damage { .. })
    ));
    assert_eq!(bench.driver.mapped_bytes(0), mapped);
    assert_eq!(bench.registry.sleep(0, None).unwrap(), mapped);
}
