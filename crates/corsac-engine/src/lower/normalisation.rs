//! Normalisation.

use corsac_ops::shape::Value;

use super::call::{Call, wrapped};
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Binary, Element, Op, Reduction, Source, Unary, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("batch_norm", |own, call| own.batch_norm(call)),
    tensor("group_norm", |own, call| own.group_norm(call)),
    tensor("instance_norm", |own, call| own.instance_norm(call)),
    tensor("layer_norm", |own, call| own.layer_norm(call)),
    lowered("native_layer_norm", |own, call| {
        // Two more results are only for training: to read those is an error.
        let value = Lowered::Tensor(own.layer_norm(call)?);
        let unread = || Lowered::Known(Value::Object);
        Ok(Lowered::Items(vec![value, unread(), unread()]))
    }),
    tensor("normalize", |own, call| own.normalized(call)),
    tensor("rms_norm", |own, call| own.rms_norm(call)),
];

impl Lowerer<'_, '_> {
    fn batch_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
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
        let eps = call.number("eps")?.unwrap_or(1e-5);
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
        eps: f64,
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

    fn layer_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
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
            eps: call.number("eps")?.unwrap_or(1e-5),
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

    fn rms_norm(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let rank = self.shape(input).len();
        let count = call.ints("normalized_shape")?.map_or(1, |s| s.len());
        if count == 0 {
            return Err("a row of no dimensions".to_owned());
        }
        let dims: Vec<usize> = (rank.saturating_sub(count)..rank).collect();
        let eps = call.number("eps")?.unwrap_or(match self.float {
            Element::F64 => f64::EPSILON,
            _ => f32::EPSILON.into(),
        });
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
            eps: call.number("eps")?.unwrap_or(1e-5),
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

    fn normalized(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let whole = call.tensor("input")?;
        let input = self.at_least_a_vector(whole);
        let rank = self.shape(input).len();
        let p = call.number("p")?.unwrap_or(2.0);
        let eps = call.number("eps")?.unwrap_or(1e-12);
        let dims = match call.ints("dim")? {
            None => [wrapped(1, rank)?].into_iter().collect(),
            Some(_) => call.dims(rank)?,
        };
        let norm = self.norm_of(input, p, &dims)?;
        let norm = self.single(Unary::Clamp(eps, f64::INFINITY), norm);
        let value = self.pairwise(Binary::Div, input, norm)?;
        let shape = self.shape(whole);
        Ok(self.alias(value, shape))
    }
}
