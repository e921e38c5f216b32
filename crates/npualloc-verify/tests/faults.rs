//! Every driver call of a set of programs fails once, with every plausible code: nothing leaks, nothing
//! breaks, an error that the caller sees is that call's, and what follows works.

use npualloc::driver::{OUT_OF_MEMORY_CODE, UNSUPPORTED_CODE};
use npualloc_verify::op::{Op, Program, Setup};
use npualloc_verify::world::World;

const MIB: u32 = 1 << 20;

/// The kinds that the core tells apart, and two that it doesn't: an internal error, a lost device.
const CODES: [i32; 4] = [OUT_OF_MEMORY_CODE, UNSUPPORTED_CODE, 500_000, 107_022];

fn allocate(stream: u8, pool: u8, bytes: u32) -> Op {
    Op::Allocate {
        device: 0,
        stream,
        pool,
        bytes,
    }
}

/// Growth, reuse, uses by another stream, giving back.
fn training() -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..3u32 {
        for (step, bytes) in [300, 3 * MIB, 30 * MIB, 50 * MIB].into_iter().enumerate() {
            ops.push(allocate(step as u8 % 2, 0, bytes + round * 512));
        }
        ops.push(Op::Record {
            pick: round as u16,
            stream: 1,
        });
        ops.push(Op::Submit {
            device: 0,
            stream: 1,
        });
        ops.extend((0..3).map(|pick| Op::Free { pick }));
        if round % 2 == 1 {
            ops.push(Op::Finish {
                device: 0,
                stream: 1,
            });
            ops.push(Op::EmptyCache { device: 0, pool: 0 });
        }
    }
    ops
}

/// Private pools, one of them external, a capture, a checkpoint.
fn pools() -> Vec<Op> {
    let mut ops = vec![
        Op::AddUser { device: 0, pool: 0 },
        Op::AddUser { device: 0, pool: 2 },
        allocate(0, 1, 5 * MIB),
        allocate(0, 3, 12 * MIB),
        Op::BeginCapture { device: 0 },
        allocate(0, 1, 900),
        allocate(0, 1, 22 * MIB),
        Op::Record { pick: 1, stream: 2 },
        Op::Free { pick: 1 },
        Op::EndCapture { device: 0 },
        Op::Save { device: 0, pool: 0 },
        Op::Record { pick: 0, stream: 2 },
        Op::Submit {
            device: 0,
            stream: 2,
        },
    ];
    ops.extend((0..3).map(|_| Op::Free { pick: 0 }));
    ops.extend([
        allocate(0, 0, MIB),
        Op::EmptyCache { device: 0, pool: 0 },
        Op::Restore,
        Op::DropUser { device: 0, pool: 0 },
        Op::DropUser { device: 0, pool: 2 },
        Op::EmptyCache { device: 0, pool: 1 },
        allocate(1, 0, 40 * MIB),
    ]);
    ops
}

/// A device that is nearly full: every rung of the ladder.
fn pressure() -> Vec<Op> {
    let mut ops = vec![Op::AddUser { device: 0, pool: 1 }];
    for round in 0..4u32 {
        ops.push(allocate(0, 0, (60 - 7 * round) * MIB));
        ops.push(allocate(1, 0, (11 + 5 * round) * MIB));
        ops.push(allocate(0, 2, 4 * MIB));
        ops.push(Op::Record { pick: 0, stream: 1 });
        ops.push(Op::Submit {
            device: 0,
            stream: 1,
        });
        ops.push(Op::Submit {
            device: 0,
            stream: 0,
        });
        ops.push(Op::Free { pick: 0 });
        ops.push(Op::Free { pick: 1 });
        ops.push(allocate(0, 0, (70 + 3 * round) * MIB));
    }
    ops.push(Op::EmptyVirtual { device: 0 });
    ops.push(allocate(0, 0, 20 * MIB));
    ops.push(Op::Fraction {
        device: 0,
        percent: 50,
    });
    ops.push(allocate(2, 0, 15 * MIB));
    ops
}

/// Runs the program with its n-th driver call failing; false when it makes fewer calls.
fn fails_once(setup: Setup, program: &[Op], nth: u64, code: i32) -> bool {
    let mut world = World::new(setup);
    world.fail_call(nth, code);
    let mut since = 0;
    for op in program {
        world.step(*op);
        // Up to the fault nothing differs from the other runs.
        since += u32::from(world.faults > 0);
        if since == 1 || since % 8 == 2 {
            world.check();
        }
    }
    let happened = world.faults > 0;
    // What follows works: a small request finds room or is told that there is none.
    world.step(allocate(0, 0, 700));
    world.check();
    world.finish();
    happened
}

#[test]
fn every_driver_call_fails_once_with_every_code() {
    let mut injected = 0u64;
    let mut fewest = u64::MAX;
    for (name, program) in [
        ("training", training()),
        ("pools", pools()),
        ("pressure", pressure()),
    ] {
        // Fixed, virtual with one address for a page and with two, oversize limits, collection under a
        // limit, lazy events, a limit on virtual memory, and the engine that the driver decides on; with events in
        // common and without, with blocks lent to other streams and without, and with
        // all streams' blocks in one list; with leases; repeated, with a plan.
        for (config, probe, aliasing, heavy, lends, shares, crowded, repeats) in [
            (0, false, false, false, false, false, false, false),
            (0, false, false, true, false, false, false, false),
            (1, false, false, false, false, false, false, false),
            (1, false, true, true, false, false, false, false),
            (2, false, false, false, false, false, false, false),
            (4, false, false, true, false, false, false, false),
            (9, false, true, false, false, false, false, false),
            (10, false, true, false, false, false, false, false),
            (0, true, false, true, false, false, false, false),
            (0, true, true, false, false, false, false, false),
            (1, false, false, true, true, false, false, false),
            (0, true, true, false, true, false, false, false),
            (1, false, true, false, false, true, false, false),
            (1, false, false, true, false, true, false, false),
            (0, true, true, false, false, true, false, false),
            (0, true, true, false, false, false, true, false),
            (1, false, true, false, false, true, false, true),
            (1, false, false, false, false, true, false, true),
        ] {
            let setup = Setup {
                config,
                probe,
                aliasing,
                heavy,
                lends,
                shares,
                crowded,
                repeats,
                devices: 1,
                capacity: 192,
            };
            for code in CODES {
                let count = (0..)
                    .take_while(|&nth| fails_once(setup, &program, nth, code))
                    .count();
                assert!(count > 10, "{name} makes only {count} driver calls");
                injected += count as u64;
                fewest = fewest.min(count as u64);
            }
        }
    }
    println!("{injected} injected faults; a program makes at least {fewest} driver calls");
    assert!(injected > 5_000, "only {injected} faults were injected");
}

#[test]
fn a_program_without_faults_makes_none() {
    let setup = Setup {
        config: 0,
        probe: false,
        aliasing: false,
        heavy: false,
        lends: false,
        shares: false,
        crowded: false,
        repeats: false,
        devices: 1,
        capacity: 192,
    };
    let outcome = npualloc_verify::world::run(&Program {
        setup,
        ops: training(),
    });
    assert_eq!(outcome.faults, 0);
    assert!(outcome.calls > 10);
}
