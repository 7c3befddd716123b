//! Operators that are made of others.

use corsac_ops::shape::Value;
use smallvec::SmallVec;

use super::call::{Call, as_number, wrapped};
use super::operators::broadcast;
use super::views::View;
use super::{Lowered, Lowerer, Reason};
use crate::general::{Comparison, General, Scalar, Ternary};
use crate::program::{Binary, Element, Op, Pool, Reduction, Unary, ValueId};

/// Whether an operator of these only moves elements, whatever they are.
pub(super) fn moves(name: &str) -> bool {
    matches!(
        name,
        "repeat"
            | "tile"
            | "repeat_interleave"
            | "movedim"
            | "moveaxis"
            | "hstack"
            | "vstack"
            | "row_stack"
            | "dstack"
            | "column_stack"
            | "unfold"
            | "pixel_shuffle"
            | "pixel_unshuffle"
            | "channel_shuffle"
            | "native_channel_shuffle"
            | "diagonal"
            | "adjoint"
            | "rot90"
    )
}

impl Lowerer<'_, '_> {
    /// Operators that are made of others; `None` for all others.
    pub(super) fn composed(&mut self, call: &Call) -> Result<Option<Lowered>, Reason> {
        let value = match call.name {
            "addcmul" | "addcdiv" => {
                let function = match call.name {
                    "addcmul" => Binary::Mul,
                    _ => Binary::Div,
                };
                let (a, b) = (call.tensor("tensor1")?, call.tensor("tensor2")?);
                let value = call.number("value")?.unwrap_or(1.0);
                let ternary = match function {
                    Binary::Mul => Ternary::AddProduct(value as f32),
                    _ => Ternary::AddQuotient(value as f32),
                };
                let input = call.tensor("input")?;
                if let Some(found) = self.ternary(ternary, [input, a, b])? {
                    return Ok(Some(Lowered::Tensor(found)));
                }
                let product = self.pairwise(function, a, b)?;
                let scaled = self.scaled(product, value);
                self.pairwise(Binary::Add, call.tensor("input")?, scaled)?
            }
            "lerp" => {
                let (start, end) = (call.tensor("input")?, call.tensor("end")?);
                if let Some(Lowered::Tensor(weight)) = call.get("weight") {
                    let value = self.lerp(start, end, *weight)?;
                    return Ok(Some(Lowered::Tensor(value)));
                }
                let Some(Lowered::Known(weight)) = call.get("weight") else {
                    return Err("lerp by what is no number".to_owned());
                };
                let weight = as_number(weight).ok_or("weight is no number")?;
                let distance = self.pairwise(Binary::Sub, end, start)?;
                // Source: `lerp` of PyTorch, from the end that is nearer.
                if weight.abs() < 0.5 {
                    let part = self.scaled(distance, weight);
                    self.pairwise(Binary::Add, start, part)?
                } else {
                    let part = self.scaled(distance, 1.0 - weight);
                    self.pairwise(Binary::Sub, end, part)?
                }
            }
            "var" | "std" | "var_mean" | "std_mean" => return self.variance(call).map(Some),
            "norm" | "vector_norm" | "linalg_vector_norm" => self.norm(call)?,
            "logsumexp" => self.logsumexp(call)?,
            "rms_norm" => self.rms_norm(call)?,
            "group_norm" => self.group_norm(call)?,
            "instance_norm" => self.instance_norm(call)?,
            "native_layer_norm" => {
                let value = self.layer_norm(call)?;
                return Ok(Some(first_of_three(value)));
            }
            "_native_batch_norm_legit_no_training" => {
                let value = self.batch_norm(call)?;
                return Ok(Some(first_of_three(value)));
            }
            "baddbmm" => self.sum_and_product(call, ["batch1", "batch2"])?,
            "outer" | "ger" => {
                let (a, b) = (call.tensor("input")?, call.tensor("other")?);
                let column = self.shape(a)[0];
                let a = self.alias(a, vec![column, 1]);
                self.pairwise(Binary::Mul, a, b)?
            }
            "prelu" | "_prelu_kernel" => {
                let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
                let shape = self.shape(input);
                let mut own = self.shape(weight);
                let count = self.program.value(weight).len();
                let rank = own.len();
                if call.name == "prelu" && rank > 1 {
                    return Err("a weight of several dimensions".to_owned());
                }
                if call.name == "prelu" && count == 1 {
                    own.clear();
                } else if call.name == "prelu" && shape.len() > 1 {
                    own = vec![1; shape.len() - 1];
                    own[0] = count;
                }
                let weight = self.alias(weight, own);
                self.pairwise(Binary::Prelu, input, weight)?
            }
            "glu" => {
                let input = call.tensor("input")?;
                let shape = self.shape(input);
                let dim = call.dim("dim", shape.len(), -1)?;
                let half = shape[dim] / 2;
                let (a, b) = (
                    self.narrowed(input, dim, 0, half),
                    self.narrowed(input, dim, half, half),
                );
                let gate = self.single(Unary::Sigmoid, b);
                self.pairwise(Binary::Mul, a, gate)?
            }
            "normalize" => {
                let whole = call.tensor("input")?;
                let input = self.at_least_a_vector(whole);
                let rank = self.shape(input).len();
                let p = call.number("p")?.unwrap_or(2.0);
                let eps = call.number("eps")?.unwrap_or(1e-12) as f32;
                let dims = match call.ints("dim")? {
                    None => [wrapped(1, rank)?].into_iter().collect(),
                    Some(_) => call.dims(rank)?,
                };
                let norm = self.norm_of(input, p, &dims)?;
                let norm = self.single(Unary::Clamp(eps, f32::INFINITY), norm);
                let value = self.pairwise(Binary::Div, input, norm)?;
                let shape = self.shape(whole);
                self.alias(value, shape)
            }
            "square" => {
                let input = call.tensor("input")?;
                self.single(Unary::Power(2.0), input)
            }
            "repeat" | "tile" => self.repeated(call)?,
            "repeat_interleave" => self.interleaved(call)?,
            "movedim" | "moveaxis" => {
                let input = call.tensor("input")?;
                let rank = self.shape(input).len();
                let wrap = |dims: Option<Vec<i64>>| -> Result<Vec<usize>, Reason> {
                    let dims = dims.unwrap_or_default().into_iter();
                    dims.map(|dim| wrapped(dim, rank)).collect()
                };
                let (from, to) = (
                    wrap(call.ints("source")?)?,
                    wrap(call.ints("destination")?)?,
                );
                let mut order = vec![usize::MAX; rank];
                for (&from, &to) in from.iter().zip(&to) {
                    // A number has no dimension to move, though it takes 0 and -1.
                    if let Some(slot) = order.get_mut(to) {
                        *slot = from;
                    }
                }
                let mut rest = (0..rank).filter(|dim| !from.contains(dim));
                for slot in &mut order {
                    if *slot == usize::MAX {
                        *slot = rest.next().ok_or("a dimension that is moved twice")?;
                    }
                }
                self.permuted(input, &order)
            }
            "adjoint" => {
                let input = call.tensor("input")?;
                let rank = self.shape(input).len();
                let mut dims: Vec<usize> = (0..rank).collect();
                let last_but_one = rank.checked_sub(2).ok_or("a transposed vector")?;
                dims.swap(rank - 1, last_but_one);
                self.permuted(input, &dims)
            }
            "hstack" | "vstack" | "row_stack" | "dstack" | "column_stack" => self.stacked(call)?,
            "unfold" => {
                let input = call.tensor("input")?;
                let shape = self.shape(input);
                if call.get("dimension").is_none() {
                    return self.windows(call).map(|value| Some(Lowered::Tensor(value)));
                }
                let dim = call.dim("dimension", shape.len(), 0)?;
                let step = call.int("step")?.unwrap_or(1) as isize;
                let view = View::of(&shape);
                let mut strides = view.strides.clone();
                // A tensor of no dimensions has one window.
                strides.push(strides.get(dim).copied().unwrap_or(1));
                strides[dim] *= step;
                self.copied(
                    input,
                    View {
                        shape: self.result_shape()?,
                        strides,
                        offset: 0,
                    },
                )
            }
            "diagonal" => {
                let input = call.tensor("input")?;
                let shape = self.shape(input);
                let rank = shape.len();
                let (a, b) = (call.dim("dim1", rank, 0)?, call.dim("dim2", rank, 1)?);
                let offset = call.int("offset")?.unwrap_or(0) as isize;
                let mut view = View::of(&shape);
                let from = if offset >= 0 {
                    offset * view.strides[b]
                } else {
                    -offset * view.strides[a]
                };
                let step = view.strides[a] + view.strides[b];
                for dim in [a.max(b), a.min(b)] {
                    view.strides.remove(dim);
                }
                view.strides.push(step);
                let result = self.result_shape()?;
                view.offset = if result.contains(&0) {
                    0
                } else {
                    from.unsigned_abs()
                };
                view.shape = result;
                self.copied(input, view)
            }
            "pixel_shuffle" | "pixel_unshuffle" => self.pixels(call)?,
            "channel_shuffle" | "native_channel_shuffle" => {
                let input = call.tensor("input")?;
                let shape = self.shape(input);
                let groups = call.int("groups")?.unwrap_or(1);
                let groups = usize::try_from(groups).map_err(|_| "groups is negative")?;
                let [batch, channels, ..] = shape[..] else {
                    return Err("channels of a vector".to_owned());
                };
                if groups == 0 || channels % groups != 0 {
                    return Err(format!("{channels} channels in {groups} groups"));
                }
                let rest: usize = shape[2..].iter().product();
                let split = self.alias(input, vec![batch, groups, channels / groups, rest]);
                let swapped = self.permuted(split, &[0, 2, 1, 3]);
                self.alias(swapped, shape)
            }
            "einsum" => self.einsum(call)?,
            "shifted_window_attention" => self.shifted_window_attention(call)?,
            "_patch_merging_pad" => self.patch_merging(call)?,
            "interpolate" | "upsample" => self.interpolated(call)?,
            "conv3d" | "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => {
                self.volume(call)?
            }
            "convolution" | "_convolution" => {
                if call.flag("transposed", false)? || self.shape(call.tensor("weight")?).len() != 4
                {
                    self.volume(call)?
                } else {
                    self.convolution(call)?
                }
            }
            "max_pool2d_with_indices" => {
                let value = self.max_pool(call)?;
                return Ok(Some(Lowered::Items(vec![
                    Lowered::Tensor(value),
                    Lowered::Known(Value::Object),
                ])));
            }
            "_adaptive_avg_pool2d" => {
                let input = call.tensor("input")?;
                let shape = self.result_shape()?;
                self.emit(Op::AdaptiveAvgPool, [input], shape)
            }
            "max_pool1d" | "avg_pool1d" | "adaptive_avg_pool1d" => self.pool_of_lines(call)?,
            _ => return Ok(None),
        };
        Ok(Some(Lowered::Tensor(value)))
    }

    /// Of each pair of elements, after broadcasting.
    pub(super) fn pairwise(
        &mut self,
        function: Binary,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, Reason> {
        let shape = broadcast(&self.shape(a), &self.shape(b))?.to_vec();
        Ok(self.emit(Op::Binary(function), [a, b], shape))
    }

    /// Of each element.
    pub(super) fn single(&mut self, function: Unary, value: ValueId) -> ValueId {
        let shape = self.shape(value);
        self.emit(Op::Unary(function), [value], shape)
    }

    pub(super) fn scaled(&mut self, value: ValueId, factor: f64) -> ValueId {
        match factor {
            1.0 => value,
            factor => self.single(Unary::scale(factor as f32), value),
        }
    }

    pub(super) fn compared(
        &mut self,
        comparison: Comparison,
        value: ValueId,
        with: f64,
    ) -> ValueId {
        let number = self.constant(Scalar::Float(with), Element::F32);
        let shape = self.shape(value);
        let op = General::Compare(comparison);
        self.general(op, [value, number], Element::Bool, shape)
    }

    /// Along dimensions, which stay with size 1.
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

    /// `beta * input + alpha * a @ b`
    pub(super) fn sum_and_product(
        &mut self,
        call: &Call,
        [a, b]: [&str; 2],
    ) -> Result<ValueId, Reason> {
        let (alpha, beta) = (
            call.number("alpha")?.unwrap_or(1.0),
            call.number("beta")?.unwrap_or(1.0),
        );
        let (a, b) = (call.tensor(a)?, call.tensor(b)?);
        if (alpha, beta) == (1.0, 1.0)
            && let Some(sum) = self.product_with_weight(a, b, Some(call.tensor("input")?))
        {
            return Ok(sum);
        }
        let product = self.matmul(a, b)?;
        let product = self.scaled(product, alpha);
        // What is multiplied by zero is not looked at: it may be NaN.
        if beta == 0.0 {
            return Ok(product);
        }
        let input = self.scaled(call.tensor("input")?, beta);
        self.pairwise(Binary::Add, product, input)
    }

    /// A function of three values in one step, if they and the result are of floating-point numbers.
    fn ternary(
        &mut self,
        function: Ternary,
        values: [ValueId; 3],
    ) -> Result<Option<ValueId>, Reason> {
        let is_number = |value: ValueId| self.program.element(value) == Element::F32;
        if !values.into_iter().all(is_number) {
            return Ok(None);
        }
        let shape = self.result_shape()?;
        Ok(Some(self.general(
            General::Ternary(function),
            values,
            Element::F32,
            shape,
        )))
    }

    /// Between numbers, as far as others say.
    fn lerp(&mut self, start: ValueId, end: ValueId, weight: ValueId) -> Result<ValueId, Reason> {
        if let Some(found) = self.ternary(Ternary::Lerp, [start, end, weight])? {
            return Ok(found);
        }
        let distance = self.pairwise(Binary::Sub, end, start)?;
        let part = self.pairwise(Binary::Mul, weight, distance)?;
        let from_start = self.pairwise(Binary::Add, start, part)?;
        let rest = self.single(Unary::Affine(-1.0, 1.0), weight);
        let part = self.pairwise(Binary::Mul, distance, rest)?;
        let from_end = self.pairwise(Binary::Sub, end, part)?;
        let size = self.single(Unary::Abs, weight);
        // Source: `lerp` of PyTorch, from the end that is nearer.
        let is_near = self.compared(Comparison::Lt, size, 0.5);
        self.choose(is_near, from_start, from_end)
    }

    /// The windows of images, a column for each.
    fn windows(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let sizes = |param: &str, default| call.pair(param, default);
        let kernel = sizes("kernel_size", 1)?;
        let (dilation, stride) = (sizes("dilation", 1)?, sizes("stride", 1)?);
        let padding = sizes("padding", 0)?;
        let mut shape = self.shape(input);
        let result = self.result_shape()?;
        let whole = [kernel, dilation, stride]
            .iter()
            .all(|own| !own.contains(&0));
        if !matches!(shape.len(), 3 | 4) || !whole || shape.contains(&0) {
            return Err("windows of something else than images".to_owned());
        }
        let rank = shape.len();
        let mut image = input;
        if padding != [0, 0] {
            let mut widths = SmallVec::from_elem([0; 2], rank);
            for (at, width) in padding.into_iter().enumerate() {
                widths[rank - 2 + at] = [width; 2];
                shape[rank - 2 + at] += 2 * width;
            }
            image = match self.program.element(input) {
                Element::F32 => self.emit(Op::Pad { widths, value: 0.0 }, [input], shape.clone()),
                element => {
                    let value = element.zero();
                    self.general(
                        General::Pad { widths, value },
                        [input],
                        element,
                        shape.clone(),
                    )
                }
            };
        }
        let mut view = View::of(&shape);
        let mut counts = [0; 2];
        for at in 0..2 {
            let reach = dilation[at] * (kernel[at] - 1) + 1;
            let rest = shape[rank - 2 + at].checked_sub(reach);
            counts[at] = rest.ok_or("a window larger than the image")? / stride[at] + 1;
        }
        let (row, column) = (view.strides[rank - 2], view.strides[rank - 1]);
        view.shape.truncate(rank - 2);
        view.strides.truncate(rank - 2);
        let steps = [row, column];
        for at in 0..2 {
            view.shape.push(kernel[at]);
            view.strides.push(steps[at] * dilation[at] as isize);
        }
        for at in 0..2 {
            view.shape.push(counts[at]);
            view.strides.push(steps[at] * stride[at] as isize);
        }
        let value = self.copied(image, view);
        Ok(self.alias(value, result))
    }

    fn variance(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let rank = self.shape(input).len();
        // `x.var(False)` is not unbiased over all dimensions.
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
        // The mean is rounded to what is large against the distances from it, where these are small: a
        // second look corrects it.
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

    fn norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
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
                let op = General::Compare(Comparison::Ne);
                let other = self.general(op, [input, zero], Element::Bool, sizes);
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

    fn rms_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
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

    /// Rows of channels normalised, and a factor and an offset for each channel.
    fn normalised_groups(
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

    fn group_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let groups = call.int("num_groups")?.unwrap_or(1);
        let groups = usize::try_from(groups).map_err(|_| "num_groups is negative")?;
        self.normalised_groups(call, input, groups)
    }

    fn instance_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
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
        // One image without a batch has as many dimensions less as the module says.
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

    fn repeated(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let param = if call.name == "tile" {
            "dims"
        } else {
            "repeats"
        };
        let repeats = call.ints(param)?.unwrap_or_default();
        let mut own = self.shape(input);
        while own.len() < repeats.len() {
            own.insert(0, 1);
        }
        let mut counts = vec![1; own.len() - repeats.len()];
        for count in repeats {
            counts.push(usize::try_from(count).map_err(|_| "a negative number of copies")?);
        }
        let whole = View::of(&own);
        let mut view = View {
            shape: Vec::new(),
            strides: SmallVec::new(),
            offset: 0,
        };
        for at in 0..own.len() {
            view.shape.extend([counts[at], own[at]]);
            view.strides.extend([0, whole.strides[at]]);
        }
        let value = self.copied(input, view);
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    fn interleaved(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let mut input = call.tensor("input")?;
        let count = call.int("repeats")?.ok_or("there is no repeats")?;
        let count = usize::try_from(count).map_err(|_| "a negative number of copies")?;
        if call.get("dim").is_none() {
            let len = self.program.value(input).len();
            input = self.alias(input, vec![len]);
        }
        let own = self.shape(input);
        let dim = call.dim("dim", own.len(), 0)?;
        let mut view = View::of(&own);
        view.shape.insert(dim + 1, count);
        view.strides.insert(dim + 1, 0);
        let value = self.copied(input, view);
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    fn stacked(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let parts = call.tensors("tensors")?;
        let shape = self.result_shape()?;
        let element = self.result_element()?;
        let mut own = Vec::with_capacity(parts.len());
        let mut dim = 0;
        for part in parts {
            let mut sizes = self.shape(part);
            match call.name {
                "hstack" => {
                    if sizes.is_empty() {
                        sizes.push(1);
                    }
                    dim = usize::from(sizes.len() > 1);
                }
                "vstack" | "row_stack" => {
                    while sizes.len() < 2 {
                        sizes.insert(0, 1);
                    }
                }
                "column_stack" => {
                    while sizes.len() < 2 {
                        sizes.push(1);
                    }
                    dim = 1;
                }
                _ => {
                    if sizes.is_empty() {
                        sizes.push(1);
                    }
                    if sizes.len() == 1 {
                        sizes.insert(0, 1);
                    }
                    if sizes.len() == 2 {
                        sizes.push(1);
                    }
                    dim = 2;
                }
            }
            let part = self.cast(part, element);
            own.push(self.alias(part, sizes));
        }
        Ok(self.general(General::Concat { dim }, own, element, shape))
    }

    fn pixels(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let (param, up) = match call.name {
            "pixel_shuffle" => ("upscale_factor", true),
            _ => ("downscale_factor", false),
        };
        let factor = call.int(param)?.unwrap_or(1);
        let r = usize::try_from(factor).map_err(|_| "a negative factor")?;
        let [.., channels, rows, columns] = shape[..] else {
            return Err("pixels of a vector".to_owned());
        };
        let batch: usize = shape[..shape.len() - 3].iter().product();
        let result = self.result_shape()?;
        if r == 0 {
            return Err("a factor of 0".to_owned());
        }
        let value = if up {
            let split = self.alias(input, vec![batch, channels / (r * r), r, r, rows, columns]);
            self.permuted(split, &[0, 1, 4, 2, 5, 3])
        } else {
            let split = self.alias(input, vec![batch, channels, rows / r, r, columns / r, r]);
            self.permuted(split, &[0, 1, 3, 5, 2, 4])
        };
        Ok(self.alias(value, result))
    }
}

impl Lowerer<'_, '_> {
    /// Windows over lines: over images of one row.
    fn pool_of_lines(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let (mut image, result) = (self.shape(input), self.result_shape()?);
        let at = image.len().checked_sub(1).ok_or("a line of a number")?;
        image.insert(at, 1);
        let mut shape = result.clone();
        shape.insert(at, 1);
        let image = self.alias(input, image);
        let size = |param: &str, default: usize, beside: usize| -> Result<[usize; 2], Reason> {
            let given = call.ints(param)?.and_then(|sizes| sizes.first().copied());
            match given.map(usize::try_from) {
                None => Ok([beside, default]),
                Some(Ok(size)) => Ok([beside, size]),
                Some(Err(_)) => Err(format!("{param} is negative")),
            }
        };
        if call.name == "adaptive_avg_pool1d" {
            let value = self.emit(Op::AdaptiveAvgPool, [image], shape);
            return Ok(self.alias(value, result));
        }
        if call.flag("return_indices", false)? {
            return Err("max_pool1d with indices".to_owned());
        }
        let kernel = size("kernel_size", 1, 1)?;
        let pool = Pool {
            kernel,
            stride: size("stride", kernel[1], 1)?,
            padding: size("padding", 0, 0)?,
            dilation: size("dilation", 1, 1)?,
        };
        if [kernel, pool.stride, pool.dilation]
            .iter()
            .any(|own| own.contains(&0))
        {
            return Err("a window, stride or dilation of 0".to_owned());
        }
        let sizes = self.shape(image);
        if sizes[1..].contains(&0) || sizes.len() == 3 && sizes.contains(&0) {
            return Err("windows of nothing".to_owned());
        }
        let op = match call.name {
            "max_pool1d" => Op::MaxPool(pool),
            _ => Op::AvgPool {
                pool,
                count_padding: call.flag("count_include_pad", true)?,
                divisor: None,
            },
        };
        let value = self.emit(op, [image], shape);
        Ok(self.alias(value, result))
    }
}

/// A result, and two that are for training: an error where they are read.
fn first_of_three(value: ValueId) -> Lowered {
    Lowered::Items(vec![
        Lowered::Tensor(value),
        Lowered::Known(Value::Object),
        Lowered::Known(Value::Object),
    ])
}
