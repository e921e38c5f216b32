//! Scratch: ratios of one or more traces.
use std::path::Path;

use ascendcl::Config;
use ascendcl::model::config::Alias;
use npualloc::config::Settings;
use npualloc_replay::replay::{Setup, replay};
use npualloc_replay::search::min_capacity;
use npualloc_replay::trace::Trace;

#[allow(non_snake_case)]
fn main() {
    let PG: u64 = std::env::var("PG").map_or(2, |v| v.parse().unwrap()) << 20;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let conf = &args[0];
    let factors: Vec<f64> = args[1].split(',').filter_map(|x| x.parse().ok()).collect();
    let min = args[1].contains("min");
    for path in &args[2..] {
        let trace = Trace::read(Path::new(path)).expect("trace");
        let settings = Settings::parse(conf).expect("conf");
        for alias in [Alias::Allow, Alias::Refuse] {
            if std::env::var("ALIAS").is_ok_and(|v| (v == "1") != (alias == Alias::Allow)) {
                continue;
            }
            let mut setup = Setup {
                device: Config {
                    alias,
                    ..Config::default()
                },
                settings: settings.clone(),
                check_every: 0,
            };
            setup.device.capacity = 64 << 30;
            for f in &factors {
                let cap = if *f == 0.0 {
                    64 << 30
                } else {
                    ((trace.peak_live as f64 * f) as u64).div_ceil(2 << 20) * (2 << 20)
                };
                setup.device.capacity = cap;
                let o = replay(&trace, &setup).expect("replay");
                println!(
                    "{} {alias:?} x{f}: oom {:?} held {:.4} calls {} late {} moves {} ns {:.1}ms wait {:.1}ms syncs {} haz {} host {:.0}ns/ev {:?}",
                    path.rsplit('/').next().unwrap(),
                    o.out_of_memory_at,
                    o.peak_held as f64 / trace.peak_live as f64,
                    o.memory_calls,
                    o.late_calls,
                    o.memory_calls as i64 - 2 * (o.peak_held / PG) as i64,
                    o.memory_ns as f64 / 1e6,
                    o.wait_ns as f64 / 1e6,
                    o.device_syncs,
                    o.hazards,
                    o.real_ns_per_event,
                    o.calls
                );
            }
            if min {
                let r =
                    min_capacity(&trace, &setup, 64 << 30, trace.peak_live / 2000).expect("search");
                match r {
                    Some((cap, o)) => println!(
                        "{} {alias:?} MIN {:.4} calls {} late {} syncs {} wait {:.1}ms haz {}",
                        path.rsplit('/').next().unwrap(),
                        cap as f64 / trace.peak_live as f64,
                        o.memory_calls,
                        o.late_calls,
                        o.device_syncs,
                        o.wait_ns as f64 / 1e6,
                        o.hazards
                    ),
                    None => println!("{path} {alias:?} MIN none"),
                }
            }
        }
    }
}
