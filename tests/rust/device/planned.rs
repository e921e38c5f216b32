//! Programs that repeat themselves while memory moves for them: in the end none moves any more.

use std::sync::atomic::{AtomicBool, Ordering};

use npualloc::config::SkippedRungs;

use crate::*;

/// Sizes in which no two steps of a period are alike, MiB.
const SIZES: [usize; 24] = [
    37, 5, 61, 12, 90, 23, 44, 8, 71, 19, 33, 54, 15, 82, 27, 48, 10, 66, 31, 6, 58, 21, 40, 13,
];
/// Blocks that are alive at once.
const ALIVE: usize = 9;

/// A device on which a program runs.
struct Runs {
    driver: Arc<FakeDriver>,
    device: Arc<DeviceAllocator>,
    alive: Vec<(usize, bool)>,
    /// The second stream uses every third block; its work never ends by itself.
    uses: bool,
}

impl Runs {
    fn new(capacity: usize, settings: &str, skipped: Option<&str>) -> Self {
        let driver = Arc::new(FakeDriver::new(capacity));
        let mut settings = Settings::parse(settings).expect("valid");
        settings.default_engine = DefaultEngine::Probe;
        settings.skipped_rungs =
            SkippedRungs::from_environment(|_| skipped.map(str::to_owned)).expect("known");
        let device =
            DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
        Self {
            driver,
            device: Arc::new(device),
            alive: Vec::new(),
            uses: false,
        }
    }

    /// A block of `size` MiB; the `at`-th of those alive is freed when there are enough.
    fn step(&mut self, size: usize, at: usize) {
        let addr = self.device.allocate(size * MIB, S0).expect("fits");
        let used = self.uses && at.is_multiple_of(3);
        if used {
            self.driver.submit(SIDE);
            assert!(self.device.record_stream(addr, SIDE));
        }
        self.alive.push((addr, used));
        if self.alive.len() > ALIVE {
            let (addr, _) = self.alive.remove(at * 5 % ALIVE);
            assert!(self.device.deallocate(addr));
        }
    }

    fn period(&mut self) {
        for (at, size) in SIZES.into_iter().enumerate() {
            self.step(size, at);
        }
        self.free_all();
        if self.uses {
            self.driver.finish(SIDE);
        }
        self.device.check_consistency().expect("consistent");
    }

    fn free_all(&mut self) {
        while let Some((addr, _)) = self.alive.pop() {
            assert!(self.device.deallocate(addr));
        }
    }

    /// A plan is made and followed; then the cache is emptied.
    fn plan_and_empty(&mut self, round: usize) {
        let before = self.planned();
        self.calls(100);
        assert!(self.planned() > before, "{round}");
        let emptied = self.device.empty_cache(MempoolId::DEFAULT);
        emptied.expect("nothing fails");
    }

    /// Driver calls that map or unmap in each of so many periods.
    fn calls(&mut self, periods: usize) -> Vec<u64> {
        let driver = self.driver.clone();
        let calls = || driver.calls("map") + driver.calls("unmap");
        (0..periods)
            .map(|_| {
                let before = calls();
                self.period();
                calls() - before
            })
            .collect()
    }

    fn planned(&self) -> u64 {
        self.device.ladder().blocks_planned
    }
}

/// The most that a period has alive, bytes in whole pages of 4 MiB.
fn most_alive() -> usize {
    let mut alive: Vec<usize> = Vec::new();
    let mut most = 0;
    for (at, size) in SIZES.into_iter().enumerate() {
        alive.push(size * MIB + 512);
        most = most.max(alive.iter().sum());
        if alive.len() > ALIVE {
            alive.remove(at * 5 % ALIVE);
        }
    }
    most.next_multiple_of(4 * MIB)
}

#[test]
fn a_full_device_maps_nothing_any_more_once_a_program_has_repeated_itself() {
    for (settings, aliases) in [("expandable_segments:True", true), ("", true), ("", false)] {
        let capacity = most_alive() + 44 * MIB;
        let mut runs = Runs::new(capacity, settings, None);
        if !aliases {
            runs.driver.refuse_aliasing();
        }
        let calls = runs.calls(30);
        assert!(calls[2] > 0, "{settings} {aliases}: {calls:?}");
        assert_eq!(calls[20..], [0; 10], "{settings} {aliases}: {calls:?}");
        assert!(runs.planned() > 10 * SIZES.len() as u64);
        let mut without = Runs::new(capacity, settings, Some("planned_blocks"));
        if !aliases {
            without.driver.refuse_aliasing();
        }
        let calls = without.calls(30);
        assert!(calls[20..].iter().sum::<u64>() > 0, "{calls:?}");
        assert_eq!(without.planned(), 0);
    }
}

