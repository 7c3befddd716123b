//! Lowering of operators that compute.

use std::cmp::Ordering;

use smallvec::{SmallVec, smallvec};

use super::call::{Call, as_number, wrapped};
use super::{Lowered, Lowerer, Reason};
use crate::program::{
    Binary, Conv, Element, Op, Pool, Reduction, Source, Unary, ValueId, WeightTransform,
};

impl Lowerer<'_, '_> {
    pub(super) fn operator(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let value = match call.name {
            "conv1d" | "conv2d" => self.convolution(call)?,
            "linear" => self.linear(call)?,
            "matmul" | "mm" | "bmm" | "mv" | "dot" | "vdot" => {
                let (a, b) = (call.tensor("input")?, call.tensor("other")?);
                self.matmul(a, b)?
            }
            "addmm" => self.sum_and_product(call, ["mat1", "mat2"])?,
            "scaled_dot_product_attention" => self.attention(call)?,
            "lstm" | "gru" | "rnn_tanh" | "rnn_relu" => return self.recurrent(call),
            "LSTM" | "GRU" | "RNN" => return self.recurrent_module(call),
            "lstm_cell" | "gru_cell" | "rnn_tanh_cell" | "rnn_relu_cell" => {
                return self.recurrent_cell(call);
            }
            "MultiheadAttention" => return self.multihead(call),
            "batch_norm" => self.batch_norm(call)?,
            "layer_norm" => self.layer_norm(call)?,
            "max_pool2d" => self.max_pool(call)?,
            "avg_pool2d" => self.avg_pool(call)?,
            "adaptive_avg_pool2d" => {
                let input = call.tensor("input")?;
                let shape = self.result_shape()?;
                self.emit(Op::AdaptiveAvgPool, [input], shape)
            }
            "mean" | "sum" | "amax" | "amin" | "max" | "min" => self.reduction(call)?,
            "softmax" | "log_softmax" | "_softmax" | "_log_softmax" => self.softmax(call)?,
            "softmin" => self.softmin(call)?,
            "dropout"
            | "dropout1d"
            | "dropout2d"
            | "dropout3d"
            | "alpha_dropout"
            | "feature_alpha_dropout"
            | "stochastic_depth" => {
                if call.flag("training", !call.name.contains("alpha"))? {
                    return Err("dropout in training mode".to_owned());
                }
                call.tensor("input")?
            }
            "contiguous" | "clone" | "detach" | "Identity" => call.tensor("input")?,
            "add" | "sub" | "rsub" | "mul" | "div" | "maximum" | "minimum" => self.binary(call)?,
            "selu" => {
                // Source: torch.nn.SELU.
                let (alpha, scale) = (1.673_263_2, 1.050_701);
                let input = call.tensor("input")?;
                let shape = self.shape(input);
                let elu = self.emit(Op::Unary(Unary::Elu(alpha)), [input], shape.clone());
                self.emit(Op::Unary(Unary::scale(scale)), [elu], shape)
            }
            name => match unary(call, name)? {
                Some(function) => {
                    let input = call.tensor("input")?;
                    let shape = self.shape(input);
                    self.emit(Op::Unary(function), [input], shape)
                }
                None => match self.composed(call)? {
                    Some(lowered) => return Ok(lowered),
                    None => return self.view(call),
                },
            },
        };
        Ok(Lowered::Tensor(value))
    }

