//! Time of the core's operations. See `README.md`.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};

mod workloads;

fn hot_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core");
    group
        .throughput(Throughput::Elements(2))
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    for (name, make) in workloads::all() {
        let mut workload = make();
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

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hot_path(&mut criterion);
    criterion.final_summary();
}
