//! The exported C functions, by topic. Each checks its pointers, hands the rest
//! to the simulator through [`crate::process::enter`], and writes results only
//! on success. Names and signatures are those of the ACL headers.
//!
//! Pointers that a caller passes must be valid for what the headers say is read
//! and written through them; that is the one thing a C function cannot check.

#![allow(non_snake_case)]

pub mod capture;
pub mod condition;
pub mod control;
pub mod copy;
pub mod device;
pub mod event;
pub mod host_memory;
pub mod ipc;
pub mod memory;
pub mod old_operator;
pub mod operator;
pub mod operator_objects;
pub mod profiling;
pub mod runtime;
pub mod stream;
pub mod uce;
pub mod vmm;

use std::ffi::{CStr, c_char, c_void};

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_STREAM_CONTEXT, aclError};

use crate::host_calls;
use crate::model::cost::CallKind;
use crate::model::error::{Result, fail};
use crate::model::sim::Sim;
use crate::model::stream::Callers;
use crate::process;

/// A pointer that must not be null.
pub(crate) fn required<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() {
        return fail(ACL_ERROR_INVALID_PARAM, "a required pointer is null");
    }
    Ok(pointer)
}

/// Writes through a pointer that [`required`] let pass.
pub(crate) fn put<T>(pointer: *mut T, value: T) {
    // SAFETY: the caller of the C function passed a pointer for a result of
    // this type, and it is not null.
    unsafe { pointer.write(value) };
}

/// The text of a C string; empty for null or for other than UTF-8.
pub(crate) fn text<'a>(pointer: *const c_char) -> &'a str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: the caller of the C function passed a C string.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("")
}

/// The elements of a C array; none for null.
pub(crate) fn elements<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if pointer.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller of the C function passed an array of this many elements.
    unsafe { std::slice::from_raw_parts(pointer, count) }
}

/// A stream's handle; null means the default stream of the current device. A
/// stream belongs to its device's context, and the runtime works on those of the
/// thread's own context only (`api_impl.cc`, `RT_ERROR_STREAM_CONTEXT`).
pub(crate) fn stream_of(sim: &Sim, stream: *mut c_void) -> Result<u64> {
    let current = process::device()?;
    let stream = any_stream(sim, stream)?;
    if sim.stream(stream)?.device != current {
        return fail(
            ACL_ERROR_RT_STREAM_CONTEXT,
            "the stream is not of the thread's current device",
        );
    }
    Ok(stream)
}

/// [`stream_of`] for the calls that take a stream of any device. Those that ask
/// for its work need a context all the same, and check that themselves.
pub(crate) fn any_stream(sim: &Sim, stream: *mut c_void) -> Result<u64> {
    if stream.is_null() {
        let device = process::device()?;
        return Ok(sim.devices[device as usize].default_stream);
    }
    Ok(stream as u64)
}

/// [`process::enter`] for a call that waits: afterwards it waits for the functions of
/// the host that come before what it waited for, whose streams `body` tells.
pub(crate) fn enter_wait(
    kind: CallKind,
    body: impl FnOnce(&mut Sim, &mut Callers) -> Result<()>,
) -> aclError {
    let mut callers = Callers::new();
    let code = process::enter(kind, 0, |sim| body(sim, &mut callers));
    host_calls::wait_for(&callers);
    code
}

/// Exports a function that takes no pointer it uses and only counts as a call.
macro_rules! accept {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            /// Accepted without effect: nothing an allocator can see depends on it.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> ascend_rs_sys::aclError {
                $(let _ = $arg;)*
                $crate::process::enter($crate::model::cost::CallKind::Other, 0, |_| Ok(()))
            }
        )*
    };
}
pub(crate) use accept;