    pub(super) fn convolution(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let line = call.name == "conv1d";
        let pair = |param: &str, default: usize, beside: usize| -> Result<[usize; 2], Reason> {
            match line {
                true => Ok([beside, call.pair(param, default)?[0]]),
                false => call.pair(param, default),
            }
        };
        let (stride, dilation) = (pair("stride", 1, 1)?, pair("dilation", 1, 1)?);
        let mut shape = self.result_shape()?;
        let (mut image, mut kernel) = (self.shape(input), self.shape(weight));
        if line {
            for sizes in [&mut shape, &mut image, &mut kernel] {
                let at = sizes.len() - 1;
                sizes.insert(at, 1);
            }
        }
        let unbatched = image.len() == 3;
        if unbatched {
            image.insert(0, 1);
            shape.insert(0, 1);
        }
        let padding = match call.text("padding") {
            Ok(Some("same")) => {
                // The odd element is added below and right.
                let total = |at: usize| dilation[at] * (kernel[at + 2] - 1);
                [
                    [total(0) / 2, total(1) / 2],
                    [total(0).div_ceil(2), total(1).div_ceil(2)],
                ]
            }
            Ok(Some("valid")) => [[0; 2]; 2],
            _ => [pair("padding", 0, 0)?; 2],
        };
        let groups = call.int("groups")?.unwrap_or(1);
        if stride.contains(&0) || dilation.contains(&0) || groups < 1 {
            return Err("a stride, dilation or groups of 0".to_owned());
        }
        // Positions in an image are counted in 31 bits.
        let reach = |at: usize| image[at + 2] + padding[0][at] + padding[1][at];
        if image[1..].contains(&0) || image[1] * reach(0) * reach(1) >= 1 << 31 {
            return Err("a convolution of an image without elements, or of too many".to_owned());
        }
        let conv = Conv {
            stride,
            padding,
            dilation,
            groups: usize::try_from(groups).map_err(|_| "groups is negative".to_owned())?,
        };
        let bias = call.optional("bias")?;
        if let Some(bias) = bias {
            self.expect_shape(bias, &kernel[..1])?;
        }
        let image = self.alias(input, image);
        let kernel = self.alias(weight, kernel);
        let inputs = [image, kernel].into_iter().chain(bias);
        let result = self.emit(Op::Conv(conv), inputs, shape);
        let shape = self.result_shape()?;
        Ok(self.alias(result, shape))
    }

    fn linear(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let bias = call.optional("bias")?;
        let shape = self.result_shape()?;
        if self.shape(weight).len() == 1 {
            // One feature, without a dimension of its own.
            let product = self.matmul(input, weight)?;
            return Ok(match bias {
                Some(bias) => self.emit(Op::Binary(Binary::Add), [product, bias], shape),
                None => product,
            });
        }
        if let Some(bias) = bias {
            let rows = self.shape(weight).into_iter().take(1).collect::<Vec<_>>();
            self.expect_shape(bias, &rows)?;
        }
        let inputs = [input, weight].into_iter().chain(bias);
        Ok(self.emit(Op::Linear, inputs, shape))
    }

    /// The product of rows with a matrix that is a weight, as a linear layer, whose weight is
    /// packed once; `None` for other products.
    pub(super) fn product_with_weight(
        &mut self,
        a: ValueId,
        b: ValueId,
        bias: Option<ValueId>,
    ) -> Option<ValueId> {
        let is_weight = |value: ValueId| {
            let root = self.program.root(value);
            matches!(self.program.value(root).source, Source::Weight(_))
                && self.program.element(value) == Element::F32
        };
        let (left, right) = (self.shape(a), self.shape(b));
        let ([.., depth], [inputs, outputs]) = (&left[..], &right[..]) else {
            return None;
        };
        let fits = depth == inputs
            && left.len() >= 2
            && is_weight(b)
            && bias.is_none_or(|bias| is_weight(bias) && self.shape(bias) == [*outputs]);
        if !fits {
            return None;
        }
        let sizes = vec![*outputs, *inputs];
        let weight = self
            .program
            .add_transformed(WeightTransform::Transpose, vec![b], sizes);
        let shape = [&left[..left.len() - 1], &[*outputs]].concat();
        Some(self.emit(Op::Linear, [a, weight].into_iter().chain(bias), shape))
    }

