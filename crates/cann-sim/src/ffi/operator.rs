//! Operators: the two-phase interface (`aclnn*`, through the stubs in
//! `libopapi.so`), the older one (`aclop*`), and kernels launched directly.
//! Every operator takes its time on its stream; few compute.

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, OnceLock};

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, aclError};
use parking_lot::Mutex;

use super::{accept, elements, put, required, stream_of, text};
use crate::model::cost::CallKind;
use crate::model::error::fail;
use crate::model::table::Tag;
use crate::model::work::{Access, Accesses, Action, Work};
use crate::ops::objects::{Desc, Prepared, Scalar, Tensor, element_size, objects};
use crate::ops::{arguments, catalogue};
use crate::process::enter;

/// A name that lives as long as the process.
fn intern(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    kept
}

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
        let mut objects = objects();
        let accesses = arguments.accesses(&objects);
        if let Some((size, executor)) = arguments.results {
            let limit = *LIMIT.get_or_init(|| {
                let config = &crate::process::sim().config;
                (config.mode == crate::Mode::Backed).then_some(config.compute_limit)
            });
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

/// Second phase of an operator.
#[unsafe(no_mangle)]
pub extern "C" fn cannSimOpLaunch(
    workspace: *mut c_void,
    workspaceSize: u64,
    executor: *mut c_void,
    stream: *mut c_void,
    name: *const c_char,
) -> c_int {
    let mut prepared = objects()
        .executors
        .remove(executor as u64)
        .unwrap_or_default();
    if !workspace.is_null() && workspaceSize > 0 {
        prepared.accesses.push(Access {
            addr: workspace as u64,
            len: workspaceSize,
        });
    }
    // SAFETY: the stub passes its own constant, which lives as long as the library.
    let name: &'static str = unsafe { std::mem::transmute::<&str, &'static str>(text(name)) };
    enter(CallKind::Launch, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        let work = Work {
            nanoseconds: sim.config.cost.kernel_ns,
            accesses: prepared.accesses,
            action: prepared.kernel.map(Action::Compute),
            name,
        };
        sim.submit(stream, work)
    })
}

/// `aclCreateTensor`
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateTensor(
    viewDims: *const i64,
    viewDimsNum: u64,
    dataType: c_int,
    stride: *const i64,
    offset: i64,
    format: c_int,
    storageDims: *const i64,
    storageDimsNum: u64,
    tensorData: *mut c_void,
) -> *mut c_void {
    let _ = (format, storageDims, storageDimsNum);
    let tensor = Tensor {
        data: tensorData as u64,
        dtype: dataType,
        dims: elements(viewDims, viewDimsNum as usize).to_vec(),
        strides: elements(stride, viewDimsNum as usize).to_vec(),
        offset,
    };
    objects().tensors.insert(tensor) as *mut c_void
}

/// `aclCreateScalar`
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateScalar(value: *mut c_void, dataType: c_int) -> *mut c_void {
    let size = element_size(dataType) as usize;
    let mut bits = [0; 16];
    let given = elements(value.cast::<u8>(), size);
    bits[..given.len()].copy_from_slice(given);
    objects().scalars.insert(Scalar {
        dtype: dataType,
        bits,
    }) as *mut c_void
}

macro_rules! create_array {
    ($($name:ident($element:ty) $convert:expr;)*) => {
        $(
            /// Makes an array of numbers.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(value: *const $element, size: u64) -> *mut c_void {
                let values = elements(value, size as usize).iter().map($convert).collect();
                objects().arrays.insert(values) as *mut c_void
            }
        )*
    };
}
create_array! {
    aclCreateIntArray(i64) |&value| value;
    aclCreateFloatArray(f32) |&value| i64::from(value.to_bits());
    aclCreateBoolArray(u8) |&value| i64::from(value);
}

/// `aclCreateTensorList`. The list owns its tensors from then on.
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateTensorList(value: *const *mut c_void, size: u64) -> *mut c_void {
    let list = elements(value, size as usize)
        .iter()
        .map(|&tensor| tensor as u64)
        .collect();
    objects().tensor_lists.insert(list) as *mut c_void
}

/// `aclCreateScalarList`. The list owns its scalars from then on.
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateScalarList(value: *const *mut c_void, size: u64) -> *mut c_void {
    let list = elements(value, size as usize)
        .iter()
        .map(|&scalar| scalar as u64)
        .collect();
    objects().scalar_lists.insert(list) as *mut c_void
}

macro_rules! destroy {
    ($($name:ident $table:ident;)*) => {
        $(
            /// Destroys an object.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(object: *const c_void) -> c_int {
                match objects().$table.remove(object as u64) {
                    Some(_) => 0,
                    None => ACL_ERROR_INVALID_PARAM,
                }
            }
        )*
    };
}
destroy! {
    aclDestroyTensor tensors;
    aclDestroyScalar scalars;
    aclDestroyIntArray arrays;
    aclDestroyFloatArray arrays;
    aclDestroyBoolArray arrays;
    aclDestroyAclOpExecutor executors;
    aclDestroyDataBuffer buffers;
}

