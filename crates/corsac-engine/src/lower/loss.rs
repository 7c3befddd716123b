//! Losses and distances of vectors, composed of other operators as in PyTorch.

use corsac_ir::DType;
use corsac_ops::is_operator;
use corsac_ops::shape::Value;

use super::call::{Call, as_int};
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Binary, Comparison, Element, Op, Reduction, Scalar, Unary, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    lowered("binary_cross_entropy", |own, call| own.binary_cross_entropy(call)).of_any_type(),
    tensor("binary_cross_entropy_with_logits", |own, call| own.reduced_loss(call, Lowerer::with_logits)).of_any_type(),
    tensor("cosine_embedding_loss", |own, call| own.reduced_loss(call, Lowerer::cosine_embedding)).of_any_type(),
    lowered("cosine_similarity", |own, call| own.cosine_similarity(call)).of_any_type(),
    lowered("cross_entropy", |own, call| own.by_class(call)).of_any_type(),
    lowered("gaussian_nll_loss", |own, call| own.gaussian(call)).of_any_type(),
    tensor("hinge_embedding_loss", |own, call| own.reduced_loss(call, Lowerer::hinge_embedding)).of_any_type(),
    tensor("huber_loss", |own, call| own.reduced_loss(call, Lowerer::distance)).of_any_type(),
    tensor("kl_div", |own, call| own.reduced_loss(call, Lowerer::divergence)).of_any_type(),
    tensor("l1_loss", |own, call| own.reduced_loss(call, Lowerer::distance)).of_any_type(),
    tensor("margin_ranking_loss", |own, call| own.reduced_loss(call, Lowerer::margin_ranking)).of_any_type(),
    tensor("mse_loss", |own, call| own.reduced_loss(call, Lowerer::distance)).of_any_type(),
    lowered("multi_margin_loss", |own, call| own.margins_of_classes(call)).of_any_type(),
    lowered("multilabel_margin_loss", |own, call| own.margins_of_labels(call)).of_any_type(),
    tensor("multilabel_soft_margin_loss", |own, call| own.reduced_loss(call, Lowerer::multilabel)).of_any_type(),
    lowered("nll_loss", |own, call| own.by_class(call)).of_any_type(),
    tensor("pairwise_distance", |own, call| own.vector_distance(call)).of_any_type(),
    tensor("poisson_nll_loss", |own, call| own.reduced_loss(call, Lowerer::poisson)).of_any_type(),
    tensor("smooth_l1_loss", |own, call| own.reduced_loss(call, Lowerer::distance)).of_any_type(),
    tensor("soft_margin_loss", |own, call| own.reduced_loss(call, Lowerer::soft_margin)).of_any_type(),
    tensor("triplet_margin_loss", |own, call| own.reduced_loss(call, Lowerer::triplet)).of_any_type(),
    tensor("triplet_margin_with_distance_loss", |own, call| own.reduced_loss(call, Lowerer::triplet)).of_any_type(),
];

/// Reduction of the losses of all elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reduced {
    Each,
    Mean,
    Sum,
    /// The sum, divided by the size of the first dimension.
    BatchMean,
}

/// Class weighting and reduction of a loss.
struct Classes {
    axis: usize,
    count: usize,
    weight: Option<ValueId>,
    reduced: Reduced,
}

