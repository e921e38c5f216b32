//! Which free memory is poisoned, by address.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::records::Record;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub addr: usize,
    pub bytes: usize,
}

impl Span {
    pub fn end(&self) -> usize {
        self.addr + self.bytes
    }
}

/// Poisoned memory, and the block it was.
#[derive(Debug, Clone)]
pub(super) struct Poisoned {
    pub span: Span,
    pub record: Arc<Record>,
}

/// Disjoint poisoned ranges. Thread-safe.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    ranges: Mutex<BTreeMap<usize, (usize, Arc<Record>)>>,
}

impl Shadow {
    /// The range holds poison now.
    pub fn add(&self, span: Span, record: Arc<Record>) {
        self.take(span);
        self.ranges.lock().insert(span.addr, (span.bytes, record));
    }

    /// The parts of a range that hold poison: from now on they may be written.
    pub fn take(&self, span: Span) -> Vec<Poisoned> {
        let mut ranges = self.ranges.lock();
        let before = ranges.range(..span.addr).next_back();
        let first = before
            .filter(|(addr, (bytes, _))| *addr + bytes > span.addr)
            .map_or(span.addr, |(addr, _)| *addr);
        let touched: Vec<usize> = ranges
            .range(first..span.end())
            .map(|(addr, _)| *addr)
            .collect();
        let mut taken = Vec::new();
        for addr in touched {
            let Some((bytes, record)) = ranges.remove(&addr) else {
                continue;
            };
            let (from, to) = (addr.max(span.addr), (addr + bytes).min(span.end()));
            if addr < from {
                ranges.insert(addr, (from - addr, record.clone()));
            }
            if to < addr + bytes {
                ranges.insert(to, (addr + bytes - to, record.clone()));
            }
            taken.push(Poisoned {
                span: Span {
                    addr: from,
                    bytes: to - from,
                },
                record,
            });
        }
        taken
    }

    /// Every range.
    pub fn all(&self) -> Vec<Poisoned> {
        let ranges = self.ranges.lock();
        let convert = |(addr, (bytes, record)): (&usize, &(usize, Arc<Record>))| Poisoned {
            span: Span {
                addr: *addr,
                bytes: *bytes,
            },
            record: record.clone(),
        };
        ranges.iter().map(convert).collect()
    }

    /// Whether the very same range is still there.
    pub fn holds(&self, poisoned: &Poisoned) -> bool {
        let ranges = self.ranges.lock();
        ranges
            .get(&poisoned.span.addr)
            .is_some_and(|(bytes, record)| {
                *bytes == poisoned.span.bytes && Arc::ptr_eq(record, &poisoned.record)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(of: &[Poisoned]) -> Vec<(usize, usize)> {
        of.iter().map(|p| (p.span.addr, p.span.bytes)).collect()
    }

    #[test]
    fn a_range_is_taken_apart() {
        let shadow = Shadow::default();
        let record = Arc::new(Record::for_tests());
        for addr in [1000, 2000] {
            shadow.add(Span { addr, bytes: 500 }, record.clone());
        }
        let inside = shadow.take(Span {
            addr: 1100,
            bytes: 100,
        });
        assert_eq!(spans(&inside), [(1100, 100)]);
        assert_eq!(
            spans(&shadow.all()),
            [(1000, 100), (1200, 300), (2000, 500)]
        );
        let across = shadow.take(Span {
            addr: 1300,
            bytes: 800,
        });
        assert_eq!(spans(&across), [(1300, 200), (2000, 100)]);
        assert_eq!(
            spans(&shadow.all()),
            [(1000, 100), (1200, 100), (2100, 400)]
        );
        assert!(
            shadow
                .take(Span {
                    addr: 0,
                    bytes: 1000
                })
                .is_empty()
        );
        assert!(shadow.holds(&shadow.all()[0]));
        assert!(!shadow.holds(&inside[0]));
    }
}