/// `aclDestroyTensorList`, with its tensors.
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyTensorList(list: *const c_void) -> c_int {
    let mut objects = objects();
    let Some(list) = objects.tensor_lists.remove(list as u64) else {
        return ACL_ERROR_INVALID_PARAM;
    };
    for tensor in list {
        objects.tensors.remove(tensor);
    }
    0
}

/// `aclDestroyScalarList`, with its scalars.
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyScalarList(list: *const c_void) -> c_int {
    let mut objects = objects();
    let Some(list) = objects.scalar_lists.remove(list as u64) else {
        return ACL_ERROR_INVALID_PARAM;
    };
    for scalar in list {
        objects.scalars.remove(scalar);
    }
    0
}

/// `aclGetViewShape`; the caller frees the array with `delete[]`.
#[unsafe(no_mangle)]
pub extern "C" fn aclGetViewShape(
    tensor: *const c_void,
    dims: *mut *mut i64,
    count: *mut u64,
) -> c_int {
    let objects = objects();
    let Some(tensor) = objects.tensors.get(tensor as u64) else {
        return ACL_ERROR_INVALID_PARAM;
    };
    if dims.is_null() || count.is_null() {
        return ACL_ERROR_INVALID_PARAM;
    }
    let bytes = std::mem::size_of_val(tensor.dims.as_slice()).max(1);
    // SAFETY: has no precondition; the result is checked.
    let copy = unsafe { libc::malloc(bytes) }.cast::<i64>();
    if copy.is_null() {
        return ACL_ERROR_INVALID_PARAM;
    }
    // SAFETY: the block was just allocated for as many elements.
    unsafe { std::ptr::copy_nonoverlapping(tensor.dims.as_ptr(), copy, tensor.dims.len()) };
    put(dims, copy);
    put(count, tensor.dims.len() as u64);
    0
}

/// `aclCreateTensorDesc`
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateTensorDesc(
    dataType: c_int,
    numDims: c_int,
    dims: *const i64,
    format: c_int,
) -> *mut c_void {
    let dims = elements(dims, usize::try_from(numDims).unwrap_or(0)).to_vec();
    objects().descs.insert(Desc {
        dtype: dataType,
        format,
        dims,
    }) as *mut c_void
}

/// `aclDestroyTensorDesc`
#[unsafe(no_mangle)]
pub extern "C" fn aclDestroyTensorDesc(desc: *const c_void) {
    objects().descs.remove(desc as u64);
}

/// `aclGetTensorDescType`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetTensorDescType(desc: *const c_void) -> c_int {
    objects()
        .descs
        .get(desc as u64)
        .map_or(-1, |desc| desc.dtype)
}

/// `aclGetTensorDescFormat`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetTensorDescFormat(desc: *const c_void) -> c_int {
    objects()
        .descs
        .get(desc as u64)
        .map_or(-1, |desc| desc.format)
}

/// `aclGetTensorDescNumDims`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetTensorDescNumDims(desc: *const c_void) -> usize {
    objects()
        .descs
        .get(desc as u64)
        .map_or(0, |desc| desc.dims.len())
}

/// `aclGetTensorDescDimV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetTensorDescDimV2(
    desc: *const c_void,
    index: usize,
    size: *mut i64,
) -> aclError {
    let objects = objects();
    let dim = objects
        .descs
        .get(desc as u64)
        .and_then(|desc| desc.dims.get(index));
    match dim {
        Some(&dim) if !size.is_null() => {
            put(size, dim);
            0
        }
        _ => ACL_ERROR_INVALID_PARAM,
    }
}

fn with_desc(desc: *mut c_void, change: impl FnOnce(&mut Desc)) -> aclError {
    match objects().descs.get_mut(desc as u64) {
        Some(desc) => {
            change(desc);
            0
        }
        None => ACL_ERROR_INVALID_PARAM,
    }
}

/// `aclSetTensorFormat`
#[unsafe(no_mangle)]
pub extern "C" fn aclSetTensorFormat(desc: *mut c_void, format: c_int) -> aclError {
    with_desc(desc, |desc| desc.format = format)
}

/// `aclSetTensorShape`: sets the storage's shape, which nothing here depends on.
#[unsafe(no_mangle)]
pub extern "C" fn aclSetTensorShape(
    desc: *mut c_void,
    numDims: c_int,
    dims: *const i64,
) -> aclError {
    let _ = (numDims, dims);
    with_desc(desc, |_| ())
}

/// `aclSetTensorPlaceMent`
#[unsafe(no_mangle)]
pub extern "C" fn aclSetTensorPlaceMent(desc: *mut c_void, kind: c_uint) -> aclError {
    let _ = kind;
    with_desc(desc, |_| ())
}

/// `aclSetTensorConst`
#[unsafe(no_mangle)]
pub extern "C" fn aclSetTensorConst(
    desc: *mut c_void,
    data: *mut c_void,
    length: usize,
) -> aclError {
    let _ = (data, length);
    with_desc(desc, |_| ())
}

