//! The allocator settings: what they are ([`Settings`]), how a configuration string becomes them,
//! and where the string comes from ([`from_environment`]). Also the words of the debug mode ([`DebugOptions`]). Pure; may use only [`crate::size`].

mod debug;
mod engine;
mod environment;
mod error;
mod model;
mod number;
mod parser;
mod prefetch;
mod rungs;
mod tokenizer;

pub use debug::{DebugOptions, UNIT};
pub use engine::DefaultEngine;
pub use environment::from_environment;
pub use error::{ConfigError, ErrorClass, ErrorCode};
pub use model::{ExpandableSegments, MAX_BASE_ALIGN, Settings};
pub use prefetch::prefetch_from_environment;
pub use rungs::{Rung, SkippedRungs};

#[cfg(test)]
mod tests;
