//! Conditional tasks of captured models: a value in device memory says which
//! of a task's bodies run. Source of the rules: reference 15,
//! aclmdlRICondHandleCreate, aclmdlRIAddCondTask, aclmdlRICaptureToModelRIBegin.

use std::sync::Arc;

use smallvec::SmallVec;

use super::work::{Access, Work};

/// How the value chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionKind {
    /// Not 0: the first body; 0: the second, if there is one.
    If,
    /// The body, again and again, while the value is not 0.
    While,
    /// The body whose index the value is, if there is one.
    Switch,
}

impl ConditionKind {
    /// True if a task of this kind can have so many bodies.
    pub fn takes(self, bodies: usize) -> bool {
        match self {
            ConditionKind::If => (1..=2).contains(&bodies),
            ConditionKind::While => bodies == 1,
            ConditionKind::Switch => bodies > 0,
        }
    }

    /// Index of the body a value chooses, if it chooses one of `bodies`.
    pub fn choose(self, value: u64, bodies: usize) -> Option<usize> {
        let index = match self {
            ConditionKind::If => usize::from(value == 0),
            ConditionKind::While => usize::from(value == 0),
            ConditionKind::Switch => usize::try_from(value).unwrap_or(usize::MAX),
        };
        (index < bodies).then_some(index)
    }
}

/// A condition of a model: where its value is, and what depends on it.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The model whose replay it belongs to.
    pub parent: u64,
    /// Address of the value, 8 bytes of device memory.
    pub addr: u64,
    /// Number of the allocation that holds the value.
    pub owner: u64,
    /// What the value is set to when the model starts, if it is.
    pub default: Option<u64>,
    /// How it chooses; none until a task uses it.
    pub kind: Option<ConditionKind>,
    /// The models it chooses among.
    pub bodies: Vec<u64>,
}

/// A conditional task of a replay, with all it may run.
#[derive(Debug)]
pub struct Branch {
    /// Device it runs on.
    pub device: u32,
    /// Address of the value.
    pub addr: u64,
    /// How it chooses.
    pub kind: ConditionKind,
    /// What it chooses among.
    pub bodies: Vec<Body>,
}

/// One body of a conditional task.
#[derive(Debug, Default)]
pub struct Body {
    /// Values to set when it starts: address and value.
    pub defaults: Vec<(u64, u64)>,
    /// What it does, in order.
    pub steps: Vec<BodyStep>,
}

/// One step of a body.
#[derive(Debug, Clone)]
pub enum BodyStep {
    /// A task, and what was behind each of its ranges when it was captured.
    Task(Work, Vec<SmallVec<[u64; 2]>>),
    /// A wait for a value in memory.
    WaitValue {
        /// Where.
        addr: u64,
        /// What it is compared with.
        value: u64,
        /// `ACL_STREAM_WAIT_VALUE_*`.
        flag: u32,
    },
    /// Another conditional task.
    Branch(Arc<Branch>),
}

impl Branch {
    /// Name of something in it that touches a range.
    pub fn user_of(&self, addr: u64, len: u64) -> Option<&'static str> {
        let touches = |at: u64| Access { addr: at, len: 8 }.overlaps(addr, len);
        if touches(self.addr) {
            return Some("conditional task");
        }
        let mut steps = self.bodies.iter().flat_map(|body| &body.steps);
        steps.find_map(|step| match step {
            BodyStep::Task(work, _) => {
                let mut accesses = work.accesses.iter();
                accesses
                    .any(|access| access.overlaps(addr, len))
                    .then_some(work.name)
            }
            BodyStep::WaitValue { addr, .. } => touches(*addr).then_some("aclrtValueWait"),
            BodyStep::Branch(branch) => branch.user_of(addr, len),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ConditionKind::{If, Switch, While};

    #[test]
    fn values_choose_bodies() {
        assert_eq!([If.choose(7, 1), If.choose(0, 1)], [Some(0), None]);
        assert_eq!([If.choose(7, 2), If.choose(0, 2)], [Some(0), Some(1)]);
        assert_eq!([While.choose(2, 1), While.choose(0, 1)], [Some(0), None]);
        assert_eq!([Switch.choose(2, 3), Switch.choose(3, 3)], [Some(2), None]);
    }

    #[test]
    fn kinds_limit_the_number_of_bodies() {
        assert!(If.takes(1) && If.takes(2) && !If.takes(0) && !If.takes(3));
        assert!(While.takes(1) && !While.takes(0) && !While.takes(2));
        assert!(Switch.takes(9) && !Switch.takes(0));
    }
}
