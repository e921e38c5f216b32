//! A program whose instructions can be counted: runs one workload for a number of steps.
//!
//! ```text
//! counts --list            names, one a line
//! counts NAME WARM STEPS   WARM steps, then STEPS more
//! counts FILE WARM STEPS   the same with a trace as plain text, which is one step
//! counts NAME WARM STEPS SETTINGS   the same with these settings
//! ```
//! It says how long an operation took, which means something where nobody counts.
//! Two runs that differ in STEPS alone differ by the instructions of those steps.

use std::process::ExitCode;
use std::time::Instant;

mod replay;
mod workloads;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        // What `cargo bench` and `cargo test --benches` pass.
        ["--bench"] | ["--test"] | [] => ExitCode::SUCCESS,
        ["--list"] => {
            for (name, _) in workloads::all() {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        [name, warm, steps] | [name, warm, steps, _] => {
            let config = words.get(3).copied();
            let numbers = warm.parse::<usize>().ok().zip(steps.parse::<usize>().ok());
            let make = workloads::all()
                .into_iter()
                .find(|(known, _)| *known == name)
                .map(|(_, make)| make);
            let replay = replay::Replay::read(name, config.unwrap_or(workloads::FIXED)).ok();
            let replay = replay.map(|replay| Box::new(replay) as Box<dyn workloads::Workload>);
            let workload = make.map(|make| make(config)).or(replay);
            let (Some((warm, steps)), Some(mut workload)) = (numbers, workload) else {
                eprintln!("counts: no workload {name:?}, or {warm:?} or {steps:?} is no number");
                return ExitCode::FAILURE;
            };
            workload.steps(warm);
            workload.registry().check_consistency().expect("consistent");
            let start = Instant::now();
            workload.steps(steps);
            let each = start.elapsed().as_nanos() as f64 / workload.operations(steps) as f64;
            eprintln!("{each:.1} ns an operation");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: counts --list | counts NAME WARM STEPS [SETTINGS]");
            ExitCode::FAILURE
        }
    }
}
