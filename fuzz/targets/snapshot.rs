//! Memory snapshots: pickles of unknown origin. Whatever the bytes, there is a recording or an error, and
//! nothing in them is run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use npualloc_replay::trace::Event;

#[allow(dead_code, unused_imports)]
#[path = "../../crates/npualloc-cli/src/pickle/mod.rs"]
mod pickle;
#[allow(dead_code)]
#[path = "../../crates/npualloc-cli/src/snapshot/mod.rs"]
mod snapshot;

fuzz_target!(|data: &[u8]| {
    let Ok((heap, top)) = pickle::read(data) else {
        return;
    };
    for device in [None, Some(0), Some(usize::MAX)] {
        let Ok(recording) = snapshot::convert(&heap, top, device) else {
            continue;
        };
        let mut live = Vec::new();
        for event in &recording.trace.events {
            match *event {
                Event::Alloc { .. } => live.push(true),
                Event::Free { block } => {
                    assert!(std::mem::take(&mut live[block as usize]), "freed twice");
                }
                _ => {}
            }
        }
        assert_eq!(live.len(), recording.trace.blocks as usize);
        assert!(recording.stack_of.len() <= live.len());
    }
});
