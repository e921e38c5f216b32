//! Failures that random programs found, shrunk: each broke a rule once.

use npualloc_verify::op::{Op, Program, Setup};
use npualloc_verify::world::run;

const MIB: u32 = 1 << 20;

fn on_one_device(config: u8, capacity: u16, ops: Vec<Op>) {
    let setup = Setup {
        config,
        probe: false,
        aliasing: false,
        heavy: false,
        lends: false,
        shares: false,
        crowded: false,
        repeats: false,
        devices: 1,
        capacity,
    };
    run(&Program { setup, ops });
}

fn allocate(stream: u8, pool: u8, bytes: u32) -> Op {
    Op::Allocate {
        device: 0,
        stream,
        pool,
        bytes,
    }
}

/// The pool had no user and no memory when a request for it was on its way: making room forgot the pool.
#[test]
fn a_pool_without_users_stays_while_a_request_for_it_is_served() {
    on_one_device(
        9,
        244,
        vec![
            allocate(0, 0, 64 * MIB),
            Op::Free { pick: 0 },
            Op::Fraction {
                device: 0,
                percent: 0,
            },
            Op::AddUser { device: 0, pool: 2 },
            Op::DropUser { device: 0, pool: 2 },
            allocate(0, 3, 1),
        ],
    );
}

/// Oversize blocks were looked for, which waits for the device.
#[test]
fn a_capture_is_not_broken_by_a_limit_on_splits() {
    on_one_device(
        2,
        64,
        vec![
            Op::BeginCapture { device: 0 },
            allocate(0, 0, MIB),
            allocate(0, 0, 40 * MIB),
            allocate(0, 0, 40 * MIB),
        ],
    );
}

/// So did collecting garbage.
#[test]
fn a_capture_is_not_broken_by_garbage_collection() {
    on_one_device(
        4,
        64,
        vec![
            Op::BeginCapture { device: 0 },
            allocate(0, 0, MIB - 31),
            allocate(2, 0, MIB - 31),
            Op::Free { pick: 0 },
            allocate(1, 0, 1),
        ],
    );
}

/// A use before the capture was forgotten when the same stream used the block in the capture too: its
/// memory was handed out while that stream was still at work.
#[test]
fn a_use_before_a_capture_counts_after_it() {
    on_one_device(
        0,
        64,
        vec![
            allocate(0, 0, 3 * MIB),
            Op::Record { pick: 0, stream: 1 },
            Op::Submit {
                device: 0,
                stream: 1,
            },
            Op::BeginCapture { device: 0 },
            Op::Record { pick: 0, stream: 1 },
            Op::Free { pick: 0 },
            Op::EndCapture { device: 0 },
            allocate(0, 0, 3 * MIB),
        ],
    );
}

/// A free block of just the size asked for, at an address that is not aligned: it is taken as it is.
#[test]
fn alignment_takes_nothing_from_a_block_that_just_fits() {
    let size = 1280 << 10;
    on_one_device(
        1,
        64,
        vec![
            allocate(0, 0, size + 512 - 32),
            allocate(0, 0, size - 32),
            allocate(0, 0, size - 32),
            allocate(0, 0, size - 32),
            Op::Free { pick: 1 },
            Op::Free { pick: 2 },
            allocate(0, 0, 2 * size - 32),
        ],
    );
}
