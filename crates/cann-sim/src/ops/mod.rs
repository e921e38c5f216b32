//! Operators: the objects a program describes them with ([`objects`]), how a
//! call of unknown shape is read ([`arguments`]), and those that compute when
//! memory is backed: which ([`catalogue`]), how ([`operation`]), on what elements ([`number`]), in
//! which order ([`view`]). Uses the model; the exported functions are in
//! [`crate::ffi::operator`].

pub mod arguments;
pub mod catalogue;
pub mod number;
pub mod objects;
pub mod operation;
pub mod view;
