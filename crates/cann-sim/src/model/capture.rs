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
    /// A task that runs what a condition, named by its handle, chooses.
    Condition(u64),
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

impl Member {
    /// A stream that has just joined.
    pub fn new(stream: u64) -> Self {
        Member {
            stream,
            front: SmallVec::new(),
            version: 0,
            loose: false,
            group: None,
        }
    }
}

/// Where a model is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A body of a conditional task that was not captured yet.
    New,
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
    /// The model whose conditional task it is a body of.
    pub parent: Option<u64>,
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
    /// A model that is captured from now on.
    pub fn new(id: u32, device: u32, origin: u64, mode: u32, thread: u64) -> Self {
        Model {
            id,
            device,
            parent: None,
            origin,
            mode,
            thread,
            state: State::Capturing,
            nodes: Vec::new(),
            members: vec![Member::new(origin)],
        }
    }

    /// A body of a conditional task, to be captured later.
    pub fn body(id: u32, device: u32, parent: u64) -> Self {
        Model {
            parent: Some(parent),
            state: State::New,
            members: Vec::new(),
            ..Model::new(id, device, 0, RELAXED, 0)
        }
    }

    /// Begins the capture of a body.
    pub fn begin(&mut self, origin: u64, mode: u32, thread: u64) {
        (self.origin, self.mode, self.thread) = (origin, mode, thread);
        self.state = State::Capturing;
        self.members = vec![Member::new(origin)];
    }

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
