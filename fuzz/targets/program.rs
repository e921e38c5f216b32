//! Programs of operations on the core over a driver without a device, beside the reference model, with all
//! bookkeeping recounted after each step.
#![no_main]

use libfuzzer_sys::fuzz_target;
use npualloc_verify::op::Program;
use npualloc_verify::world::run;

fuzz_target!(|data: &[u8]| {
    run(&Program::from_bytes(data));
});