#[test]
fn most_memory_stays_where_it_lies() {
    for slack in [44, 48, 60] {
        let mut runs = Runs::new(most_alive() + slack * MIB, "expandable_segments:True", None);
        runs.driver.refuse_aliasing();
        let calls = runs.calls(30);
        assert!(runs.planned() > 10 * SIZES.len() as u64);
        assert_eq!(calls[20..], [0; 10], "{calls:?}");
        // All of it would be unmapped and mapped.
        let all = 2 * most_alive() / (4 * MIB);
        let moved: u64 = calls[3..].iter().sum();
        assert!(moved < all as u64 / 4 * 3, "{slack} {all}: {calls:?}");
    }
}

#[test]
fn blocks_that_other_streams_use_are_waited_for_on_the_device() {
    let capacity = most_alive() + 44 * MIB;
    let mut runs = Runs::new(capacity, "expandable_segments:True", None);
    runs.calls(20);
    let planned = runs.planned();
    assert!(planned > 0);
    runs.uses = true;
    let waits = runs.driver.calls("event_synchronize");
    runs.calls(3);
    assert!(runs.planned() > planned);
    assert!(runs.device.ladder().stream_waits > 0);
    assert_eq!(runs.driver.calls("event_synchronize"), waits);
    assert_eq!(runs.driver.calls("synchronize_device"), 0);
}

#[test]
fn a_stream_waits_for_the_one_that_used_its_place_before() {
    let driver = Arc::new(FakeDriver::new(2 * most_alive()));
    let settings = Settings::parse("expandable_segments:True").expect("valid");
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    device.share_eagerly();
    device.plan_eagerly();
    let mut alive = Vec::new();
    for _ in 0..8 {
        for (at, size) in SIZES.into_iter().enumerate() {
            let stream = [S1, S2][at % 2];
            alive.push(device.allocate(size * MIB, stream).expect("fits"));
            driver.submit(token(stream.0 as i64));
            if alive.len() > ALIVE {
                assert!(device.deallocate(alive.remove(0)));
            }
        }
        for addr in alive.drain(..) {
            assert!(device.deallocate(addr));
        }
        device.check_consistency().expect("consistent");
    }
    let ladder = device.ladder();
    assert!(ladder.blocks_planned > 3 * SIZES.len() as u64);
    assert!(ladder.stream_waits > 0);
    assert_eq!(driver.calls("synchronize_device"), 0);
}

#[test]
fn after_something_else_the_plan_holds_again() {
    let capacity = most_alive() + 44 * MIB;
    let mut runs = Runs::new(capacity, "expandable_segments:True", None);
    runs.calls(20);
    for size in [3, 7, 11, 17, 3, 9] {
        runs.step(size, 1);
    }
    while let Some((addr, _)) = runs.alive.pop() {
        assert!(runs.device.deallocate(addr));
    }
    let before = runs.planned();
    let calls = runs.calls(3);
    assert_eq!(calls[2], 0, "{calls:?}");
    let planned = runs.planned() - before;
    assert!(planned >= 2 * SIZES.len() as u64, "{planned}");
}

#[test]
fn a_program_that_becomes_another_one_is_planned_anew() {
    let capacity = most_alive() + 44 * MIB;
    let mut runs = Runs::new(capacity, "expandable_segments:True", None);
    runs.calls(20);
    let before = runs.planned();
    // The same sizes in another order, for which memory moves as well.
    let other = |runs: &mut Runs| {
        for at in 0..SIZES.len() {
            runs.step(SIZES[at * 7 % SIZES.len()], at + 2);
        }
        runs.free_all();
        runs.device.check_consistency().expect("consistent");
    };
    for _ in 0..3 {
        other(&mut runs);
    }
    // Both may begin alike.
    assert!(runs.planned() <= before + 1);
    let soon = runs.planned();
    for _ in 0..200 {
        other(&mut runs);
    }
    assert!(runs.planned() > soon + 10 * SIZES.len() as u64);
}