/// `aclSetTensorDescName`
#[unsafe(no_mangle)]
pub extern "C" fn aclSetTensorDescName(desc: *mut c_void, name: *const c_char) {
    let _ = (desc, name);
}

/// `aclCreateDataBuffer`
#[unsafe(no_mangle)]
pub extern "C" fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut c_void {
    objects().buffers.insert((data as u64, size as u64)) as *mut c_void
}

/// `aclGetDataBufferAddr`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDataBufferAddr(buffer: *const c_void) -> *mut c_void {
    objects()
        .buffers
        .get(buffer as u64)
        .map_or(0, |buffer| buffer.0) as *mut c_void
}

/// `aclGetDataBufferSizeV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclGetDataBufferSizeV2(buffer: *const c_void) -> usize {
    objects()
        .buffers
        .get(buffer as u64)
        .map_or(0, |buffer| buffer.1) as usize
}

/// `aclopCreateAttr`
#[unsafe(no_mangle)]
pub extern "C" fn aclopCreateAttr() -> *mut c_void {
    objects().attrs.insert(()) as *mut c_void
}

/// `aclopDestroyAttr`
#[unsafe(no_mangle)]
pub extern "C" fn aclopDestroyAttr(attr: *const c_void) {
    objects().attrs.remove(attr as u64);
}

macro_rules! set_attr {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            /// Sets an attribute; none is read.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(
                attr: *mut c_void,
                name: *const c_char,
                $($arg: $type),*
            ) -> aclError {
                let _ = name;
                $(let _ = $arg;)*
                if objects().attrs.get(attr as u64).is_some() { 0 } else { ACL_ERROR_INVALID_PARAM }
            }
        )*
    };
}
set_attr! {
    aclopSetAttrBool(value: u8);
    aclopSetAttrInt(value: i64);
    aclopSetAttrFloat(value: f32);
    aclopSetAttrString(value: *const c_char);
    aclopSetAttrDataType(value: c_int);
    aclopSetAttrListBool(count: c_int, values: *const u8);
    aclopSetAttrListInt(count: c_int, values: *const i64);
    aclopSetAttrListFloat(count: c_int, values: *const f32);
    aclopSetAttrListListInt(count: c_int, sizes: *const c_int, values: *const *const i64);
}

/// `aclopCompileAndExecute`
#[unsafe(no_mangle)]
pub extern "C" fn aclopCompileAndExecute(
    opType: *const c_char,
    numInputs: c_int,
    inputDesc: *const *mut c_void,
    inputs: *const *mut c_void,
    numOutputs: c_int,
    outputDesc: *const *mut c_void,
    outputs: *const *mut c_void,
    attr: *const c_void,
    engineType: c_uint,
    compileFlag: c_uint,
    opPath: *const c_char,
    stream: *mut c_void,
) -> aclError {
    let _ = (inputDesc, outputDesc, attr, engineType, compileFlag, opPath);
    let mut accesses = Accesses::new();
    {
        let objects = objects();
        for (list, count) in [(inputs, numInputs), (outputs, numOutputs)] {
            for &buffer in elements(list, usize::try_from(count).unwrap_or(0)) {
                if let Some(&(addr, len)) = objects.buffers.get(buffer as u64)
                    && addr != 0
                    && len != 0
                {
                    accesses.push(Access { addr, len });
                }
            }
        }
    }
    let name = intern(text(opType));
    enter(CallKind::Launch, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        let nanoseconds = sim.config.cost.kernel_ns;
        sim.submit(
            stream,
            Work {
                nanoseconds,
                accesses,
                action: None,
                name,
            },
        )
    })
}

/// `aclopCompileAndExecuteV2`
#[unsafe(no_mangle)]
pub extern "C" fn aclopCompileAndExecuteV2(
    opType: *const c_char,
    numInputs: c_int,
    inputDesc: *mut *mut c_void,
    inputs: *mut *mut c_void,
    numOutputs: c_int,
    outputDesc: *mut *mut c_void,
    outputs: *mut *mut c_void,
    attr: *mut c_void,
    engineType: c_uint,
    compileFlag: c_uint,
    opPath: *const c_char,
    stream: *mut c_void,
) -> aclError {
    aclopCompileAndExecute(
        opType,
        numInputs,
        inputDesc,
        inputs,
        numOutputs,
        outputDesc,
        outputs,
        attr,
        engineType,
        compileFlag,
        opPath,
        stream,
    )
}

fn launch(stream: *mut c_void, name: &'static str) -> aclError {
    enter(CallKind::Launch, 0, |sim| {
        let stream = stream_of(sim, stream)?;
        let nanoseconds = sim.config.cost.kernel_ns;
        sim.submit(
            stream,
            Work {
                nanoseconds,
                name,
                ..Work::default()
            },
        )
    })
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
    launch(stream, "rtKernelLaunch")
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
    launch(stream, "aclrtLaunchKernel")
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
    launch(stream, "aclrtLaunchKernelV2")
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
