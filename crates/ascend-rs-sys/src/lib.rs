//! Raw declarations of the AscendCL (ACL) runtime C API, by topic.
//!
//! Names, values and layouts are those of the headers `acl/acl_base_rt.h`,
//! `acl/acl_rt.h` and `acl/error_codes/rt_error_codes.h`; `tests/layout.rs`
//! compares them with a set of headers through a C compiler. C enumerations
//! are plain integers here, because a newer runtime may return a value that
//! this crate does not know.
//!
//! The functions are declared, not linked: whoever calls them links
//! `libascendcl.so` or looks them up when the program runs.
//!
//! Sizes are bytes and device pointers are opaque unless a declaration says
//! otherwise. The crate has no dependencies.

#![no_std]
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs
)]

mod base;
mod capture;
mod device;
mod error;
mod event;
mod memory;
mod stream;
mod uce;
mod vmm;

pub use base::*;
pub use capture::*;
pub use device::*;
pub use error::*;
pub use event::*;
pub use memory::*;
pub use stream::*;
pub use uce::*;
pub use vmm::*;
