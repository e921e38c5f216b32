//! Calls on conditional tasks, and how they run.
//!
//! With real memory the value decides. Without, nobody knows it, and every body
//! runs once: an allocator's rules must hold whatever the data is.

use std::sync::Arc;

use ascend_rs_sys::{
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_MODEL_CAPTURED, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CAPTURED, ACL_ERROR_RT_STREAM_NOT_CAPTURED,
};

use super::Sim;
use super::memory::Policy;
use crate::model::capture::{Model, RELAXED, State, Step};
use crate::model::condition::{Body, BodyStep, Branch, Condition, ConditionKind};
use crate::model::error::{Result, fail};
use crate::model::stream::Command;
use crate::model::work::{Access, Action, Work};

/// Bytes of a condition's value.
const VALUE: u64 = 8;

impl Sim {
    /// A condition.
    pub fn condition(&self, condition: u64) -> Result<&Condition> {
        match self.conditions.get(condition) {
            Some(condition) => Ok(condition),
            None => fail(ACL_ERROR_RT_PARAM_INVALID, "unknown condition handle"),
        }
    }

    /// Makes a condition of a model that is being captured.
    pub fn add_condition(&mut self, model: u64, default: Option<u64>) -> Result<u64> {
        let it = self.model(model)?;
        if it.state != State::Capturing {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "condition: the model is not being captured",
            );
        }
        let device = it.device;
        let addr = self.malloc(device, VALUE, Policy::NormalOnly)?;
        let memory = &self.devices[device as usize].memory;
        let condition = Condition {
            parent: model,
            addr,
            owner: memory.get(addr).map_or(0, |it| it.owner),
            default,
            kind: None,
            bodies: Vec::new(),
        };
        Ok(self.conditions.insert(condition))
    }

    /// Captures a conditional task with so many bodies; returns their models,
    /// which are to be captured yet.
    pub fn add_conditional_task(
        &mut self,
        stream: u64,
        handle: u64,
        kind: ConditionKind,
        bodies: usize,
    ) -> Result<Vec<u64>> {
        let condition = self.condition(handle)?;
        let parent = condition.parent;
        if condition.kind.is_some() {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "conditional task: the condition has one already",
            );
        }
        let Some(model) = self.stream(stream)?.capture else {
            return fail(
                ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "the stream is not being captured",
            );
        };
        if model != parent {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "conditional task: the condition is another model's",
            );
        }
        if !kind.takes(bodies) {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "conditional task: not this number of bodies",
            );
        }
        let device = self.model(parent)?.device;
        let models: Vec<u64> = (0..bodies)
            .map(|_| {
                self.next_model += 1;
                let model = Model::body(self.next_model, device, parent);
                self.models.insert(model)
            })
            .collect();
        if let Some(condition) = self.conditions.get_mut(handle) {
            condition.kind = Some(kind);
            condition.bodies.clone_from(&models);
        }
        self.capture(parent, stream, Step::Condition(handle));
        Ok(models)
    }

    /// Begins the capture of a body of a conditional task on a stream.
    pub fn capture_begin_body(&mut self, stream: u64, model: u64, mode: u32) -> Result<()> {
        if mode > RELAXED {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown capture mode");
        }
        if self.model(model)?.state != State::New {
            return fail(
                ACL_ERROR_RT_MODEL_CAPTURED,
                "the model was captured already",
            );
        }
        let it = self.stream(stream)?;
        if it.device != self.model(model)?.device {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "model and stream are on different devices",
            );
        }
        if it.capture.is_some() {
            return fail(
                ACL_ERROR_RT_STREAM_CAPTURED,
                "the stream is being captured already",
            );
        }
        let thread = self.caller.thread;
        if let Some(model) = self.models.get_mut(model) {
            model.begin(stream, mode, thread);
        }
        self.stream_mut(stream)?.capture = Some(model);
        self.captures += 1;
        Ok(())
    }

    /// Models of all conditional tasks below a model.
    pub(super) fn bodies_below(&self, model: u64) -> Vec<u64> {
        let mut found = Vec::new();
        let mut next = vec![model];
        while let Some(parent) = next.pop() {
            let mine = self.conditions.iter().filter(|(_, it)| it.parent == parent);
            for (_, condition) in mine {
                found.extend(&condition.bodies);
                next.extend(&condition.bodies);
            }
        }
        found
    }

    /// Fails for a body, which only its parent's replay runs and destroys.
    pub(super) fn forbid_body(&self, model: u64) -> Result<()> {
        if self.model(model)?.parent.is_some() {
            return fail(
                ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "the model is a body of a conditional task",
            );
        }
        Ok(())
    }

    /// Forgets a model with its conditions and their bodies.
    pub(super) fn remove_model(&mut self, model: u64) {
        let mut models = self.bodies_below(model);
        models.push(model);
        let conditions: Vec<u64> = self
            .conditions
            .iter()
            .filter(|(_, it)| models.contains(&it.parent))
            .map(|(handle, _)| handle)
            .collect();
        for handle in conditions {
            let Some(condition) = self.conditions.remove(handle) else {
                continue;
            };
            // A reset of the device may have taken the memory back meanwhile.
            if self.owners(&value_of(condition.addr)).first() == Some(&condition.owner) {
                let _ = self.free(condition.addr);
            }
        }
        for handle in models {
            let Some(model) = self.models.remove(handle) else {
                continue;
            };
            let mut open = false;
            for member in &model.members {
                if let Some(stream) = self.streams.get_mut(member.stream)
                    && stream.capture == Some(handle)
                {
                    stream.capture = None;
                    open = true;
                }
            }
            self.captures -= usize::from(open);
        }
    }

    /// Values to set when a model starts.
    pub(super) fn defaults(&self, model: u64) -> Vec<(u64, u64)> {
        let mine = self.conditions.iter().filter(|(_, it)| it.parent == model);
        mine.filter_map(|(_, it)| Some((it.addr, it.default?)))
            .collect()
    }

    /// What a conditional task may run, as it is now.
    pub(super) fn branch(&self, device: u32, condition: u64) -> Option<Arc<Branch>> {
        let condition = self.conditions.get(condition)?;
        let bodies = condition.bodies.iter().map(|&model| {
            let nodes = self.models.get(model).map(|it| it.nodes.as_slice());
            let steps = nodes.unwrap_or_default().iter();
            let steps = steps.filter_map(|node| match &node.step {
                Step::Task(work) => Some(BodyStep::Task(work.clone(), node.owners.clone())),
                &Step::WaitValue { addr, value, flag } => {
                    Some(BodyStep::WaitValue { addr, value, flag })
                }
                &Step::Condition(nested) => self.branch(device, nested).map(BodyStep::Branch),
            });
            Body {
                defaults: self.defaults(model),
                steps: steps.collect(),
            }
        });
        Some(Arc::new(Branch {
            device,
            addr: condition.addr,
            kind: condition.kind?,
            bodies: bodies.collect(),
        }))
    }

    /// What a conditional task whose turn has come puts on its stream.
    pub(super) fn chosen(&mut self, branch: &Arc<Branch>) -> Vec<Command> {
        let mut commands = Vec::new();
        if !self.mapped(&value_of(branch.addr)) {
            // Reported when the memory went.
            return commands;
        }
        if !self.backing.real() {
            for body in &branch.bodies {
                self.unfold(branch.device, body, &mut commands);
            }
            return commands;
        }
        let value = self.backing.read_word(branch.addr);
        if let Some(index) = branch.kind.choose(value, branch.bodies.len()) {
            self.unfold(branch.device, &branch.bodies[index], &mut commands);
            if branch.kind == ConditionKind::While {
                commands.push(Command::Branch(branch.clone()));
            }
        }
        commands
    }

    fn unfold(&mut self, device: u32, body: &Body, commands: &mut Vec<Command>) {
        let defaults = body.defaults.iter();
        commands.extend(defaults.map(|&(addr, value)| Command::Work(set_value(addr, value))));
        for step in &body.steps {
            commands.push(match step {
                BodyStep::Task(work, owners) => {
                    self.device(device).ledger.tasks += 1;
                    Command::Work(self.checked(device, work.clone(), owners))
                }
                &BodyStep::WaitValue { addr, value, flag } => {
                    Command::WaitValue { addr, value, flag }
                }
                BodyStep::Branch(branch) => Command::Branch(branch.clone()),
            });
        }
    }
}

fn value_of(addr: u64) -> Access {
    Access { addr, len: VALUE }
}

/// The task that sets a condition's value before a model starts.
pub(super) fn set_value(addr: u64, value: u64) -> Work {
    let mut work = Work {
        name: "conditional task",
        action: Some(Action::WriteValue { addr, value }),
        ..Work::default()
    };
    work.accesses.push(value_of(addr));
    work
}
