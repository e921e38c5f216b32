//! The core's atomics and locks under loom: each test is a program of two or three threads that loom runs in
//! every order, up to a number of preemptions, with what the memory model allows each load to see.
//!
//! `MODEL_PREEMPTIONS=N` sets that number for all of them: more takes longer. How many orders were tried is
//! printed (`--nocapture`).

mod device;
mod lock;
mod owners;
mod registry;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread::JoinHandle;

/// Of a thread in a model, words: the core's functions need more than loom gives.
const STACK: usize = 1 << 17;

/// Runs `program` in every order with at most so many preemptions.
fn every_order(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let chosen = std::env::var("MODEL_PREEMPTIONS").ok();
    let chosen = chosen.map(|text| text.parse().expect("MODEL_PREEMPTIONS is a number"));
    builder.preemption_bound = Some(chosen.unwrap_or(preemptions));
    builder.max_branches = 50_000;
    let (program, orders) = (Arc::new(program), Arc::new(AtomicUsize::new(0)));
    let counted = orders.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let program = program.clone();
        joined(thread(move || program()));
    });
    let orders = orders.load(Ordering::Relaxed);
    let test = std::thread::current();
    println!("{}: {orders} orders", test.name().unwrap_or_default());
    assert!(orders > 1, "nothing was modelled");
}

/// A step that every other thread's steps may come before or after, and that tells no thread anything. Loom
/// looks for other orders only at the last access to an atomic, which a load by the same thread can be.
#[derive(Clone)]
struct Turns(loom::sync::Arc<loom::sync::atomic::AtomicUsize>);

impl Turns {
    fn new() -> Self {
        Self(loom::sync::Arc::new(loom::sync::atomic::AtomicUsize::new(
            0,
        )))
    }

    fn next(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let builder = loom::thread::Builder::new().stack_size(STACK);
    builder.spawn(body).expect("a thread of the model")
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}
