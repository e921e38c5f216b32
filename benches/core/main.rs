//! Time of the core's operations. See `README.md`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use npualloc::config::Settings;
use npualloc::device::DeviceAllocator;
use npualloc::driver::fake::FakeDriver;
use npualloc::ids::{DeviceId, StreamKey};

mod workloads;

fn hot_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core");
    group
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    for (name, make) in workloads::all() {
        let mut workload = make(None);
        group.throughput(Throughput::Elements(workload.operations(1) as u64));
        workload.steps(1 << 18);
        workload.registry().check_consistency().expect("consistent");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|steps| {
                let start = Instant::now();
                workload.steps(steps as usize);
                start.elapsed()
            });
        });
    }
    group.finish();
}

/// Calls that take as long as the simulated runtime assumes for a page of 8 MiB.
fn slow_driver() -> FakeDriver {
    let driver = FakeDriver::new(1 << 43);
    driver.take_time("malloc_physical", Duration::from_micros(116));
    driver.take_time("map", Duration::from_micros(150));
    driver
}

/// A device's memory grows page by page, with and without pages obtained ahead.
fn growth(criterion: &mut Criterion) {
    const PAGE: usize = 8 << 20;
    let mut group = criterion.benchmark_group("growth");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(4));
    for ahead in [0, 64 << 20] {
        let mut settings = Settings::parse("expandable_segments:True").expect("valid settings");
        settings.prefetch = ahead;
        let name = format!("page of 8 MiB, {} MiB ahead", ahead >> 20);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|steps| {
                let device = DeviceAllocator::new(
                    DeviceId(0),
                    Arc::new(slow_driver()),
                    settings.clone(),
                    32,
                );
                let device = device.expect("a device");
                device.allocate(PAGE - 4096, StreamKey(0)).expect("memory");
                let start = Instant::now();
                for _ in 0..steps {
                    device.allocate(PAGE - 4096, StreamKey(0)).expect("memory");
                }
                start.elapsed()
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hot_path(&mut criterion);
    growth(&mut criterion);
    criterion.final_summary();
}
