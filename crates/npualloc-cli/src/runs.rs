//! Replays side by side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ascendcl::Config;
use ascendcl::model::config::{Alias, MAX_CAPACITY};
use indicatif::ProgressBar;
use npualloc::config::{DefaultEngine, Settings, SkippedRungs};
use npualloc_replay::replay::{Outcome, Setup, replay};
use npualloc_replay::search::{min_capacity, min_capacity_above};
use npualloc_replay::trace::Trace;

use crate::error::{Error, Result};

/// What a device's memory is counted in, bytes.
const GRANULARITY: u64 = 2 << 20;
/// What a device has where nothing is said, bytes.
const USUAL_CAPACITY: u64 = 64 << 30;

/// Settings under which everybody wants to know.
pub const USUAL_CONFS: [&str; 2] = ["expandable_segments:False", "expandable_segments:True"];

/// The text shown for settings.
pub fn show_conf(conf: &str) -> &str {
    if conf.is_empty() { "(defaults)" } else { conf }
}

/// Checks settings, and puts the usual ones in place of none.
pub fn checked_confs(confs: &[String]) -> Result<Vec<(String, Settings)>> {
    let usual = USUAL_CONFS.map(str::to_owned);
    let confs = if confs.is_empty() { &usual } else { confs };
    confs
        .iter()
        .map(|text| Ok((text.clone(), settings(text)?)))
        .collect()
}

/// Reads settings. Where they don't name an engine, the driver decides, as in the plug-in; rungs of the reclaim ladder
/// that `NPUALLOC_SKIP_RUNGS` names are left out, as there.
pub fn settings(text: &str) -> Result<Settings> {
    let mut settings = Settings::parse(text).map_err(|source| Error::Config {
        text: text.to_owned(),
        source,
    })?;
    settings.default_engine = DefaultEngine::Probe;
    // What is no text names no rung, and is refused.
    let variable = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    settings.skipped_rungs =
        SkippedRungs::from_environment(variable).map_err(Error::Environment)?;
    Ok(settings)
}

/// The capacity asked for, else the recorded one, else the usual; rounded down to what devices have.
pub fn capacity(asked: Option<u64>, trace: &Trace) -> Result<u64> {
    let recorded = Some(trace.capacity).filter(|bytes| *bytes > 0);
    let bytes = asked.or(recorded).unwrap_or(USUAL_CAPACITY);
    if !(GRANULARITY..=MAX_CAPACITY).contains(&bytes) {
        return Err(Error::Capacity {
            bytes,
            origin: match asked {
                Some(_) => "",
                None => " (from the trace's header)",
            },
            least: GRANULARITY,
            most: MAX_CAPACITY,
        });
    }
    Ok(bytes / GRANULARITY * GRANULARITY)
}

/// The simulated device and the allocator of a replay. One handle is mapped at one address: no document
/// of the driver allows more.
pub fn setup(settings: Settings, capacity: u64) -> Setup {
    Setup {
        device: Config {
            capacity,
            alias: Alias::Refuse,
            ..Config::default()
        },
        settings,
        check_every: 0,
    }
}

/// Replays once.
pub fn run(trace: &Trace, conf: &str, settings: &Settings, capacity: u64) -> Result<Outcome> {
    replay(trace, &setup(settings.clone(), capacity)).map_err(|source| Error::Replay {
        conf: conf.to_owned(),
        source,
    })
}

/// To how many bytes the least capacity is found: 0.1 % of the live bytes.
pub fn resolution(trace: &Trace) -> u64 {
    (trace.peak_live / 1000).max(GRANULARITY)
}

/// The least capacity that is enough; `None` when not even the largest device is.
pub fn least(trace: &Trace, conf: &str, settings: &Settings) -> Result<Option<(u64, Outcome)>> {
    let setup = setup(settings.clone(), MAX_CAPACITY);
    min_capacity(trace, &setup, MAX_CAPACITY, resolution(trace)).map_err(|source| Error::Replay {
        conf: conf.to_owned(),
        source,
    })
}

/// The least capacity above `capacity` that is enough, where that is not; `None` when not even the largest device is.
pub fn least_above(
    trace: &Trace,
    conf: &str,
    settings: &Settings,
    capacity: u64,
) -> Result<Option<u64>> {
    let setup = setup(settings.clone(), MAX_CAPACITY);
    let found = min_capacity_above(trace, &setup, capacity, MAX_CAPACITY, resolution(trace));
    let found = found.map_err(|source| Error::Replay {
        conf: conf.to_owned(),
        source,
    })?;
    Ok(found.map(|(bytes, _)| bytes))
}

/// `work` on every item, as many at once as there are processors; results in the items' order.
pub fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    bar: &ProgressBar,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R>)>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(items.len()) {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    bar.inc(1);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
