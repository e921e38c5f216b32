/// Why new memory could not be had.
pub(in crate::device) enum Refusal {
    /// No room on the device or under the limit.
    Full,
    /// Policy forbids asking (`throw_on_npumalloc_oom`).
    Policy,
}