    pub(super) fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Reason> {
        if let Some(product) = self.product_with_weight(a, b, None) {
            return Ok(product);
        }
        let (mut left, mut right) = (self.shape(a), self.shape(b));
        // A vector is a row on the left and a column on the right; its dimension is removed from
        // the result.
        let (row, column) = (left.len() == 1, right.len() == 1);
        if row {
            left.insert(0, 1);
        }
        if column {
            right.push(1);
        }
        let ([.., rows, _], [.., columns]) = (&left[..], &right[..]) else {
            return Err("a product with a number".to_owned());
        };
        let batch = broadcast(&left[..left.len() - 2], &right[..right.len() - 2])?;
        let mut shape = [&batch[..], &[*rows, *columns]].concat();
        let op = Op::MatMul {
            first_transposed: false,
            transposed: false,
            scale: 1.0,
        };
        let (a, b) = (self.alias(a, left), self.alias(b, right));
        let product = self.emit(op, [a, b], shape.clone());
        if column {
            shape.pop();
        }
        if row {
            shape.remove(shape.len() - 1 - usize::from(!column));
        }
        Ok(self.alias(product, shape))
    }

    pub(super) fn batch_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.flag("training", false)? {
            return Err("batch norm in training mode".to_owned());
        }
        let input = call.tensor("input")?;
        let statistics = (
            call.optional("running_mean")?,
            call.optional("running_var")?,
        );
        let (Some(mean), Some(variance)) = statistics else {
            return Err("batch norm with the statistics of each batch".to_owned());
        };
        let eps = call.number("eps")?.unwrap_or(1e-5) as f32;
        let norm = [
            Some(mean),
            Some(variance),
            call.optional("weight")?,
            call.optional("bias")?,
        ];
        let is_weight = |value: ValueId| {
            let root = self.program.root(value);
            matches!(self.program.value(root).source, Source::Weight(_))
        };
        if !norm.into_iter().flatten().all(is_weight) {
            return self.computed_batch_norm(input, norm, eps);
        }
        let inputs = [input, mean, variance].into_iter();
        let affine = match (call.optional("weight")?, call.optional("bias")?) {
            (Some(weight), Some(bias)) => vec![weight, bias],
            (None, None) => vec![],
            _ => return self.computed_batch_norm(input, norm, eps),
        };
        let shape = self.shape(input);
        let channels = shape.get(1..2).unwrap_or(&[]);
        for &own in [mean, variance].iter().chain(&affine) {
            self.expect_shape(own, channels)?;
        }
        Ok(self.emit(Op::BatchNorm { eps }, inputs.chain(affine), shape))
    }

    /// A batch norm whose parameters are computed while the program runs: mean, variance, weight,
    /// bias.
    fn computed_batch_norm(
        &mut self,
        input: ValueId,
        norm: [Option<ValueId>; 4],
        eps: f32,
    ) -> Result<ValueId, Reason> {
        let mut beside = vec![1; self.shape(input).len().saturating_sub(1)];
        let Some(channels) = beside.first_mut() else {
            return Err("channels of a vector".to_owned());
        };
        *channels = self.shape(input)[1];
        let [mean, variance, weight, bias] =
            norm.map(|own| own.map(|own| self.alias(own, beside.clone())));
        let (Some(mean), Some(variance)) = (mean, variance) else {
            return Err("batch norm with the statistics of each batch".to_owned());
        };
        let moved = self.single(Unary::Affine(1.0, eps), variance);
        let mut factor = self.single(Unary::Rsqrt, moved);
        if let Some(weight) = weight {
            factor = self.pairwise(Binary::Mul, factor, weight)?;
        }
        let distance = self.pairwise(Binary::Sub, input, mean)?;
        let value = self.pairwise(Binary::Mul, distance, factor)?;
        match bias {
            Some(bias) => self.pairwise(Binary::Add, value, bias),
            None => Ok(value),
        }
    }

    pub(super) fn layer_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let dims = call
            .ints("normalized_shape")?
            .map_or(1, |sizes| sizes.len());
        if dims == 0 {
            return Err("a row of no dimensions".to_owned());
        }
        let (weight, bias) = (call.optional("weight")?, call.optional("bias")?);
        let op = Op::LayerNorm {
            dims,
            eps: call.number("eps")?.unwrap_or(1e-5) as f32,
            weight: weight.is_some(),
            bias: bias.is_some(),
        };
        let shape = self.shape(input);
        let row = dims <= shape.len();
        let row = row.then(|| shape[shape.len() - dims..].to_vec());
        let row = row.ok_or_else(|| "normalized_shape is longer than the shape".to_owned())?;
        for own in weight.iter().chain(&bias) {
            self.expect_shape(*own, &row)?;
        }
        Ok(self.emit(op, [input].into_iter().chain(weight).chain(bias), shape))
    }

    /// Checks that `value` has the shape that its kernel expects.
    pub(super) fn expect_shape(&self, value: ValueId, expected: &[usize]) -> Result<(), Reason> {
        let shape = self.program.shape(value);
        match shape == expected {
            true => Ok(()),
            false => Err(format!("a weight of shape {shape:?}, not {expected:?}")),
        }
    }

    fn pool(&self, call: &Call) -> Result<Pool, Reason> {
        let kernel = call.pair("kernel_size", 1)?;
        let stride = match call.ints("stride")? {
            None => kernel,
            Some(sizes) if sizes.is_empty() => kernel,
            Some(_) => call.pair("stride", 1)?,
        };
        if kernel.contains(&0) || stride.contains(&0) {
            return Err("a window or stride of 0".to_owned());
        }
        Ok(Pool {
            kernel,
            stride,
            padding: call.pair("padding", 0)?,
            dilation: [1; 2],
        })
    }

    pub(super) fn max_pool(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.flag("return_indices", false)? {
            return Err("max_pool2d with indices".to_owned());
        }
        let pool = Pool {
            dilation: call.pair("dilation", 1)?,
            ..self.pool(call)?
        };
        if pool.dilation.contains(&0) {
            return Err("a dilation of 0".to_owned());
        }
        let shape = self.result_shape()?;
        Ok(self.emit(Op::MaxPool(pool), [call.tensor("input")?], shape))
    }

    fn avg_pool(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let divisor = call.int("divisor_override")?;
        let divisor = divisor.map(|d| usize::try_from(d).map_err(|_| "a negative divisor"));
        if divisor == Some(Ok(0)) {
            return Err("a divisor of 0".to_owned());
        }
        let op = Op::AvgPool {
            pool: self.pool(call)?,
            count_padding: call.flag("count_include_pad", true)?,
            divisor: divisor.transpose()?,
        };
        let shape = self.result_shape()?;
        Ok(self.emit(op, [call.tensor("input")?], shape))
    }

    fn reduction(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let reduction = match call.name {
            "mean" => Reduction::Mean,
            "sum" => Reduction::Sum,
            "amax" | "max" => Reduction::Max,
            _ => Reduction::Min,
        };
        let input = call.tensor("input")?;
        let input = self.at_least_a_vector(input);
        let rank = self.shape(input).len();
        let dims = call.dims(rank)?;
        let sizes = self.shape(input);
        let extreme = matches!(reduction, Reduction::Max | Reduction::Min);
        if extreme && dims.iter().any(|&dim| sizes.get(dim) == Some(&0)) {
            return Err("an extreme of nothing".to_owned());
        }
        let shape = self.result_shape()?;
        Ok(self.emit(Op::Reduce { reduction, dims }, [input], shape))
    }

    pub(super) fn softmax(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let result = self.shape(input);
        let input = self.at_least_a_vector(input);
        let shape = self.shape(input);
        let dim = call
            .int("dim")?
            .ok_or_else(|| "softmax without dim".to_owned())?;
        let op = Op::Softmax {
            dim: wrapped(dim, shape.len())?,
            log: call.name.ends_with("log_softmax"),
        };
        let value = self.emit(op, [input], shape);
        Ok(self.alias(value, result))
    }

    /// `value` with at least one dimension: a number becomes a vector of one element.
    pub(super) fn at_least_a_vector(&mut self, value: ValueId) -> ValueId {
        match self.program.shape(value) {
            [] => self.alias(value, vec![1]),
            _ => value,
        }
    }

    fn binary(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.text("rounding_mode")?.is_some() {
            return Err("a division that rounds".to_owned());
        }
        let alpha = call.number("alpha")?.unwrap_or(1.0) as f32;
        let shape = self.result_shape()?;
        let operand = |param: &str| -> Result<Result<ValueId, f32>, Reason> {
            match call.get(param) {
                Some(Lowered::Tensor(value)) => Ok(Ok(*value)),
                Some(Lowered::Known(value)) => as_number(value)
                    .map(|number| Err(number as f32))
                    .ok_or_else(|| format!("{param} is no number")),
                _ => Err(format!("{param} is neither a tensor nor a number")),
            }
        };
        let (mut a, mut b) = (operand("input")?, operand("other")?);
        if call.name == "rsub" {
            std::mem::swap(&mut a, &mut b);
        }
        let is_sum = matches!(call.name, "add" | "sub" | "rsub");
        if alpha != 1.0 && is_sum {
            b = match b {
                Ok(value) => {
                    let shape = self.shape(value);
                    Ok(self.emit(Op::Unary(Unary::scale(alpha)), [value], shape))
                }
                Err(number) => Err(number * alpha),
            };
        }
        let (value, function) = match (a, b) {
            (Ok(a), Ok(b)) => {
                let function = match call.name {
                    "add" => Binary::Add,
                    "sub" | "rsub" => Binary::Sub,
                    "mul" => Binary::Mul,
                    "div" => Binary::Div,
                    "maximum" => Binary::Maximum,
                    _ => Binary::Minimum,
                };
                return Ok(self.emit(Op::Binary(function), [a, b], shape));
            }
            (Ok(value), Err(c)) => match call.name {
                "add" => (value, Unary::Affine(1.0, c)),
                "sub" | "rsub" => (value, Unary::Affine(1.0, -c)),
                "mul" => (value, Unary::scale(c)),
                "div" => (value, Unary::divide_by(c)),
                _ => return Err("a number where a tensor is expected".to_owned()),
            },
            (Err(c), Ok(value)) => match call.name {
                "add" => (value, Unary::Affine(1.0, c)),
                "sub" | "rsub" => (value, Unary::Affine(-1.0, c)),
                "mul" => (value, Unary::scale(c)),
                "div" => (value, Unary::DivideInto(c)),
                _ => return Err("a number where a tensor is expected".to_owned()),
            },
            (Err(_), Err(_)) => return Err("it computes with numbers alone".to_owned()),
        };
        Ok(self.emit(Op::Unary(function), [value], shape))
    }
}

