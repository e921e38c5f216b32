//! Settings that suit a trace better: each setting is varied in turn, starting from each engine, and
//! what is better is kept.

use indicatif::ProgressBar;
use npualloc_replay::replay::Outcome;
use npualloc_replay::trace::Trace;
use serde::Serialize;

use crate::cli::Goal;
use crate::error::Result;
use crate::runs;

/// A way to vary settings: texts of which at most one is added.
type Dimension = &'static [&'static str];

/// What is varied with fixed segments. `max_split_size_mb` may not be below the large segment's size.
const FIXED: [Dimension; 5] = [
    &[
        "max_split_size_mb:32",
        "max_split_size_mb:64",
        "max_split_size_mb:128",
        "max_split_size_mb:256",
        "max_split_size_mb:512",
        "max_split_size_mb:1024",
        "max_split_size_mb:2048",
    ],
    &[
        "large_segment_size_mb:12",
        "large_segment_size_mb:32",
        "large_segment_size_mb:64",
        "large_segment_size_mb:128",
    ],
    &[
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:8",
        "roundup_power2_divisions:16",
        "roundup_power2_divisions:32",
    ],
    // Collection starts only under a limit.
    &[
        "garbage_collection_threshold:0.7,per_process_memory_fraction:0.99",
        "garbage_collection_threshold:0.9,per_process_memory_fraction:0.99",
    ],
    &["multi_stream_lazy_reclaim:True"],
];

/// What is varied with virtual segments. `page_size:1g` is left out: the host must have set such pages
/// aside.
const VIRTUAL: [Dimension; 4] = [
    &[
        "segment_size_mb:20",
        "segment_size_mb:32",
        "segment_size_mb:64",
        "segment_size_mb:128",
    ],
    &[
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:8",
        "roundup_power2_divisions:16",
        "roundup_power2_divisions:32",
    ],
    &["base_addr_aligned_kb:0"],
    &["multi_stream_lazy_reclaim:True"],
];

const ENGINES: [(&str, &[Dimension]); 2] = [
    ("expandable_segments:False", &FIXED),
    ("expandable_segments:True", &VIRTUAL),
];

/// How many candidates a search looks at.
pub fn candidates() -> u64 {
    ENGINES
        .iter()
        .map(|(_, dimensions)| 1 + dimensions.iter().map(|texts| texts.len()).sum::<usize>())
        .sum::<usize>() as u64
}

/// What settings are worth.
#[derive(Debug, Clone, Serialize)]
pub struct Scored {
    /// The text of `PYTORCH_NPU_ALLOC_CONF`.
    pub conf: String,
    /// The least capacity that is enough, bytes; `None` where something else was better already.
    pub least_capacity: Option<u64>,
    /// Time in driver calls and waits on the given device, nanoseconds; `None` when it does not complete
    /// there.
    pub stall_ns: Option<u64>,
    /// How many of the requests that failed in the recorded run are served there; `None` when it does not
    /// complete.
    pub failed_served: Option<usize>,
}

/// A search under way.
pub struct Search<'a> {
    /// What is replayed.
    pub trace: &'a Trace,
    /// What is best.
    pub goal: Goal,
    /// The device, bytes.
    pub capacity: u64,
    /// Moves with each candidate.
    pub bar: &'a ProgressBar,
}

impl Search<'_> {
    /// Every candidate looked at, the best first.
    ///
    /// # Errors
    /// When a replay fails for another reason than want of memory.
    pub fn run(&self) -> Result<Vec<Scored>> {
        let starts = ENGINES.map(|(conf, _)| conf.to_owned());
        let mut all = runs::side_by_side(&starts, self.bar, |conf| self.score(conf.clone(), None))?;
        for (index, (_, dimensions)) in ENGINES.iter().enumerate() {
            let mut best = all[index].clone();
            for dimension in *dimensions {
                let texts: Vec<String> = dimension
                    .iter()
                    .map(|text| join(&best.conf, text))
                    .collect();
                let scores = runs::side_by_side(&texts, self.bar, |conf| {
                    self.score(conf.clone(), best.least_capacity)
                })?;
                for score in &scores {
                    if self.is_better(score, &best) {
                        best = score.clone();
                    }
                }
                all.extend(scores);
            }
        }
        all.sort_by_key(|one| self.cost(one));
        // Of those that are as good as the best, the simplest: fewest settings, then as it was found.
        if let Some(best) = all.first().map(|one| self.cost(one)) {
            let good = |one: &Scored| self.cost(one) < best.saturating_add(self.grain(best));
            let simplest = (0..all.len())
                .filter(|index| good(&all[*index]))
                .min_by_key(|index| all[*index].conf.matches(':').count());
            if let Some(index) = simplest {
                all[..=index].rotate_right(1);
            }
        }
        Ok(all)
    }

    /// `to_beat`: a capacity on which others complete. What does not complete on less is not measured
    /// further.
    fn score(&self, conf: String, to_beat: Option<u64>) -> Result<Scored> {
        let Ok(settings) = npualloc::config::Settings::parse(&conf) else {
            // Two settings that exclude each other.
            return Ok(Scored {
                conf,
                least_capacity: None,
                stall_ns: None,
                failed_served: None,
            });
        };
        let here = runs::run(self.trace, &conf, &settings, self.capacity)?;
        let completes = here.out_of_memory_at.is_none();
        let stall_ns = completes.then(|| stalls(&here));
        let failed_served = completes.then_some(here.failed_served);
        let least_capacity = match (self.goal, to_beat) {
            (Goal::Stalls, _) => None,
            (Goal::Memory, Some(bytes)) => {
                let less = bytes.saturating_sub(runs::resolution(self.trace));
                let tried = runs::capacity(Some(less), self.trace).ok();
                let completes = match tried {
                    Some(less) => runs::run(self.trace, &conf, &settings, less)?
                        .out_of_memory_at
                        .is_none(),
                    None => false,
                };
                if completes {
                    runs::least(self.trace, &conf, &settings)?.map(|(bytes, _)| bytes)
                } else {
                    None
                }
            }
            (Goal::Memory, None) => {
                runs::least(self.trace, &conf, &settings)?.map(|(bytes, _)| bytes)
            }
        };
        Ok(Scored {
            conf,
            least_capacity,
            stall_ns,
            failed_served,
        })
    }

    /// What is to be least.
    fn cost(&self, one: &Scored) -> u64 {
        match self.goal {
            Goal::Memory => one.least_capacity.unwrap_or(u64::MAX),
            Goal::Stalls => one.stall_ns.unwrap_or(u64::MAX),
        }
    }

    /// A difference that is worth a setting: 0.5 % of the live bytes, or 1 % of a time.
    fn grain(&self, cost: u64) -> u64 {
        match self.goal {
            Goal::Memory => self.trace.peak_live / 200,
            Goal::Stalls => cost / 100,
        }
    }

    fn is_better(&self, a: &Scored, b: &Scored) -> bool {
        let (a, b) = (self.cost(a), self.cost(b));
        a < b && b - a >= self.grain(b)
    }
}

fn stalls(outcome: &Outcome) -> u64 {
    outcome.memory_ns + outcome.wait_ns
}

fn join(conf: &str, more: &str) -> String {
    if conf.is_empty() {
        more.to_owned()
    } else {
        format!("{conf},{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use npualloc::config::Settings;

    #[test]
    fn every_candidate_alone_is_accepted_by_the_parser() {
        for (engine, dimensions) in ENGINES {
            for text in dimensions.iter().copied().flatten() {
                let conf = join(engine, text);
                assert!(Settings::parse(&conf).is_ok(), "{conf}");
            }
        }
    }
}
