//! Elements of several tensors side by side, with broadcasting.

use super::objects::{Tensor, element_size};

/// Walks the elements of an output together with those of inputs that are
/// broadcast to its shape; calls `each` with the addresses.
pub fn walk<const N: usize>(
    out: &Tensor,
    inputs: [&Tensor; N],
    mut each: impl FnMut(u64, [u64; N]),
) {
    let dims: Vec<u64> = out
        .dims
        .iter()
        .map(|&dim| u64::try_from(dim).unwrap_or(0))
        .collect();
    let count: u64 = dims.iter().product();
    let out_size = element_size(out.dtype);
    let strides = inputs.map(|input| aligned_strides(input, dims.len()));
    let sizes = inputs.map(|input| element_size(input.dtype));
    let mut index = vec![0u64; dims.len()];
    for _ in 0..count {
        let out_at = position(&out.strides, &index, out.offset);
        let mut addresses = [0; N];
        for input in 0..N {
            let at = position(&strides[input], &index, inputs[input].offset);
            addresses[input] = inputs[input].data + at * sizes[input];
        }
        each(out.data + out_at * out_size, addresses);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Strides of a tensor as if it had `rank` axes: 0 where it is broadcast.
fn aligned_strides(tensor: &Tensor, rank: usize) -> Vec<i64> {
    let missing = rank.saturating_sub(tensor.dims.len());
    let own = tensor.dims.iter().zip(&tensor.strides);
    let own = own.map(|(&dim, &stride)| if dim == 1 { 0 } else { stride });
    std::iter::repeat_n(0, missing).chain(own).collect()
}

fn position(strides: &[i64], index: &[u64], offset: i64) -> u64 {
    let moved: i64 = strides.iter().zip(index).map(|(&s, &i)| s * i as i64).sum();
    (offset + moved) as u64
}

/// True if a tensor can be broadcast to the shape of another.
pub fn fits(tensor: &Tensor, shape: &[i64]) -> bool {
    tensor.dims.len() <= shape.len()
        && tensor
            .dims
            .iter()
            .rev()
            .zip(shape.iter().rev())
            .all(|(&own, &dim)| own == dim || own == 1)
}

/// True if the elements follow each other without gaps, first to last.
pub fn contiguous(tensor: &Tensor) -> bool {
    let mut expected = 1;
    for (&dim, &stride) in tensor.dims.iter().zip(&tensor.strides).rev() {
        if dim != 1 && stride != expected {
            return false;
        }
        expected *= dim;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[i64], strides: &[i64], offset: i64) -> Tensor {
        Tensor {
            data: 0,
            dtype: 2,
            dims: dims.into(),
            strides: strides.into(),
            offset,
        }
    }

    #[test]
    fn broadcast_and_transposed_views_are_walked_in_order() {
        let out = tensor(&[2, 3], &[3, 1], 0);
        let row = tensor(&[3], &[1], 10);
        let transposed = tensor(&[2, 3], &[1, 2], 0);
        let mut seen = Vec::new();
        walk(&out, [&row, &transposed], |out, [row, turned]| {
            seen.push((out, row, turned))
        });
        let expected = [
            (0, 10, 0),
            (1, 11, 2),
            (2, 12, 4),
            (3, 10, 1),
            (4, 11, 3),
            (5, 12, 5),
        ];
        assert_eq!(seen, expected);
        assert!(contiguous(&out) && !contiguous(&transposed));
        assert!(fits(&row, &[2, 3]) && !fits(&row, &[3, 2]));
    }
}
