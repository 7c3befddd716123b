//! Reductions, scans, extremes and sorting.

use corsac_ops::is_operator;
use corsac_ops::shape::Value;
use smallvec::SmallVec;

use super::call::{Call, as_number};
use super::element::element_of;
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason};
use crate::program::{
    Arithmetic, Binary, Comparison, Element, Op, Reduction, Scalar, Unary, ValueId,
};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("all", |own, call| own.of_flags(call, Reduction::Min)).of_any_type(),
    tensor("amax", |own, call| own.reduction(call, Reduction::Max)).of_any_type(),
    tensor("amin", |own, call| own.reduction(call, Reduction::Min)).of_any_type(),
    lowered("aminmax", |own, call| own.least_and_largest(call)).of_any_type(),
    tensor("any", |own, call| own.of_flags(call, Reduction::Max)).of_any_type(),
    tensor("argmax", |own, call| own.place_of_extreme(call, true)).of_any_type(),
    tensor("argmin", |own, call| own.place_of_extreme(call, false)).of_any_type(),
    lowered("argsort", |own, call| own.sorted(call)).of_any_type(),
    tensor("count_nonzero", |own, call| own.count_nonzero(call)).of_any_type(),
    tensor("cumprod", |own, call| own.scan(call, true)).of_any_type(),
    tensor("cumsum", |own, call| own.scan(call, false)).of_any_type(),
    tensor("diff", |own, call| own.differences(call)).of_any_type(),
    lowered("kthvalue", |own, call| own.sorted(call)).of_any_type(),
    tensor("linalg_norm", |own, call| own.norm(call)),
    tensor("linalg_vector_norm", |own, call| own.norm(call)),
    tensor("logsumexp", |own, call| own.logsumexp(call)),
    lowered("max", |own, call| own.extreme_or_larger(call, true)).of_any_type(),
    tensor("mean", |own, call| own.reduction_of_numbers(call, Reduction::Mean)),
    lowered("min", |own, call| own.extreme_or_larger(call, false)).of_any_type(),
    lowered("msort", |own, call| own.sorted(call)).of_any_type(),
    tensor("norm", |own, call| own.norm(call)),
    tensor("prod", |own, call| own.reduction(call, Reduction::Product)).of_any_type(),
    lowered("sort", |own, call| own.sorted(call)).of_any_type(),
    lowered("std", |own, call| own.variance(call, true, false)),
    lowered("std_mean", |own, call| own.variance(call, true, true)),
    tensor("sum", |own, call| own.reduction(call, Reduction::Sum)).of_any_type(),
    lowered("topk", |own, call| own.sorted(call)).of_any_type(),
    lowered("var", |own, call| own.variance(call, false, false)),
    lowered("var_mean", |own, call| own.variance(call, false, true)),
];

/// From so many elements on, planes are reduced by themselves where a reduction is over planes and batch.
const PLANE: usize = 16;

impl Lowerer<'_, '_> {
    fn reduction(&mut self, call: &mut Call, reduction: Reduction) -> Result<ValueId, Reason> {
        let first = call.tensor("input");
        let of_numbers = first.is_ok_and(|value| self.program.element(value).is_float());
        if of_numbers && reduction != Reduction::Product {
            self.check_elements(call)?;
            return self.reduction_of_numbers(call, reduction);
        }
        let input = call.tensor("input")?;
        let result = match self.types.value(self.node) {
            Value::Tensor(tensor) => element_of(tensor.dtype)?,
            _ => return Err("it has several results".to_owned()),
        };
        let input = self.cast(input, result);
        if result.is_float() && reduction != Reduction::Product {
            // A sum of integers as floating-point numbers.
            return Err("a sum of integers in floating point".to_owned());
        }
        self.folded(call, input, reduction)
    }

    fn count_nonzero(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let flags = self.cast(input, Element::Bool);
        let ones = self.cast(flags, Element::I64);
        self.folded(call, ones, Reduction::Sum)
    }

    fn least_and_largest(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let element = self.program.element(input);
        let mut shape = self.shape(input);
        let dims = call.dims(shape.len())?;
        for &dim in &dims {
            if shape[dim] == 0 {
                return Err("an extreme of nothing".to_owned());
            }
            shape[dim] = 1;
        }
        let both = [Reduction::Min, Reduction::Max].map(|reduction| {
            let dims = dims.clone();
            self.emit_typed(
                Op::Reduce { reduction, dims },
                [input],
                element,
                shape.clone(),
            )
        });
        self.pair(both)
    }

