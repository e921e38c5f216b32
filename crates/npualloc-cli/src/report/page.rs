//! Puts a replay into the page.

use npualloc_replay::replay::Outcome;
use npualloc_replay::trace::{Event, Trace};
use serde::Serialize;

use super::collect::Collector;
use super::pack::Packer;
use crate::error::{Error, Result};

const PAGE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/style.css");
/// In the order in which they depend on each other.
const SCRIPTS: [&str; 6] = [
    include_str!("assets/data.js"),
    include_str!("assets/model.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/map.js"),
    include_str!("assets/tables.js"),
    include_str!("assets/main.js"),
];
/// More markers say nothing on a screen.
const MOST_MARKERS: usize = 20_000;

/// What the page says about the run as a whole.
#[derive(Debug, Serialize)]
pub struct Facts<'a> {
    /// Name of the input.
    pub source: String,
    /// What ran.
    pub workload: &'a str,
    /// The settings.
    pub conf: &'a str,
    /// The device, bytes.
    pub capacity: u64,
    /// Whether the input was cut: see [`Trace::torn`].
    pub torn: bool,
    /// What the replay came to.
    pub outcome: &'a Outcome,
    /// Stacks, as lines; of a block, see `stack_of`.
    #[serde(skip)]
    pub stacks: &'a [String],
    /// Position in `stacks` for each allocation; empty without stacks.
    #[serde(skip)]
    pub stack_of: &'a [u32],
}

#[derive(Serialize)]
struct Header<'a> {
    #[serde(flatten)]
    facts: &'a Facts<'a>,
    version: &'static str,
    /// Events that were replayed: up to where memory ran out.
    events: usize,
    /// Events of the trace.
    events_in_trace: usize,
    streams: u32,
    /// Ids of the private pools.
    pools: &'a [(u64, u64)],
    blocks: usize,
    ranges: usize,
    /// (event, text)
    markers: Vec<(u32, &'a str)>,
    stacks: &'a [String],
    has_stacks: bool,
    out_of_memory: Option<Failure<'a>>,
}

#[derive(Serialize)]
struct Failure<'a> {
    at: u32,
    requested: u64,
    stream: u32,
    pool: u16,
    message: &'a str,
}

/// The page as one text.
pub fn page(facts: &Facts<'_>, trace: &Trace, collected: &Collector) -> Result<String> {
    let replayed = facts
        .outcome
        .out_of_memory_at
        .map_or(trace.events.len(), |at| at + 1);
    let markers: Vec<(u32, &str)> = trace.events[..replayed]
        .iter()
        .enumerate()
        .filter_map(|(at, event)| match event {
            Event::Mark { label } => Some((at as u32, trace.labels.get(*label as usize)?.as_str())),
            _ => None,
        })
        .collect();
    let step = markers.len().div_ceil(MOST_MARKERS).max(1);
    let header = Header {
        facts,
        version: env!("CARGO_PKG_VERSION"),
        events: replayed,
        events_in_trace: trace.events.len(),
        streams: trace.streams,
        pools: &trace.pools,
        blocks: collected.blocks.len(),
        ranges: collected.ranges.all.len(),
        markers: markers.into_iter().step_by(step).collect(),
        stacks: facts.stacks,
        has_stacks: !facts.stack_of.is_empty(),
        out_of_memory: collected.out_of_memory.as_ref().map(|oom| Failure {
            at: oom.at,
            requested: oom.requested,
            stream: oom.stream,
            pool: oom.pool,
            message: &oom.message,
        }),
    };
    // A text must not end the element it stands in.
    let header = serde_json::to_string(&header)?.replace('<', "\\u003c");
    let data = pack(facts, collected).map_err(Error::Output)?;
    let title = escape(&facts.source);
    Ok(fill(&[
        ("TITLE", &title),
        ("STYLE", STYLE),
        ("HEADER", &header),
        ("DATA", &data),
        ("SCRIPT", &SCRIPTS.concat()),
    ]))
}

/// In one pass, so that nothing filled in is filled in again.
fn fill(parts: &[(&str, &str)]) -> String {
    let length: usize = parts.iter().map(|(_, text)| text.len()).sum();
    let mut page = String::with_capacity(PAGE.len() + length);
    let mut rest = PAGE;
    while let Some(begin) = rest.find("{{") {
        let Some(end) = rest[begin..].find("}}") else {
            break;
        };
        page.push_str(&rest[..begin]);
        let name = &rest[begin + 2..begin + end];
        if let Some((_, text)) = parts.iter().find(|(key, _)| *key == name) {
            page.push_str(text);
        }
        rest = &rest[begin + end + 2..];
    }
    page.push_str(rest);
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The order of the columns is that of `data.js`.
fn pack(facts: &Facts<'_>, collected: &Collector) -> std::io::Result<String> {
    let blocks = &collected.blocks;
    let ranges = &collected.ranges.all;
    // Durations; 0 = until the end.
    let since = |from: u32, to: Option<u32>| to.map_or(0, |to| u64::from(to - from) + 1);
    let mut packer = Packer::default();
    packer.column(blocks.iter().map(|block| block.addr));
    packer.column(blocks.iter().map(|block| block.size));
    packer.column(
        blocks
            .iter()
            .map(|block| block.size - block.requested.min(block.size)),
    );
    packer.column(blocks.iter().map(|block| u64::from(block.stream)));
    packer.column(blocks.iter().map(|block| u64::from(block.allocated)));
    packer.column(
        blocks
            .iter()
            .map(|block| since(block.allocated, block.freed)),
    );
    packer.column(
        blocks
            .iter()
            .map(|block| since(block.freed.unwrap_or(block.allocated), block.reusable)),
    );
    if !facts.stack_of.is_empty() {
        packer.column(blocks.iter().map(|block| {
            let stack = facts.stack_of.get(block.ordinal as usize);
            u64::from(stack.copied().unwrap_or(0))
        }));
    }
    packer.column(ranges.iter().map(|range| range.addr));
    packer.column(ranges.iter().map(|range| range.size));
    packer.column(ranges.iter().map(|range| u64::from(range.owner.stream)));
    packer.column(ranges.iter().map(|range| u64::from(range.owner.large)));
    packer.column(ranges.iter().map(|range| u64::from(range.owner.pool)));
    packer.column(ranges.iter().map(|range| range.owner.page));
    packer.column(ranges.iter().map(|range| u64::from(range.begins)));
    packer.column(ranges.iter().map(|range| since(range.begins, range.ends)));
    packer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_filled_in_once_and_texts_cannot_leave_their_place() {
        let page = fill(&[("TITLE", "{{DATA}}"), ("DATA", "secret")]);
        assert!(page.contains("{{DATA}}"));
        assert_eq!(escape("<b>&"), "&lt;b&gt;&amp;");
    }
}