impl Lowerer<'_, '_> {
    fn soft_margin(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, target) = self.both(call)?;
        let product = self.pairwise(Binary::Mul, input, target)?;
        let power = self.single(Unary::scale(-1.0), product);
        Ok(self.softplus_of(power))
    }

    fn vector_distance(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (a, b) = (self.numbers(call, "x1")?, self.numbers(call, "x2")?);
        let value = self.pair_distance(call, a, b)?;
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    fn margin_ranking(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let [a, b] = ["input1", "input2"].map(|name| self.numbers(call, name));
        let target = self.floats(call, "target")?;
        let distance = self.pairwise(Binary::Sub, a?, b?)?;
        let product = self.pairwise(Binary::Mul, target, distance)?;
        let margin = call.number("margin")?.unwrap_or(0.0);
        let moved = self.single(Unary::Affine(-1.0, margin), product);
        Ok(self.single(Unary::Relu, moved))
    }

    fn hinge_embedding(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, target) = (self.numbers(call, "input")?, self.floats(call, "target")?);
        let margin = call.number("margin")?.unwrap_or(1.0);
        let rest = self.single(Unary::Affine(-1.0, margin), input);
        let rest = self.single(Unary::Relu, rest);
        let zero = self.constant(Scalar::Float(0.0), self.float);
        let near = self.compared(Comparison::Ne, target, 1.0);
        let far = self.compared(Comparison::Ne, target, -1.0);
        let near = self.choose(near, rest, zero)?;
        let far = self.choose(far, input, zero)?;
        self.pairwise(Binary::Add, near, far)
    }

    /// The operand `param`, if it holds floating-point numbers.
    fn numbers(&self, call: &Call, param: &str) -> Result<ValueId, Reason> {
        let value = call.tensor(param)?;
        match self.program.element(value) {
            own if own == self.float => Ok(value),
            other => Err(format!("{param} of {}", other.name())),
        }
    }

    /// The operand `param`, converted to floating-point numbers.
    fn floats(&mut self, call: &Call, param: &str) -> Result<ValueId, Reason> {
        let value = call.tensor(param)?;
        Ok(self.cast(value, self.float))
    }

    fn both(&self, call: &Call) -> Result<(ValueId, ValueId), Reason> {
        Ok((self.numbers(call, "input")?, self.numbers(call, "target")?))
    }

    /// `log(1 + exp(x))`, as PyTorch's losses compute it.
    fn softplus_of(&mut self, value: ValueId) -> ValueId {
        let power = self.single(Unary::Exp, value);
        self.single(Unary::Log1p, power)
    }

    fn reduction_of(call: &Call) -> Result<Reduced, Reason> {
        let own = match call.known("reduction")? {
            None => "mean",
            Some(Value::Str(text)) => text,
            // Operators of PyTorch number the reductions.
            Some(number) => match as_int(number) {
                Some(0) => "none",
                Some(1) => "mean",
                _ => "sum",
            },
        };
        match own {
            "none" => Ok(Reduced::Each),
            "mean" => Ok(Reduced::Mean),
            "sum" => Ok(Reduced::Sum),
            "batchmean" => Ok(Reduced::BatchMean),
            other => Err(format!("the reduction {other}")),
        }
    }

    fn total(&mut self, reduction: Reduction, value: ValueId) -> ValueId {
        let len = self.program.value(value).len();
        let flat = self.alias(value, vec![len]);
        let value = self.reduced(reduction, flat, &[0]);
        self.alias(value, Vec::new())
    }

    /// The reduction of the losses of all elements, which `each` computes.
    fn reduced_loss(
        &mut self,
        call: &Call,
        each: impl FnOnce(&mut Self, &Call) -> Result<ValueId, Reason>,
    ) -> Result<ValueId, Reason> {
        let value = each(self, call)?;
        self.reduced_by(call, value)
    }

    fn reduced_by(&mut self, call: &Call, value: ValueId) -> Result<ValueId, Reason> {
        Ok(match Self::reduction_of(call)? {
            Reduced::Each => value,
            Reduced::Mean => self.total(Reduction::Mean, value),
            Reduced::Sum => self.total(Reduction::Sum, value),
            Reduced::BatchMean => {
                let rows = match call.get("input") {
                    Some(Lowered::Tensor(input)) => self.shape(*input).first().copied(),
                    _ => None,
                };
                let sum = self.total(Reduction::Sum, value);
                match rows {
                    Some(rows) => self.single(Unary::divide_by(rows as f64), sum),
                    None => sum,
                }
            }
        })
    }

    fn weighted(&mut self, call: &Call, value: ValueId) -> Result<ValueId, Reason> {
        match call.get("weight") {
            None => Ok(value),
            Some(_) => {
                let weight = self.numbers(call, "weight")?;
                self.pairwise(Binary::Mul, value, weight)
            }
        }
    }

    fn distance(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.get("weight").is_some() {
            return Err("a weight of each distance".to_owned());
        }
        let (input, target) = self.both(call)?;
        let distance = self.pairwise(Binary::Sub, input, target)?;
        if is_operator!(call.operator, "mse_loss") {
            return Ok(self.single(Unary::Power(2.0), distance));
        }
        if is_operator!(call.operator, "l1_loss") {
            return Ok(self.single(Unary::Abs, distance));
        }
        let is_huber = is_operator!(call.operator, "huber_loss");
        let bound = if is_huber { "delta" } else { "beta" };
        let bound = call.number(bound)?.unwrap_or(1.0);
        let absolute = self.single(Unary::Abs, distance);
        if bound == 0.0 && !is_huber {
            return Ok(absolute);
        }
        if bound.is_nan() || bound <= 0.0 {
            return Err(format!("a bound of {bound}"));
        }
        let squares = self.single(Unary::Power(2.0), absolute);
        let factor = if is_huber { 0.5 } else { 0.5 / bound };
        let near = self.single(Unary::scale(factor), squares);
        let mut far = self.single(Unary::Affine(1.0, -0.5 * bound), absolute);
        if is_huber {
            far = self.single(Unary::scale(bound), far);
        }
        let comparison = match is_huber {
            true => Comparison::Le,
            false => Comparison::Lt,
        };
        let is_near = self.compared(comparison, absolute, bound);
        self.choose(is_near, near, far)
    }

    fn binary_cross_entropy(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let (input, target) = self.both(call)?;
        if self.shape(input) != self.shape(target) {
            return Err("a target of another shape".to_owned());
        }
        let bounded = |me: &mut Self, value| me.single(Unary::Clamp(-100.0, f64::INFINITY), value);
        let log = self.single(Unary::Log, input);
        let log = bounded(self, log);
        let negative = self.single(Unary::scale(-1.0), input);
        let rest = self.single(Unary::Log1p, negative);
        let rest = bounded(self, rest);
        let other = self.single(Unary::Affine(1.0, -1.0), target);
        let left = self.pairwise(Binary::Mul, other, rest)?;
        let right = self.pairwise(Binary::Mul, target, log)?;
        let value = self.pairwise(Binary::Sub, left, right)?;
        let value = self.weighted(call, value)?;
        let value = self.reduced_by(call, value)?;
        // PyTorch raises an error for inputs that are no probabilities.
        let above = self.compared(Comparison::Ge, input, 0.0);
        let below = self.compared(Comparison::Le, input, 1.0);
        let shape = self.shape(input);
        let both = Op::Arithmetic(crate::program::Arithmetic::And);
        let inside = self.emit_typed(both, [above, below], Element::Bool, shape.clone());
        let outside = self.emit_typed(Op::Not, [inside], Element::Bool, shape);
        self.unless(outside, value).map(Lowered::Tensor)
    }

    /// `value`; where any of `wrong` is true, an index that is out of range, as it is an error of PyTorch.
    fn unless(&mut self, wrong: ValueId, value: ValueId) -> Result<ValueId, Reason> {
        let dims = (0..self.shape(wrong).len()).collect();
        let reduction = crate::program::Reduction::Max;
        let fold = Op::Reduce { reduction, dims };
        let any = self.emit_typed(fold, [wrong], Element::Bool, Vec::new());
        let index = self.cast(any, Element::I64);
        // Adding -0.0 changes nothing, not even the sign of a zero.
        let nothing = self.constant(Scalar::Float(-0.0), self.float);
        let nothing = self.alias(nothing, vec![1]);
        let nothing = self.rows(nothing, 0, index, false)?;
        self.pairwise(Binary::Add, value, nothing)
    }

    fn with_logits(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, target) = self.both(call)?;
        if self.shape(input) != self.shape(target) {
            return Err("a target of another shape".to_owned());
        }
        let mut log = self.single(Unary::LogSigmoid, input);
        if call.get("pos_weight").is_some() {
            let weight = self.numbers(call, "pos_weight")?;
            let more = self.single(Unary::Affine(1.0, -1.0), weight);
            let factor = self.pairwise(Binary::Mul, more, target)?;
            let factor = self.single(Unary::Affine(1.0, 1.0), factor);
            log = self.pairwise(Binary::Mul, factor, log)?;
        }
        let rest = self.single(Unary::Affine(-1.0, 1.0), target);
        let product = self.pairwise(Binary::Mul, rest, input)?;
        let value = self.pairwise(Binary::Sub, product, log)?;
        self.weighted(call, value)
    }

    fn divergence(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, target) = self.both(call)?;
        if call.flag("log_target", false)? {
            let power = self.single(Unary::Exp, target);
            let distance = self.pairwise(Binary::Sub, target, input)?;
            return self.pairwise(Binary::Mul, power, distance);
        }
        let log = self.single(Unary::Log, target);
        let product = self.pairwise(Binary::Mul, target, log)?;
        let zero = self.constant(Scalar::Float(0.0), self.float);
        let is_zero = self.compared(Comparison::Eq, target, 0.0);
        let entropy = self.choose(is_zero, zero, product)?;
        let cross = self.pairwise(Binary::Mul, target, input)?;
        self.pairwise(Binary::Sub, entropy, cross)
    }

    fn poisson(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, target) = self.both(call)?;
        if call.flag("full", false)? {
            return Err("the whole of Stirling's formula".to_owned());
        }
        if call.flag("log_input", true)? {
            let power = self.single(Unary::Exp, input);
            let product = self.pairwise(Binary::Mul, target, input)?;
            return self.pairwise(Binary::Sub, power, product);
        }
        let eps = call.number("eps")?.unwrap_or(1e-8);
        let moved = self.single(Unary::Affine(1.0, eps), input);
        let log = self.single(Unary::Log, moved);
        let product = self.pairwise(Binary::Mul, target, log)?;
        self.pairwise(Binary::Sub, input, product)
    }

    /// Negative logarithms of Gaussian densities; fails for negative variances.
    fn gaussian(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let (input, target) = self.both(call)?;
        let eps = call.number("eps")?.unwrap_or(1e-6);
        let (variance, negative) = match call.get("var") {
            Some(Lowered::Known(Value::Float(number))) if *number < 0.0 => {
                return Err(format!("a variance of {number}"));
            }
            Some(Lowered::Known(Value::Float(number))) => {
                (self.constant(Scalar::Float(*number), self.float), None)
            }
            _ => {
                let variance = self.numbers(call, "var")?;
                let negative = self.compared(Comparison::Lt, variance, 0.0);
                let mut shape = self.shape(variance);
                if shape != self.shape(input)
                    && self.shape(input).split_last().map(|own| own.1) == Some(&shape[..])
                {
                    // One for each row.
                    shape.push(1);
                }
                (self.alias(variance, shape), Some(negative))
            }
        };
        let variance = self.single(Unary::Clamp(eps, f64::INFINITY), variance);
        let distance = self.pairwise(Binary::Sub, input, target)?;
        let squares = self.single(Unary::Power(2.0), distance);
        let quotient = self.pairwise(Binary::Div, squares, variance)?;
        let log = self.single(Unary::Log, variance);
        let sum = self.pairwise(Binary::Add, log, quotient)?;
        let constant = match call.flag("full", false)? {
            true => 0.5 * std::f64::consts::TAU.ln(),
            false => 0.0,
        };
        let value = self.single(Unary::Affine(0.5, constant), sum);
        let value = self.reduced_by(call, value)?;
        match negative {
            Some(negative) => self.unless(negative, value).map(Lowered::Tensor),
            None => Ok(Lowered::Tensor(value)),
        }
    }

    fn triplet(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.get("distance_function").is_some() {
            return Err("a distance that is a function".to_owned());
        }
        let names = ["anchor", "positive", "negative"];
        let [anchor, positive, negative] = names.map(|name| self.numbers(call, name));
        let (anchor, positive, negative) = (anchor?, positive?, negative?);
        let near = self.pair_distance(call, anchor, positive)?;
        let mut far = self.pair_distance(call, anchor, negative)?;
        if call.flag("swap", false)? {
            let other = self.pair_distance(call, positive, negative)?;
            far = self.pairwise(Binary::Minimum, far, other)?;
        }
        let margin = call.number("margin")?.unwrap_or(1.0);
        if margin <= 0.0 {
            return Err(format!("PyTorch refuses a margin of {margin}"));
        }
        let rest = self.pairwise(Binary::Sub, near, far)?;
        let rest = self.single(Unary::Affine(1.0, margin), rest);
        Ok(self.single(Unary::Relu, rest))
    }

    /// `norm(a - b + eps)` along the last dimension, which is removed unless it is kept.
    fn pair_distance(&mut self, call: &Call, a: ValueId, b: ValueId) -> Result<ValueId, Reason> {
        let p = call.number("p")?.unwrap_or(2.0);
        let eps = call.number("eps")?.unwrap_or(1e-6);
        let distance = self.pairwise(Binary::Sub, a, b)?;
        let distance = self.single(Unary::Affine(1.0, eps), distance);
        let mut shape = self.shape(distance);
        let last = shape.len().checked_sub(1).ok_or("a distance of numbers")?;
        let norm = self.norm_of(distance, p, &[last])?;
        shape.remove(last);
        Ok(self.alias(norm, shape))
    }

    fn cosine_similarity(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let (a, b) = (self.numbers(call, "x1")?, self.numbers(call, "x2")?);
        let shape = super::element::broadcast(&self.shape(a), &self.shape(b))?.to_vec();
        let (a, b) = (self.broadcast_to(a, &shape), self.broadcast_to(b, &shape));
        let dim = call.dim("dim", shape.len(), 1)?;
        if shape.is_empty() {
            return Err("the angle of numbers".to_owned());
        }
        let eps = call.number("eps")?.unwrap_or(1e-8);
        let mut scaled = |value| -> Result<ValueId, Reason> {
            let norm = self.norm_of(value, 2.0, &[dim])?;
            let norm = self.single(Unary::Clamp(eps, f64::INFINITY), norm);
            self.pairwise(Binary::Div, value, norm)
        };
        let (a, b) = (scaled(a)?, scaled(b)?);
        let product = self.pairwise(Binary::Mul, a, b)?;
        let sum = self.reduced(Reduction::Sum, product, &[dim]);
        let result = self.result_shape()?;
        Ok(Lowered::Tensor(self.alias(sum, result)))
    }

    fn cosine_embedding(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let [a, b] = ["input1", "input2"].map(|name| self.numbers(call, name));
        let (a, b) = (a?, b?);
        let target = self.floats(call, "target")?;
        let last = self.shape(a).len().checked_sub(1).ok_or("numbers")?;
        if self.shape(a) != self.shape(b) || self.shape(target).len() != last {
            return Err("vectors of other shapes".to_owned());
        }
        let mut sum = |x, y| -> Result<ValueId, Reason> {
            let product = self.pairwise(Binary::Mul, x, y)?;
            let sum = self.reduced(Reduction::Sum, product, &[last]);
            let mut shape = self.shape(sum);
            shape.remove(last);
            Ok(self.alias(sum, shape))
        };
        let (product, first, second) = (sum(a, b)?, sum(a, a)?, sum(b, b)?);
        // Source: `cosine_embedding_loss` of PyTorch.
        let [first, second] =
            [first, second].map(|own| self.single(Unary::Affine(1.0, 1e-12), own));
        let squares = self.pairwise(Binary::Mul, first, second)?;
        let norm = self.single(Unary::Sqrt, squares);
        let cosine = self.pairwise(Binary::Div, product, norm)?;
        let zero = self.constant(Scalar::Float(0.0), self.float);
        let margin = call.number("margin")?.unwrap_or(0.0);
        let near = self.single(Unary::Affine(-1.0, 1.0), cosine);
        let far = self.single(Unary::Affine(1.0, -margin), cosine);
        let far = self.single(Unary::Relu, far);
        let is_near = self.compared(Comparison::Eq, target, 1.0);
        let is_far = self.compared(Comparison::Eq, target, -1.0);
        let near = self.choose(is_near, near, zero)?;
        let far = self.choose(is_far, far, zero)?;
        self.pairwise(Binary::Add, near, far)
    }

    fn multilabel(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, target) = self.both(call)?;
        let log = self.single(Unary::LogSigmoid, input);
        let negative = self.single(Unary::scale(-1.0), input);
        let other = self.single(Unary::LogSigmoid, negative);
        let rest = self.single(Unary::Affine(-1.0, 1.0), target);
        let left = self.pairwise(Binary::Mul, target, log)?;
        let right = self.pairwise(Binary::Mul, rest, other)?;
        let sum = self.pairwise(Binary::Add, left, right)?;
        let value = self.single(Unary::scale(-1.0), sum);
        let value = self.weighted(call, value)?;
        let mut shape = self.shape(value);
        let last = shape.len().checked_sub(1).ok_or("classes of a number")?;
        let mean = self.reduced(Reduction::Mean, value, &[last]);
        shape.remove(last);
        Ok(self.alias(mean, shape))
    }

    /// `multi_margin_loss`: of each row, what the scores of other classes exceed that of its class less the margin by.
    fn margins_of_classes(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let (input, target) = self.scores(call)?;
        let [rows, classes] = self.shape(input)[..] else {
            return Err("scores that are no matrix".to_owned());
        };
        if self.program.value(target).len() != rows {
            return Err("a target of another shape".to_owned());
        }
        let place = self.alias(target, vec![rows, 1]);
        let gather = Op::Gather {
            dim: 1,
            wraps: false,
        };
        let own = self.emit(gather, [input, place], [rows, 1]);
        let margin = call.number("margin")?.unwrap_or(1.0);
        let rest = self.single(Unary::Affine(-1.0, margin), own);
        let rest = self.pairwise(Binary::Add, rest, input)?;
        let mut power = match call.number("p")?.unwrap_or(1.0) {
            1.0 => rest,
            2.0 => self.single(Unary::Power(2.0), rest),
            p => return Err(format!("margins to the power of {p}")),
        };
        if call.get("weight").is_some() {
            let weight = self.numbers(call, "weight")?;
            let weight = self.at_least_a_vector(weight);
            self.expect_shape(weight, &[classes])?;
            let target = self.alias(target, vec![rows]);
            let weight = self.rows(weight, 0, target, false)?;
            let weight = self.alias(weight, vec![rows, 1]);
            power = self.pairwise(Binary::Mul, power, weight)?;
        }
        // NaN exceeds nothing.
        let zero = self.constant(Scalar::Float(0.0), self.float);
        let exceeds = self.compared(Comparison::Gt, rest, 0.0);
        let value = self.choose(exceeds, power, zero)?;
        let range = Op::Range {
            start: Scalar::Int(0),
            step: Scalar::Int(1),
        };
        let all = self.emit_typed(range, [], Element::I64, [1, classes]);
        let same = Op::Compare(Comparison::Eq);
        let is_own = self.emit_typed(same, [all, place], Element::Bool, [rows, classes]);
        let value = self.choose(is_own, zero, value)?;
        let sums = self.reduced(Reduction::Sum, value, &[1]);
        self.mean_of_classes(call, sums, classes)
    }

    /// `multilabel_margin_loss`: the same for several classes.
    fn margins_of_labels(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let (input, target) = self.scores(call)?;
        let shape = self.shape(input);
        let own = match call.tensor("input").map(|input| self.shape(input))?[..] {
            [_, _] => self.shape(target),
            _ => vec![1, self.program.value(target).len()],
        };
        if own != shape {
            return Err("a target of another shape".to_owned());
        }
        let target = self.alias(target, own);
        let (rows, classes) = (shape[0], shape[1]);
        let sums = self.emit(Op::LabelMargins, [input, target], [rows]);
        self.mean_of_classes(call, sums, classes)
    }

    /// Scores as rows of classes, and what says which of these are meant.
    fn scores(&mut self, call: &Call) -> Result<(ValueId, ValueId), Reason> {
        let (input, target) = (self.numbers(call, "input")?, call.tensor("target")?);
        if self.dtype(target) != DType::Int64 {
            return Err(format!("a target of {}", self.dtype(target)));
        }
        let shape = match self.shape(input)[..] {
            [] => vec![1, 1],
            [classes] => vec![1, classes],
            [rows, classes] => vec![rows, classes],
            _ => return Err("scores of more than two dimensions".to_owned()),
        };
        if shape[1] == 0 || (shape[0] == 0 && Self::reduction_of(call)? != Reduced::Each) {
            // PyTorch leaves the result as it finds it in memory.
            return Err("a loss of no rows".to_owned());
        }
        Ok((self.alias(input, shape), target))
    }

    /// The reduction of sums over classes, by row.
    fn mean_of_classes(
        &mut self,
        call: &Call,
        sums: ValueId,
        classes: usize,
    ) -> Result<Lowered, Reason> {
        let rows = self.program.value(sums).len();
        let sums = self.alias(sums, vec![rows]);
        let means = self.single(Unary::divide_by(classes as f64), sums);
        let value = self.reduced_by(call, means)?;
        let result = self.result_shape()?;
        Ok(Lowered::Tensor(self.alias(value, result)))
    }

    /// `cross_entropy` and `nll_loss`.
    fn by_class(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let (mut input, target) = (self.numbers(call, "input")?, call.tensor("target")?);
        let shape = self.shape(input);
        let axis = usize::from(shape.len() > 1);
        let count = *shape.get(axis).ok_or("classes of a number")?;
        let weight = match call.get("weight") {
            None => None,
            Some(_) => Some(self.numbers(call, "weight")?),
        };
        if let Some(weight) = weight {
            self.expect_shape(weight, &[count])?;
        }
        let reduced = Self::reduction_of(call)?;
        if count == 0 || reduced == Reduced::BatchMean {
            return Err("no classes, or another reduction".to_owned());
        }
        let mut smoothing = 0.0;
        if is_operator!(call.operator, "cross_entropy") {
            smoothing = call.number("label_smoothing")?.unwrap_or(0.0);
            let op = Op::Softmax {
                dim: axis,
                log: true,
            };
            input = self.emit(op, [input], shape.clone());
        }
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(format!("label_smoothing={smoothing}"));
        }
        let classes = Classes {
            axis,
            count,
            weight,
            reduced,
        };
        let value = match self.dtype(target) {
            DType::Float32
                if is_operator!(call.operator, "cross_entropy") && self.shape(target) == shape =>
            {
                self.of_probabilities(input, target, &classes, smoothing)?
            }
            DType::Int64 => {
                let ignored = call.int("ignore_index")?.unwrap_or(-100);
                self.of_indices(input, target, &classes, (ignored, smoothing))?
            }
            other => return Err(format!("a target of {other}")),
        };
        let result = self.result_shape()?;
        Ok(Lowered::Tensor(self.alias(value, result)))
    }

    /// The class weights, shaped to broadcast with the input.
    fn beside(&mut self, classes: &Classes, rank: usize) -> Option<ValueId> {
        let mut own = vec![1; rank];
        own[classes.axis] = classes.count;
        classes.weight.map(|weight| self.alias(weight, own))
    }

    /// The sum over the classes, without their dimension.
    fn along_classes(&mut self, classes: &Classes, value: ValueId) -> ValueId {
        let sum = self.reduced(Reduction::Sum, value, &[classes.axis]);
        let mut shape = self.shape(sum);
        shape.remove(classes.axis);
        self.alias(sum, shape)
    }

    fn of_probabilities(
        &mut self,
        input: ValueId,
        mut target: ValueId,
        classes: &Classes,
        smoothing: f64,
    ) -> Result<ValueId, Reason> {
        if smoothing > 0.0 {
            let each = smoothing / classes.count as f64;
            let affine = Unary::Affine(1.0 - smoothing, each);
            target = self.single(affine, target);
        }
        let mut input = input;
        let shape = self.shape(input);
        if let Some(weight) = self.beside(classes, shape.len()) {
            input = self.pairwise(Binary::Mul, input, weight)?;
        }
        let product = self.pairwise(Binary::Mul, input, target)?;
        let value = self.single(Unary::scale(-1.0), product);
        Ok(match classes.reduced {
            Reduced::Each => self.along_classes(classes, value),
            Reduced::Sum | Reduced::BatchMean => self.total(Reduction::Sum, value),
            Reduced::Mean => {
                let rows = shape.iter().product::<usize>() / classes.count;
                let sum = self.total(Reduction::Sum, value);
                self.single(Unary::divide_by(rows as f64), sum)
            }
        })
    }

    fn of_indices(
        &mut self,
        input: ValueId,
        target: ValueId,
        classes: &Classes,
        (ignored, smoothing): (i64, f64),
    ) -> Result<ValueId, Reason> {
        let mut kept = self.shape(input);
        kept.remove(classes.axis);
        if self.shape(target) != kept {
            return Err("a target of another shape".to_owned());
        }
        let place = self.constant(Scalar::Int(ignored), Element::I64);
        let op = Op::Compare(Comparison::Eq);
        let is_ignored = self.emit_typed(op, [target, place], Element::Bool, kept.clone());
        let first = self.constant(Scalar::Int(0), Element::I64);
        let index = self.choose(is_ignored, first, target)?;
        let zero = self.constant(Scalar::Float(0.0), self.float);
        // The weight of each target.
        let one = match classes.weight {
            Some(weight) => self.rows(weight, 0, index, false)?,
            None => self.constant(Scalar::Float(1.0), self.float),
        };
        let counts = self.choose(is_ignored, zero, one)?;
        let mut beside = kept.clone();
        beside.insert(classes.axis, 1);
        let places = self.alias(index, beside.clone());
        let op = Op::Gather {
            dim: classes.axis,
            wraps: false,
        };
        let found = self.emit(op, [input, places], beside);
        let found = self.alias(found, kept.clone());
        let found = self.single(Unary::scale(-1.0), found);
        let weighted = match classes.weight {
            Some(_) => self.pairwise(Binary::Mul, found, one)?,
            None => found,
        };
        // An ignored loss may be infinite.
        let each = self.choose(is_ignored, zero, weighted)?;
        let smooth = match smoothing > 0.0 {
            false => None,
            true => {
                let rank = self.shape(input).len();
                let of_all = match self.beside(classes, rank) {
                    Some(weight) => self.pairwise(Binary::Mul, input, weight)?,
                    None => input,
                };
                let sum = self.along_classes(classes, of_all);
                let sum = self.single(Unary::scale(-1.0), sum);
                Some(self.choose(is_ignored, zero, sum)?)
            }
        };
        let total = match classes.reduced {
            Reduced::Mean => Some(self.total(Reduction::Sum, counts)),
            Reduced::Each | Reduced::Sum | Reduced::BatchMean => None,
        };
        let mut finish = |value: ValueId| -> Result<ValueId, Reason> {
            Ok(match (classes.reduced, total) {
                (Reduced::Each, _) => value,
                (_, None) => self.total(Reduction::Sum, value),
                (_, Some(total)) => {
                    let sum = self.total(Reduction::Sum, value);
                    self.pairwise(Binary::Div, sum, total)?
                }
            })
        };
        let value = finish(each)?;
        let Some(smooth) = smooth else {
            return Ok(value);
        };
        let smooth = finish(smooth)?;
        let value = self.single(Unary::scale(1.0 - smoothing), value);
        let part = smoothing / classes.count as f64;
        let smooth = self.single(Unary::scale(part), smooth);
        self.pairwise(Binary::Add, value, smooth)
    }
}
