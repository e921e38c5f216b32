//! The operators that compute when memory is backed, and how their arguments
//! are laid out. Any other operator that does not update an argument sets its
//! last tensor, which by convention is an output, to zero, so that results do
//! not depend on what was in the memory before.

use std::sync::Arc;

use super::arguments::Arguments;
use super::number::{
    Number, add, and, binary, known, maximum, minimum, of_scalar, or, subtract, truth,
};
use super::objects::{Objects, Tensor};
use super::operation::{Binary, Op, Operand, Rule, Unary};
use super::view::contiguous;
use crate::model::work::Kernel;

struct Reader<'a> {
    objects: &'a Objects,
    words: &'a [u64],
    floats: [f64; 8],
}

/// True if a tensor's elements can be read, as far as they are mapped.
fn computable(tensor: &Tensor) -> bool {
    tensor.data != 0 && known(tensor.dtype) && tensor.covered()
}

impl Reader<'_> {
    fn tensor(&self, index: usize) -> Option<Tensor> {
        let tensor = self.objects.tensors.get(*self.words.get(index)?)?;
        computable(tensor).then(|| tensor.clone())
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

/// Operators that work in place though their names do not say so, or may end
/// with an input (aclnn reference: arguments named `…Ref`, optional inputs).
const UPDATES: [&str; 20] = [
    "aclnnAdvanceStep",
    "aclnnAdvanceStepV2",
    "aclnnApplyAdam",
    "aclnnApplyAdamW",
    "aclnnApplyAdamWV2",
    "aclnnApplyRotaryPosEmb",
    "aclnnApplyRotaryPosEmbV2",
    "aclnnEmbeddingRenorm",
    "aclnnFusedAdam",
    "aclnnFusedSgd",
    "aclnnGatherPaKvCache",
    "aclnnIndexPutImpl",
    "aclnnKvRmsNormRopeCache",
    "aclnnKvRmsNormRopeCacheV2",
    "aclnnNsaCompressWithCache",
    "aclnnQkvRmsNormRopeCache",
    "aclnnScatterList",
    "aclnnScatterNdUpdate",
    "aclnnScatterPaCache",
    "aclnnScatterPaKvCache",
];

/// What an operator does that is not in the catalogue.
fn unmodelled(name: &str, args: &Reader) -> Option<Op> {
    // The outputs of the family `Foreach` are lists; tensors are inputs.
    let lists = name.starts_with("aclnnForeach");
    if lists || name.contains("Inplace") || UPDATES.contains(&name) {
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
                .map(|&part| {
                    objects
                        .tensors
                        .get(part)
                        .filter(|it| computable(it))
                        .cloned()
                })
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
        "LogicalAnd" => (and, false),
        "LogicalOr" => (or, false),
        "BitwiseAndTensor" => (|a, b| Number::Int(a.int() & b.int()), false),
        "BitwiseOrTensor" => (|a, b| Number::Int(a.int() | b.int()), false),
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
