//! Objects of the two-phase operator interface: tensors, scalars, arrays, lists.

use std::ffi::{c_int, c_void};

use ascend_rs_sys::ACL_ERROR_INVALID_PARAM;

use super::{elements, put};
use crate::ops::objects::{Scalar, Tensor, element_size, objects};

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
