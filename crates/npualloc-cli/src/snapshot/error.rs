//! What can be wrong with a snapshot.

/// The most blocks of segments that are looked at. A pickle may hold one list in many places.
pub(super) const MAX_BLOCKS: usize = 1 << 24;
/// The most bytes of stacks.
pub(super) const MAX_TEXT: usize = 1 << 30;

/// Why a pickle is no usable snapshot.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SnapshotError {
    /// Something that every snapshot has is not there.
    #[error("not a memory snapshot of torch: {missing} is missing")]
    Foreign {
        /// What.
        missing: &'static str,
    },
    /// No such device in it.
    #[error("the snapshot has no device {device}: it has {count}, counted from 0")]
    NoDevice {
        /// As asked for.
        device: usize,
        /// How many there are.
        count: usize,
    },
    /// Sizes that no device has.
    #[error("the snapshot holds more than 1 EiB, or more streams or pools than a device has")]
    Absurd,
    /// It says the same again and again.
    #[error(
        "the snapshot holds more than {MAX_BLOCKS} blocks, or more than {MAX_TEXT} bytes of stacks"
    )]
    TooMuch,
    /// Something in it is not what it is in every snapshot.
    #[error("the snapshot is damaged: {what} without a usable {key}")]
    Damaged {
        /// What.
        what: &'static str,
        /// Its key.
        key: &'static str,
    },
}
