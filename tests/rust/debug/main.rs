//! The debug mode over the fake driver: what it finds, what it says of it, and what it leaves alone.

mod at_rest;
mod sleep;

use std::sync::Arc;

use npualloc::config::{DebugOptions, Settings};
use npualloc::debug::{Debug, RED_ZONE, WatchedDriver};
use npualloc::driver::fake::FakeDriver;
use npualloc::driver::{Driver, UNSUPPORTED_CODE};
use npualloc::error::AllocError;
use npualloc::ids::{DeviceId, MempoolId, StreamKey};
use npualloc::registry::Registry;

const MIB: usize = 1 << 20;
const S0: StreamKey = StreamKey(0);
const CAPTURE_POOL: MempoolId = MempoolId {
    first: 1,
    second: 0,
};

struct Bench {
    driver: Arc<FakeDriver>,
    registry: Registry,
}

fn over(driver: FakeDriver, config: &str, words: &str) -> Bench {
    let driver = Arc::new(driver);
    let settings = Settings::parse(config).unwrap();
    let options = DebugOptions::parse(words).unwrap();
    let registry = Registry::with_debug(driver.clone(), settings, 32, options);
    registry.init(2).unwrap();
    Bench { driver, registry }
}

fn bench(words: &str) -> Bench {
    over(FakeDriver::backed(1 << 30), "", words)
}

impl Bench {
    fn allocate(&self, bytes: usize) -> usize {
        self.registry.allocate(0, bytes, S0).unwrap()
    }

    fn free(&self, addr: usize) {
        self.registry.deallocate(addr).unwrap();
    }

    fn size(&self, addr: usize) -> usize {
        self.registry.describe_block(addr).unwrap().1.size
    }

    /// What the next check raises.
    fn damage(&self) -> String {
        match self.registry.check_memory(0) {
            Err(AllocError::Damage { text }) => text,
            other => panic!("no damage but {other:?}"),
        }
    }

    fn is_sound(&self) {
        self.registry.check_memory(0).unwrap();
        self.registry.check_consistency().unwrap();
    }
}

#[test]
fn a_program_that_keeps_to_its_blocks_is_left_alone() {
    for config in ["", "expandable_segments:True"] {
        let bench = over(
            FakeDriver::backed(1 << 30),
            config,
            "redzones,poison,history",
        );
        let mut live = Vec::new();
        let mut random = 7_usize;
        for _ in 0..400 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let draw = random >> 33;
            if live.len() > 30 || draw.is_multiple_of(3) && !live.is_empty() {
                let addr = live.swap_remove(draw % live.len());
                bench.free(addr);
            } else {
                let bytes = 1 + draw % (MIB + MIB / 2);
                let addr = bench.allocate(bytes);
                bench.driver.write(addr, bytes, draw as u8);
                live.push(addr);
            }
            if draw.is_multiple_of(97) {
                bench.registry.empty_cache(0, MempoolId::DEFAULT).unwrap();
            }
        }
        bench.is_sound();
    }
}

#[test]
fn a_write_past_the_end_is_found_when_the_block_is_freed() {
    let bench = bench("redzones");
    let addr = bench.allocate(1000);
    bench.driver.write(addr, 1001, 3);
    bench.free(addr);
    // The free itself can't fail: the next allocation does, and the one after it works.
    let Err(AllocError::Damage { text }) = bench.registry.allocate(0, 5, S0) else {
        panic!("not found");
    };
    assert!(
        text.contains("past the end of a block: 1 bytes differ, at offsets 1000 to 1000"),
        "{text}"
    );
    assert!(
        text.contains(&format!("block 1 at {addr:#x}: 1000.00 B")) || text.contains("(1000 bytes)"),
        "{text}"
    );
    bench.allocate(5);
    bench.is_sound();
}

#[test]
fn a_pool_that_ends_leaves_what_was_found_to_the_next_call() {
    let bench = bench("redzones");
    let device = bench.registry.device(0).unwrap();
    device.create_or_incref_pool(CAPTURE_POOL, false).unwrap();
    let pools = [CAPTURE_POOL, MempoolId::DEFAULT];
    let [inside, live] =
        pools.map(|pool| bench.registry.allocate_in(0, 1000, S0, pool, None).unwrap());
    bench.driver.write(inside + 1000, 1, 3);
    bench.free(inside);
    bench.driver.write(live + 1000, 1, 3);
    device.release_pool(CAPTURE_POOL).unwrap();
    bench.registry.empty_cache(0, CAPTURE_POOL).unwrap();
    let (stats, _) = device.stats();
    assert_eq!(stats.segment.aggregate().current, 1);
    // The one found by the free, and the one that the pool's end found.
    let Err(AllocError::Damage { text }) = bench.registry.empty_cache(0, MempoolId::DEFAULT) else {
        panic!("not told");
    };
    assert_eq!(text.matches("past the end of a block").count(), 2, "{text}");
    bench.is_sound();
}

