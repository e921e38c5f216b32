//! Groups of captured tasks and their replacement.

use ascend_rs_sys::{
    ACL_ERROR_RT_MODEL_UPDATE_FAILED, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, ACL_ERROR_RT_STREAM_NOT_CAPTURED,
    ACL_ERROR_STREAM_TASK_GROUP_STATUS,
};

use super::Sim;
use crate::model::capture::{State, Step, TaskGroup};
use crate::model::error::{Result, fail};
use crate::model::work::Work;

impl Sim {
    /// Begins a group of tasks that can be replaced later.
    pub fn task_group_begin(&mut self, stream: u64) -> Result<()> {
        let Some(model) = self.stream(stream)?.capture else {
            return fail(
                ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "the stream is not being captured",
            );
        };
        let Some(model) = self.models.get_mut(model) else {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown model");
        };
        let first = model.nodes.len();
        match model.member(stream) {
            Some(member) if member.group.is_none() => {
                member.group = Some(first);
                Ok(())
            }
            _ => fail(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "a task group is open already",
            ),
        }
    }

    /// Ends the group that is open on a stream.
    pub fn task_group_end(&mut self, stream: u64) -> Result<u64> {
        let Some(handle) = self.stream(stream)?.capture else {
            return fail(
                ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "the stream is not being captured",
            );
        };
        let Some(model) = self.models.get_mut(handle) else {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown model");
        };
        if model.state == State::Invalidated {
            model.member(stream).and_then(|member| member.group.take());
            return fail(
                ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                "a call during the capture failed",
            );
        }
        let end = model.nodes.len();
        match model.member(stream).and_then(|member| member.group.take()) {
            Some(first) => Ok(self.groups.insert(TaskGroup {
                model: handle,
                first,
                end,
            })),
            None => fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "no task group is open"),
        }
    }

    /// Tasks put on the stream from now on replace those of a group.
    pub fn task_update_begin(&mut self, stream: u64, group: u64) -> Result<()> {
        self.forbid_in_capture(stream)?;
        let Some(group) = self.groups.get(group).copied() else {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown task group");
        };
        if self.model(group.model)?.state != State::Ready {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "the model's capture has not ended",
            );
        }
        let it = self.stream_mut(stream)?;
        if it.update.is_some() {
            return fail(
                ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "an update is open already",
            );
        }
        it.update = Some((group, group.first));
        Ok(())
    }

    /// Ends an update; it must have replaced every task of the group.
    pub fn task_update_end(&mut self, stream: u64) -> Result<()> {
        self.forbid_in_capture(stream)?;
        match self.stream_mut(stream)?.update.take() {
            Some((group, next)) if next == group.end => Ok(()),
            Some(_) => fail(
                ACL_ERROR_RT_MODEL_UPDATE_FAILED,
                "fewer tasks than the group has",
            ),
            None => fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "no update is open"),
        }
    }

    /// Replaces the next task of the group a stream is updating.
    pub(super) fn update(
        &mut self,
        stream: u64,
        group: TaskGroup,
        next: usize,
        work: Work,
    ) -> Result<()> {
        if next >= group.end {
            return fail(
                ACL_ERROR_RT_MODEL_UPDATE_FAILED,
                "more tasks than the group has",
            );
        }
        let owners = work.accesses.iter().map(|it| self.owners(it)).collect();
        let node = self
            .models
            .get_mut(group.model)
            .and_then(|it| it.nodes.get_mut(next));
        if let Some(node) = node {
            node.step = Step::Task(work);
            node.owners = owners;
        }
        self.stream_mut(stream)?.update = Some((group, next + 1));
        Ok(())
    }
}
