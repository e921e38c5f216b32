//! What operators of the catalogue do, and doing it.

use super::number::{Number, add, binary, load, store, truth, whole};
use super::objects::{Tensor, element_size};
use super::view::{contiguous, fits, walk};
use crate::model::work::Kernel;

/// A function of one number.
pub type Unary = fn(Number) -> Number;
/// A function of two numbers.
pub type Binary = fn(Number, Number) -> Number;

/// An operand: a tensor, or the same number for all elements.
#[derive(Clone)]
pub enum Operand {
    /// Element by element.
    Tensor(Tensor),
    /// The same for all.
    Number(Number),
}

/// What an operator does.
pub enum Rule {
    /// All elements become the number.
    Fill(Number),
    /// start, step
    Arange(Number, Number),
    /// Each element is a function of one operand's.
    Unary(Operand, Unary),
    /// Each element is a function of `a` and `alpha * b`.
    Binary(Operand, Operand, Number, Binary),
    /// One number out of all elements: start and step.
    Reduce(Tensor, Number, Binary, Mean),
    /// Tensors one after the other along an axis.
    Concat(Vec<Tensor>, usize),
    /// A matrix product times a number, plus a broadcast operand times another.
    Matmul(Tensor, Tensor, Option<(Tensor, f64, f64)>),
    /// Whether two tensors are equal.
    Equal(Tensor, Tensor),
    /// Whether elements differ by no more than a relative and an absolute bound.
    Close(Tensor, Tensor, f64, f64),
}

/// Whether a sum is divided by the number of elements.
pub type Mean = bool;

/// An operator that computes.
pub struct Op {
    /// What it writes.
    pub out: Tensor,
    /// How.
    pub rule: Rule,
}

impl Operand {
    fn fits(&self, shape: &[i64]) -> bool {
        match self {
            Operand::Tensor(tensor) => fits(tensor, shape),
            Operand::Number(_) => true,
        }
    }
}

impl Op {
    /// Steps on elements that the operator takes. Copies and fills of whole
    /// tensors move memory at its own speed and count as none.
    pub fn steps(&self) -> u64 {
        let out = self.out.count();
        match &self.rule {
            Rule::Fill(_) if contiguous(&self.out) => 0,
            Rule::Unary(Operand::Tensor(a), _) if self.moves(a) => 0,
            Rule::Reduce(a, ..) | Rule::Equal(a, _) => a.count(),
            // A product is slow here, and what it is needed for is small.
            Rule::Matmul(a, ..) => out
                .saturating_mul(a.dims[1].unsigned_abs())
                .saturating_mul(64),
            _ => out,
        }
    }

    /// True if the rule copies the operand byte by byte.
    fn moves(&self, a: &Tensor) -> bool {
        a.dtype == self.out.dtype
            && a.dims == self.out.dims
            && contiguous(a)
            && contiguous(&self.out)
            && self.is_copy()
    }

    /// True if the shapes are such that no element outside a tensor is touched.
    pub fn consistent(&self) -> bool {
        let shape = &self.out.dims;
        match &self.rule {
            Rule::Fill(_) | Rule::Arange(..) => true,
            Rule::Unary(a, _) => a.fits(shape),
            Rule::Binary(a, b, ..) => a.fits(shape) && b.fits(shape),
            Rule::Close(a, b, ..) => fits(a, shape) && fits(b, shape),
            Rule::Reduce(..) => self.out.count() == 1,
            Rule::Equal(..) => self.out.count() == 1,
            Rule::Concat(parts, axis) => {
                let total: i64 = parts
                    .iter()
                    .map(|it| it.dims.get(*axis).copied().unwrap_or(-1))
                    .sum();
                shape.get(*axis) == Some(&total)
                    && parts.iter().all(|it| {
                        it.dtype == self.out.dtype
                            && it.dims.len() == shape.len()
                            && (0..shape.len()).all(|at| at == *axis || it.dims[at] == shape[at])
                    })
            }
            Rule::Matmul(a, b, added) => match (&a.dims[..], &b.dims[..], &shape[..]) {
                ([m, k], [k2, n], [m2, n2]) => {
                    let added = added.as_ref();
                    m == m2 && k == k2 && n == n2 && added.is_none_or(|(it, ..)| fits(it, shape))
                }
                _ => false,
            },
        }
    }
}

/// A tensor of no axis that stands for the first element of another.
fn matrix_element(tensor: &Tensor, row: i64, column: i64) -> u64 {
    let at = tensor.offset + row * tensor.strides[0] + column * tensor.strides[1];
    tensor.data + at as u64 * element_size(tensor.dtype)
}

