//! A program whose instructions can be counted: runs one workload for a number of steps.
//!
//! ```text
//! counts --list            names, one a line
//! counts NAME WARM STEPS   WARM steps, then STEPS more
//! ```
//! Two runs that differ in STEPS alone differ by the instructions of those steps.

use std::process::ExitCode;

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
        [name, warm, steps] => {
            let numbers = warm.parse::<usize>().ok().zip(steps.parse::<usize>().ok());
            let make = workloads::all()
                .into_iter()
                .find(|(known, _)| *known == name)
                .map(|(_, make)| make);
            let (Some((warm, steps)), Some(make)) = (numbers, make) else {
                eprintln!("counts: no workload {name:?}, or {warm:?} or {steps:?} is no number");
                return ExitCode::FAILURE;
            };
            let mut workload = make();
            workload.steps(warm);
            workload.registry().check_consistency().expect("consistent");
            workload.steps(steps);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: counts --list | counts NAME WARM STEPS");
            ExitCode::FAILURE
        }
    }
}