    /// `max` and `min` of a tensor, along a dimension, or of two tensors.
    fn extreme_or_larger(&mut self, call: &mut Call, largest: bool) -> Result<Lowered, Reason> {
        let other = match (call.get("other"), call.get("dim")) {
            (Some(_), _) => Some("other"),
            (None, Some(Lowered::Tensor(_))) => Some("dim"),
            _ => None,
        };
        if let Some(param) = other {
            let function = match largest {
                true => Arithmetic::Maximum,
                false => Arithmetic::Minimum,
            };
            let value = self.arithmetic_of(call, ["input", param], function)?;
            return Ok(Lowered::Tensor(value));
        }
        if call.get("dim").is_some() {
            return self.extremes(call, largest);
        }
        let reduction = match largest {
            true => Reduction::Max,
            false => Reduction::Min,
        };
        self.reduction(call, reduction).map(Lowered::Tensor)
    }

    fn reduction_of_numbers(
        &mut self,
        call: &Call,
        reduction: Reduction,
    ) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let rank = self.shape(input).len();
        let mut dims = call.dims(rank)?;
        let sizes = self.shape(input);
        let extreme = matches!(reduction, Reduction::Max | Reduction::Min);
        if extreme && dims.iter().any(|&dim| sizes.get(dim) == Some(&0)) {
            return Err("an extreme of nothing".to_owned());
        }
        let shape = self.result_shape()?;
        // Rows are fused with what computes them: sizes of 1 behind them are part of them, and of planes and
        // batch, planes are rows. Others of 1 need no reduction.
        let last = (0..rank).rev().find(|&dim| sizes[dim] != 1);
        if let Some(last) = last
            && dims.iter().any(|&dim| sizes[dim] != 1)
        {
            dims.retain(|dim| sizes[*dim] != 1);
            if dims.last() == Some(&last) {
                dims.extend(last + 1..rank);
            }
        }
        let rows = (0..rank).rev().take_while(|dim| dims.contains(dim)).count();
        let (inner, outer) = (rank - rows..rank, &dims[..dims.len() - rows]);
        let plane: usize = sizes[inner.clone()].iter().product();
        let others: usize = outer.iter().map(|&dim| sizes[dim]).product();
        if outer.is_empty() || plane < PLANE || others == 0 {
            return Ok(self.emit(Op::Reduce { reduction, dims }, [input], shape));
        }
        let reduced = sizes[..inner.start].to_vec();
        let op = Op::Reduce {
            reduction,
            dims: inner.collect(),
        };
        let planes = self.emit(op, [input], reduced);
        let dims = SmallVec::from_slice(outer);
        Ok(self.emit(Op::Reduce { reduction, dims }, [planes], shape))
    }

    fn of_flags(&mut self, call: &Call, reduction: Reduction) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let input = self.cast(input, Element::Bool);
        if call.ints("dim")?.is_some_and(|dims| dims.is_empty()) {
            // Without dimensions it reduces nothing, where other operators reduce all.
            return Ok(input);
        }
        self.folded(call, input, reduction)
    }

    fn place_of_extreme(&mut self, call: &Call, largest: bool) -> Result<ValueId, Reason> {
        let mut input = call.tensor("input")?;
        let result = self.result_shape()?;
        if call.get("dim").is_none() {
            let len = self.program.value(input).len();
            input = self.alias(input, vec![len]);
        }
        let input = self.at_least_a_vector(input);
        let dim = call.dim("dim", self.shape(input).len(), 0)?;
        let places = self.extreme(input, dim, largest)?;
        Ok(self.alias(places, result))
    }

    fn scan(&mut self, call: &Call, product: bool) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let element = self.result_element()?;
        let input = self.cast(input, element);
        let result = self.shape(input);
        let input = self.at_least_a_vector(input);
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), 0)?;
        let op = Op::Scan { dim, product };
        let value = self.emit_typed(op, [input], element, shape);
        Ok(self.alias(value, result))
    }

    fn folded(
        &mut self,
        call: &Call,
        input: ValueId,
        reduction: Reduction,
    ) -> Result<ValueId, Reason> {
        let element = self.program.element(input);
        let input = self.at_least_a_vector(input);
        let sizes = self.shape(input);
        let dims = call.dims(sizes.len())?;
        let extreme =
            matches!(reduction, Reduction::Max | Reduction::Min) && element == Element::I64;
        if extreme && dims.iter().any(|&dim| sizes[dim] == 0) {
            return Err("an extreme of nothing".to_owned());
        }
        let shape = self.result_shape()?;
        Ok(self.emit_typed(Op::Reduce { reduction, dims }, [input], element, shape))
    }

    fn extreme(&mut self, input: ValueId, dim: usize, largest: bool) -> Result<ValueId, Reason> {
        let mut shape = self.shape(input);
        if shape[dim] == 0 {
            return Err("an extreme of nothing".to_owned());
        }
        shape[dim] = 1;
        let op = Op::ArgReduce { dim, largest };
        Ok(self.emit_typed(op, [input], Element::I64, shape))
    }

    /// `torch.max(x, dim)`: the largest elements, and their indices.
    fn extremes(&mut self, call: &Call, largest: bool) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let element = self.program.element(input);
        let input = self.at_least_a_vector(input);
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), 0)?;
        let places = self.extreme(input, dim, largest)?;
        let kept = self.shape(places);
        let wraps = false;
        let op = Op::Gather { dim, wraps };
        let values = self.emit_typed(op, [input, places], element, kept);
        self.pair([values, places])
    }

    fn sorted(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let element = self.program.element(input);
        let input = self.at_least_a_vector(input);
        let mut shape = self.shape(input);
        let dim = match is_operator!(call.operator, "msort") {
            true => 0,
            false => call.dim("dim", shape.len(), -1)?,
        };
        let descending = match is_operator!(call.operator, "topk") {
            true => call.flag("largest", true)?,
            false => call.flag("descending", false)?,
        };
        if is_operator!(call.operator, "topk" | "kthvalue") {
            let keep = call.int("k")?.ok_or_else(|| "there is no k".to_owned())?;
            let keep = usize::try_from(keep).map_err(|_| "k is negative".to_owned())?;
            if keep > shape[dim] {
                return Err(format!("{keep} of {} elements", shape[dim]));
            }
            shape[dim] = keep;
        }
        let op = Op::Sort { dim, descending };
        let mut places = self.emit_typed(op, [input], Element::I64, shape.clone());
        if is_operator!(call.operator, "kthvalue") {
            let last = shape[dim].checked_sub(1).ok_or("k is 0")?;
            places = self.narrowed(places, dim, last, 1);
            shape[dim] = 1;
        }
        if is_operator!(call.operator, "argsort") {
            let shape = self.result_shape()?;
            return Ok(Lowered::Tensor(self.alias(places, shape)));
        }
        let wraps = false;
        let op = Op::Gather { dim, wraps };
        let values = self.emit_typed(op, [input, places], element, shape);
        if is_operator!(call.operator, "msort") {
            let shape = self.result_shape()?;
            return Ok(Lowered::Tensor(self.alias(values, shape)));
        }
        self.pair([values, places])
    }

    /// `torch.diff`: differences of neighbours along a dimension, the second minus the first;
    /// repeated.
    fn differences(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let element = self.result_element()?;
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), -1)?;
        if shape.is_empty() {
            return Err("differences in a number".to_owned());
        }
        let (before, after) = (call.optional("prepend")?, call.optional("append")?);
        let times = call.int("n")?.unwrap_or(1);
        if times == 0 {
            // Without differences, `prepend` and `append` are ignored.
            return Ok(input);
        }
        let mut value = input;
        if before.is_some() || after.is_some() {
            let mut whole = shape.clone();
            whole[dim] = 0;
            let mut parts = Vec::new();
            for part in before.into_iter().chain([input]).chain(after) {
                let mut own = shape.clone();
                own[dim] = self.shape(part)[dim];
                whole[dim] += own[dim];
                let part = self.cast(part, element);
                parts.push(self.broadcast_to(part, &own));
            }
            value = self.emit_typed(Op::Concat { dim }, parts, element, whole);
        }
        for _ in 0..times {
            let size = self.shape(value)[dim];
            let len = size.saturating_sub(1);
            let second = self.narrowed(value, dim, size - len, len);
            let first = self.narrowed(value, dim, 0, len);
            let shape = self.shape(first);
            let op = match element {
                Element::F32 | Element::F64 => Op::Binary(Binary::Sub),
                Element::I64 => Op::Arithmetic(Arithmetic::Sub),
                Element::Bool => Op::Arithmetic(Arithmetic::Xor),
            };
            value = self.emit_typed(op, [second, first], element, shape);
        }
        Ok(value)
    }

    fn variance(&mut self, call: &Call, root: bool, mean_too: bool) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let rank = self.shape(input).len();
        // In `x.var(False)` the first argument is `unbiased`, over all dimensions.
        let (dims, first) = match call.known("dim")? {
            Some(Value::Bool(unbiased)) => ((0..rank).collect(), Some(*unbiased)),
            _ => (call.dims(rank)?, None),
        };
        let correction = match (call.number("correction")?, first, call.known("unbiased")?) {
            (Some(correction), _, _) => correction,
            (None, Some(unbiased), _) => f64::from(u8::from(unbiased)),
            (None, None, Some(Value::Bool(unbiased))) => f64::from(u8::from(*unbiased)),
            (None, None, None) => 1.0,
            (None, None, Some(_)) => return Err("unbiased is no truth value".to_owned()),
        };
        let shape = self.shape(input);
        let count: usize = dims.iter().map(|&dim| shape[dim]).product();
        let mean = self.reduced(Reduction::Mean, input, &dims);
        // The mean has a rounding error, which is large against small distances from it: a second
        // pass corrects it.
        let rough = self.pairwise(Binary::Sub, input, mean)?;
        let error = self.reduced(Reduction::Mean, rough, &dims);
        let mean = self.pairwise(Binary::Add, mean, error)?;
        let distance = self.pairwise(Binary::Sub, rough, error)?;
        let squares = self.single(Unary::Power(2.0), distance);
        let sum = self.reduced(Reduction::Sum, squares, &dims);
        let factor = 1.0 / (count as f64 - correction).max(0.0);
        let mut value = self.single(Unary::scale(factor), sum);
        if root {
            value = self.single(Unary::Sqrt, value);
        }
        if !mean_too {
            let shape = self.result_shape()?;
            return Ok(Lowered::Tensor(self.alias(value, shape)));
        }
        self.pair([value, mean])
    }

    fn norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let rank = self.shape(input).len();
        let of_linalg = is_operator!(call.operator, "linalg_norm") && call.get("ord").is_some();
        let order = if call.get("ord").is_some() {
            "ord"
        } else {
            "p"
        };
        let p = match call.known(order)? {
            None => 2.0,
            Some(Value::Str(name)) => match &**name {
                "fro" => 2.0,
                other => return Err(format!("the norm {other}")),
            },
            Some(value) => as_number(value).ok_or("the order is no number")?,
        };
        let dims = call.dims(rank)?;
        if of_linalg && dims.len() != 1 {
            return Err("a norm of matrices".to_owned());
        }
        let value = self.norm_of(input, p, &dims)?;
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    pub(super) fn norm_of(
        &mut self,
        input: ValueId,
        p: f64,
        dims: &[usize],
    ) -> Result<ValueId, Reason> {
        let sizes = self.shape(input);
        let empty = dims.iter().any(|&dim| sizes[dim] == 0);
        Ok(match p {
            2.0 => {
                let squares = self.single(Unary::Power(2.0), input);
                let sum = self.reduced(Reduction::Sum, squares, dims);
                self.single(Unary::Sqrt, sum)
            }
            0.0 => {
                let zero = self.constant(Scalar::Float(0.0), self.float);
                let op = Op::Compare(Comparison::Ne);
                let other = self.emit_typed(op, [input, zero], Element::Bool, sizes);
                let ones = self.cast(other, self.float);
                self.reduced(Reduction::Sum, ones, dims)
            }
            p if p.is_nan() => return Err("a norm of order NaN".to_owned()),
            p if p.is_infinite() => {
                if empty {
                    return Err("an extreme of nothing".to_owned());
                }
                let absolute = self.single(Unary::Abs, input);
                let extreme = match p > 0.0 {
                    true => Reduction::Max,
                    false => Reduction::Min,
                };
                self.reduced(extreme, absolute, dims)
            }
            1.0 => {
                let absolute = self.single(Unary::Abs, input);
                self.reduced(Reduction::Sum, absolute, dims)
            }
            p => {
                let absolute = self.single(Unary::Abs, input);
                let powers = self.single(Unary::Power(p), absolute);
                let sum = self.reduced(Reduction::Sum, powers, dims);
                self.single(Unary::Power(1.0 / p), sum)
            }
        })
    }

    fn logsumexp(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let sizes = self.shape(input);
        let dims = call.dims(sizes.len())?;
        if dims.iter().any(|&dim| sizes[dim] == 0) {
            return Err("an extreme of nothing".to_owned());
        }
        let most = self.reduced(Reduction::Max, input, &dims);
        // Infinities are not subtracted from each other.
        let absolute = self.single(Unary::Abs, most);
        let infinite = self.compared(Comparison::Eq, absolute, f64::INFINITY);
        let zero = self.constant(Scalar::Float(0.0), self.float);
        let most = self.choose(infinite, zero, most)?;
        let shifted = self.pairwise(Binary::Sub, input, most)?;
        let powers = self.single(Unary::Exp, shifted);
        let sum = self.reduced(Reduction::Sum, powers, &dims);
        let log = self.single(Unary::Log, sum);
        let value = self.pairwise(Binary::Add, log, most)?;
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    /// A reduction along dimensions, which stay with size 1.
    pub(super) fn reduced(
        &mut self,
        reduction: Reduction,
        value: ValueId,
        dims: &[usize],
    ) -> ValueId {
        let mut shape = self.shape(value);
        for &dim in dims {
            shape[dim] = 1;
        }
        let dims = SmallVec::from_slice(dims);
        self.emit(Op::Reduce { reduction, dims }, [value], shape)
    }
}