impl Kernel for Op {
    fn run(&self) {
        let out = &self.out;
        let dtype = out.dtype;
        // SAFETY: the simulator runs a kernel only while all memory
        // its tensors cover is mapped, and `consistent` holds, so every address
        // is that of a live element.
        let get = |addr: u64, dtype: i32| unsafe { load(addr, dtype) };
        // SAFETY: see above.
        let put = |addr: u64, value: Number| unsafe { store(addr, dtype, value) };
        match &self.rule {
            Rule::Fill(value) if contiguous(out) && out.count() > 0 => {
                let size = element_size(dtype);
                let (first, bytes) = (out.data + out.offset as u64 * size, out.count() * size);
                put(first, *value);
                let mut done = size;
                while done < bytes {
                    let step = done.min(bytes - done);
                    // SAFETY: see above; what is filled already is copied behind itself.
                    unsafe {
                        let (from, to) = (first as *const u8, (first + done) as *mut u8);
                        std::ptr::copy_nonoverlapping(from, to, step as usize);
                    }
                    done += step;
                }
            }
            Rule::Fill(value) => walk(out, [], |at, []| put(at, *value)),
            Rule::Arange(start, step) => {
                let mut index = 0;
                walk(out, [], |at, []| {
                    let moved = binary(Number::Int(index), *step, i64::wrapping_mul, |a, b| a * b);
                    put(at, add(*start, moved));
                    index += 1;
                });
            }
            Rule::Unary(Operand::Tensor(a), _) if self.moves(a) => {
                let size = element_size(dtype);
                let (from, to) = (
                    a.data + a.offset as u64 * size,
                    out.data + out.offset as u64 * size,
                );
                let bytes = (out.count() * size) as usize;
                // SAFETY: see above; both ranges are that of whole tensors.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
            }
            Rule::Unary(Operand::Tensor(a), function) => {
                walk(out, [a], |at, [a_at]| put(at, function(get(a_at, a.dtype))));
            }
            Rule::Unary(Operand::Number(a), function) => {
                walk(out, [], |at, []| put(at, function(*a)));
            }
            Rule::Binary(a, b, alpha, function) => {
                let scaled = |b: Number| match alpha {
                    Number::Int(1) => b,
                    alpha => binary(*alpha, b, i64::wrapping_mul, |a, b| a * b),
                };
                match (a, b) {
                    (Operand::Tensor(a), Operand::Tensor(b)) => walk(out, [a, b], |at, [x, y]| {
                        put(at, function(get(x, a.dtype), scaled(get(y, b.dtype))));
                    }),
                    (Operand::Tensor(a), Operand::Number(b)) => {
                        walk(out, [a], |at, [x]| {
                            put(at, function(get(x, a.dtype), scaled(*b)))
                        });
                    }
                    (Operand::Number(a), Operand::Tensor(b)) => {
                        walk(out, [b], |at, [y]| {
                            put(at, function(*a, scaled(get(y, b.dtype))))
                        });
                    }
                    (Operand::Number(a), Operand::Number(b)) => {
                        walk(out, [], |at, []| put(at, function(*a, scaled(*b))));
                    }
                }
            }
            Rule::Reduce(a, start, step, mean) => {
                let mut value = *start;
                walk(a, [], |at, []| value = step(value, get(at, a.dtype)));
                if *mean {
                    value = Number::Float(value.float() / a.count() as f64);
                }
                walk(out, [], |at, []| put(at, value));
            }
            Rule::Equal(a, b) => {
                let mut equal = a.dims == b.dims;
                if equal {
                    walk(a, [b], |x, [y]| {
                        equal &= get(x, a.dtype).float() == get(y, b.dtype).float();
                    });
                }
                walk(out, [], |at, []| put(at, truth(equal)));
            }
            Rule::Close(a, b, relative, absolute) => walk(out, [a, b], |at, [x, y]| {
                let (x, y) = (get(x, a.dtype).float(), get(y, b.dtype).float());
                put(
                    at,
                    truth(x == y || (x - y).abs() <= absolute + relative * y.abs()),
                );
            }),
            Rule::Concat(parts, axis) => {
                let mut part_of_out = out.clone();
                for part in parts {
                    part_of_out.dims.clone_from(&part.dims);
                    walk(&part_of_out, [part], |at, [x]| put(at, get(x, part.dtype)));
                    part_of_out.offset += part.dims[*axis] * out.strides[*axis];
                }
            }
            Rule::Matmul(a, b, added) => {
                for row in 0..out.dims[0] {
                    for column in 0..out.dims[1] {
                        let sum: f64 = (0..a.dims[1])
                            .map(|k| {
                                let x = get(matrix_element(a, row, k), a.dtype);
                                let y = get(matrix_element(b, k, column), b.dtype);
                                x.float() * y.float()
                            })
                            .sum();
                        let value = if whole(dtype) {
                            Number::Int(sum as i64)
                        } else {
                            Number::Float(sum)
                        };
                        put(matrix_element(out, row, column), value);
                    }
                }
                if let Some((c, beta, alpha)) = added {
                    walk(out, [out, c], |at, [product, y]| {
                        let (x, y) = (get(product, dtype).float(), get(y, c.dtype).float());
                        put(at, Number::Float(alpha * x + beta * y));
                    });
                }
            }
        }
    }
}

impl Op {
    /// True if the function of a unary rule changes nothing. Functions have no
    /// identity to compare, so it is tried on numbers no other one maps to
    /// themselves.
    fn is_copy(&self) -> bool {
        let Rule::Unary(_, function) = &self.rule else {
            return false;
        };
        [-3.5, 7.25]
            .into_iter()
            .all(|probe| function(Number::Float(probe)).float() == probe)
    }
}
