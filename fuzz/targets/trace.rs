//! Trace files: whatever the bytes, there is a trace whose blocks make sense or an error with its line.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use npualloc_replay::trace::{Event, Trace};

fuzz_target!(|data: &[u8]| {
    let Ok(trace) = Trace::parse(Path::new("fuzz"), data) else {
        return;
    };
    let mut live = Vec::new();
    let (mut bytes, mut peak) = (0, 0);
    for (at, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Alloc {
                bytes: size,
                stream,
                pool,
            } => {
                assert!(stream < trace.streams && (pool as usize) <= trace.pools.len());
                let block = live.len() as u32;
                live.push(Some(size));
                bytes += size;
                if trace.failed.binary_search(&block).is_ok() {
                    assert_eq!(trace.events.get(at + 1), Some(&Event::Free { block }));
                } else {
                    peak = peak.max(bytes);
                }
            }
            Event::Free { block } => bytes -= live[block as usize].take().expect("alive"),
            Event::Use { block, stream } => {
                assert!(live[block as usize].is_some() && stream < trace.streams);
            }
            Event::SyncStream { stream } => assert!(stream < trace.streams),
            Event::WaitStream { stream, back } => {
                assert!(stream < trace.streams && (back as usize) <= at);
            }
            Event::ReleasePool { pool } => {
                assert!(0 < pool && (pool as usize) <= trace.pools.len());
            }
            Event::Mark { label } => assert!((label as usize) < trace.labels.len()),
            Event::SyncDevice | Event::EmptyCache => {}
        }
    }
    assert_eq!((live.len(), peak), (trace.blocks as usize, trace.peak_live));
});
