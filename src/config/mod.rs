//! The allocator settings: what they are ([`Settings`]), how a configuration string becomes them,
//! and where the string comes from ([`from_environment`]). Pure; may use only [`crate::size`].

mod environment;
mod error;
mod model;
mod number;
mod parser;
mod tokenizer;

pub use environment::from_environment;
pub use error::{ConfigError, ErrorClass, ErrorCode};
pub use model::{ExpandableSegments, Settings};

#[cfg(test)]
mod tests;
