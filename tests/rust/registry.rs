//! All devices together: requests that no device can serve.

use std::sync::Arc;

use npualloc::config::Settings;
use npualloc::driver::fake::FakeDriver;
use npualloc::error::AllocError;
use npualloc::ids::StreamKey;
use npualloc::registry::Registry;

const STREAM: StreamKey = StreamKey(0);

fn registry(config: &str, pad: usize) -> Registry {
    let driver = Arc::new(FakeDriver::new(1 << 30));
    let registry = Registry::new(driver, Settings::parse(config).expect("valid"), pad);
    registry.init(1).expect("a device");
    registry
}

#[test]
fn sizes_that_padding_and_rounding_would_carry_over_the_end_are_refused() {
    for config in [
        "",
        "expandable_segments:True",
        "roundup_power2_divisions:4",
        "segment_size_mb:512,expandable_segments:True",
    ] {
        for pad in [0, 32] {
            let registry = registry(config, pad);
            // A range with addresses left over.
            let large = registry.allocate(0, 5 << 20, STREAM).expect("fits");
            registry.deallocate(large).expect("live");
            for less in [0, 31, 32, 33, 511, 600, 1 << 20, (1 << 20) + 40, 1 << 62] {
                let bytes = usize::MAX - less;
                let refused = registry.allocate(0, bytes, STREAM);
                let refused = refused.expect_err("no device has that much");
                assert!(
                    matches!(refused, AllocError::OutOfMemory(_)),
                    "{config:?} {bytes}: {refused}"
                );
                registry.check_consistency().expect("consistent");
            }
            let addr = registry.allocate(0, 100, STREAM).expect("fits");
            registry.deallocate(addr).expect("live");
            // A block that is free serves them no more than the driver.
            registry.allocate(0, usize::MAX, STREAM).expect_err("no");
            let stats = registry.device(0).expect("there").stats().0;
            assert_eq!(stats.allocated_bytes.pool(true).peak, 512);
        }
    }
}
