//! Switches for experiments and for comparisons: rungs of the reclaim ladder, and ways to find memory, that are not
//! tried.

use super::ConfigError;

/// The variable that names them.
const VARIABLE: &str = "NPUALLOC_SKIP_RUNGS";

/// A rung that can be left out. Growth can't: without it nothing is ever allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Looking at completed events.
    CompletedEvents,
    /// The client's free-memory callbacks.
    Callbacks,
    /// Larger new segments than requested (fixed segments).
    AmpleSegments,
    /// Pages taken from free blocks (virtual segments).
    MovedPages,
    /// Pools opted in for overflow.
    OverflowPools,
    /// Returning oversize blocks.
    Oversize,
    /// Waiting for the events of freed blocks (virtual segments).
    AwaitedEvents,
    /// Synchronising the device and returning what the request needs.
    PartialRelease,
    /// Returning everything idle.
    FullRelease,
    /// Freed blocks that are kept as they are (virtual segments).
    KeptBlocks,
    /// Free blocks that other streams get (virtual segments).
    LentBlocks,
    /// Places for the blocks of programs that repeat themselves (virtual segments).
    PlannedBlocks,
}

const NAMES: [(&str, Rung); 12] = [
    ("completed_events", Rung::CompletedEvents),
    ("callbacks", Rung::Callbacks),
    ("ample_segments", Rung::AmpleSegments),
    ("moved_pages", Rung::MovedPages),
    ("overflow_pools", Rung::OverflowPools),
    ("oversize", Rung::Oversize),
    ("awaited_events", Rung::AwaitedEvents),
    ("partial_release", Rung::PartialRelease),
    ("full_release", Rung::FullRelease),
    ("kept_blocks", Rung::KeptBlocks),
    ("lent_blocks", Rung::LentBlocks),
    ("planned_blocks", Rung::PlannedBlocks),
];

/// Rungs left out; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SkippedRungs(u16);

impl SkippedRungs {
    /// From `NPUALLOC_SKIP_RUNGS`: names with commas between them, as in the counters of the ladder, and
    /// `moved_pages`, `ample_segments`, `kept_blocks`, `lent_blocks` and `planned_blocks`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownRung`] for a name that is none.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut skipped = Self::default();
        let list = get(VARIABLE).unwrap_or_default();
        for name in list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            match NAMES.iter().find(|(known, _)| *known == name) {
                Some((_, rung)) => skipped.0 |= 1 << *rung as u16,
                None => {
                    return Err(ConfigError::UnknownRung {
                        name: name.to_owned(),
                        known: NAMES.map(|(known, _)| known).join(", "),
                    });
                }
            }
        }
        Ok(skipped)
    }

    /// Whether a rung is left out.
    pub fn has(self, rung: Rung) -> bool {
        self.0 & 1 << rung as u16 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<SkippedRungs, ConfigError> {
        SkippedRungs::from_environment(|name| {
            assert_eq!(name, "NPUALLOC_SKIP_RUNGS");
            Some(value.to_owned())
        })
    }

    #[test]
    fn names_are_read_and_checked() {
        assert_eq!(read("").unwrap(), SkippedRungs::default());
        let skipped = read("callbacks, full_release").unwrap();
        for (name, rung) in NAMES {
            let named = name == "callbacks" || name == "full_release";
            assert_eq!(skipped.has(rung), named, "{name}");
        }
        let error = read("callbacks,growth").unwrap_err().to_string();
        assert!(
            error.contains("\"growth\"") && error.contains("partial_release"),
            "{error}"
        );
    }
}
