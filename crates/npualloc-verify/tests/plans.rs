//! Programs that repeat themselves, whose large blocks get places of their own: every rule is kept, whatever streams use
//! them, whatever fails, and however little memory there is.

use std::sync::atomic::{AtomicU64, Ordering};

use npualloc_verify::op::{Op, Program, Setup};
use npualloc_verify::world::run;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// One step of what is repeated. Blocks are large, so that they are planned.
fn step() -> impl Strategy<Value = Op> {
    let stream = 0u8..3;
    prop_oneof![
        8 => (stream.clone(), 2u32 << 20..48 << 20).prop_map(|(stream, bytes)| Op::Allocate {
            device: 0, stream, pool: 0, bytes
        }),
        5 => any::<u16>().prop_map(|pick| Op::Free { pick }),
        3 => (any::<u16>(), stream.clone()).prop_map(|(pick, stream)| Op::Record { pick, stream }),
        2 => stream.clone().prop_map(|stream| Op::Submit { device: 0, stream }),
        1 => stream.prop_map(|stream| Op::Finish { device: 0, stream }),
    ]
}

/// What disturbs it, rarely.
fn disturbance() -> impl Strategy<Value = Option<Op>> {
    let rare = prop_oneof![
        Just(Op::EmptyCache { device: 0, pool: 0 }),
        Just(Op::EmptyVirtual { device: 0 }),
        Just(Op::Snapshot { device: 0 }),
        Just(Op::BeginCapture { device: 0 }),
        (any::<u8>(), any::<u8>()).prop_map(|(after, code)| Op::Fault { after, code }),
        (0u8..40).prop_map(|percent| Op::Others { device: 0, percent }),
        any::<u8>().prop_map(|change| Op::Settings { change }),
    ];
    prop_oneof![3 => Just(None), 1 => rare.prop_map(Some)]
}

fn setup() -> impl Strategy<Value = Setup> {
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    (flags, 128u16..1024).prop_map(
        |((asked, aliasing, heavy, lends, shares), capacity)| Setup {
            // With `expandable_segments:True`, or by what the driver can do.
            config: u8::from(asked),
            probe: true,
            aliasing,
            heavy,
            lends,
            shares,
            crowded: false,
            repeats: true,
            devices: 1,
            capacity,
        },
    )
}

#[test]
fn programs_that_repeat_themselves_keep_every_rule() {
    let given = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|count| count.parse().ok());
    let config = Config {
        cases: given.unwrap_or(200),
        ..Config::default()
    };
    let planned = AtomicU64::new(0);
    let programs = (
        setup(),
        prop::collection::vec(step(), 16..60),
        disturbance(),
    );
    let outcome = TestRunner::new(config).run(&programs, |(setup, mut ops, disturbance)| {
        // All blocks are freed at the end of each time.
        let ends = ops.len();
        ops.extend(disturbance);
        ops.extend((0..ends).map(|_| Op::Free { pick: 0 }));
        let outcome = run(&Program { setup, ops });
        planned.fetch_add(outcome.planned, Ordering::Relaxed);
        Ok(())
    });
    outcome.expect("no rule is broken");
    let planned = planned.into_inner();
    println!("{planned} blocks lay where a plan had them");
    assert!(planned > 1_000, "{planned} blocks were planned");
}
