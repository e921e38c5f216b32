//! Calls on captures and replays.
//!
//! Which call fails with which code in a capture is taken from the public
//! sources of the runtime (`src/runtime/api/impl/api_error.cc`,
//! `feature/aclgraph/context_aclgraph.cc`).

use super::Sim;
use crate::model::capture::{GLOBAL, Member, Model, RELAXED, State, Step, THREAD_LOCAL};
use crate::model::error::{Result, fail};
use crate::model::event::Mark;
use crate::model::work::Access;
use ascend_rs_sys::{
    ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
    ACL_ERROR_RT_EVENT_CAPTURED, ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
    ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
    ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, ACL_ERROR_RT_STREAM_CAPTURED,
    ACL_ERROR_RT_STREAM_NOT_CAPTURED, ACL_ERROR_RT_STREAM_UNJOINED,
    ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING, ACL_ERROR_STREAM_CAPTURE_CONFLICT,
    ACL_ERROR_STREAM_TASK_GROUP_STATUS,
};

impl Sim {
    /// A model.
    pub fn model(&self, model: u64) -> Result<&Model> {
        match self.models.get(model) {
            Some(model) => Ok(model),
            None => fail(ACL_ERROR_RT_PARAM_INVALID, "unknown model"),
        }
    }

    /// Begins a capture on a stream.
    pub fn capture_begin(&mut self, stream: u64, mode: u32) -> Result<()> {
        if mode > RELAXED {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown capture mode");
        }
        let it = self.stream(stream)?;
        let device = it.device;
        if self.devices[device as usize].default_stream == stream {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "the default stream cannot be captured",
            );
        }
        if it.capture.is_some() {
            return fail(
                ACL_ERROR_RT_STREAM_CAPTURED,
                "the stream is being captured already",
            );
        }
        self.next_model += 1;
        let thread = self.caller.thread;
        let model = Model::new(self.next_model, device, stream, mode, thread);
        let model = self.models.insert(model);
        self.stream_mut(stream)?.capture = Some(model);
        self.captures += 1;
        Ok(())
    }

    /// Ends the capture that began on a stream.
    pub fn capture_end(&mut self, stream: u64) -> Result<u64> {
        let Some(handle) = self.stream(stream)?.capture else {
            return fail(
                ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "the stream is not being captured",
            );
        };
        let thread = self.caller.thread;
        let model = self.model(handle)?;
        if model.origin != stream {
            return fail(
                ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
                "the capture began on another stream",
            );
        }
        let wrong_thread = model.thread != thread && model.mode != RELAXED;
        let invalidated = model.state == State::Invalidated;
        let open_group = model.members.iter().any(|member| member.group.is_some());
        let parent = model.parent;
        let open_body = self.bodies_below(handle).into_iter().any(|body| {
            let body = self.models.get(body);
            body.is_none_or(|body| body.state != State::Ready)
        });
        let loose = model.members.iter().any(|member| member.loose);
        for member in model.members.clone() {
            if let Some(stream) = self.streams.get_mut(member.stream) {
                stream.capture = None;
            }
        }
        self.captures -= 1;
        let verdict = if wrong_thread {
            fail(
                ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
                "another thread began the capture",
            )
        } else if invalidated {
            fail(
                ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                "a call during the capture failed",
            )
        } else if open_body {
            fail(
                ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING,
                "a body of a conditional task is not captured",
            )
        } else if open_group {
            fail(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "a task group was not ended",
            )
        } else if loose {
            fail(
                ACL_ERROR_RT_STREAM_UNJOINED,
                "a stream was not joined to the origin",
            )
        } else {
            Ok(handle)
        };
        match (&verdict, self.models.get_mut(handle)) {
            (Ok(_), Some(model)) => model.state = State::Ready,
            // It goes with its parent, whose capture it makes fail.
            (Err(_), Some(model)) if parent.is_some() => model.state = State::Invalidated,
            _ => self.remove_model(handle),
        }
        verdict
    }

    /// The model a stream is being captured into and its state, if it is.
    pub fn capture_info(&self, stream: u64) -> Result<Option<(u64, State)>> {
        let Some(handle) = self.stream(stream)?.capture else {
            return Ok(None);
        };
        Ok(Some((handle, self.model(handle)?.state)))
    }

    /// Fails a synchronous copy or fill that a capture forbids to the thread.
    pub fn forbid_sync_call(&mut self) -> Result<()> {
        if self.captures == 0 {
            return Ok(());
        }
        let caller = self.caller;
        let device = caller.device;
        let active = || {
            self.models
                .iter()
                .filter(|(_, it)| it.state == State::Capturing)
        };
        let context = active()
            .filter(|(_, it)| it.device == device)
            .map(|(_, it)| it.mode)
            .min();
        let own = active()
            .filter(|(_, it)| it.thread == caller.thread)
            .map(|(_, it)| it.mode)
            .min();
        let Some(context) = context else {
            return Ok(());
        };
        let forbidden = match caller.exchange {
            GLOBAL => context == GLOBAL || own == Some(THREAD_LOCAL),
            THREAD_LOCAL => own.is_some_and(|mode| mode != RELAXED),
            _ => false,
        };
        if forbidden {
            return fail(
                ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
                "a capture forbids synchronous calls",
            );
        }
        Ok(())
    }

    /// Fails a query of, or a wait for, an event that is part of a capture.
    pub fn forbid_event_call(&self, event: u64) -> Result<()> {
        if let Mark::Captured { model, .. } = self.event(event)?.mark
            && self
                .models
                .get(model)
                .is_some_and(|model| model.state != State::Ready)
        {
            return fail(
                ACL_ERROR_RT_EVENT_CAPTURED,
                "the event was recorded in a capture",
            );
        }
        Ok(())
    }

    /// Fails a query of, or a wait for, a stream that is being captured.
    pub fn forbid_in_capture(&self, stream: u64) -> Result<()> {
        if self.stream(stream)?.capture.is_some() {
            return fail(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is being captured");
        }
        Ok(())
    }

    /// Fails a copy that would become synchronous on a captured stream.
    pub(super) fn forbid_blocking_copy(&self, stream: u64) -> Result<()> {
        if self.stream(stream)?.capture.is_some() {
            return fail(
                ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC,
                "a copy of pageable memory waits, and the stream is being captured",
            );
        }
        Ok(())
    }

    /// Captures a step instead of doing it.
    pub(super) fn capture(&mut self, model: u64, stream: u64, step: Step) {
        let owners = match &step {
            Step::Task(work) => work.accesses.iter().map(|it| self.owners(it)).collect(),
            Step::WaitValue { addr, .. } => vec![self.owners(&Access {
                addr: *addr,
                len: 8,
            })],
            Step::Condition(_) => Vec::new(),
        };
        if let Some(model) = self.models.get_mut(model) {
            model.add(stream, step, owners);
        }
    }

    /// Records an event on a captured stream.
    pub(super) fn capture_record(&mut self, model: u64, event: u64, stream: u64) -> Result<()> {
        let Some(member) = self.models.get_mut(model).and_then(|it| it.member(stream)) else {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown model");
        };
        let mark = Mark::Captured {
            model,
            stream,
            version: member.version,
        };
        let front = member.front.clone();
        if let Some(event) = self.events.get_mut(event) {
            event.records += 1;
            event.mark = mark;
            event.front = front;
        }
        Ok(())
    }

    /// Waits for an event when the stream, the event or both are in a capture.
    /// False if neither is. A failure invalidates the captures of both.
    pub(super) fn capture_wait(&mut self, stream: u64, event: u64) -> Result<bool> {
        let result = self.try_capture_wait(stream, event);
        if result.is_err() {
            let of_event = match self.event(event)?.mark {
                Mark::Captured { model, .. } => Some(model),
                _ => None,
            };
            let of_stream = self.stream(stream)?.capture;
            for model in of_event.into_iter().chain(of_stream) {
                if let Some(model) = self.models.get_mut(model)
                    && model.state == State::Capturing
                {
                    model.state = State::Invalidated;
                }
            }
        }
        result
    }

    fn try_capture_wait(&mut self, stream: u64, event: u64) -> Result<bool> {
        let it = self.event(event)?;
        let front = it.front.clone();
        let captured = match it.mark {
            Mark::Captured {
                model,
                stream,
                version,
            } if self
                .models
                .get(model)
                .is_some_and(|it| it.state != State::Ready) =>
            {
                Some((model, stream, version))
            }
            _ => None,
        };
        let own = self.stream(stream)?.capture;
        let (model, source, version) = match (captured, own) {
            (None, own) => return Ok(own.is_some()),
            (Some((model, ..)), Some(own)) if model != own => {
                return fail(
                    ACL_ERROR_STREAM_CAPTURE_CONFLICT,
                    "the event and the stream belong to different captures",
                );
            }
            (Some(captured), _) => captured,
        };
        let device = self.stream(stream)?.device;
        if self.devices[device as usize].default_stream == stream {
            return fail(
                ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
                "the default stream cannot join a capture",
            );
        }
        self.stream_mut(stream)?.capture = Some(model);
        let Some(model) = self.models.get_mut(model) else {
            return Ok(true);
        };
        if model.member(stream).is_none() {
            model.members.push(Member::new(stream));
        }
        let origin = model.origin;
        if let Some(source) = model.member(source)
            && source.version == version
        {
            source.loose = false;
        }
        if let Some(member) = model.member(stream) {
            for node in front {
                if !member.front.contains(&node) {
                    member.front.push(node);
                }
            }
            member.version += 1;
            member.loose = stream != origin;
        }
        Ok(true)
    }
}
