//! Settings that suit a trace better: each setting is varied in turn, starting from each engine, and
//! what is better is kept.

use indicatif::ProgressBar;
use npualloc::config::Settings;
use npualloc_replay::replay::Outcome;
use npualloc_replay::trace::Trace;
use serde::Serialize;

use crate::cli::Goal;
use crate::error::{Error, Result};
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

impl Scored {
    /// Settings that can't be had here.
    fn worthless(conf: String) -> Self {
        Self {
            conf,
            least_capacity: None,
            stall_ns: None,
            failed_served: None,
        }
    }
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
    /// When a replay fails for another reason than want of memory or a failure of the driver.
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
                    self.score(conf.clone(), Some(&best))
                })?;
                for score in &scores {
                    if self.is_better(score, &best) {
                        best = score.clone();
                    }
                }
                all.extend(scores);
            }
        }
        self.rank(&mut all);
        Ok(all)
    }

    /// By amount, the best of what completes before all.
    fn rank(&self, all: &mut [Scored]) {
        all.sort_by_key(|one| self.amount(one));
        // Of those that are as good as the best, the simplest: fewest settings, then as it was found.
        if let Some(best) = all.iter().map(|one| self.cost(one)).min() {
            let most = (best.0, best.1.saturating_add(self.grain(best.1)));
            let good = |cost| cost == best || cost < most;
            let simplest = (0..all.len())
                .filter(|index| good(self.cost(&all[*index])))
                .min_by_key(|index| all[*index].conf.matches(':').count());
            if let Some(index) = simplest {
                all[..=index].rotate_right(1);
            }
        }
    }

    /// `to_beat`: what has to be improved on. What completes neither where that does not nor on less than it is not
    /// measured further.
    fn score(&self, conf: String, to_beat: Option<&Scored>) -> Result<Scored> {
        let settings = match runs::settings(&conf) {
            Ok(settings) => settings,
            // Two settings that exclude each other.
            Err(Error::Config { .. }) => return Ok(Scored::worthless(conf)),
            Err(error) => return Err(error),
        };
        let here = runs::run(self.trace, &conf, &settings, self.capacity)?;
        if here.driver_failed_at.is_some() {
            return Ok(Scored::worthless(conf));
        }
        let completes = here.completes();
        let stall_ns = completes.then(|| stalls(&here));
        let failed_served = completes.then_some(here.failed_served);
        let to_beat =
            to_beat.and_then(|best| Some((best.least_capacity?, best.stall_ns.is_some())));
        let worth_measuring = match (self.goal, to_beat) {
            (Goal::Stalls, _) => false,
            (Goal::Memory, Some((_, false))) if completes => true,
            (Goal::Memory, Some((bytes, _))) => self.completes_below(bytes, &conf, &settings)?,
            (Goal::Memory, None) => true,
        };
        let least_capacity = if worth_measuring {
            let least = runs::least(self.trace, &conf, &settings)?.map(|(bytes, _)| bytes);
            // Completion is not quite monotone in the capacity.
            least.map(|bytes| {
                if completes {
                    bytes.min(self.capacity)
                } else {
                    bytes
                }
            })
        } else {
            None
        };
        Ok(Scored {
            conf,
            least_capacity,
            stall_ns,
            failed_served,
        })
    }

    /// Whether a capacity is enough that is less than `bytes` by what can be told apart.
    fn completes_below(&self, bytes: u64, conf: &str, settings: &Settings) -> Result<bool> {
        let less = bytes.saturating_sub(runs::resolution(self.trace));
        let Ok(less) = runs::capacity(Some(less), self.trace) else {
            return Ok(false);
        };
        let outcome = runs::run(self.trace, conf, settings, less)?;
        Ok(outcome.completes())
    }

    /// What is to be least.
    fn amount(&self, one: &Scored) -> u64 {
        match self.goal {
            Goal::Memory => one.least_capacity.unwrap_or(u64::MAX),
            Goal::Stalls => one.stall_ns.unwrap_or(u64::MAX),
        }
    }

    /// Before that comes whether it fails to complete on the given device, which the least capacity that is enough does
    /// not quite tell.
    fn cost(&self, one: &Scored) -> (bool, u64) {
        (one.stall_ns.is_none(), self.amount(one))
    }

    /// A difference that is worth a setting: 0.5 % of the live bytes, or 1 % of a time.
    fn grain(&self, cost: u64) -> u64 {
        match self.goal {
            Goal::Memory => self.trace.peak_live / 200,
            Goal::Stalls => cost / 100,
        }
    }

    fn is_better(&self, a: &Scored, b: &Scored) -> bool {
        let ((a_lacks, a), (b_lacks, b)) = (self.cost(a), self.cost(b));
        if a_lacks != b_lacks {
            return b_lacks;
        }
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

    #[test]
    fn every_candidate_alone_is_accepted_by_the_parser() {
        for (engine, dimensions) in ENGINES {
            for text in dimensions.iter().copied().flatten() {
                let conf = join(engine, text);
                assert!(Settings::parse(&conf).is_ok(), "{conf}");
            }
        }
    }

    fn scored(conf: &str, least_capacity: u64, stall_ns: Option<u64>) -> Scored {
        Scored {
            conf: conf.to_owned(),
            least_capacity: Some(least_capacity),
            stall_ns,
            failed_served: stall_ns.map(|_| 0),
        }
    }

    #[test]
    fn simpler_settings_come_first_where_they_are_as_good_and_complete() {
        let trace = Trace {
            peak_live: 10_000,
            ..Trace::default()
        };
        let search = Search {
            trace: &trace,
            goal: Goal::Memory,
            capacity: 10_030,
            bar: &ProgressBar::hidden(),
        };
        let first = |mut all: [Scored; 3]| {
            search.rank(&mut all);
            all[0].conf.clone()
        };
        let varied = scored("a:1,b:1", 10_020, Some(9));
        let far = scored("a:2", 12_000, Some(1));
        // 0.5 % of what is live is 50.
        let near = scored("a:1", 10_040, Some(9));
        assert_eq!(first([near, varied.clone(), far.clone()]), "a:1");
        let lacking = scored("a:1", 10_040, None);
        assert!(search.is_better(&varied, &lacking));
        assert_eq!(first([lacking, varied, far]), "a:1,b:1");
        // What is enough somewhere below need not be enough here.
        let below = scored("a:1", 9_000, None);
        let enough = scored("a:1,b:1", 10_020, Some(9));
        assert!(!search.is_better(&below, &enough));
        let far = scored("a:2", 12_000, None);
        assert_eq!(first([below, far, enough]), "a:1,b:1");
    }

    #[test]
    fn better_is_what_differs_by_a_grain() {
        let trace = Trace {
            peak_live: 10_000,
            ..Trace::default()
        };
        let is_better = |goal, a: u64, b: u64| {
            let search = Search {
                trace: &trace,
                goal,
                capacity: 20_000,
                bar: &ProgressBar::hidden(),
            };
            let scored = |amount| scored("a:1", amount, Some(amount));
            search.is_better(&scored(a), &scored(b))
        };
        // 0.5 % of what is live is 50, 1 % of the time 120.
        assert!(is_better(Goal::Memory, 11_950, 12_000));
        assert!(!is_better(Goal::Memory, 11_951, 12_000));
        assert!(is_better(Goal::Stalls, 11_880, 12_000));
        assert!(!is_better(Goal::Stalls, 11_881, 12_000));
        for goal in [Goal::Memory, Goal::Stalls] {
            assert!(!is_better(goal, 12_000, 11_000));
        }
    }

    #[test]
    fn stalls_are_driver_calls_and_waits() {
        let outcome = Outcome {
            memory_ns: 30,
            wait_ns: 4,
            ..Outcome::default()
        };
        assert_eq!(stalls(&outcome), 34);
    }
}
