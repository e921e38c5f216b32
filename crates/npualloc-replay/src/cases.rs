//! Static allocation problems: blocks with known lifetimes, as google/minimalloc's benchmark has them
//! (CSV with the columns `lower`, `upper`, `size`; an `id` is ignored), or made up so that the least
//! memory is known.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::packing::{Buffer, lower_bound};
use crate::synthetic::Random;

/// Added to each request by torch_npu, bytes: requests of a case's trace are that much smaller.
const PAD: u64 = 32;

/// A problem.
#[derive(Debug, Clone)]
pub struct Case {
    /// How it is called.
    pub name: String,
    /// Its blocks.
    pub buffers: Vec<Buffer>,
    /// Memory that is known to be enough, in the unit of the blocks.
    pub known: Option<u64>,
}

/// Why a case could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file could not be read, or is no CSV with the three columns.
    #[error("{path}: {error}")]
    Csv {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: csv::Error,
    },
    /// A block makes no sense.
    #[error("{path}: block {index} (from 0): {problem}")]
    Block {
        /// Which file.
        path: PathBuf,
        /// Which block.
        index: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is no block.
    #[error("{path}: no blocks")]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

#[derive(Deserialize)]
struct Row {
    lower: u64,
    upper: u64,
    size: u64,
}

impl Case {
    /// Reads a CSV file. A number in its name, as in `A.1048576.csv`, is the memory known to be enough.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let csv = |error| CaseError::Csv {
            path: path.to_owned(),
            error,
        };
        let mut reader = csv::Reader::from_path(path).map_err(csv)?;
        let mut buffers = Vec::new();
        for (index, row) in reader.deserialize().enumerate() {
            let Row { lower, upper, size } = row.map_err(csv)?;
            let problem = if upper <= lower {
                Some("it ends before it begins")
            } else if size == 0 || size > 1 << 40 {
                Some("its size is 0 or above 2^40")
            } else {
                None
            };
            if let Some(problem) = problem {
                return Err(CaseError::Block {
                    path: path.to_owned(),
                    index,
                    problem,
                });
            }
            buffers.push(Buffer { lower, upper, size });
        }
        if buffers.is_empty() {
            return Err(CaseError::Empty {
                path: path.to_owned(),
            });
        }
        let file = path.file_stem().map(|name| name.to_string_lossy());
        let file = file.unwrap_or_default();
        let mut parts = file.split('.');
        Ok(Self {
            name: parts.next().unwrap_or_default().to_owned(),
            known: parts.find_map(|part| part.parse().ok()),
            buffers,
        })
    }

    /// A problem whose least memory is `height`: a rectangle of `time` × `height`, cut again and again
    /// into two until there are `count` pieces. Each piece is a block; together they leave no gap.
    pub fn cut(name: &str, count: usize, time: u64, height: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut pieces = vec![(
            Buffer {
                lower: 0,
                upper: time,
                size: height,
            },
            0,
        )];
        while pieces.len() < count {
            // Larger pieces are cut more often, so that sizes do not differ without bound.
            let area = |piece: &(Buffer, u32)| (piece.0.upper - piece.0.lower) * piece.0.size;
            let other = random.below(pieces.len() as u64) as usize;
            let mut chosen = random.below(pieces.len() as u64) as usize;
            if area(&pieces[other]) > area(&pieces[chosen]) {
                chosen = other;
            }
            let (piece, cuts) = pieces[chosen];
            let (length, size) = (piece.upper - piece.lower, piece.size);
            if length < 4 || size < 4 {
                continue;
            }
            let (mut first, mut second) = (piece, piece);
            if cuts % 2 == 0 {
                let at = size / 4 + random.below(size / 2);
                (first.size, second.size) = (at, size - at);
            } else {
                let at = piece.lower + length / 4 + random.below(length / 2);
                (first.upper, second.lower) = (at, at);
            }
            pieces[chosen] = (first, cuts + 1);
            pieces.push((second, cuts + 1));
        }
        let mut buffers: Vec<Buffer> = pieces.into_iter().map(|(piece, _)| piece).collect();
        for index in (1..buffers.len()).rev() {
            buffers.swap(index, random.below(index as u64 + 1) as usize);
        }
        Self {
            name: name.to_owned(),
            buffers,
            known: Some(height),
        }
    }

    /// Bytes to a unit, for a trace whose peak of live bytes is about `bytes`.
    pub fn scale(&self, bytes: u64) -> u64 {
        (bytes / lower_bound(&self.buffers).max(1)).max(1)
    }

    /// The problem as a trace: at each moment the blocks that end are freed, then those that begin are
    /// allocated, both in the order of the case. Sizes are multiplied by `scale`, and 32 bytes smaller:
    /// torch_npu adds as many.
    pub fn trace(&self, scale: u64) -> String {
        let mut changes: Vec<(u64, bool, usize)> = Vec::new();
        for (index, buffer) in self.buffers.iter().enumerate() {
            changes.push((buffer.lower, true, index));
            changes.push((buffer.upper, false, index));
        }
        changes.sort_unstable();
        let mut text = format!("# npualloc-trace v1\n# workload {}\n", self.name);
        let mut ids = vec![0; self.buffers.len()];
        let mut next = 0;
        // Writing to a string can't fail.
        for (_, begins, index) in changes {
            if begins {
                ids[index] = next;
                next += 1;
                let bytes = (self.buffers[index].size * scale)
                    .saturating_sub(PAD)
                    .max(1);
                let _ = writeln!(text, "a {} {bytes} 0", ids[index]);
            } else {
                let _ = writeln!(text, "f {}", ids[index]);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::packing::{conflict, pack};
    use crate::trace::Trace;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("npualloc-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        path
    }

    #[test]
    fn a_file_is_read_with_its_columns_in_any_order() {
        let path = file("x.77.csv", "id,size,lower,upper\n0,5,1,3\nb,6,0,9\n");
        let case = Case::read(&path).expect("a case");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(case.known, Some(77));
        let expected = Buffer {
            lower: 1,
            upper: 3,
            size: 5,
        };
        assert_eq!((case.buffers.len(), case.buffers[0]), (2, expected));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_and_named() {
        for (text, problem) in [
            ("id,lower,upper,size\n0,3,3,5\n", "ends before it begins"),
            ("id,lower,upper,size\n0,3,4,0\n", "its size is 0"),
            ("id,lower,upper\n0,3,4\n", "missing field `size`"),
            ("id,lower,upper,size\n", "no blocks"),
            ("id,lower,upper,size\n0,x,4,1\n", "invalid digit"),
        ] {
            let path = file("bad.csv", text);
            let error = Case::read(&path).expect_err("no case").to_string();
            std::fs::remove_file(&path).expect("it is there");
            assert!(
                error.contains("bad.csv") && error.contains(problem),
                "{error}"
            );
        }
    }

    #[test]
    fn pieces_of_a_rectangle_fill_it_at_every_moment() {
        let case = Case::cut("cut", 60, 1000, 4096, 5);
        assert_eq!((case.buffers.len(), case.known), (60, Some(4096)));
        for moment in 0..1000 {
            let alive = case.buffers.iter();
            let alive = alive.filter(|it| it.lower <= moment && moment < it.upper);
            assert_eq!(alive.map(|it| it.size).sum::<u64>(), 4096);
        }
        let placed = pack(&case.buffers, Duration::from_millis(200), 1);
        assert_eq!(conflict(&case.buffers, &placed.offsets), None);
        assert!(placed.height >= 4096);
    }

    #[test]
    fn the_trace_has_the_same_peak() {
        let case = Case::cut("cut", 40, 500, 1 << 20, 9);
        let scale = case.scale(1 << 34);
        assert_eq!(scale, 1 << 14);
        let text = case.trace(scale);
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a trace");
        assert_eq!(trace.blocks, 40);
        assert!(trace.peak_live <= 1 << 34 && trace.peak_live >= (1 << 34) - 40 * PAD);
    }
}
