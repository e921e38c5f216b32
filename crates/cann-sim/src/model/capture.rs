//! A captured model: tasks with what they depend on, and while it is being
//! captured, how far each stream has come.

use smallvec::SmallVec;

use super::work::Work;

/// How much a capture forbids (`ACL_MODEL_RI_CAPTURE_MODE_*`).
pub const GLOBAL: u32 = 0;
/// Only the capturing thread is bound.
pub const THREAD_LOCAL: u32 = 1;
/// Nothing is forbidden.
pub const RELAXED: u32 = 2;

/// What a node does.
#[derive(Debug, Clone)]
pub enum Step {
    /// A task.
    Task(Work),
    /// A wait for a value in memory.
    WaitValue {
        /// Where.
        addr: u64,
        /// What it is compared with.
        value: u64,
        /// `ACL_STREAM_WAIT_VALUE_*`.
        flag: u32,
    },
}

/// One captured task.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it does.
    pub step: Step,
    /// Nodes that must be done before.
    pub after: SmallVec<[usize; 2]>,
    /// For each range of the task, the allocations and mappings behind it when
    /// it was captured.
    pub owners: Vec<SmallVec<[u64; 2]>>,
}

/// How far a stream has come in a capture.
#[derive(Debug, Clone)]
pub struct Member {
    /// The stream.
    pub stream: u64,
    /// Nodes its next task comes after.
    pub front: SmallVec<[usize; 2]>,
    /// Counts its tasks and waits.
    pub version: u64,
    /// True while it has tasks that no other stream of the capture waits for.
    pub loose: bool,
    /// First node of the task group that is open on it.
    pub group: Option<usize>,
}

/// Where a model is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Streams are being captured into it.
    Capturing,
    /// A call during the capture failed; ending the capture fails too.
    Invalidated,
    /// It can be replayed.
    Ready,
}

/// A captured model.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its number.
    pub id: u32,
    /// Device of its streams.
    pub device: u32,
    /// The stream the capture began on.
    pub origin: u64,
    /// How much the capture forbids.
    pub mode: u32,
    /// The thread that began it.
    pub thread: u64,
    /// Where it is in its life.
    pub state: State,
    /// Its tasks, in the order they were captured.
    pub nodes: Vec<Node>,
    /// Its streams.
    pub members: Vec<Member>,
}

/// Tasks of a model that can be replaced.
#[derive(Debug, Clone, Copy)]
pub struct TaskGroup {
    /// The model.
    pub model: u64,
    /// Its first node.
    pub first: usize,
    /// One past its last node.
    pub end: usize,
}

impl Model {
    /// The place of a stream in the capture.
    pub fn member(&mut self, stream: u64) -> Option<&mut Member> {
        self.members
            .iter_mut()
            .find(|member| member.stream == stream)
    }

    /// Adds a task at the end of a stream.
    pub fn add(&mut self, stream: u64, step: Step, owners: Vec<SmallVec<[u64; 2]>>) {
        let index = self.nodes.len();
        let origin = self.origin;
        let Some(member) = self.member(stream) else {
            return;
        };
        let after = std::mem::take(&mut member.front);
        member.front.push(index);
        member.version += 1;
        member.loose = stream != origin;
        self.nodes.push(Node {
            step,
            after,
            owners,
        });
    }
}
