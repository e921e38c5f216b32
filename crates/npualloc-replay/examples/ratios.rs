//! What a trace needs of a device: peak of held memory, driver calls and waits at given capacities, and
//! the least capacity that is enough. Capacities are multiples of the trace's peak of live bytes.
//!
//! ```text
//! cargo run --release -p npualloc-replay --example ratios -- expandable_segments:True 1.05,1.02 TRACE…
//! ```

use std::path::Path;
use std::process::ExitCode;

use ascendcl::Config;
use npualloc::config::{DefaultEngine, Settings, SkippedRungs};
use npualloc_replay::replay::{Outcome, Setup, replay};
use npualloc_replay::search::min_capacity;
use npualloc_replay::trace::Trace;

/// Granularity of a capacity, bytes.
const PAGE: u64 = 2 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [conf, factors, paths @ ..] = arguments.as_slice() else {
        eprintln!("usage: ratios CONF FACTOR[,FACTOR…] TRACE…");
        return ExitCode::from(2);
    };
    match run(conf, factors, paths) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(conf: &str, factors: &str, paths: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let factors = factors
        .split(',')
        .map(str::parse)
        .collect::<Result<Vec<f64>, _>>()?;
    let mut settings = Settings::parse(conf)?;
    // As behind the bridge.
    settings.default_engine = DefaultEngine::Probe;
    settings.skipped_rungs = SkippedRungs::from_environment(|name| std::env::var(name).ok())?;
    for path in paths {
        let trace = Trace::read(Path::new(path))?;
        let mut setup = Setup {
            device: Config::default(),
            settings: settings.clone(),
            check_every: 0,
        };
        let ample = setup.device.capacity;
        let live = trace.peak_live as f64;
        println!("{path}: peak live {} MiB", trace.peak_live >> 20);
        let show = |what: &str, outcome: &Outcome| {
            println!(
                "  {what}: {} held {:.4}, {} memory calls ({} late, {:.0} ms), waited {:.1} ms, {} device \
                 synchronisations, {} hazards",
                match (outcome.out_of_memory_at, outcome.driver_failed_at) {
                    (None, None) => "completes,".to_owned(),
                    (Some(at), _) => format!("out of memory at event {at},"),
                    (None, Some(at)) => format!("failure of the driver at event {at},"),
                },
                outcome.peak_held as f64 / live,
                outcome.memory_calls,
                outcome.late_calls,
                outcome.memory_ns as f64 / 1e6,
                outcome.wait_ns as f64 / 1e6,
                outcome.device_syncs,
                outcome.hazards,
            );
        };
        show("ample", &replay(&trace, &setup)?);
        for factor in &factors {
            setup.device.capacity = ((live * factor) as u64).next_multiple_of(PAGE);
            show(&format!("x{factor}"), &replay(&trace, &setup)?);
        }
        match min_capacity(&trace, &setup, ample, trace.peak_live / 2000)? {
            Some((least, outcome)) => show(&format!("least x{:.4}", least as f64 / live), &outcome),
            None => println!("  does not complete on {} GiB", ample >> 30),
        }
    }
    Ok(())
}
