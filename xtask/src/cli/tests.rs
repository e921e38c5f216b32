//! Arguments.

use clap::{CommandFactory, Parser};

use super::{Cli, Command, DEFAULT_TORCH, TestArgs};

fn test_args(words: &[&str]) -> TestArgs {
    let words = ["xtask", "test"].iter().chain(words);
    match Cli::try_parse_from(words).expect("arguments").command {
        Command::Test(arguments) => arguments,
        _ => panic!("another command"),
    }
}

#[test]
fn the_commands_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn versions_are_refused_where_they_have_no_effect() {
    for suite in ["rust", "docs"] {
        let error = test_args(&[suite, "--torch", "2.13.0"]).check();
        assert!(error.unwrap_err().to_string().contains("--torch"));
        assert!(test_args(&[suite]).check().is_ok());
    }
    assert!(test_args(&["docs", "--", "-k", "x"]).check().is_ok());
    for words in [&["cpp"][..], &["python"], &[]] {
        let both = [words, &["--torch", "2.13.0,2.14.0"]].concat();
        assert!(test_args(&both).check().is_ok());
        assert_eq!(test_args(&both).versions(), ["2.13.0", "2.14.0"]);
        assert_eq!(test_args(words).versions(), [DEFAULT_TORCH]);
    }
}

#[test]
fn versions_are_of_a_series_that_is_supported() {
    for (version, taken) in [
        ("2.12.0", false),
        ("1.14.0", false),
        ("2.9.1", false),
        ("2.13", false),
        ("2.13.0", true),
        ("2.14.1", true),
        ("3.0.0", true),
    ] {
        assert_eq!(super::torch_version(version).is_ok(), taken, "{version}");
    }
}

#[test]
fn a_run_without_end_or_without_work_is_refused() {
    for option in ["--seconds", "--runs", "--operations"] {
        for (number, taken) in [("0", false), ("1", true)] {
            let words = ["xtask", "fuzz", option, number];
            assert_eq!(
                Cli::try_parse_from(words).is_ok(),
                taken,
                "{option} {number}"
            );
        }
    }
}

#[test]
fn the_check_of_a_benchmark_takes_no_options_of_the_benchmark() {
    let check = ["xtask", "bench", "replay", "--check"];
    for more in [
        &["--jobs", "2"][..],
        &["--output", "x"],
        &["--markdown"],
        &["--task-queue"],
        &["--no-search"],
        &["x.gz"],
    ] {
        let words = check.iter().chain(more);
        let Err(error) = Cli::try_parse_from(words) else {
            panic!("{more:?} was taken");
        };
        assert!(error.to_string().contains("cannot be used with"), "{error}");
    }
    let words = check.iter().chain(&["--torch", "2.13.0"]);
    assert!(Cli::try_parse_from(words).is_ok());
}

#[test]
fn a_simulated_device_has_memory() {
    let capacity = |text| {
        let words = ["xtask", "run", "--capacity", text, "--", "train.py"];
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Run(arguments)) => Ok(arguments.capacity),
            Ok(_) => panic!("another command"),
            Err(error) => Err(error.to_string()),
        }
    };
    assert_eq!(capacity("61.5GiB"), Ok(Some(123 << 29)));
    assert_eq!(capacity("68719476736"), Ok(Some(64 << 30)));
    for (text, why) in [("0", "without memory"), ("many", "no unit of bytes")] {
        let error = capacity(text).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