#[test]
fn another_thread_may_do_anything_while_a_place_gets_memory() {
    type Act = fn(&DeviceAllocator);
    let acts: [Act; 3] = [
        |device| {
            let addr = device.allocate(40 * MIB, S0).expect("fits");
            assert!(device.deallocate(addr));
        },
        |device| device.empty_cache(MempoolId::DEFAULT).expect("works"),
        |device| {
            let settings = Settings::parse("expandable_segments:False").expect("valid");
            device.apply_settings(settings);
        },
    ];
    for (number, act) in acts.into_iter().enumerate() {
        let mut runs = Runs::new(2 * most_alive(), "expandable_segments:True", None);
        runs.device.plan_eagerly();
        let mut acted = 0;
        for period in 0..8 {
            for (at, size) in SIZES.into_iter().enumerate() {
                // Not the device itself, which would keep its driver, and so itself.
                let device = Arc::downgrade(&runs.device);
                let planned = runs.planned();
                runs.driver.meanwhile("map", move || {
                    act(&device.upgrade().expect("it is asked"));
                });
                runs.step(size, at);
                acted += u64::from(period > 3 && runs.planned() > planned);
                runs.device.check_consistency().expect("consistent");
            }
            while let Some((addr, _)) = runs.alive.pop() {
                assert!(runs.device.deallocate(addr));
            }
        }
        // The others end what was planned.
        assert!(acted > 0 || number > 0);
    }
}

#[test]
fn an_emptied_cache_ends_the_plan() {
    let capacity = most_alive() + 44 * MIB;
    let mut runs = Runs::new(capacity, "expandable_segments:True", None);
    runs.calls(20);
    runs.device
        .empty_cache(MempoolId::DEFAULT)
        .expect("nothing fails");
    runs.device.check_consistency().expect("consistent");
    assert_eq!(runs.driver.held_virtual(0), (0, 0));
    let before = runs.planned();
    runs.calls(2);
    assert_eq!(runs.planned(), before);
    // The next one is made as soon, however often: plans that paid for themselves were not in vain.
    for round in 0..8 {
        runs.plan_and_empty(round);
    }
}

#[test]
fn an_emptied_cache_makes_room_for_the_next_plan_however_often() {
    let mut runs = Runs::new(most_alive() + 48 * MIB, "expandable_segments:True", None);
    for round in 0..8 {
        // What stays lies among what comes and goes, so that plans have ranges of their own.
        for (at, size) in SIZES.into_iter().enumerate() {
            runs.step(size, at);
            if round == 0 && (at == 5 || at == 13) {
                runs.device.allocate(5 * MIB, S0).expect("fits");
            }
        }
        runs.free_all();
        runs.plan_and_empty(round);
    }
}

/// A period of a program of its own, by the stream and by what its sizes have more.
fn other_period(device: &DeviceAllocator, stream: StreamKey, more: usize) {
    let mut alive = Vec::new();
    for size in SIZES {
        alive.push(device.allocate((size + more) * MIB, stream).expect("fits"));
        if alive.len() > ALIVE {
            assert!(device.deallocate(alive.remove(0)));
        }
    }
    for addr in alive {
        assert!(device.deallocate(addr));
    }
}

#[test]
fn a_place_in_another_threads_plan_is_not_handed_out() {
    let runs = Runs::new(8 * GIB, "expandable_segments:True", None);
    let device = &runs.device;
    device.plan_eagerly();
    let until_planned = |device: &DeviceAllocator, stream, more, wanted| {
        let before = device.ladder().blocks_planned;
        for _ in 0..40 {
            if device.ladder().blocks_planned >= before + wanted {
                return;
            }
            other_period(device, stream, more);
        }
        panic!("no plan was made");
    };
    until_planned(device, S1, 0, 1);
    // Its places need memory again; the range stays, as something lies in it.
    device.allocate(SIZES[0] * MIB, S1).expect("fits");
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    let acted = Arc::new(AtomicBool::new(false));
    let (other, told) = (Arc::downgrade(device), acted.clone());
    let driver = Arc::downgrade(&runs.driver);
    runs.driver.meanwhile("map", move || {
        told.store(true, Ordering::Relaxed);
        let other = other.upgrade().expect("it is asked");
        until_planned(&other, S2, 1, 30);
        // Its work goes on.
        driver.upgrade().expect("it is asked").submit(token(2));
    });
    for size in &SIZES[1..] {
        let addr = device.allocate(size * MIB, S1).expect("fits");
        assert_eq!(device.describe_block(addr).expect("live").stream, S1);
        device.check_consistency().expect("consistent");
        if acted.load(Ordering::Relaxed) {
            return;
        }
    }
    panic!("nothing was mapped");
}
