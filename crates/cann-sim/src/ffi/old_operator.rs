//! The older operator interface (`aclop*`) and its objects.

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use ascend_rs_sys::{ACL_ERROR_INVALID_PARAM, aclError};
use parking_lot::Mutex;

use super::operator::launch;
use super::{elements, put, text};
use crate::model::work::{Access, Accesses, Work};
use crate::ops::objects::{Desc, objects};

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
    let work = Work {
        accesses,
        name,
        ..Work::default()
    };
    launch(stream, work)
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
