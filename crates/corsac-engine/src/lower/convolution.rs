//! Convolutions.

use corsac_ops::is_operator;

use super::call::Call;
use super::table::{Lowering, tensor};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Conv, ConvNd, Op, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("conv1d", |own, call| own.convolution(call)),
    tensor("conv2d", |own, call| own.convolution(call)),
    tensor("conv3d", |own, call| own.volume(call, false)),
    tensor("conv_transpose1d", |own, call| own.volume(call, true)),
    tensor("conv_transpose2d", |own, call| own.volume(call, true)),
    tensor("conv_transpose3d", |own, call| own.volume(call, true)),
    tensor("_convolution", |own, call| own.any_convolution(call)),
    tensor("convolution", |own, call| own.any_convolution(call)),
];

impl Lowerer<'_, '_> {
    fn any_convolution(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let transposed = call.flag("transposed", false)?;
        if transposed || self.shape(call.tensor("weight")?).len() != 4 {
            return self.volume(call, transposed);
        }
        self.convolution(call)
    }

    fn convolution(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let line = is_operator!(call.operator, "conv1d");
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

    /// Convolutions in three dimensions, and transposed ones.
    fn volume(&mut self, call: &Call, transposed: bool) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let kernel = self.shape(weight);
        let spatial = kernel.len().saturating_sub(2);
        if !(1..=3).contains(&spatial) {
            return Err(format!("a convolution in {spatial} dimensions"));
        }
        let result = self.result_shape()?;
        let (mut image, mut shape) = (self.shape(input), result.clone());
        if image.len() == spatial + 1 {
            image.insert(0, 1);
            shape.insert(0, 1);
        }
        // Missing dimensions have size 1.
        let sizes = |own: &[usize]| {
            let mut all = [1; 3];
            all[3 - spatial..].copy_from_slice(&own[2..]);
            all
        };
        let per_dim = |param: &str, default: usize| -> Result<[usize; 3], Reason> {
            let mut all = [default; 3];
            let Some(given) = call.ints(param)? else {
                return Ok(all);
            };
            for at in 0..spatial {
                let own = given.get(at).or(given.first());
                let own = own.copied().unwrap_or(default as i64);
                all[3 - spatial + at] =
                    usize::try_from(own).map_err(|_| format!("{param} is negative"))?;
            }
            Ok(all)
        };
        let (stride, dilation) = (per_dim("stride", 1)?, per_dim("dilation", 1)?);
        let kernel_sizes = sizes(&kernel);
        let mut padding = [0; 3];
        match call.get("padding") {
            Some(Lowered::Known(corsac_ops::shape::Value::Str(text))) => match &**text {
                "valid" => {}
                "same" => {
                    for at in 0..3 {
                        padding[at] = dilation[at] * (kernel_sizes[at] - 1) / 2;
                    }
                }
                other => return Err(format!("padding {other}")),
            },
            _ => {
                let own = per_dim("padding", 0)?;
                padding[3 - spatial..].copy_from_slice(&own[3 - spatial..]);
            }
        }
        let groups = call.int("groups")?.unwrap_or(1);
        let groups = usize::try_from(groups).map_err(|_| "groups is negative")?;
        if stride.contains(&0) || dilation.contains(&0) || groups == 0 {
            return Err("a stride, dilation or groups of 0".to_owned());
        }
        let volume = ConvNd {
            channels: image[1],
            out_channels: shape[1],
            groups,
            input: sizes(&image),
            output: sizes(&shape),
            kernel: kernel_sizes,
            stride,
            padding,
            dilation,
            transposed,
        };
        let inputs = [input, weight].into_iter().chain(call.optional("bias")?);
        Ok(self.emit(Op::ConvNd(volume), inputs, result))
    }
}
