//! Configuration strings: whatever the text, there are settings or an error that says what is wrong, and a
//! refused change changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use npualloc::config::Settings;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    // Two strings: those at the start, and a change while running.
    let (start, change) = text.split_once('\n').unwrap_or((&text, ""));
    let settings = match Settings::parse(start) {
        Ok(settings) => settings,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Settings::default()
        }
    };
    let before = settings.clone();
    let changed = settings.apply_runtime(change);
    assert_eq!(settings, before);
    let now = changed.unwrap_or(settings);
    for bytes in [1, 511, 512, 1 << 20, (1 << 20) + 1, 10 << 20, 3 << 30] {
        let size = now.round_size(bytes, 32);
        assert!(size >= bytes + 32 && now.allocation_size(size) >= size);
    }
});
