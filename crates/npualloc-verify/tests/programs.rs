//! Random programs against the reference model. Shrunk failures are kept in `tests/programs.regressions` and, where
//! they tell something, in `tests/kept.rs`.

use npualloc_verify::op::{Op, Program, Setup};
use npualloc_verify::world::run;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![
        4 => 0u32..5_000,
        3 => 1u32..(2 << 20),
        3 => 1u32..(40 << 20),
        1 => 1u32..(600 << 20),
    ];
    let (device, stream, pool) = (0u8..3, 0u8..3, 0u8..3);
    let at = (0u8..3, 0u8..3);
    let pick = any::<u16>();
    let from = prop_oneof![5 => Just(0u8), 2 => 1u8..4];
    prop_oneof![
        16 => (device.clone(), stream.clone(), from, bytes)
            .prop_map(|(device, stream, pool, bytes)| Op::Allocate { device, stream, pool, bytes }),
        14 => pick.prop_map(|pick| Op::Free { pick }),
        1 => pick.prop_map(|pick| Op::FreeWrong { pick }),
        5 => (pick, stream.clone()).prop_map(|(pick, stream)| Op::Record { pick, stream }),
        1 => (pick, stream.clone()).prop_map(|(pick, stream)| Op::Erase { pick, stream }),
        4 => at.clone().prop_map(|(device, stream)| Op::Submit { device, stream }),
        3 => at.clone().prop_map(|(device, stream)| Op::Finish { device, stream }),
        2 => (device.clone(), 0u8..4).prop_map(|(device, pool)| Op::EmptyCache { device, pool }),
        1 => device.clone().prop_map(|device| Op::EmptyVirtual { device }),
        1 => (device.clone(), any::<u8>()).prop_map(|(device, percent)| Op::Fraction { device, percent }),
        1 => any::<u8>().prop_map(|change| Op::Settings { change }),
        3 => (device.clone(), pool.clone()).prop_map(|(device, pool)| Op::AddUser { device, pool }),
        2 => (device.clone(), pool.clone()).prop_map(|(device, pool)| Op::DropUser { device, pool }),
        1 => (device.clone(), pool.clone(), any::<bool>())
            .prop_map(|(device, pool, on)| Op::Overflow { device, pool, on }),
        1 => (device.clone(), pool.clone()).prop_map(|(device, pool)| Op::NoSplit { device, pool }),
        1 => device.clone().prop_map(|device| Op::BeginCapture { device }),
        2 => device.clone().prop_map(|device| Op::EndCapture { device }),
        1 => (device.clone(), pool).prop_map(|(device, pool)| Op::Save { device, pool }),
        1 => Just(Op::Restore),
        1 => (device.clone(), any::<bool>()).prop_map(|(device, on)| Op::History { device, on }),
        1 => device.clone().prop_map(|device| Op::Snapshot { device }),
        1 => (device, any::<u8>()).prop_map(|(device, percent)| Op::Others { device, percent }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(after, code)| Op::Fault { after, code }),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    (
        any::<u8>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.2),
        1u8..=3,
        64u16..1024,
    )
        .prop_map(
            |(
                config,
                probe,
                aliasing,
                heavy,
                lends,
                shares,
                crowded,
                repeats,
                devices,
                capacity,
            )| Setup {
                config,
                probe,
                aliasing,
                heavy,
                lends,
                shares,
                crowded,
                repeats,
                devices,
                capacity,
            },
        )
}

/// `PROPTEST_CASES`, or what takes some seconds.
fn cases() -> u32 {
    let given = std::env::var("PROPTEST_CASES");
    given
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(600)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_keep_every_rule(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..160),
    ) {
        run(&Program { setup, ops });
    }

    #[test]
    fn bytes_are_programs(data in prop::collection::vec(any::<u8>(), 0..600)) {
        run(&Program::from_bytes(&data));
    }
}
