//! Operators that are composed of others.

use corsac_ops::shape::Value;
use smallvec::SmallVec;

use super::call::{Call, as_number, wrapped};
use super::operators::broadcast;
use super::views::View;
use super::{Lowered, Lowerer, Reason};
use crate::program::{
    Binary, Comparison, Element, Op, Pool, Reduction, Scalar, Ternary, Unary, ValueId,
};

impl Lowerer<'_, '_> {
    /// Lowers an operator that is composed of others; `None` for all others.
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
                // Source: `lerp` of PyTorch, from the nearer end.
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
                    // A tensor without dimensions has none to move, though the call takes 0 and -1.
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
                // A tensor without dimensions has one window.
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

    /// A function of each pair of elements, after broadcasting.
    pub(super) fn pairwise(
        &mut self,
        function: Binary,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, Reason> {
        let shape = broadcast(&self.shape(a), &self.shape(b))?.to_vec();
        Ok(self.emit(Op::Binary(function), [a, b], shape))
    }

    /// A function of each element.
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
        let op = Op::Compare(comparison);
        self.emit_typed(op, [value, number], Element::Bool, shape)
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
        // The operand of a zero factor is ignored: it may be NaN.
        if beta == 0.0 {
            return Ok(product);
        }
        let input = self.scaled(call.tensor("input")?, beta);
        self.pairwise(Binary::Add, product, input)
    }

    /// A function of three values in one step, if they and the result hold floating-point numbers.
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
        Ok(Some(self.emit_typed(
            Op::Ternary(function),
            values,
            Element::F32,
            shape,
        )))
    }

    /// Linear interpolation between tensors, by a tensor.
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
        // Source: `lerp` of PyTorch, from the nearer end.
        let is_near = self.compared(Comparison::Lt, size, 0.5);
        self.choose(is_near, from_start, from_end)
    }
}

impl Lowerer<'_, '_> {
    /// Pooling of lines, as images of one row.
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

/// A result, and two that are only for training: to read those is an error.
fn first_of_three(value: ValueId) -> Lowered {
    Lowered::Items(vec![
        Lowered::Tensor(value),
        Lowered::Known(Value::Object),
        Lowered::Known(Value::Object),
    ])
}
