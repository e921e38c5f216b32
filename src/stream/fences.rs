//! How far each stream is known to have come: which of the frees made on it happened before work that
//! has completed. Memory freed up to there can be unmapped without waiting.

use std::collections::VecDeque;

use crate::driver::EventHandle;
use crate::ids::StreamKey;
use crate::page::LastUse;

/// Events outstanding for one stream at the most; a newer one tells more than those before it.
const MAX_OUTSTANDING: usize = 8;

#[derive(Debug)]
struct StreamFences {
    stream: StreamKey,
    /// Everything freed up to this tick of the device's clock is out of use.
    completed: u64,
    /// The clock when the latest event was recorded.
    recorded: u64,
    /// Events recorded behind the frees up to a tick, oldest first.
    outstanding: VecDeque<(u64, EventHandle)>,
    /// The driver can't record events on it.
    blind: bool,
}

/// The fences of a device's streams.
#[derive(Debug, Default)]
pub struct Fences {
    streams: Vec<StreamFences>,
    /// Everything freed up to this tick, on any stream, is out of use.
    all: u64,
    /// Streams that wait for another on the device, and up to which tick what was freed on that one is over for them.
    ordered: Vec<(StreamKey, LastUse)>,
}

impl Fences {
    fn find(&self, stream: StreamKey) -> Option<&StreamFences> {
        self.streams.iter().find(|fences| fences.stream == stream)
    }

    fn of(&mut self, stream: StreamKey) -> &mut StreamFences {
        let at = match self.streams.iter().position(|f| f.stream == stream) {
            Some(at) => at,
            None => {
                self.streams.push(StreamFences {
                    stream,
                    completed: 0,
                    recorded: 0,
                    outstanding: VecDeque::new(),
                    blind: false,
                });
                self.streams.len() - 1
            }
        };
        &mut self.streams[at]
    }

    /// What was freed on the stream up to this tick is out of use.
    pub fn completed(&self, stream: StreamKey) -> u64 {
        let own = self.find(stream).map_or(0, |fences| fences.completed);
        own.max(self.all)
    }

    /// What was freed on any stream up to this tick is out of use, as the device was waited for since.
    pub fn synchronised(&self) -> u64 {
        self.all
    }

    /// Whether a last use is over for everybody.
    pub fn passed(&self, used: LastUse) -> bool {
        used.tick <= self.completed(used.stream)
    }

    /// Whether a last use is over for work submitted to `stream` from now on: for everybody, because it was on that
    /// stream itself, or since the stream waits for it.
    pub fn is_over_for(&self, stream: StreamKey, used: LastUse) -> bool {
        used.stream == stream || self.passed(used) || used.tick <= self.ordered(stream, used.stream)
    }

    /// Up to which tick what was freed on stream `on` is over for work on `waiter`, by its waits on the device.
    pub fn ordered(&self, waiter: StreamKey, on: StreamKey) -> u64 {
        let mut known = self.ordered.iter();
        known
            .find(|(of, used)| *of == waiter && used.stream == on)
            .map_or(0, |(_, used)| used.tick)
    }

    /// `waiter` waits on the device for everything freed on a stream up to a tick.
    pub fn order(&mut self, waiter: StreamKey, used: LastUse) {
        let mut known = self.ordered.iter_mut();
        match known.find(|(of, before)| *of == waiter && before.stream == used.stream) {
            Some((_, before)) => before.tick = before.tick.max(used.tick),
            None => self.ordered.push((waiter, used)),
        }
    }

    /// Takes out the oldest outstanding event that covers a last use, and up to when it does.
    pub fn take_covering(&mut self, used: LastUse) -> Option<(u64, EventHandle)> {
        let outstanding = &mut self.of(used.stream).outstanding;
        let at = outstanding
            .iter()
            .position(|(covers, _)| *covers >= used.tick)?;
        outstanding.remove(at)
    }

    /// Puts an event back that was taken out.
    pub fn put_back(&mut self, stream: StreamKey, covers: u64, event: EventHandle) {
        let outstanding = &mut self.of(stream).outstanding;
        let at = outstanding.partition_point(|(before, _)| *before <= covers);
        outstanding.insert(at, (covers, event));
    }

    /// The latest tick that is noted of any stream.
    pub fn latest(&self) -> u64 {
        let own = |fences: &StreamFences| {
            let outstanding = fences.outstanding.iter().map(|(tick, _)| *tick);
            outstanding.fold(fences.completed.max(fences.recorded), u64::max)
        };
        self.streams.iter().map(own).fold(self.all, u64::max)
    }

    /// The clock when the stream's latest event was recorded.
    pub fn recorded(&self, stream: StreamKey) -> u64 {
        self.find(stream).map_or(0, |fences| fences.recorded)
    }

    /// The driver can't record events on the stream: only a wait for the device tells how far it has come.
    pub fn set_blind(&mut self, stream: StreamKey) {
        self.of(stream).blind = true;
    }

    /// See [`Self::set_blind`].
    pub fn is_blind(&self, stream: StreamKey) -> bool {
        self.find(stream).is_some_and(|fences| fences.blind)
    }

    /// Whether another event may be recorded on the stream.
    pub fn has_room(&self, stream: StreamKey) -> bool {
        self.find(stream)
            .is_none_or(|fences| fences.outstanding.len() < MAX_OUTSTANDING)
    }

    /// An event was recorded on the stream behind everything freed up to `tick`.
    pub fn push(&mut self, stream: StreamKey, tick: u64, event: EventHandle) {
        let fences = self.of(stream);
        fences.recorded = fences.recorded.max(tick);
        fences.outstanding.push_back((tick, event));
    }

    /// The streams' oldest outstanding events.
    pub fn heads(&self) -> impl Iterator<Item = (StreamKey, EventHandle)> + '_ {
        self.streams
            .iter()
            .filter_map(|f| Some((f.stream, f.outstanding.front()?.1)))
    }

    /// Takes the stream's oldest outstanding event out: it has completed.
    pub fn pop(&mut self, stream: StreamKey) -> Option<EventHandle> {
        let fences = self.of(stream);
        let (tick, event) = fences.outstanding.pop_front()?;
        fences.completed = fences.completed.max(tick);
        Some(event)
    }

    /// Takes out the oldest outstanding event that covers `tick`, and those before it; the caller waits
    /// for the last. Nothing counts as completed yet.
    pub fn take_until(&mut self, stream: StreamKey, tick: u64) -> Vec<(u64, EventHandle)> {
        let outstanding = &mut self.of(stream).outstanding;
        let Some(at) = outstanding.iter().position(|(covers, _)| *covers >= tick) else {
            return Vec::new();
        };
        outstanding.drain(..=at).collect()
    }

    /// Everything freed on the stream up to `tick` is out of use.
    pub fn complete(&mut self, stream: StreamKey, tick: u64) {
        let fences = self.of(stream);
        fences.completed = fences.completed.max(tick);
    }

    /// Takes all outstanding events out; nothing counts as completed. The next ones are recorded anew.
    pub fn take_outstanding(&mut self) -> Vec<EventHandle> {
        let events = self.streams.iter_mut().flat_map(|fences| {
            fences.recorded = fences.completed;
            fences.outstanding.drain(..).map(|(_, event)| event)
        });
        events.collect()
    }

    /// Everything freed on any stream up to `tick` is out of use: the device was synchronised.
    pub fn complete_all(&mut self, tick: u64) {
        self.all = self.all.max(tick);
    }
}
