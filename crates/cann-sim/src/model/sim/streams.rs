//! Calls on streams: make, destroy, put work on, wait.

use std::cmp::Reverse;

use ascend_rs_sys::{ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT};

use super::values::holds;
use super::{Due, Sim};
use crate::model::capture::Step;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::event::Mark;
use crate::model::ledger::HazardKind;
use crate::model::stream::{Command, Pending, Stream};
use crate::model::work::{Access, Action, Work};

impl Sim {
    /// Adds an empty stream.
    pub fn add_stream(&mut self, device: u32) -> u64 {
        let id = self.next_stream_id;
        self.next_stream_id += 1;
        self.streams.insert(Stream::new(device, id))
    }

    /// A live stream.
    pub fn stream(&self, stream: u64) -> Result<&Stream> {
        match self.streams.get(stream) {
            Some(stream) => Ok(stream),
            None => fail(ACL_ERROR_RT_PARAM_INVALID, "unknown stream"),
        }
    }

    /// A live stream, to change.
    pub fn stream_mut(&mut self, stream: u64) -> Result<&mut Stream> {
        match self.streams.get_mut(stream) {
            Some(stream) => Ok(stream),
            None => fail(ACL_ERROR_RT_PARAM_INVALID, "unknown stream"),
        }
    }

    /// All streams of a device.
    pub(super) fn streams_of(&self, device: u32) -> Vec<u64> {
        let streams = self.streams.iter();
        streams
            .filter(|(_, stream)| stream.device == device)
            .map(|(handle, _)| handle)
            .collect()
    }