#[test]
fn a_write_past_the_end_of_a_live_block_is_found_by_a_check_once() {
    let bench = bench("redzones");
    let (first, second) = (bench.allocate(700), bench.allocate(700));
    assert_eq!(second, first + bench.size(first));
    // The last byte before the second block: past the first one's end, or before the second one's start.
    bench.driver.write(second - 1, 1, 0);
    let text = bench.damage();
    let (at, other) = text.split_once("or before the start of").unwrap();
    assert!(
        at.contains("block 1 ") && other.contains("block 2 "),
        "{text}"
    );
    bench.is_sound();
    bench.free(first);
    bench.is_sound();
}

#[test]
fn every_byte_of_a_red_zone_counts_up_to_its_end() {
    for offset in [0, 1, RED_ZONE - 1] {
        let bench = bench("redzones");
        let addr = bench.allocate(512);
        assert!(bench.size(addr) >= 512 + RED_ZONE);
        bench.driver.write(addr + 512 + offset, 1, 0);
        bench.free(addr);
        let text = bench.damage();
        assert!(
            text.contains(&format!("at offsets {0} to {0};", 512 + offset)),
            "{text}"
        );
    }
}

#[test]
fn units_allow_for_the_rest_of_the_last_one() {
    let bench = bench("redzones,units");
    let addr = bench.allocate(1000);
    bench.driver.write(addr, 1024, 3);
    bench.free(addr);
    bench.is_sound();
    let addr = bench.allocate(1000);
    bench.driver.write(addr, 1025, 3);
    bench.free(addr);
    assert!(bench.damage().contains("at offsets 1024 to 1024"));
}

#[test]
fn a_write_after_a_free_is_found_when_the_memory_is_used_again() {
    for config in ["", "expandable_segments:True"] {
        let bench = over(FakeDriver::backed(1 << 30), config, "poison");
        let addr = bench.allocate(3 * MIB);
        bench.free(addr);
        bench.driver.write(addr + 2 * MIB, 4, 0);
        let again = bench.allocate(3 * MIB);
        assert_eq!(again, addr);
        let text = bench.damage();
        assert!(
            text.contains("written after it was freed: 4 bytes differ"),
            "{text}"
        );
        assert!(
            text.contains(&format!("at offsets {} to {};", 2 * MIB, 2 * MIB + 3)),
            "{text}"
        );
        assert!(
            text.contains("allocated after") && text.contains("freed after"),
            "{text}"
        );
        bench.free(again);
        bench.is_sound();
    }
}

#[test]
fn a_write_after_a_free_is_found_before_the_memory_is_given_back() {
    for config in ["", "expandable_segments:True"] {
        let bench = over(FakeDriver::backed(1 << 30), config, "poison");
        let addr = bench.allocate(3 * MIB);
        bench.free(addr);
        bench.driver.write(addr, 1, 0);
        let reserved = |bench: &Bench| bench.driver.held(0).1 + bench.driver.mapped_bytes(0);
        let before = reserved(&bench);
        assert!(matches!(
            bench.registry.empty_cache(0, MempoolId::DEFAULT),
            Err(AllocError::Damage { .. })
        ));
        assert_eq!(reserved(&bench), before);
        bench.registry.empty_cache(0, MempoolId::DEFAULT).unwrap();
        assert_eq!(reserved(&bench), 0);
    }
}

#[test]
fn memory_that_was_given_back_is_forgotten() {
    // Fixed segments and pages both: other memory at the same address holds something else.
    for config in ["", "expandable_segments:True"] {
        let bench = over(FakeDriver::backed(64 * MIB), config, "poison");
        for round in 0..8 {
            let addr = bench.allocate((20 + round) * MIB);
            bench.free(addr);
        }
        bench.registry.empty_cache(0, MempoolId::DEFAULT).unwrap();
        // Nothing is left to look at.
        assert_eq!(bench.registry.check_memory(0).unwrap(), 0);
        bench.allocate(30 * MIB);
        bench.is_sound();
    }
}

#[test]
fn a_page_has_one_address() {
    let driver = Arc::new(FakeDriver::backed(64 * MIB));
    let options = DebugOptions::parse("poison").unwrap();
    let debug = Arc::new(Debug::new(options, driver.clone()));
    let watched = WatchedDriver::new(driver, debug);
    let memory = watched.virtual_memory().unwrap();
    let device = DeviceId(0);
    let page = 2 * MIB;
    let addr = memory.reserve_address(device, 2 * page).unwrap();
    let handle = memory.malloc_physical(device, page, false).unwrap();
    memory.map(device, addr, page, handle).unwrap();
    let again = memory.map(device, addr + page, page, handle);
    assert_eq!(again.unwrap_err().code, UNSUPPORTED_CODE);
    memory.unmap(device, addr).unwrap();
    memory.map(device, addr + page, page, handle).unwrap();
}

