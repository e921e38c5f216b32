//! Operators that compute in backed mode, on host buffers in place of device
//! memory. The order of arguments is that of the headers in torch_npu's wheel
//! (`include/third_party/op-plugin`) and of the `aclnn*` reference.

use std::ffi::c_void;

use ascendcl::ffi::operator_objects::{aclCreateScalar, aclCreateTensor};
use ascendcl::ops::arguments::Arguments;
use ascendcl::ops::catalogue;
use ascendcl::ops::objects::objects;

// `aclDataType`.
const FLOAT: i32 = 0;
const HALF: i32 = 1;
const INT32: i32 = 3;
const INT64: i32 = 9;
const BOOL: i32 = 12;

fn tensor<T>(values: &mut [T], dtype: i32, dims: &[i64]) -> u64 {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    strided(values, dtype, dims, &strides)
}

fn strided<T>(values: &mut [T], dtype: i32, dims: &[i64], strides: &[i64]) -> u64 {
    let (count, data) = (dims.len() as u64, values.as_mut_ptr().cast());
    let dims = dims.as_ptr();
    let made = aclCreateTensor(
        dims,
        count,
        dtype,
        strides.as_ptr(),
        0,
        2,
        dims,
        count,
        data,
    );
    made as u64
}

fn scalar<T>(mut value: T, dtype: i32) -> u64 {
    aclCreateScalar((&raw mut value).cast::<c_void>(), dtype) as u64
}

/// Runs an operator; false if it is not one that computes on these arguments.
fn run(name: &str, words: &[u64]) -> bool {
    let arguments = Arguments {
        words: words.to_vec(),
        floats: [0.0; 8],
        results: None,
    };
    let kernel = catalogue::kernel(name, &arguments, &objects(), 1 << 20);
    kernel.inspect(|kernel| kernel.run()).is_some()
}

#[test]
fn fill_zero_and_one() {
    let mut values = [7f32; 6];
    let all = tensor(&mut values, FLOAT, &[2, 3]);
    assert!(run("aclnnInplaceFillScalar", &[all, scalar(2.5f32, FLOAT)]));
    assert_eq!(values, [2.5; 6]);
    // Every second element of the first four.
    let some = strided(&mut values, FLOAT, &[2], &[2]);
    assert!(run("aclnnInplaceZero", &[some]));
    assert_eq!(values, [0.0, 2.5, 0.0, 2.5, 2.5, 2.5]);
    assert!(run("aclnnInplaceOne", &[some]));
    assert_eq!(values, [1.0, 2.5, 1.0, 2.5, 2.5, 2.5]);
}

#[test]
fn arange_counts() {
    let mut values = [0i64; 4];
    let out = tensor(&mut values, INT64, &[4]);
    let (start, end, step) = (
        scalar(3i64, INT64),
        scalar(11i64, INT64),
        scalar(2i64, INT64),
    );
    assert!(run("aclnnArange", &[start, end, step, out]));
    assert_eq!(values, [3, 5, 7, 9]);
}

#[test]
fn copies_follow_strides_and_broadcast() {
    let (mut from, mut to) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [0f32; 6]);
    let rows = tensor(&mut to, FLOAT, &[3, 2]);
    let columns = strided(&mut from, FLOAT, &[3, 2], &[1, 3]);
    assert!(run("aclnnInplaceCopy", &[rows, columns]));
    assert_eq!(to, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0], "transposed");
    let one = tensor(&mut from[4..5], FLOAT, &[1]);
    assert!(run("aclnnInplaceCopy", &[rows, one]));
    assert_eq!(to, [5.0; 6]);
}

#[test]
fn casts_convert() {
    let mut from = [0.0f32, 1.5, -2.75, 65504.0];
    let source = tensor(&mut from, FLOAT, &[4]);
    let (mut ints, mut halves, mut truths) = ([9i32; 4], [9u16; 4], [9u8; 4]);
    let to_ints = tensor(&mut ints, INT32, &[4]);
    assert!(run("aclnnCast", &[source, INT32 as u64, to_ints]));
    assert_eq!(ints, [0, 1, -2, 65504]);
    let to_halves = tensor(&mut halves, HALF, &[4]);
    assert!(run("aclnnCast", &[source, HALF as u64, to_halves]));
    // IEEE 754 binary16 of the four numbers.
    assert_eq!(halves, [0x0000, 0x3E00, 0xC180, 0x7BFF]);
    let to_truths = tensor(&mut truths, BOOL, &[4]);
    assert!(run("aclnnCast", &[source, BOOL as u64, to_truths]));
    assert_eq!(truths, [0, 1, 1, 1]);
}

