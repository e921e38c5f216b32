//! How much is kept.

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes up to which blocks of up to [`MOST_STEPPED`](crate::size::MOST_STEPPED) bytes are kept; 0: nothing is kept.
    pub small: usize,
    /// Bytes up to which larger ones are.
    pub large: usize,
    /// Bytes that a block which is kept has at the most.
    pub largest: usize,
    /// Requests up to so many bytes, at most [`MOST_STEPPED`](crate::size::MOST_STEPPED), get blocks of few sizes: see
    /// [`kept_size`](crate::size::kept_size).
    pub stepped: usize,
    /// Bytes that such blocks may have beyond what counts from now on, before
    /// [`QuickLists::spend`](super::QuickLists::spend) says so. None: no request gets one.
    pub beyond: Option<usize>,
}
