//! The rules of the device, one test or more for each, each naming where the
//! rule comes from. They drive the model without the C surface, so that every
//! test has a machine of its own; `tests/surface.rs` drives the C functions.
//!
//! Abbreviated sources: "reference" is the public API reference of CANN's
//! runtime (`docs/zh/api_ref`, chapter and function), "runtime" its sources
//! (`src/`), "header" the ACL headers in torch_npu's wheel.

mod aliasing;
mod capture;
mod conditions;
mod devices;
mod guards;
mod memory;
mod streams;
mod trouble;
mod virtual_memory;

use ascend_rs_sys::aclError;
use ascendcl::model::config::{Config, Mode};
use ascendcl::model::error::Result;
use ascendcl::model::ledger::HazardKind;
use ascendcl::model::sim::Sim;
use ascendcl::model::work::{Access, Work};
use parking_lot::{Mutex, MutexGuard};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A machine of two devices of 1 GiB, phantom memory.
fn machine() -> Sim {
    Sim::new(Config {
        capacity: GIB,
        ..Config::default()
    })
}

/// A machine of backed memory, and the turn of its user: the device addresses
/// of a process are its own only once.
struct Backed {
    sim: Sim,
    _turn: MutexGuard<'static, ()>,
}

fn backed() -> Backed {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock();
    let sim = Sim::new(Config {
        capacity: GIB,
        mode: Mode::Backed,
        ..Config::default()
    });
    Backed { sim, _turn: turn }
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> aclError {
    result.expect_err("the call must fail").code
}

/// A kernel of 1 µs that touches a range.
fn kernel(addr: u64, len: u64) -> Work {
    let mut work = Work {
        nanoseconds: 1000,
        name: "kernel",
        ..Work::default()
    };
    work.accesses.push(Access { addr, len });
    work
}

fn hazards(sim: &Sim) -> Vec<HazardKind> {
    sim.devices
        .iter()
        .flat_map(|it| &it.ledger.hazards)
        .map(|hazard| hazard.kind)
        .collect()
}
