//! Random programs against a simple model: contents never overlap, nothing is lost, statistics equal a
//! recount, and a driver call that fails leaves everything consistent.

use std::collections::BTreeMap;
use std::sync::Arc;

use npualloc::config::Settings;
use npualloc::device::DeviceAllocator;
use npualloc::driver::fake::FakeDriver;
use npualloc::driver::{OUT_OF_MEMORY_CODE, StreamToken};
use npualloc::error::AllocError;
use npualloc::ids::{DeviceId, MempoolId, StreamKey};
use proptest::prelude::*;

const CAPACITY: usize = 512 << 20;

#[derive(Debug, Clone)]
enum Op {
    Allocate { bytes: usize, stream: usize },
    Free { pick: usize },
    Record { pick: usize, stream: i64 },
    Submit { stream: i64 },
    Finish { stream: i64 },
    EmptyCache,
    Fraction { percent: u8 },
    FailNext { after: u64, code: i32 },
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![
        4 => 1usize..5_000,
        3 => 1usize..(2 << 20),
        3 => 1usize..(40 << 20),
        1 => 1usize..(600 << 20),
    ];
    let code = prop_oneof![Just(OUT_OF_MEMORY_CODE), Just(500_000), Just(107_000)];
    prop_oneof![
        8 => (bytes, 0usize..3).prop_map(|(bytes, stream)| Op::Allocate { bytes, stream }),
        7 => any::<usize>().prop_map(|pick| Op::Free { pick }),
        3 => (any::<usize>(), 0i64..3).prop_map(|(pick, stream)| Op::Record { pick, stream }),
        2 => (0i64..3).prop_map(|stream| Op::Submit { stream }),
        2 => (0i64..3).prop_map(|stream| Op::Finish { stream }),
        1 => Just(Op::EmptyCache),
        1 => (20u8..=100).prop_map(|percent| Op::Fraction { percent }),
        1 => (0u64..4, code).prop_map(|(after, code)| Op::FailNext { after, code }),
    ]
}

fn config() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just(""),
        Just("max_split_size_mb:32"),
        Just("roundup_power2_divisions:4"),
        Just("garbage_collection_threshold:0.5,per_process_memory_fraction:0.7"),
        Just("multi_stream_lazy_reclaim:True"),
        Just("expandable_segments:True"),
        Just("expandable_segments:True,large_segment_size_mb:20"),
    ]
}

fn token(id: i64) -> StreamToken {
    StreamToken {
        id,
        device: 0,
        reserved: 0,
    }
}

/// What must hold after every step.
fn check(device: &DeviceAllocator, driver: &FakeDriver, live: &BTreeMap<usize, usize>) {
    device.check_consistency().expect("consistent");
    let (stats, _) = device.stats();
    assert_eq!(stats.allocation.current() as usize, live.len());
    assert_eq!(
        stats.reserved_bytes.current() as usize + device.idle_physical_bytes(),
        driver.held(0).1,
        "bytes lost or invented"
    );
    assert_eq!(
        stats.segment.current() as usize,
        driver.held(0).0,
        "segments lost or invented"
    );
    let mut end = 0;
    let mut places = BTreeMap::new();
    for (&addr, &bytes) in live {
        assert!(addr >= end, "blocks overlap at {addr:#x}");
        end = addr + bytes;
        let Some(pages) = device.pages_under(addr) else {
            continue;
        };
        for (at, handle) in (pages.addr..).step_by(pages.page_size).zip(pages.handles) {
            assert_eq!(driver.mapping(0, at), Some(handle), "not mapped at {at:#x}");
            let place = *places.entry(handle.0).or_insert(at);
            assert_eq!(place, at, "live blocks share physical memory");
        }
    }
}

