//! The operators that compute when memory is backed, and how their arguments
//! are laid out. Any other operator that is not in place sets its last tensor,
//! which by convention is an output, to zero, so that results do not depend on
//! what was in the memory before.

use std::sync::Arc;

use super::arguments::Arguments;
use super::number::{Number, known, load, of_scalar, store, whole};
use super::objects::{Objects, Tensor, element_size};
use super::view::{contiguous, fits, walk};
use crate::model::work::Kernel;

type Unary = fn(Number) -> Number;
type Binary = fn(Number, Number) -> Number;

/// An operand: a tensor, or the same number for all elements.
#[derive(Clone)]
enum Operand {
    Tensor(Tensor),
    Number(Number),
}

enum Rule {
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

type Mean = bool;

struct Op {
    out: Tensor,
    rule: Rule,
}

struct Reader<'a> {
    objects: &'a Objects,
    words: &'a [u64],
    floats: [f64; 8],
}

impl Reader<'_> {
    fn tensor(&self, index: usize) -> Option<Tensor> {
        let tensor = self.objects.tensors.get(*self.words.get(index)?)?;
        (tensor.data != 0 && known(tensor.dtype)).then(|| tensor.clone())
    }

    fn scalar(&self, index: usize) -> Option<Number> {
        of_scalar(self.objects.scalars.get(*self.words.get(index)?)?)
    }

    fn operand(&self, index: usize) -> Option<Operand> {
        self.tensor(index)
            .map(Operand::Tensor)
            .or_else(|| self.scalar(index).map(Operand::Number))
    }
}

/// The kernel of a call, if the operator is one that computes, its arguments
/// are what it expects and it takes no more than `limit` steps on elements.
pub fn kernel(
    name: &str,
    arguments: &Arguments,
    objects: &Objects,
    limit: u64,
) -> Option<Arc<dyn Kernel>> {
    let args = Reader {
        objects,
        words: &arguments.words,
        floats: arguments.floats,
    };
    let op = modelled(name, &args).filter(|op| op.consistent() && op.steps() <= limit);
    let op = op.or_else(|| unmodelled(name, &args))?;
    Some(Arc::new(op) as Arc<dyn Kernel>)
}

/// What an operator does that is not in the catalogue.
fn unmodelled(name: &str, args: &Reader) -> Option<Op> {
    if name.starts_with("aclnnInplace") {
        return None;
    }
    let out = (0..args.words.len())
        .rev()
        .find_map(|index| args.tensor(index))?;
    contiguous(&out).then_some(Op {
        out,
        rule: Rule::Fill(Number::Int(0)),
    })
}

fn modelled(name: &str, args: &Reader) -> Option<Op> {
    let (objects, words) = (args.objects, args.words);
    let (out, rule) = match name {
        "aclnnInplaceZero" => (args.tensor(0)?, Rule::Fill(Number::Int(0))),
        "aclnnInplaceOne" => (args.tensor(0)?, Rule::Fill(Number::Int(1))),
        "aclnnInplaceFillScalar" => (args.tensor(0)?, Rule::Fill(args.scalar(1)?)),
        "aclnnArange" | "aclnnRange" => (
            args.tensor(3)?,
            Rule::Arange(args.scalar(0)?, args.scalar(2)?),
        ),
        "aclnnInplaceCopy" => (args.tensor(0)?, Rule::Unary(args.operand(1)?, |x| x)),
        "aclnnCast" => (args.tensor(2)?, Rule::Unary(args.operand(0)?, |x| x)),
        "aclnnReduceSum" => {
            let out = args.tensor(words.len().checked_sub(1)?)?;
            (
                out,
                Rule::Reduce(args.tensor(0)?, Number::Int(0), add, false),
            )
        }
        "aclnnMean" => {
            let out = args.tensor(words.len().checked_sub(1)?)?;
            (
                out,
                Rule::Reduce(args.tensor(0)?, Number::Int(0), add, true),
            )
        }
        "aclnnMax" => {
            let low = Number::Float(f64::NEG_INFINITY);
            (
                args.tensor(1)?,
                Rule::Reduce(args.tensor(0)?, low, maximum, false),
            )
        }
        "aclnnMin" => {
            let high = Number::Float(f64::INFINITY);
            (
                args.tensor(1)?,
                Rule::Reduce(args.tensor(0)?, high, minimum, false),
            )
        }
        "aclnnAll" | "aclnnAny" => {
            let out = args.tensor(words.len().checked_sub(1)?)?;
            let (start, step): (i64, Binary) = if name == "aclnnAll" {
                (1, and)
            } else {
                (0, or)
            };
            (
                out,
                Rule::Reduce(args.tensor(0)?, Number::Int(start), step, false),
            )
        }
        "aclnnEqual" => (
            args.tensor(2)?,
            Rule::Equal(args.tensor(0)?, args.tensor(1)?),
        ),
        "aclnnIsClose" => {
            let (relative, absolute) = (args.floats[0], args.floats[1]);
            let (a, b) = (args.tensor(0)?, args.tensor(1)?);
            (args.tensor(3)?, Rule::Close(a, b, relative, absolute))
        }
        "aclnnMatmul" | "aclnnMm" => (
            args.tensor(2)?,
            Rule::Matmul(args.tensor(0)?, args.tensor(1)?, None),
        ),
        "aclnnAddmm" => {
            let (beta, alpha) = (args.scalar(3)?.float(), args.scalar(4)?.float());
            let added = Some((args.tensor(0)?, beta, alpha));
            (
                args.tensor(5)?,
                Rule::Matmul(args.tensor(1)?, args.tensor(2)?, added),
            )
        }
        "aclnnCat" => {
            let list = objects.tensor_lists.get(*words.first()?)?;
            let parts: Option<Vec<Tensor>> = list
                .iter()
                .map(|&part| objects.tensors.get(part).cloned())
                .collect();
            let out = args.tensor(2)?;
            let axis = *words.get(1)? as i64;
            let axis = if axis < 0 {
                axis + out.dims.len() as i64
            } else {
                axis
            };
            (out, Rule::Concat(parts?, usize::try_from(axis).ok()?))
        }
        _ => elementwise(name, args)?,
    };
    Some(Op { out, rule })
}

