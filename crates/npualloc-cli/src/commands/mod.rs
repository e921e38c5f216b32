//! One file for each command.

pub mod advise;
pub mod fit;
pub mod replay;
pub mod report;

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it was asked.
    Done,
    /// The workload needs more memory than there is.
    DoesNotFit,
}
