//! Operators: the two-phase interface (`aclnn*`, through the stubs in
//! `libopapi.so`), the older one (`aclop*`), and kernels launched directly.
//! Every operator takes its time on its stream; few compute.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, aclError};

use super::{accept, put, required, stream_of, text};
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::model::table::Tag;
use crate::model::work::{Access, Action, Work};
use crate::ops::objects::{Prepared, objects};
use crate::ops::{arguments, catalogue};
use crate::process::enter;

/// Whether operators compute, and on how many elements. The mode of a process
/// does not change.
static LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// First phase of an operator; see `opapi/entry_x86_64.S`.
///
/// # Safety
/// Called only by the stubs, with pointers to the saved arguments of the call
/// in progress and a name that lives as long as the library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cannSimOpPrepare(
    name: *const c_char,
    ints: *const u64,
    floats: *const f64,
    stack: *const u64,
) -> c_int {
    // SAFETY: the stub's promise.
    let arguments = unsafe { arguments::read(ints, floats, stack) };
    let outcome = std::panic::catch_unwind(|| {
        let limit = *LIMIT.get_or_init(|| {
            let config = &crate::process::sim().config;
            (config.mode == crate::Mode::Backed).then_some(config.compute_limit)
        });
        let mut objects = objects();
        let accesses = arguments.accesses(&objects);
        if let Some((size, executor)) = arguments.results {
            let kernel =
                limit.and_then(|limit| catalogue::kernel(text(name), &arguments, &objects, limit));
            let prepared = Prepared { accesses, kernel };
            let handle = objects.executors.insert(prepared);
            drop(objects);
            // SAFETY: both point at the caller's variables for results.
            unsafe {
                size.write(crate::process::sim().config.workspace);
                executor.write(handle);
            }
        }
    });
    if outcome.is_ok() {
        0
    } else {
        ascend_rs_sys::ACL_ERROR_INTERNAL_ERROR
    }
}

/// What `aclnn` functions return for an argument that is wrong.
const ACLNN_ERR_PARAM_INVALID: aclError = 161002;

/// Second phase of an operator. An executor is good for one launch; null stands for
/// that of an operator whose arguments could not be read.
#[unsafe(no_mangle)]
pub extern "C" fn cannSimOpLaunch(
    workspace: *mut c_void,
    workspaceSize: u64,
    executor: *mut c_void,
    stream: *mut c_void,
    name: *const c_char,
) -> c_int {
    let handle = executor as u64;
    let prepared = objects().executors.get(handle).cloned();
    if prepared.is_none() && !executor.is_null() {
        return enter(CallKind::Launch, 0, |_| {
            fail(
                ACLNN_ERR_PARAM_INVALID,
                "no executor, or one that was launched before",
            )
        });
    }
    let mut prepared = prepared.unwrap_or_default();
    if !workspace.is_null() && workspaceSize > 0 {
        prepared.accesses.push(Access {
            addr: workspace as u64,
            len: workspaceSize,
        });
    }
    // SAFETY: the stub passes its own constant, which lives as long as the library.
    let name: &'static str = unsafe { std::mem::transmute::<&str, &'static str>(text(name)) };
    let work = Work {
        accesses: prepared.accesses,
        action: prepared.kernel.map(Action::Compute),
        name,
        ..Work::default()
    };
    let code = launch(stream, work);
    if code == 0 {
        objects().executors.remove(handle);
    }
    code
}

/// Puts a kernel on a stream, for as long as kernels take.
pub(super) fn launch(stream: *mut c_void, mut work: Work) -> aclError {
    enter(CallKind::Launch, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        work.nanoseconds = sim.config.cost.kernel_ns;
        sim.submit(stream, work)
    })
}

/// A kernel whose arguments are not known.
fn launch_named(stream: *mut c_void, name: &'static str) -> aclError {
    let work = Work {
        name,
        ..Work::default()
    };
    launch(stream, work)
}

/// `rtKernelLaunch`
#[unsafe(no_mangle)]
pub extern "C" fn rtKernelLaunch(
    stub: *const c_void,
    blocks: u32,
    args: *mut c_void,
    argsSize: u32,
    smDesc: *mut c_void,
    stream: *mut c_void,
) -> aclError {
    let _ = (stub, blocks, args, argsSize, smDesc);
    launch_named(stream, "rtKernelLaunch")
}

/// `aclrtLaunchKernel`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtLaunchKernel(
    function: *mut c_void,
    blocks: u32,
    args: *const c_void,
    argsSize: usize,
    stream: *mut c_void,
) -> aclError {
    let _ = (function, blocks, args, argsSize);
    launch_named(stream, "aclrtLaunchKernel")
}

/// `aclrtLaunchKernelV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtLaunchKernelV2(
    function: *mut c_void,
    blocks: u32,
    args: *const c_void,
    argsSize: usize,
    cfg: *mut c_void,
    stream: *mut c_void,
) -> aclError {
    let _ = (function, blocks, args, argsSize, cfg);
    launch_named(stream, "aclrtLaunchKernelV2")
}

/// Handle of every function and binary.
const FUNCTION: u64 = ((Tag::Function as u64) << 56) | 1;

/// `aclrtBinaryLoadFromData`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtBinaryLoadFromData(
    data: *const c_void,
    length: usize,
    options: *const c_void,
    handle: *mut *mut c_void,
) -> aclError {
    let _ = (length, options);
    enter(CallKind::Other, 0, |_| {
        required(data.cast_mut())?;
        put(required(handle)?, FUNCTION as *mut c_void);
        Ok(())
    })
}

/// `aclrtBinaryGetFunction`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtBinaryGetFunction(
    binary: *mut c_void,
    name: *const c_char,
    function: *mut *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |_| {
        if binary as u64 != FUNCTION || text(name).is_empty() {
            return fail(ACL_ERROR_INVALID_PARAM, "unknown binary, or no name");
        }
        put(required(function)?, FUNCTION as *mut c_void);
        Ok(())
    })
}

/// `aclrtGetFunctionAddr`
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetFunctionAddr(
    function: *mut c_void,
    aic: *mut *mut c_void,
    aiv: *mut *mut c_void,
) -> aclError {
    enter(CallKind::Other, 0, |_| {
        required(function)?;
        let (aic, aiv) = (required(aic)?, required(aiv)?);
        put(aic, function);
        put(aiv, function);
        Ok(())
    })
}

accept! {
    aclGenGraphAndDumpForOp();
    aclrtBinaryUnLoad(handle: *mut c_void);
}
