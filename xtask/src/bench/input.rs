//! Traces for benchmarks: read, and written in the binary form of `benches/common/trace_event.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use npualloc_replay::synthetic;
use npualloc_replay::trace::{Event, Trace};

use crate::process::say;

/// Of all streams, in the binary form.
const EVERY_STREAM: u16 = 0xFFFF;
/// A device that traces which name none were recorded on, bytes.
const USUAL_CAPACITY: u64 = 64 << 30;

/// How much of the recorded program is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Requests that failed are tried again, and the host waits for events where it did.
    Whole,
    /// Neither: what the allocator did, as often as possible.
    Served,
}

/// A trace that can be replayed.
#[derive(Debug, Clone)]
pub struct Input {
    /// File name without its extensions.
    pub name: String,
    /// What ran, by the trace's header.
    pub workload: String,
    /// The binary form.
    pub events: PathBuf,
    /// Number of events in it.
    pub event_count: usize,
    /// Bytes of the device it was recorded on; 0: not known.
    pub capacity: u64,
    /// Number of streams.
    pub streams: u32,
    /// Number of allocations, without requests that failed and that the program caught.
    pub allocations: u32,
    /// The most bytes alive at once.
    pub peak_live: u64,
    /// A device on which memory is no concern, bytes.
    pub ample: u64,
}

/// Reads traces; without any, those that are built in.
///
/// # Errors
/// When one is no trace, or two have one name.
pub fn read(paths: &[PathBuf]) -> Result<Vec<(String, Trace)>> {
    if paths.is_empty() {
        let sharded = Trace::parse(
            Path::new("sharded"),
            synthetic::sharded(12, 20, 7).as_bytes(),
        )?;
        return Ok(vec![
            ("built-in".to_owned(), built_in()?),
            ("sharded".to_owned(), sharded),
        ]);
    }
    let mut names = BTreeSet::new();
    paths
        .iter()
        .map(|path| {
            let name = name_of(path)?;
            ensure!(
                names.insert(name.clone()),
                "two traces are called {name}; the figures could not be told apart"
            );
            let trace = Trace::read(path)?;
            if trace.torn {
                say(&format!(
                    "{}: the file was cut; the {} events before that are replayed",
                    path.display(),
                    trace.events.len()
                ));
            }
            ensure!(
                trace.peak_live > 0,
                "{}: the trace allocates nothing",
                path.display()
            );
            Ok((name, trace))
        })
        .collect()
}

/// The built-in trace.
pub fn built_in() -> Result<Trace> {
    let text = synthetic::training(24, 24, 7);
    Ok(Trace::parse(Path::new("built-in"), text.as_bytes())?)
}

fn name_of(path: &Path) -> Result<String> {
    let file = path.file_name().and_then(|name| name.to_str());
    let name = file.and_then(|name| name.split('.').find(|part| !part.is_empty()));
    let name = name.with_context(|| format!("{} has no usable name", path.display()))?;
    Ok(name.to_owned())
}

impl Input {
    /// Writes traces to a directory.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn write_all(
        traces: Vec<(String, Trace)>,
        directory: &Path,
        extent: Extent,
    ) -> Result<Vec<Self>> {
        let write = |(name, trace): (String, Trace)| {
            let path = directory.join(format!("{name}.events"));
            Self::write(name, &trace, path, extent)
        };
        traces.into_iter().map(write).collect()
    }

    fn write(name: String, trace: &Trace, path: PathBuf, extent: Extent) -> Result<Self> {
        let context = || format!("write {}", path.display());
        let file = File::create(&path).with_context(context)?;
        let mut out = BufWriter::new(file);
        let mut event_count = 0;
        for record in records(trace, extent) {
            out.write_all(&record).with_context(context)?;
            event_count += 1;
        }
        out.flush().with_context(context)?;
        let capacity = match trace.capacity {
            0 => USUAL_CAPACITY,
            recorded => recorded,
        };
        Ok(Self {
            name,
            workload: trace.workload.clone(),
            event_count,
            capacity: trace.capacity,
            streams: trace.streams.max(1),
            allocations: trace.blocks - caught(trace).count() as u32,
            peak_live: trace.peak_live,
            ample: capacity.max(trace.peak_live + trace.peak_live / 2),
            events: path,
        })
    }
}