/// Names of the families `aclnnX`, `aclnnXs`, `aclnnInplaceX`, `aclnnInplaceXs`
/// and of comparisons and functions of one operand.
fn elementwise(name: &str, args: &Reader) -> Option<(Tensor, Rule)> {
    let base = name.strip_prefix("aclnn")?;
    let (base, inplace) = match base.strip_prefix("Inplace") {
        Some(base) => (base, true),
        None => (base, false),
    };
    let one = Number::Int(1);
    let unary: Option<Unary> = match base {
        "Neg" => Some(|x| binary(Number::Int(0), x, |a, b| a.wrapping_sub(b), |a, b| a - b)),
        "Abs" => Some(|x| binary(x, x, |a, _| a.wrapping_abs(), |a, _| a.abs())),
        "Relu" => Some(|x| maximum(x, Number::Int(0))),
        "Sqrt" => Some(|x| Number::Float(x.float().sqrt())),
        "Exp" => Some(|x| Number::Float(x.float().exp())),
        "Log" => Some(|x| Number::Float(x.float().ln())),
        "Reciprocal" => Some(|x| Number::Float(1.0 / x.float())),
        "LogicalNot" => Some(|x| Number::Int(i64::from(x.float() == 0.0))),
        "Isfinite" | "IsFinite" => Some(|x| Number::Int(i64::from(x.float().is_finite()))),
        _ => None,
    };
    if let Some(function) = unary {
        let out = args.tensor(if inplace { 0 } else { 1 })?;
        return Some((out, Rule::Unary(args.operand(0)?, function)));
    }
    let (function, has_alpha): (Binary, bool) = match base {
        "Add" | "Adds" => (add, true),
        "Sub" | "Subs" => (subtract, true),
        "Mul" | "Muls" => (|a, b| binary(a, b, i64::wrapping_mul, |a, b| a * b), false),
        "Div" | "Divs" => (|a, b| Number::Float(a.float() / b.float()), false),
        "Maximum" => (maximum, false),
        "Minimum" => (minimum, false),
        "EqTensor" | "EqScalar" => (|a, b| truth(a.float() == b.float()), false),
        "NeTensor" | "NeScalar" => (|a, b| truth(a.float() != b.float()), false),
        "LtTensor" | "LtScalar" => (|a, b| truth(a.float() < b.float()), false),
        "LeTensor" | "LeScalar" => (|a, b| truth(a.float() <= b.float()), false),
        "GtTensor" | "GtScalar" => (|a, b| truth(a.float() > b.float()), false),
        "GeTensor" | "GeScalar" => (|a, b| truth(a.float() >= b.float()), false),
        "LogicalAnd" | "BitwiseAndTensor" => (and, false),
        "LogicalOr" | "BitwiseOrTensor" => (or, false),
        _ => return None,
    };
    let alpha = if has_alpha { args.scalar(2)? } else { one };
    let out = match (inplace, has_alpha) {
        (true, _) => 0,
        (false, true) => 3,
        (false, false) => 2,
    };
    let (a, b) = (args.operand(0)?, args.operand(1)?);
    Some((args.tensor(out)?, Rule::Binary(a, b, alpha, function)))
}

fn binary(a: Number, b: Number, int: fn(i64, i64) -> i64, float: fn(f64, f64) -> f64) -> Number {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Number::Int(int(a, b)),
        _ => Number::Float(float(a.float(), b.float())),
    }
}

fn add(a: Number, b: Number) -> Number {
    binary(a, b, i64::wrapping_add, |a, b| a + b)
}
fn subtract(a: Number, b: Number) -> Number {
    binary(a, b, i64::wrapping_sub, |a, b| a - b)
}
fn maximum(a: Number, b: Number) -> Number {
    if a.float() >= b.float() { a } else { b }
}
fn minimum(a: Number, b: Number) -> Number {
    if a.float() <= b.float() { a } else { b }
}
fn truth(value: bool) -> Number {
    Number::Int(i64::from(value))
}
fn and(a: Number, b: Number) -> Number {
    truth(a.float() != 0.0 && b.float() != 0.0)
}
fn or(a: Number, b: Number) -> Number {
    truth(a.float() != 0.0 || b.float() != 0.0)
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
    fn steps(&self) -> u64 {
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
    fn consistent(&self) -> bool {
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
