//! All runs of a benchmark, several at a time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use super::super::input::Input;
use super::configuration::Configuration;
use super::report::{At, Measured, Report, Tight, TraceReport};
use super::search::{PAGE, Scale, least};
use super::server::{Launcher, Server};

/// Tight capacity, as parts of the peak of live bytes.
const TIGHT: u64 = 1020;
/// Where searches begin for allocators that move memory, in steps of the scale.
const EXPANDABLE_GUESS: u64 = 8;

/// What to measure.
pub struct Plan {
    /// Which configurations.
    pub configurations: Vec<Configuration>,
    /// Whether to look for least capacities.
    pub search: bool,
    /// How many replays at a time.
    pub jobs: usize,
}

/// Measures everything.
///
/// # Errors
/// The first failure that is no lack of memory.
pub fn run(launcher: &Launcher, inputs: &[Input], plan: &Plan) -> Result<Report> {
    let mut reports: Vec<TraceReport> = inputs.iter().map(TraceReport::of).collect();
    let tasks: Vec<(usize, Configuration)> = (0..inputs.len())
        .flat_map(|trace| plan.configurations.iter().map(move |one| (trace, *one)))
        .collect();
    let servers = Servers::new(launcher, plan.jobs);
    let measured = servers.each("measuring", &tasks, |server, &(trace, configuration)| {
        measure(server, &inputs[trace], configuration, plan.search)
    })?;
    for ((trace, configuration), measured) in tasks.into_iter().zip(measured) {
        let report = &mut reports[trace].configurations;
        report.insert(configuration, measured);
    }

    let mut tasks = Vec::new();
    for (trace, report) in reports.iter_mut().enumerate() {
        report.tight = tight_capacities(report);
        for (index, tight) in report.tight.iter().enumerate() {
            let chosen = plan
                .configurations
                .iter()
                .filter(|it| tight.reference.expandable() || !it.expandable());
            tasks.extend(chosen.map(|it| (trace, index, *it, tight.capacity)));
        }
    }
    let runs = servers.each("under pressure", &tasks, |server, task| {
        let &(trace, _, configuration, capacity) = task;
        server.replay(&inputs[trace], configuration, capacity)
    })?;
    for ((trace, index, configuration, _), run) in tasks.into_iter().zip(runs) {
        reports[trace].tight[index].runs.insert(configuration, run);
    }
    Ok(Report {
        device: "simulated CANN runtime".to_owned(),
        traces: reports,
    })
}

/// One configuration on one trace.
///
/// # Errors
/// A failure that is no lack of memory.
pub fn measure(
    server: &mut Server,
    input: &Input,
    configuration: Configuration,
    search: bool,
) -> Result<Measured> {
    let ample = server.replay(input, configuration, input.ample)?;
    if !search {
        return Ok(Measured { ample, least: None });
    }
    let scale = Scale::new(input.peak_live);
    let guess = if configuration.expandable() {
        EXPANDABLE_GUESS
    } else {
        scale.index(ample.peak_reserved) / 2
    };
    // Below it, so that no attempt is above it.
    let most = scale.index(input.ample).saturating_sub(1);
    let found = least(guess, most, |index| {
        let run = server.replay(input, configuration, scale.capacity(index))?;
        Ok(run.completed().then_some(run))
    })?;
    Ok(Measured {
        ample,
        least: found.map(|(index, run)| At {
            capacity: scale.capacity(index),
            run: run.brief(),
        }),
    })
}

/// The capacities under which pressure is shown, with no runs yet: for each stock configuration its own
/// least capacity, or a little above the peak of live bytes where that is more.
fn tight_capacities(report: &TraceReport) -> Vec<Tight> {
    let floor = (report.peak_live / 1000 * TIGHT).next_multiple_of(PAGE);
    let capacity = |reference: Configuration| {
        let measured = report.configurations.get(&reference);
        let least = measured.and_then(|it| it.least.as_ref());
        least.map_or(floor, |at| at.capacity.max(floor))
    };
    let tight = |reference| Tight {
        reference,
        capacity: capacity(reference),
        runs: BTreeMap::new(),
    };
    let expandable = tight(Configuration::StockExpandable);
    let fixed = tight(Configuration::StockDefault);
    if fixed.capacity == expandable.capacity {
        return vec![expandable];
    }
    vec![expandable, fixed]
}

impl TraceReport {
    fn of(input: &Input) -> Self {
        Self {
            name: input.name.clone(),
            workload: input.workload.clone(),
            events: input.event_count,
            allocations: input.allocations,
            peak_live: input.peak_live,
            ample_capacity: input.ample,
            configurations: BTreeMap::new(),
            tight: Vec::new(),
        }
    }
}

/// Servers, started when they are first needed and kept.
pub struct Servers<'a> {
    launcher: &'a Launcher,
    jobs: usize,
    idle: Mutex<Vec<Server>>,
}

impl<'a> Servers<'a> {
    /// At most `jobs` of them.
    pub fn new(launcher: &'a Launcher, jobs: usize) -> Self {
        Self {
            launcher,
            jobs,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Does each task on some server and returns the results in the order of the tasks.
    ///
    /// # Errors
    /// The first failure; tasks that have not begun then are left out.
    pub fn each<T: Sync, R: Send>(
        &self,
        what: &str,
        tasks: &[T],
        act: impl Fn(&mut Server, &T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let progress = bar(what, tasks.len());
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<R>>> = Mutex::new(tasks.iter().map(|_| None).collect());
        let failure = Mutex::new(None);
        let poisoned = || anyhow!("a measuring thread panicked");
        let work = || -> Result<()> {
            let kept = self.idle.lock().map_err(|_| poisoned())?.pop();
            let mut server = match kept {
                Some(server) => server,
                None => self.launcher.start()?,
            };
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(index) else { break };
                let result = act(&mut server, task)?;
                results.lock().map_err(|_| poisoned())?[index] = Some(result);
                progress.inc(1);
            }
            self.idle.lock().map_err(|_| poisoned())?.push(server);
            Ok(())
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs.min(tasks.len()) {
                scope.spawn(|| {
                    if let Err(error) = work() {
                        // No further task is begun.
                        next.store(tasks.len(), Ordering::Relaxed);
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error);
                        }
                    }
                });
            }
        });
        progress.finish_and_clear();
        if let Some(error) = failure.into_inner().map_err(|_| poisoned())? {
            return Err(error);
        }
        let results = results.into_inner().map_err(|_| poisoned())?;
        let all: Option<Vec<R>> = results.into_iter().collect();
        all.ok_or_else(poisoned)
    }
}

fn bar(what: &str, tasks: usize) -> ProgressBar {
    let bar = ProgressBar::new(tasks as u64);
    let style = "{prefix:>14} {wide_bar} {pos}/{len}  {elapsed_precise}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
