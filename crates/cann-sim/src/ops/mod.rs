//! Operators: the objects a program describes them with ([`objects`]), how a
//! call of unknown shape is read ([`arguments`]), and those that compute when
//! memory is backed ([`compute`]). Uses the model; the exported functions are
//! in [`crate::ffi::operator`].

pub mod arguments;
pub mod objects;