fn unary(call: &Call, name: &str) -> Result<Option<Unary>, Reason> {
    let number = |param: &str, default: f64| -> Result<f32, Reason> {
        Ok(call.number(param)?.unwrap_or(default) as f32)
    };
    Ok(Some(match name {
        "relu" => Unary::Relu,
        "relu6" => Unary::Clamp(0.0, 6.0),
        "hardtanh" => {
            let (least, most) = (number("min_val", -1.0)?, number("max_val", 1.0)?);
            // Not in order, or NaN.
            if !matches!(
                least.partial_cmp(&most),
                Some(Ordering::Less | Ordering::Equal)
            ) {
                return Err(format!("from {least} to {most}"));
            }
            Unary::Clamp(least, most)
        }
        "leaky_relu" => match call.number("alpha")? {
            Some(slope) => Unary::LeakyRelu(slope as f32),
            None => Unary::LeakyRelu(number("negative_slope", 0.01)?),
        },
        "elu" => {
            if (number("scale", 1.0)?, number("input_scale", 1.0)?) != (1.0, 1.0) {
                return Err("elu with scales".to_owned());
            }
            Unary::Elu(number("alpha", 1.0)?)
        }
        "hardswish" => Unary::Hardswish,
        "hardsigmoid" => Unary::Hardsigmoid,
        "sigmoid" => Unary::Sigmoid,
        "silu" => Unary::Silu,
        "tanh" => Unary::Tanh,
        "gelu" => match call.text("approximate")? {
            None | Some("none") => Unary::Gelu,
            Some("tanh") => Unary::GeluTanh,
            Some(other) => return Err(format!("gelu with approximate={other}")),
        },
        "erf" => Unary::Erf,
        "exp" => Unary::Exp,
        "log" => Unary::Log,
        "sqrt" => Unary::Sqrt,
        "rsqrt" => Unary::Rsqrt,
        "abs" => Unary::Abs,
        "neg" => Unary::scale(-1.0),
        "sin" => Unary::Sin,
        "cos" => Unary::Cos,
        "tan" => Unary::Tan,
        "asin" | "arcsin" => Unary::Asin,
        "acos" | "arccos" => Unary::Acos,
        "atan" | "arctan" => Unary::Atan,
        "sinh" => Unary::Sinh,
        "cosh" => Unary::Cosh,
        "asinh" | "arcsinh" => Unary::Asinh,
        "acosh" | "arccosh" => Unary::Acosh,
        "atanh" | "arctanh" => Unary::Atanh,
        "exp2" => Unary::Exp2,
        "expm1" => Unary::Expm1,
        "log1p" => Unary::Log1p,
        "log2" => Unary::Log2,
        "log10" => Unary::Log10,
        "floor" => Unary::Floor,
        "ceil" => Unary::Ceil,
        "round" if call.int("decimals")?.unwrap_or(0) == 0 => Unary::Round,
        "trunc" => Unary::Trunc,
        "frac" => Unary::Frac,
        "sign" | "sgn" => Unary::Sign,
        "softplus" => Unary::Softplus(number("beta", 1.0)?, number("threshold", 20.0)?),
        "mish" => Unary::Mish,
        "softsign" => Unary::Softsign,
        "logsigmoid" | "log_sigmoid" => Unary::LogSigmoid,
        "softshrink" => match number("lambd", 0.5)? {
            by @ 0.0.. => Unary::Softshrink(by),
            by => return Err(format!("shrinking by {by}")),
        },
        "hardshrink" => Unary::Hardshrink(number("lambd", 0.5)?),
        "tanhshrink" => Unary::Tanhshrink,
        "threshold" | "_threshold" => {
            Unary::Threshold(number("threshold", 0.0)?, number("value", 0.0)?)
        }
        "celu" => Unary::Celu(number("alpha", 1.0)?),
        "deg2rad" => Unary::scale(std::f32::consts::PI / 180.0),
        "rad2deg" => Unary::scale(180.0 / std::f32::consts::PI),
        "reciprocal" => Unary::DivideInto(1.0),
        "square" => Unary::Power(2.0),
        "pow" => match call.number("exponent")? {
            // As in PyTorch: the roots of negative zero and infinity differ from their powers.
            Some(0.5) => Unary::Sqrt,
            Some(-0.5) => Unary::Rsqrt,
            Some(exponent) => Unary::Power(exponent as f32),
            None => return Err("a power of nothing".to_owned()),
        },
        _ => return Ok(None),
    }))
}

/// The shape that two shapes broadcast to.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<SmallVec<[usize; 6]>, Reason> {
    let rank = a.len().max(b.len());
    let mut shape: SmallVec<[usize; 6]> = smallvec![1; rank];
    for (at, size) in shape.iter_mut().enumerate() {
        let of = |sizes: &[usize]| {
            (at + sizes.len())
                .checked_sub(rank)
                .map_or(1, |own| sizes[own])
        };
        *size = match (of(a), of(b)) {
            (1, other) | (other, 1) => other,
            (x, y) if x == y => x,
            (x, y) => return Err(format!("sizes {x} and {y} do not broadcast")),
        };
    }
    Ok(shape)
}