    /// Removes a stream; its work is waited for first, or, by force, dropped.
    pub fn destroy_stream(&mut self, stream: u64, force: bool) -> Result<()> {
        self.forbid_in_capture(stream)?;
        let it = self.stream(stream)?;
        let device = it.device;
        if self.devices[device as usize].default_stream == stream {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "the default stream cannot be destroyed",
            );
        }
        if force {
            if !it.idle(self.clock.now()) {
                self.hazard(HazardKind::StreamDestroyedUnderWork, device, 0, 0, "stream");
            }
            self.abort_stream(stream)?;
        } else {
            self.sync_stream(stream, CallKind::DestroyStream)?;
        }
        self.streams.remove(stream);
        Ok(())
    }

    /// Drops all work of a stream that has not completed.
    pub fn abort_stream(&mut self, stream: u64) -> Result<()> {
        let now = self.clock.now();
        let it = self.stream_mut(stream)?;
        let was_blocked = !it.blocked.is_empty();
        it.blocked.clear();
        it.pending.retain(|task| task.end <= now);
        it.tail = it.tail.min(now);
        if was_blocked {
            self.blocked_streams -= 1;
        }
        self.due.retain(|Reverse(due)| due.stream != stream);
        Ok(())
    }

    /// Takes the task that was put on a stream last off it again, if the stream waits
    /// for something that comes before it.
    pub(super) fn withdraw_last(&mut self, stream: u64) {
        if let Some(it) = self.streams.get_mut(stream)
            && it.update.is_none()
            && it.blocked.len() > 1
            && matches!(it.blocked.back(), Some(Command::Work(_)))
        {
            it.blocked.pop_back();
        }
    }

    /// Puts a task on a stream. Ranges it names that are not mapped are
    /// reported, and then the task does nothing but take its time.
    pub fn submit(&mut self, stream: u64, mut work: Work) -> Result<()> {
        let device = self.stream(stream)?.device;
        self.healthy(device)?;
        self.device(device).ledger.tasks += 1;
        let bad: Option<Access> = work
            .accesses
            .iter()
            .copied()
            .find(|access| !self.mapped(access));
        if let Some(Access { addr, len }) = bad {
            self.hazard(HazardKind::UnmappedAccess, device, addr, len, work.name);
            work.action = None;
        }
        if let Some(Action::Host(_)) = work.action {
            self.calls_functions(stream);
        }
        let it = self.stream(stream)?;
        if let Some((group, next)) = it.update {
            return self.update(stream, group, next, work);
        }
        if let Some(model) = it.capture {
            self.capture(model, stream, Step::Task(work));
            return Ok(());
        }
        if !self.stream(stream)?.blocked.is_empty() {
            self.stream_mut(stream)?
                .blocked
                .push_back(Command::Work(work));
            return Ok(());
        }
        let depth = self.config.stream_depth;
        let now = self.clock.now();
        let room = self.stream(stream)?.room_at(now, depth);
        if room > now {
            self.wait_until(room, CallKind::Launch, device);
        }
        self.start(stream, work);
        Ok(())
    }

    /// Gives a task its place in time, after all that is on its stream.
    fn start(&mut self, stream: u64, work: Work) {
        let now = self.clock.now();
        let Some(it) = self.streams.get_mut(stream) else {
            return;
        };
        let start = it.tail.max(now);
        it.tail = start.saturating_add(work.nanoseconds);
        self.place(stream, start, work);
    }

    /// Makes a task pending from a time on; its effect comes at its end.
    /// Returns when that is.
    pub(super) fn place(&mut self, stream: u64, start: u64, work: Work) -> u64 {
        let end = start.saturating_add(work.nanoseconds);
        let task = Pending {
            start,
            end,
            accesses: work.accesses,
            name: work.name,
        };
        if self.vmm.any_aliases() {
            let device = self.streams.get(stream).map_or(0, |it| it.device);
            self.check_aliases(device, &task);
        }
        if let Some(action) = work.action {
            let due = Due {
                end,
                sequence: self.next_number(),
                stream,
                accesses: task.accesses.clone(),
                action,
            };
            self.due.push(Reverse(due));
        }
        let now = self.clock.now();
        if let Some(it) = self.streams.get_mut(stream) {
            it.forget_completed(now);
            it.pending.push_back(task);
        }
        end
    }

    /// Adds a command that may not be able to go on yet, and tries.
    pub(super) fn block(&mut self, stream: u64, command: Command) -> Result<()> {
        let it = self.stream_mut(stream)?;
        it.blocked.push_back(command);
        if it.blocked.len() == 1 {
            self.blocked_streams += 1;
            self.unblock();
        }
        Ok(())
    }

    /// Lets streams go on whose reason to wait is gone, until none can.
    pub(super) fn unblock(&mut self) {
        while self.blocked_streams > 0 {
            let waiting: Vec<u64> = self
                .streams
                .iter()
                .filter(|(_, stream)| !stream.blocked.is_empty())
                .map(|(handle, _)| handle)
                .collect();
            let mut progress = false;
            for stream in waiting {
                progress |= self.go_on(stream);
            }
            if !progress {
                return;
            }
        }
    }

    fn go_on(&mut self, stream: u64) -> bool {
        let mut progress = false;
        loop {
            let now = self.clock.now();
            // Words in memory are read when no effect is outstanding.
            let due = self.effects_due();
            let Some(it) = self.streams.get_mut(stream) else {
                return progress;
            };
            let Some(front) = it.blocked.front() else {
                return progress;
            };
            match front {
                Command::Work(_) => {
                    if let Some(Command::Work(work)) = it.blocked.pop_front() {
                        // The task counts as pending again before it is started.
                        self.after_pop(stream);
                        self.start(stream, work);
                    }
                }
                Command::Record {
                    event,
                    record,
                    passing,
                } => {
                    let (event, record, time) = (*event, *record, it.tail.max(now));
                    // Set here only, and the command is taken off its stream.
                    let _ = passing.set(time);
                    it.blocked.pop_front();
                    self.after_pop(stream);
                    if let Some(event) = self.events.get_mut(event)
                        && event.records == record
                    {
                        event.mark = Mark::At(time);
                    }
                }
                Command::Wait { passing, over } => {
                    let Some(&time) = passing.get() else {
                        return progress;
                    };
                    it.tail = it.tail.max(now).max(time);
                    let _ = over.set(it.tail);
                    it.blocked.pop_front();
                    self.after_pop(stream);
                }
                &Command::WaitValue { addr, value, flag } => {
                    // The wait begins when the stream gets here.
                    if it.tail > now || due {
                        return progress;
                    }
                    let there = self.mapped(&Access { addr, len: 8 });
                    if !there || !holds(self.backing.read_word(addr), value, flag) {
                        return progress;
                    }
                    if let Some(it) = self.streams.get_mut(stream) {
                        it.tail = now;
                        it.blocked.pop_front();
                    }
                    self.after_pop(stream);
                }
                Command::Branch(branch) => {
                    // The value is read when the stream gets here.
                    if it.tail > now || due {
                        return progress;
                    }
                    let branch = branch.clone();
                    let commands = self.chosen(&branch);
                    if let Some(it) = self.streams.get_mut(stream) {
                        it.blocked.pop_front();
                        for command in commands.into_iter().rev() {
                            it.blocked.push_front(command);
                        }
                    }
                    self.after_pop(stream);
                }
            }
            progress = true;
        }
    }

    fn after_pop(&mut self, stream: u64) {
        if self
            .streams
            .get(stream)
            .is_some_and(|it| it.blocked.is_empty())
        {
            self.blocked_streams -= 1;
        }
    }

    /// Waits for all work on a stream.
    pub fn sync_stream(&mut self, stream: u64, kind: CallKind) -> Result<()> {
        self.forbid_in_capture(stream)?;
        let device = self.stream(stream)?.device;
        self.healthy(device)?;
        loop {
            let it = self.stream(stream)?;
            if it.idle(self.clock.now()) {
                break;
            }
            if it.blocked.is_empty() || it.tail > self.clock.now() {
                let tail = it.tail;
                self.wait_until(tail, kind, device);
                self.unblock();
            } else if !self.advance_to_next_effect(kind, device) {
                return fail(
                    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                    "the stream waits for something nobody will do",
                );
            }
        }
        self.healthy(device)
    }

    /// Waits for the next effect of any stream, which may let others go on.
    pub(super) fn advance_to_next_effect(&mut self, kind: CallKind, device: u32) -> bool {
        let Some(time) = self.next_instant() else {
            return false;
        };
        self.wait_until(time, kind, device);
        self.unblock();
        true
    }

    /// Moves the clock to the time of the next function of the host, if one is
    /// pending on any stream.
    pub fn hurry_host_calls(&mut self) {
        let next = self
            .due
            .iter()
            .filter(|Reverse(due)| matches!(due.action, Action::Host(_)))
            .map(|Reverse(due)| due.end)
            .min();
        if let Some(time) = next {
            let wait = time.saturating_sub(self.clock.now());
            self.spend(wait);
        }
    }

    /// Waits for all work on a device.
    pub fn sync_device(&mut self, device: u32, kind: CallKind) -> Result<()> {
        let streams = self.streams_of(device);
        for &stream in &streams {
            self.forbid_in_capture(stream)?;
        }
        for stream in streams {
            self.sync_stream(stream, kind)?;
        }
        self.healthy(device)
    }
}