/// The events that the other side knows; markers are left out, and what is emptied as the program ends. A failed
/// request that is tried and that the program caught is one event, with its free; a wait for what a stream had been given
/// is two: where it had been given that, and the wait.
fn records(trace: &Trace, extent: Extent) -> impl Iterator<Item = [u8; 16]> {
    let waits = match extent {
        Extent::Whole => trace.waited_for(),
        Extent::Served => BTreeMap::new(),
    };
    let numbers: BTreeMap<_, _> = waits.keys().copied().zip(0u32..).collect();
    let mut marks = waits.into_iter().zip(0u32..).peekable();
    let mut event = event_records(trace, extent, numbers).enumerate().peekable();
    std::iter::from_fn(move || {
        let at = event.peek()?.0;
        if let Some((((_, stream), times), number)) =
            marks.next_if(|(((before, _), _), _)| *before <= at)
        {
            return Some(Some(record(times as u64, number, stream, b'r')));
        }
        event.next().map(|(_, record)| record)
    })
    .flatten()
}

/// Of each event, what the other side is told of it. `waits`: the numbers of what is waited for.
fn event_records(
    trace: &Trace,
    extent: Extent,
    waits: BTreeMap<(usize, u32), u32>,
) -> impl Iterator<Item = Option<[u8; 16]>> {
    let mut next = 0u32;
    // The one that ended the program is tried like any other allocation.
    let fatal = match extent {
        Extent::Whole => trace.fatal(),
        Extent::Served => None,
    };
    let failed = trace.failed.iter().copied();
    let mut failed = failed.filter(move |block| Some(*block) != fatal).peekable();
    let mut freed = None;
    let end = trace.end_of_work();
    trace.events.iter().enumerate().map(move |(at, event)| {
        Some(match *event {
            // The other side has no private pools: all come from the default one.
            Event::Alloc { bytes, stream, .. } => {
                let block = next;
                next += 1;
                freed = failed.next_if_eq(&block);
                if freed.is_some() && extent == Extent::Served {
                    return None;
                }
                let kind = if freed.is_some() { b't' } else { b'a' };
                record(bytes, block, stream, kind)
            }
            Event::Free { block } if freed == Some(block) => return None,
            Event::Free { block } => record(0, block, 0, b'f'),
            Event::Use { block, stream } => record(0, block, stream, b'u'),
            Event::SyncStream { stream } => record(0, 0, stream, b's'),
            Event::SyncDevice => record(0, 0, EVERY_STREAM.into(), b's'),
            Event::EmptyCache if at >= end => return None,
            Event::EmptyCache => record(0, 0, 0, b'e'),
            Event::WaitStream { stream, back } => {
                let number = waits.get(&(at - back as usize, stream))?;
                record(0, *number, 0, b'w')
            }
            Event::ReleasePool { .. } | Event::Mark { .. } => return None,
        })
    })
}

/// Requests after whose failure the recorded program went on.
fn caught(trace: &Trace) -> impl Iterator<Item = u32> {
    let fatal = trace.fatal();
    let failed = trace.failed.iter().copied();
    failed.filter(move |block| Some(*block) != fatal)
}

