//! Norms, variances, and operators composed with them.

use corsac_ops::shape::Value;

use super::call::{Call, as_number};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Binary, Comparison, Element, Op, Reduction, Scalar, Unary, ValueId};

impl Lowerer<'_, '_> {
    pub(super) fn variance(&mut self, call: &Call) -> Result<Lowered, Reason> {
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
        let sizes = self.shape(input);
        let count: usize = dims.iter().map(|&dim| sizes[dim]).product();
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
        let mut value = self.single(Unary::scale(factor as f32), sum);
        if call.name.starts_with("std") {
            value = self.single(Unary::Sqrt, value);
        }
        if !call.name.ends_with("_mean") {
            let shape = self.result_shape()?;
            return Ok(Lowered::Tensor(self.alias(value, shape)));
        }
        let items = self
            .types
            .value(self.node)
            .as_items()
            .map(<[Value]>::to_vec);
        let items = items.ok_or("the results are not known")?;
        let mut shapes = items
            .iter()
            .map(|item| super::sizes(super::tensor_of(item)?));
        let mut shaped = |me: &mut Self, value| -> Result<Lowered, Reason> {
            let shape = shapes
                .next()
                .unwrap_or_else(|| Err("one result".to_owned()))?;
            Ok(Lowered::Tensor(me.alias(value, shape)))
        };
        let both = vec![shaped(self, value)?, shaped(self, mean)?];
        Ok(Lowered::Items(both))
    }

    pub(super) fn norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let rank = self.shape(input).len();
        let of_linalg = call.name == "norm" && call.get("ord").is_some();
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
                let zero = self.constant(Scalar::Float(0.0), Element::F32);
                let op = Op::Compare(Comparison::Ne);
                let other = self.emit_typed(op, [input, zero], Element::Bool, sizes);
                let ones = self.cast(other, Element::F32);
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
                let powers = self.single(Unary::Power(p as f32), absolute);
                let sum = self.reduced(Reduction::Sum, powers, dims);
                self.single(Unary::Power((1.0 / p) as f32), sum)
            }
        })
    }

    pub(super) fn logsumexp(&mut self, call: &Call) -> Result<ValueId, Reason> {
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
        let zero = self.constant(Scalar::Float(0.0), Element::F32);
        let most = self.choose(infinite, zero, most)?;
        let shifted = self.pairwise(Binary::Sub, input, most)?;
        let powers = self.single(Unary::Exp, shifted);
        let sum = self.reduced(Reduction::Sum, powers, &dims);
        let log = self.single(Unary::Log, sum);
        let value = self.pairwise(Binary::Add, log, most)?;
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    pub(super) fn rms_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let count = call.ints("normalized_shape")?.map_or(1, |s| s.len());
        if count == 0 {
            return Err("a row of no dimensions".to_owned());
        }
        let dims: Vec<usize> = (rank.saturating_sub(count)..rank).collect();
        let eps = call.number("eps")?.map_or(f32::EPSILON, |eps| eps as f32);
        let squares = self.single(Unary::Power(2.0), input);
        let mean = self.reduced(Reduction::Mean, squares, &dims);
        let moved = self.single(Unary::Affine(1.0, eps), mean);
        let factor = self.single(Unary::Rsqrt, moved);
        let value = self.pairwise(Binary::Mul, input, factor)?;
        match call.optional("weight")? {
            Some(weight) => self.pairwise(Binary::Mul, value, weight),
            None => Ok(value),
        }
    }

    /// Normalises rows of channels, and applies a factor and an offset for each channel.
    pub(super) fn normalised_groups(
        &mut self,
        call: &Call,
        input: ValueId,
        groups: usize,
    ) -> Result<ValueId, Reason> {
        let shape = self.shape(input);
        let [batch, channels, ..] = shape[..] else {
            return Err("channels of a vector".to_owned());
        };
        let len: usize = shape.iter().product();
        if groups == 0 || channels % groups != 0 || len == 0 {
            return Err(format!("{channels} channels in {groups} groups"));
        }
        let row = len / (batch * groups);
        let rows = self.alias(input, vec![batch * groups, row]);
        let norm = Op::LayerNorm {
            dims: 1,
            eps: call.number("eps")?.unwrap_or(1e-5) as f32,
            weight: false,
            bias: false,
        };
        let value = self.emit(norm, [rows], vec![batch * groups, row]);
        let mut value = self.alias(value, shape.clone());
        let mut own = vec![1; shape.len() - 1];
        own[0] = channels;
        match (call.optional("weight")?, call.optional("bias")?) {
            (Some(weight), Some(bias)) => {
                value = self.emit(Op::ChannelAffine, [value, weight, bias], shape);
            }
            (Some(weight), None) => {
                let weight = self.alias(weight, own);
                value = self.pairwise(Binary::Mul, value, weight)?;
            }
            (None, Some(bias)) => {
                let bias = self.alias(bias, own);
                value = self.pairwise(Binary::Add, value, bias)?;
            }
            (None, None) => {}
        }
        Ok(value)
    }

    pub(super) fn group_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let groups = call.int("num_groups")?.unwrap_or(1);
        let groups = usize::try_from(groups).map_err(|_| "num_groups is negative")?;
        self.normalised_groups(call, input, groups)
    }

    pub(super) fn instance_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let by_statistics = call.optional("running_mean")?.is_some();
        let of_input = match call.known("use_input_stats")? {
            Some(Value::Bool(of_input)) => *of_input,
            _ => !by_statistics,
        };
        if by_statistics || !of_input {
            return Err("instance norm with running statistics".to_owned());
        }
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        // An unbatched image has one dimension less than the module expects.
        let expected = self.types.module(self.graph.node(self.node));
        let expected = expected.and_then(|facts| match &facts.class {
            class if class.ends_with("1d") => Some(3),
            class if class.ends_with("2d") => Some(4),
            class if class.ends_with("3d") => Some(5),
            _ => None,
        });
        if expected == Some(shape.len() + 1) {
            let image = self.alias(input, [&[1], &shape[..]].concat());
            let value = self.normalised_groups(call, image, shape[0])?;
            return Ok(self.alias(value, shape));
        }
        let channels = *shape.get(1).ok_or("channels of a vector")?;
        self.normalised_groups(call, input, channels)
    }

    pub(super) fn softmin(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let result = self.shape(input);
        let input = self.at_least_a_vector(input);
        let negative = self.single(Unary::scale(-1.0), input);
        let dim = call.dim("dim", self.shape(input).len(), -1)?;
        let shape = self.shape(input);
        let value = self.emit(Op::Softmax { dim, log: false }, [negative], shape);
        Ok(self.alias(value, result))
    }
}
