//! The least capacity on which a trace completes.

use anyhow::Result;

/// Driver granularity, bytes.
pub const PAGE: u64 = 2 << 20;
/// Steps of a search, as parts of the peak of live bytes.
const PARTS: u64 = 1000;

/// The capacities that are tried: the peak of live bytes and 0.1 % steps above it, in whole pages.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    peak_live: u64,
    step: u64,
}

impl Scale {
    /// The scale of a trace.
    pub fn new(peak_live: u64) -> Self {
        Self {
            peak_live,
            step: (peak_live / PARTS).max(PAGE),
        }
    }

    /// The capacity `index` steps above the peak.
    pub fn capacity(self, index: u64) -> u64 {
        (self.peak_live + index * self.step).next_multiple_of(PAGE)
    }

    /// The first step at or above a capacity.
    pub fn index(self, capacity: u64) -> u64 {
        capacity.saturating_sub(self.peak_live).div_ceil(self.step)
    }
}

/// The least index up to `most` at which `attempt` gives something, found by way of a guess: the one
/// below gave nothing, unless it is 0. Success need not be monotone in the index.
///
/// # Errors
/// Those of `attempt`.
pub fn least<T>(
    guess: u64,
    most: u64,
    mut attempt: impl FnMut(u64) -> Result<Option<T>>,
) -> Result<Option<(u64, T)>> {
    let mut index = guess.min(most);
    // The greatest index that failed, plus one.
    let mut floor = 0;
    let mut stride = 1;
    let mut best = loop {
        if let Some(found) = attempt(index)? {
            break (index, found);
        }
        if index == most {
            return Ok(None);
        }
        floor = index + 1;
        index = (index + stride).min(most);
        stride *= 2;
    };
    stride = 1;
    let mut failed = floor > 0;
    while best.0 > floor {
        index = if failed {
            floor + (best.0 - floor) / 2
        } else {
            best.0.saturating_sub(stride)
        };
        stride *= 2;
        match attempt(index)? {
            Some(found) => best = (index, found),
            None => {
                floor = index + 1;
                failed = true;
            }
        }
    }
    Ok(Some(best))
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Scale, least};

    #[test]
    fn the_least_is_found_from_any_guess_with_few_attempts() {
        for threshold in [0, 1, 7, 8, 9, 63, 300] {
            for guess in [0, 1, 8, 100, 400, 1000] {
                let mut attempts = 0;
                let found = least(guess, 400, |index| {
                    attempts += 1;
                    Ok((index >= threshold).then_some(index * 2))
                });
                assert_eq!(found.unwrap(), Some((threshold, threshold * 2)));
                assert!(attempts <= 20, "{attempts} attempts");
            }
        }
        assert!(least(3, 50, |_| Ok(None::<()>)).unwrap().is_none());
    }

    #[test]
    fn a_guess_that_holds_costs_two_attempts() {
        let mut tried = Vec::new();
        let found = least(9, 400, |index| {
            tried.push(index);
            Ok((index >= 9).then_some(()))
        });
        assert_eq!(found.unwrap(), Some((9, ())));
        assert_eq!(tried, [9, 8]);
    }

    #[test]
    fn capacities_are_whole_pages_from_the_peak_on() {
        let scale = Scale::new(10_000 * PAGE + 1);
        assert_eq!(scale.capacity(0), 10_001 * PAGE);
        assert_eq!(scale.capacity(100), 11_001 * PAGE);
        assert_eq!(scale.index(scale.capacity(0) - PAGE), 0);
        assert_eq!(scale.index(11_000 * PAGE), 100);
        // Steps are never less than a page.
        assert_eq!(Scale::new(5 * PAGE).capacity(3), 8 * PAGE);
    }
}