#[test]
fn sums_and_products() {
    let (mut a, mut b, mut out) = ([1i64, 2, 3, 4], [10i64, 20, 30, 40], [0i64; 4]);
    let (x, y) = (tensor(&mut a, INT64, &[4]), tensor(&mut b, INT64, &[4]));
    let sum = tensor(&mut out, INT64, &[4]);
    assert!(run("aclnnAdd", &[x, y, scalar(2i64, INT64), sum]));
    assert_eq!(out, [21, 42, 63, 84], "a + alpha * b");
    assert!(run("aclnnMul", &[x, y, sum]));
    assert_eq!(out, [10, 40, 90, 160]);
    assert!(run("aclnnInplaceMul", &[x, y]));
    assert_eq!(a, [10, 40, 90, 160]);
    let one = scalar(1i64, INT64);
    assert!(run("aclnnAdds", &[y, scalar(5i64, INT64), one, sum]));
    assert_eq!(out, [15, 25, 35, 45]);
    // A column plus a row.
    let (mut column, mut row, mut table) = ([1f32, 2.0], [10f32, 20.0], [0f32; 4]);
    let (x, y) = (
        tensor(&mut column, FLOAT, &[2, 1]),
        tensor(&mut row, FLOAT, &[2]),
    );
    let sum = tensor(&mut table, FLOAT, &[2, 2]);
    assert!(run("aclnnAdd", &[x, y, scalar(1f32, FLOAT), sum]));
    assert_eq!(table, [11.0, 21.0, 12.0, 22.0]);
}

/// Shapes that do not fit would touch other memory: nothing is computed.
#[test]
fn what_does_not_fit_is_not_computed() {
    let (mut a, mut out) = ([1f32; 4], [7f32; 2]);
    let (x, target) = (tensor(&mut a, FLOAT, &[4]), tensor(&mut out, FLOAT, &[2]));
    run("aclnnInplaceCopy", &[target, x]);
    assert_eq!(out, [7.0; 2]);
}

/// An operator that is not modelled gives zeros, unless it works in place.
#[test]
fn other_operators_give_zeros() {
    let (mut a, mut out) = ([1f32; 4], [7f32; 4]);
    let (x, target) = (tensor(&mut a, FLOAT, &[4]), tensor(&mut out, FLOAT, &[4]));
    assert!(run("aclnnSomethingNew", &[x, target]));
    assert_eq!(out, [0.0; 4]);
    assert!(!run("aclnnInplaceSomethingNew", &[x]));
    assert_eq!(a, [1.0; 4]);
}

/// Operators of no `Inplace` in their names that update an argument end with
/// an input: `aclnnIndexPutImpl(selfRef, indices, values, accumulate, unsafe)`,
/// `aclnnApplyAdamWV2(varRef, mRef, vRef, maxGradNormOptionalRef, grad, step, …)`.
#[test]
fn operators_that_update_an_argument_leave_their_inputs() {
    let (mut a, mut b) = ([1f32; 4], [7f32; 4]);
    let (x, values) = (tensor(&mut a, FLOAT, &[4]), tensor(&mut b, FLOAT, &[4]));
    for name in ["aclnnIndexPutImpl", "aclnnApplyAdamWV2", "aclnnApplyAdamW"] {
        assert!(!run(name, &[x, values]), "{name}");
    }
    assert_eq!((a, b), ([1.0; 4], [7.0; 4]));
}

#[test]
fn bits_of_whole_numbers_and_truths() {
    let (mut a, mut b, mut out) = ([6i32, -1], [3i32, 12], [9i32; 2]);
    let (x, y) = (tensor(&mut a, INT32, &[2]), tensor(&mut b, INT32, &[2]));
    let target = tensor(&mut out, INT32, &[2]);
    assert!(run("aclnnBitwiseAndTensor", &[x, y, target]));
    assert_eq!(out, [2, 12]);
    assert!(run("aclnnBitwiseOrTensor", &[x, y, target]));
    assert_eq!(out, [7, -1]);
    let (mut a, mut b, mut out) = ([1u8, 1, 0], [1u8, 0, 0], [9u8; 3]);
    let (x, y) = (tensor(&mut a, BOOL, &[3]), tensor(&mut b, BOOL, &[3]));
    let target = tensor(&mut out, BOOL, &[3]);
    assert!(run("aclnnBitwiseAndTensor", &[x, y, target]));
    assert_eq!(out, [1, 0, 0]);
    assert!(run("aclnnLogicalOr", &[x, y, target]));
    assert_eq!(out, [1, 1, 0]);
}

/// torch: what is no number stays none.
#[test]
fn the_larger_of_a_number_and_none_is_none() {
    let (mut a, mut b, mut out) = ([f32::NAN, 1.0], [2f32, f32::NAN], [9f32; 2]);
    let (x, y) = (tensor(&mut a, FLOAT, &[2]), tensor(&mut b, FLOAT, &[2]));
    let target = tensor(&mut out, FLOAT, &[2]);
    for name in ["aclnnMaximum", "aclnnMinimum"] {
        assert!(run(name, &[x, y, target]));
        assert!(out.iter().all(|it| it.is_nan()), "{name}: {out:?}");
        out.fill(9.0);
    }
    assert!(run("aclnnRelu", &[x, target]));
    assert!(out[0].is_nan() && out[1] == 1.0, "{out:?}");
}
