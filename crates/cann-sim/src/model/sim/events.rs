//! Calls on events.

use ascend_rs_sys::{
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_NO_EVENT_RESOURCE, ACL_ERROR_RT_PARAM_INVALID,
};

use super::Sim;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::event::{Event, MAX_EVENTS, Mark};
use crate::model::stream::{Command, Passing};

impl Sim {
    /// Makes an event. A device has [`MAX_EVENTS`] for those that take one of
    /// them when they are made.
    pub fn add_event(&mut self, device: u32, flags: u32, extended: bool) -> Result<u64> {
        let event = Event::new(device, flags, extended);
        if event.takes_one() {
            if self.device(device).events >= MAX_EVENTS {
                return fail(
                    ACL_ERROR_RT_NO_EVENT_RESOURCE,
                    "no event is left on the device",
                );
            }
            self.device(device).events += 1;
        }
        Ok(self.events.insert(event))
    }

    /// Removes an event. Work that waits for its record goes on waiting.
    pub fn destroy_event(&mut self, event: u64) -> Result<()> {
        match self.events.remove(event) {
            Some(event) => {
                if event.takes_one() {
                    self.device(event.device).events -= 1;
                }
                Ok(())
            }
            None => unknown(),
        }
    }

    /// A live event.
    pub fn event(&self, event: u64) -> Result<&Event> {
        self.events.get(event).map_or_else(unknown, Ok)
    }

    /// Records an event at the end of a stream. The latest record counts.
    pub fn record(&mut self, event: u64, stream: u64) -> Result<()> {
        let device = self.event(event)?.device;
        let now = self.clock.now();
        let it = self.stream(stream)?;
        if it.device != device {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "event and stream are on different devices",
            );
        }
        if let Some(model) = it.capture {
            return self.capture_record(model, event, stream);
        }
        let blocked = !it.blocked.is_empty();
        let time = it.tail.max(now);
        let callers = it.callers.clone();
        let Some(it) = self.events.get_mut(event) else {
            return unknown();
        };
        it.records += 1;
        it.callers = callers;
        let record = it.records;
        if blocked {
            let passing = Passing::default();
            it.mark = Mark::Blocked;
            it.passing = passing.clone();
            let record = Command::Record {
                event,
                record,
                passing,
            };
            self.block(stream, record)
        } else {
            it.mark = Mark::At(time);
            if self.blocked_streams > 0 {
                self.unblock();
            }
            Ok(())
        }
    }

    /// Makes a stream wait for the latest record of an event, if there is one.
    pub fn wait_event(&mut self, stream: u64, event: u64) -> Result<()> {
        if self.capture_wait(stream, event)? {
            return Ok(());
        }
        let it = self.event(event)?;
        // CANN's reference has ACL_EVENT_SYNC for events that streams wait for
        // (aclrtCreateEventWithFlag, restrictions).
        if !it.orders() {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "a stream's wait for an event of ACL_EVENT_CAPTURE_STREAM_PROGRESS",
            );
        }
        let (mark, passing) = (it.mark, it.passing.clone());
        if !it.callers.is_empty() {
            let callers = it.callers.clone();
            self.comes_after(stream, &callers);
        }
        let it = self.stream_mut(stream)?;
        let passing = match mark {
            Mark::None | Mark::Captured { .. } => return Ok(()),
            Mark::Blocked => passing,
            Mark::At(time) if it.blocked.is_empty() => {
                it.tail = it.tail.max(time);
                let tail = it.tail;
                if let Some(event) = self.events.get_mut(event) {
                    event.waits.add(tail);
                }
                return Ok(());
            }
            Mark::At(time) => Passing::new(time.into()),
        };
        let Some(event) = self.events.get_mut(event) else {
            return unknown();
        };
        let over = event.waits.add_open();
        self.block(stream, Command::Wait { passing, over })
    }

    /// True once all streams have got past their waits for an event.
    pub fn event_waited(&mut self, event: u64) -> Result<bool> {
        let now = self.clock.now();
        let event = self.events.get_mut(event);
        event.map_or_else(unknown, |event| Ok(event.waits.over(now)))
    }

    /// Makes an event unrecorded; one of the newer call cannot be (`EventReset` in
    /// the runtime's `api_impl.cc`).
    pub fn reset_event(&mut self, event: u64, stream: u64) -> Result<()> {
        self.stream(stream)?;
        match self.events.get_mut(event) {
            Some(event) if event.extended => fail(
                ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "reset of an event of aclrtCreateEventExWithFlag",
            ),
            Some(event) => {
                event.mark = Mark::None;
                event.records += 1;
                Ok(())
            }
            None => unknown(),
        }
    }

    /// True once the latest record is passed.
    pub fn event_complete(&self, event: u64) -> Result<bool> {
        Ok(self.event(event)?.complete(self.clock.now()))
    }

    /// Waits for the latest record.
    pub fn sync_event(&mut self, event: u64, kind: CallKind) -> Result<()> {
        let device = self.event(event)?.device;
        loop {
            match self.event(event)?.mark {
                Mark::None => return Ok(()),
                Mark::At(time) => {
                    self.wait_until(time, kind, device);
                    return self.healthy(device);
                }
                Mark::Captured { .. } => {
                    return fail(
                        ascend_rs_sys::ACL_ERROR_RT_EVENT_CAPTURED,
                        "the event was recorded in a capture",
                    );
                }
                Mark::Blocked => {
                    if !self.advance_to_next_effect(kind, device) {
                        return fail(
                            ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
                            "the event's stream waits for something nobody will do",
                        );
                    }
                }
            }
        }
    }

    /// Time of the latest record, which must have passed.
    pub fn event_time(&self, event: u64) -> Result<u64> {
        match self.event(event)?.mark {
            Mark::At(time) if time <= self.clock.now() => Ok(time),
            _ => fail(
                ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                "the event has not completed",
            ),
        }
    }
}

fn unknown<T>() -> Result<T> {
    fail(ACL_ERROR_RT_PARAM_INVALID, "unknown event")
}
