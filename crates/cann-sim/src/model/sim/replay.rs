//! Replays of captured models, and whose memory they touch.

use ascend_rs_sys::{ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_CAPTURED};
use smallvec::SmallVec;

use super::conditions::set_value;
use super::{Sim, is_device};
use crate::model::capture::{State, Step};
use crate::model::error::{Result, fail};
use crate::model::ledger::HazardKind;
use crate::model::memory::device_of;
use crate::model::stream::Command;
use crate::model::work::{Access, Action, Work};

impl Sim {
    /// What is behind a range now: the numbers of its allocation or mappings.
    pub(super) fn owners(&self, access: &Access) -> SmallVec<[u64; 2]> {
        let mut owners = SmallVec::new();
        if !is_device(access.addr) {
            owners.extend(self.host_owner(access.addr));
            return owners;
        }
        if let Some(device) = device_of(access.addr) {
            let memory = self.devices.get(device as usize).map(|it| &it.memory);
            owners.extend(
                memory
                    .and_then(|it| it.find(access.addr))
                    .map(|(_, it)| it.owner),
            );
            return owners;
        }
        let end = access.addr.saturating_add(access.len.max(1));
        let mut at = access.addr;
        while let Some((start, mapping)) = self.vmm.find(at).filter(|_| at < end) {
            owners.push(mapping.owner);
            at = start + mapping.len;
        }
        owners
    }

    /// Puts all tasks of a model on a stream. They use the addresses that were
    /// captured, whatever is there now.
    pub fn replay(&mut self, handle: u64, stream: u64) -> Result<()> {
        self.forbid_body(handle)?;
        let model = self.model(handle)?.clone();
        if model.state != State::Ready {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "the model's capture has not ended",
            );
        }
        if self.stream(stream)?.capture.is_some() {
            return fail(ACL_ERROR_RT_STREAM_CAPTURED, "the stream is being captured");
        }
        let device = self.stream(stream)?.device;
        self.healthy(device)?;
        let waits = model
            .nodes
            .iter()
            .any(|node| !matches!(node.step, Step::Task(_)));
        let in_order = waits || !self.stream(stream)?.blocked.is_empty();
        for (addr, value) in self.defaults(handle) {
            self.submit(stream, set_value(addr, value))?;
        }
        let base = self.stream(stream)?.tail.max(self.clock.now());
        let mut ends = Vec::with_capacity(model.nodes.len());
        let mut tail = base;
        for node in model.nodes {
            let start = node.after.iter().map(|&before: &usize| ends[before]).max();
            let start = start.unwrap_or(base);
            let work = match node.step {
                Step::WaitValue { addr, value, flag } => {
                    self.block(stream, Command::WaitValue { addr, value, flag })?;
                    ends.push(start);
                    continue;
                }
                Step::Condition(condition) => {
                    if let Some(branch) = self.branch(device, condition) {
                        // It may be that the branch does.
                        self.calls_functions(stream);
                        self.block(stream, Command::Branch(branch))?;
                    }
                    ends.push(start);
                    continue;
                }
                Step::Task(work) => self.checked(device, work, &node.owners),
            };
            if in_order {
                self.submit(stream, work)?;
                ends.push(start);
                continue;
            }
            self.device(device).ledger.tasks += 1;
            if let Some(Action::Host(_)) = work.action {
                self.calls_functions(stream);
            }
            let end = self.place(stream, start, work);
            ends.push(end);
            tail = tail.max(end);
        }
        if !in_order {
            self.stream_mut(stream)?.tail = tail;
        }
        Ok(())
    }

    /// Reports ranges of a replayed task that are not what was captured; a task
    /// whose memory is not mapped does nothing but take its time.
    pub(super) fn checked(
        &mut self,
        device: u32,
        mut work: Work,
        owners: &[SmallVec<[u64; 2]>],
    ) -> Work {
        for (access, captured) in work.accesses.clone().iter().zip(owners) {
            if !self.mapped(access) {
                let Access { addr, len } = *access;
                self.hazard(HazardKind::UnmappedAccess, device, addr, len, work.name);
                work.action = None;
            } else if self.owners(access) != *captured {
                let Access { addr, len } = *access;
                self.hazard(HazardKind::StaleReplay, device, addr, len, work.name);
                if !is_device(addr) {
                    // What is there now is the program's own, if anything is.
                    work.action = None;
                }
            }
        }
        work
    }

    /// Destroys a model.
    pub fn destroy_model(&mut self, model: u64) -> Result<()> {
        self.forbid_body(model)?;
        if self.model(model)?.state != State::Ready {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "the model's capture has not ended",
            );
        }
        self.remove_model(model);
        Ok(())
    }
}
