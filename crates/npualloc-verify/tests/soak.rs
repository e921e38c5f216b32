//! A short soak of each engine, and what it makes of settings that are none.

use npualloc_verify::soak::{PERIOD, soak};

fn does_not_drift(config: &str) {
    let outcome = soak(3 * PERIOD, config, |_| ());
    let samples = outcome.unwrap_or_else(|drift| panic!("{config:?}: {drift}"));
    assert_eq!(samples.len(), 3);
}

#[test]
fn nothing_drifts_where_the_driver_decides() {
    does_not_drift("");
}

#[test]
fn nothing_drifts_with_fixed_segments() {
    does_not_drift("expandable_segments:False");
}

#[test]
fn nothing_drifts_with_virtual_segments() {
    does_not_drift("expandable_segments:True");
}

#[test]
fn settings_that_are_refused_are_an_error() {
    let error = soak(PERIOD, "foo:bar", |_| ()).expect_err("no such key");
    assert!(error.contains("foo"), "{error}");
}