/// Runs a program; true when a planned failure did not come up.
fn run(config: &str, aliasing: bool, heavy: bool, ops: Vec<Op>) -> bool {
    let driver = Arc::new(FakeDriver::new(CAPACITY));
    if !aliasing {
        driver.refuse_aliasing();
    }
    let settings = Settings::parse(config).expect("valid");
    let device = DeviceAllocator::new(DeviceId(0), driver.clone(), settings, 32).expect("device");
    if heavy {
        device.assume_heavy_traffic();
        device.assume_many_blocks();
        device.lend_eagerly();
        device.share_eagerly();
    }
    // Address → bytes asked for.
    let mut live: BTreeMap<usize, usize> = BTreeMap::new();
    let mut failing = false;
    for op in ops {
        let pick = |pick: usize| live.keys().nth(pick % live.len().max(1)).copied();
        match op {
            Op::Allocate { bytes, stream } => match device.allocate(bytes, StreamKey(stream)) {
                Ok(addr) => {
                    // The pad belongs to the block too.
                    assert!(live.insert(addr, bytes + 32).is_none(), "handed out twice");
                }
                Err(AllocError::OutOfMemory(_)) => {}
                Err(AllocError::Driver(_)) => assert!(failing, "an error nobody planned"),
                Err(error) => panic!("{error}"),
            },
            Op::Free { pick: at } => {
                if let Some(addr) = pick(at) {
                    live.remove(&addr);
                    assert!(device.deallocate(addr));
                }
            }
            Op::Record { pick: at, stream } => {
                if let Some(addr) = pick(at) {
                    assert!(device.record_stream(addr, token(stream)));
                }
            }
            Op::Submit { stream } => driver.submit(token(stream)),
            Op::Finish { stream } => driver.finish(token(stream)),
            Op::EmptyCache => {
                if let Err(error) = device.empty_cache(MempoolId::DEFAULT) {
                    assert!(failing, "an error nobody planned: {error}");
                }
            }
            Op::Fraction { percent } => {
                let set = device.set_memory_fraction(f64::from(percent) / 100.0);
                assert!(set.is_ok() || failing);
            }
            Op::FailNext { after, code } => {
                driver.fail_call(after, code);
                failing = true;
            }
        }
        check(&device, &driver, &live);
    }
    let unused = driver.withdraw_failure();
    for addr in std::mem::take(&mut live).into_keys() {
        assert!(device.deallocate(addr));
    }
    device.empty_cache(MempoolId::DEFAULT).expect("works");
    check(&device, &driver, &live);
    assert_eq!(driver.held(0), (0, 0), "memory leaked");
    assert_eq!(
        driver.held_virtual(0),
        (0, 0),
        "physical memory or addresses leaked"
    );
    unused
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_every_invariant(
        config in config(),
        aliasing in any::<bool>(),
        heavy in any::<bool>(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        run(config, aliasing, heavy, ops);
    }
}

/// For one program: fails its n-th driver call, for every n, with each code.
#[test]
fn every_driver_call_fails_once() {
    let program = || {
        let mut ops = Vec::new();
        for round in 0..4usize {
            for (step, bytes) in [300, 3 << 20, 30 << 20, 50 << 20].into_iter().enumerate() {
                ops.push(Op::Allocate {
                    bytes: bytes + round * 512,
                    stream: step % 2,
                });
            }
            ops.push(Op::Record {
                pick: round,
                stream: 1,
            });
            ops.push(Op::Submit { stream: 1 });
            ops.extend((0..3).map(|pick| Op::Free { pick }));
            if round % 2 == 1 {
                ops.push(Op::Finish { stream: 1 });
                ops.push(Op::EmptyCache);
            }
        }
        ops
    };
    let virtual_segments = "expandable_segments:True";
    for (config, aliasing, heavy) in [
        ("", false, false),
        ("", false, true),
        (virtual_segments, false, true),
        (virtual_segments, true, false),
    ] {
        for code in [OUT_OF_MEMORY_CODE, 500_000, 207_000, 107_002] {
            let mut n = 0;
            loop {
                let mut ops = vec![Op::FailNext { after: n, code }];
                ops.extend(program());
                if run(config, aliasing, heavy, ops) {
                    break;
                }
                n += 1;
            }
            assert!(n > 20, "the program makes only {n} driver calls");
        }
    }
}
