//! Reading memory and comparing it with what it should hold.

use super::shadow::Span;
use crate::driver::{Contents, DriverResult};
use crate::ids::DeviceId;

const CHUNK: usize = 1 << 20;
/// Bytes that a report shows.
const SHOWN: usize = 16;

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The first and the last one.
    pub first: usize,
    pub last: usize,
    pub count: usize,
    /// What is there, from the first on.
    pub shown: Vec<u8>,
}

/// Compares every byte of a span with `value`.
pub(super) fn compare(
    contents: &dyn Contents,
    device: DeviceId,
    span: Span,
    value: u8,
) -> DriverResult<Option<Difference>> {
    let mut found: Option<Difference> = None;
    let mut buffer = vec![0; CHUNK.min(span.bytes)];
    let mut at = span.addr;
    while at < span.end() {
        let part = &mut buffer[..CHUNK.min(span.end() - at)];
        contents.read(device, at, part)?;
        let telling = found.as_ref().is_some_and(|f| f.shown.len() < SHOWN);
        if !telling && part.iter().all(|byte| *byte == value) {
            at += part.len();
            continue;
        }
        for (offset, &byte) in part.iter().enumerate() {
            if let Some(difference) = &mut found
                && difference.shown.len() < SHOWN
            {
                difference.shown.push(byte);
            }
            if byte == value {
                continue;
            }
            match &mut found {
                Some(difference) => {
                    difference.last = at + offset;
                    difference.count += 1;
                }
                None => {
                    found = Some(Difference {
                        first: at + offset,
                        last: at + offset,
                        count: 1,
                        shown: vec![byte],
                    });
                }
            }
        }
        at += part.len();
    }
    Ok(found)
}

impl Difference {
    /// What differs, seen from the block that starts at `base`.
    pub fn describe(&self, base: usize) -> String {
        let shown: Vec<_> = self
            .shown
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!(
            "{} bytes differ, at offsets {} to {}; from the first on: {}",
            self.count,
            self.first - base,
            self.last - base,
            shown.join(" ")
        )
    }
}