#[test]
fn a_freed_pointer_is_told_with_its_history() {
    let bench = bench("history");
    let addr = bench.allocate(3000);
    let kept = bench.allocate(100);
    bench.free(addr);
    let told = |addr| bench.registry.deallocate(addr).unwrap_err().to_string();
    let text = told(addr);
    let (line, history) = text.split_once('\n').unwrap();
    assert_eq!(line, format!("invalid device pointer: {addr:#x}"));
    assert!(
        history.starts_with("The block was freed before.\nblock 1 "),
        "{text}"
    );
    assert_eq!(history.matches("a frame of the test").count(), 2, "{text}");
    let text = told(kept + 8);
    assert!(
        text.contains("It points 8 bytes into a live block.\nblock 2 "),
        "{text}"
    );
    assert!(told(0xdead_0000).contains("This allocator has not handed it out"));
    bench.is_sound();
    bench.free(kept);
}

#[test]
fn without_histories_an_unknown_pointer_has_stocks_text_alone() {
    for words in ["", "redzones,poison"] {
        let error = bench(words).registry.deallocate(0xdead_0000).unwrap_err();
        assert_eq!(error.to_string(), "invalid device pointer: 0xdead0000");
    }
}

#[test]
fn nothing_is_looked_at_during_a_capture() {
    let bench = bench("redzones,poison");
    let device = bench.registry.device(0).unwrap();
    device.create_or_incref_pool(CAPTURE_POOL, false).unwrap();
    let before = bench.allocate(1000);
    device.mark_capture_begin();
    bench.driver.set_capturing(true);
    let calls = |bench: &Bench| ["settle", "fill", "read"].map(|kind| bench.driver.calls(kind));
    let untouched = calls(&bench);
    let captured = bench
        .registry
        .allocate_in(0, 1000, S0, CAPTURE_POOL, None)
        .unwrap();
    bench.free(captured);
    bench.free(before);
    assert_eq!(bench.registry.check_memory(0).unwrap(), 0);
    assert_eq!(calls(&bench), untouched);
    device.mark_capture_end().unwrap();
    bench.driver.set_capturing(false);
    // Replays write to what was free after the capture.
    bench.driver.write(captured, 1000, 1);
    bench.is_sound();
}

#[test]
fn a_private_pool_is_not_poisoned() {
    let bench = bench("redzones,poison");
    let device = bench.registry.device(0).unwrap();
    device.create_or_incref_pool(CAPTURE_POOL, false).unwrap();
    let in_pool = || {
        bench
            .registry
            .allocate_in(0, 1000, S0, CAPTURE_POOL, None)
            .unwrap()
    };
    let addr = in_pool();
    bench.free(addr);
    bench.driver.write(addr, 1000, 1);
    assert_eq!(in_pool(), addr);
    bench.is_sound();
    // Its blocks have red zones all the same.
    bench.driver.write(addr + 1000, 1, 1);
    bench.free(addr);
    assert!(bench.damage().contains("past the end"));
}

#[test]
fn memory_that_keeps_nothing_is_not_checked() {
    let bench = over(FakeDriver::new(1 << 30), "", "redzones,poison");
    let addr = bench.allocate(1000);
    bench.free(addr);
    bench.allocate(1000);
    assert_eq!(bench.registry.check_memory(0).unwrap(), 0);
}

#[test]
fn a_free_that_can_not_wait_leaves_contents_alone() {
    let bench = bench("redzones,poison");
    let addr = bench.allocate(1000);
    bench.driver.fail_call(0, UNSUPPORTED_CODE);
    bench.free(addr);
    // Work submitted before the free may still write: no poison. The next allocation waits for it.
    bench.driver.write(addr, 1000, 1);
    let settled = bench.driver.calls("settle");
    bench.allocate(1000);
    assert_eq!(bench.driver.calls("settle"), settled + 1);
    bench.is_sound();
}

#[test]
fn the_end_of_the_process_touches_nothing() {
    let bench = bench("redzones,poison,history");
    let addr = bench.allocate(1000);
    bench.driver.write(addr, 2000, 1);
    bench.registry.begin_process_exit();
    let calls = bench.driver.total_calls();
    bench.free(addr);
    assert_eq!(bench.driver.total_calls(), calls);
}

#[test]
fn statistics_count_what_was_asked_for() {
    let bench = bench("redzones");
    bench.allocate(1000);
    let (stats, _) = bench.registry.device(0).unwrap().stats();
    assert_eq!(stats.requested_bytes.aggregate().current, 1000);
    assert_eq!(stats.allocated_bytes.aggregate().current, 2048);
}

#[test]
fn devices_are_checked_apart() {
    let bench = bench("redzones");
    let addr = bench.registry.allocate(1, 1000, S0).unwrap();
    bench.driver.write(addr + 1000, 1, 1);
    assert_eq!(bench.registry.check_memory(0).unwrap(), 0);
    let error = bench.registry.check_memory(1).unwrap_err();
    assert!(error.to_string().contains("device 1"), "{error}");
    assert!(matches!(
        bench.registry.check_memory(2),
        Err(AllocError::InvalidDevice { .. })
    ));
}