fn record(bytes: u64, id: u32, stream: u32, kind: u8) -> [u8; 16] {
    let mut record = [0; 16];
    record[..8].copy_from_slice(&bytes.to_le_bytes());
    record[8..12].copy_from_slice(&id.to_le_bytes());
    // The reader lets no stream pass that does not fit.
    record[12..14].copy_from_slice(&(stream as u16).to_le_bytes());
    record[14] = kind;
    record
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use npualloc_replay::trace::Trace;

    use super::{Extent, name_of, read, records};

    #[test]
    fn events_have_the_layout_of_the_other_side() {
        let text =
            "# npualloc-trace v1\nm x\na 0 258 1\nu 0 2\nf 0\ns *\ns 1\ne\na 1 1 0\nf 1\ne\n";
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).unwrap();
        let all: Vec<_> = records(&trace, Extent::Whole).collect();
        assert_eq!(all.len(), 8, "nothing of what the end empties");
        assert_eq!(all[0], [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'a', 0]);
        assert_eq!(all[1][12..], [2, 0, b'u', 0]);
        assert_eq!(all[3][12..], [0xFF, 0xFF, b's', 0]);
        assert_eq!(all[4][12..], [1, 0, b's', 0]);
        assert_eq!(all[5][12..], [0, 0, b'e', 0]);
    }

    #[test]
    fn a_wait_is_for_what_its_stream_had_been_given() {
        let text = "# npualloc-trace v1\na 0 9 1\na 1 9 0\nf 0\nw 1 2\nm x\nw 1 4\nw 0 0\n";
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).unwrap();
        let kinds = |extent| -> Vec<(u8, u64, u32, u16)> {
            let number = |record: [u8; 16]| {
                let bytes = u64::from_le_bytes(record[..8].try_into().unwrap());
                let id = u32::from_le_bytes(record[8..12].try_into().unwrap());
                let stream = u16::from_le_bytes(record[12..14].try_into().unwrap());
                (record[14], bytes, id, stream)
            };
            records(&trace, extent).map(number).collect()
        };
        assert_eq!(
            kinds(Extent::Whole),
            [
                (b'a', 9, 0, 1),
                (b'r', 2, 0, 1),
                (b'a', 9, 1, 0),
                (b'f', 0, 0, 0),
                (b'w', 0, 0, 0),
                (b'w', 0, 0, 0),
                (b'r', 1, 1, 0),
                (b'w', 0, 1, 0),
            ]
        );
        let served = kinds(Extent::Served);
        assert!(served.iter().all(|(kind, ..)| b"af".contains(kind)));
        assert_eq!(served.len(), 3);
    }

    #[test]
    fn a_failed_request_is_tried_unless_the_program_ended_with_it() {
        let failed = |id| format!("m out of memory: 9 bytes\na {id} 9 1\nf {id}\n");
        let head = "# npualloc-trace v1\na 0 5 0\n";
        let kinds = |text: String, extent: Extent| -> Vec<(u8, u32)> {
            let trace = Trace::parse(Path::new("t"), text.as_bytes()).unwrap();
            let id = |record: &[u8; 16]| u32::from_le_bytes(record[8..12].try_into().unwrap());
            records(&trace, extent)
                .map(|record| (record[14], id(&record)))
                .collect()
        };
        assert_eq!(
            kinds(
                format!("{head}{}a 2 1 0\nf 2\nf 0\n", failed(1)),
                Extent::Whole
            ),
            [(b'a', 0), (b't', 1), (b'a', 2), (b'f', 2), (b'f', 0)]
        );
        assert_eq!(
            kinds(
                format!("{head}{}{}f 0\n", failed(1), failed(2)),
                Extent::Whole
            ),
            [(b'a', 0), (b't', 1), (b'a', 2), (b'f', 2), (b'f', 0)]
        );
        assert_eq!(
            kinds(
                format!("{head}{}a 2 1 0\n{}f 0\n", failed(1), failed(3)),
                Extent::Served
            ),
            [(b'a', 0), (b'a', 2), (b'f', 0)]
        );
    }

    #[test]
    fn names_lose_their_extensions_and_must_differ() {
        assert_eq!(name_of(Path::new("a/s1.trace.gz")).unwrap(), "s1");
        assert!(name_of(Path::new("/")).is_err());
        let missing = read(&[PathBuf::from("/no/such.trace")]).unwrap_err();
        assert!(missing.to_string().contains("/no/such.trace"));
    }
}
