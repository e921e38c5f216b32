//! Uncorrectable memory errors, repair, task abort.
