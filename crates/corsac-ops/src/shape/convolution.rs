//! Convolutions and transposed convolutions.

use corsac_ir::MemoryFormat;
use smallvec::SmallVec;

use super::broadcast::{same_size, shape_text};
use super::call::Call;
use super::dim::Dim;
use super::error::Failure;
use super::matmul::same_dtype;
use super::rule::{Cost, Rule, rule};
use super::sharding::{self, Sizes};
use super::tensor_type::{CPU, Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// Number of places of a window: `(size + padding - dilation * (kernel - 1) - 1) / stride + 1`,
/// rounded down. `padding` is that of both sides together.
///
/// Source: the formula in the documentation of `torch.nn.Conv2d`.
pub(super) fn windows(
    size: &Dim,
    padding: i64,
    kernel: &Dim,
    dilation: i64,
    stride: i64,
) -> Result<Dim, Failure> {
    let reach = (kernel.clone() - Dim::ONE) * Dim::Known(dilation) + Dim::ONE;
    let free = size.clone() + Dim::Known(padding) - reach.clone();
    match free.less_than(&Dim::ZERO) {
        Some(true) => {
            return Err(Failure::invalid(
                format!("a window of at most {}", size.clone() + Dim::Known(padding)),
                reach.to_string(),
            ));
        }
        Some(false) => {}
        // A window that does not fit is an error when it runs, so where it runs, it fits.
        None => {}
    }
    let stride = Dim::Known(stride);
    free.floor_div(&stride)
        .map(|steps| steps + Dim::ONE)
        .ok_or_else(|| Failure::invalid("a stride above zero", "0"))
}

/// Whether there is a batch dimension, for a kernel of `spatial` dimensions.
pub(super) fn is_batched(input: &Tensor, spatial: usize) -> Result<bool, Failure> {
    match input.rank() {
        rank if rank == spatial + 2 => Ok(true),
        rank if rank == spatial + 1 => Ok(false),
        _ => Err(Failure::invalid(
            format!("a tensor of {} or {} dimensions", spatial + 1, spatial + 2),
            input.ty.to_string(),
        )),
    }
}

struct Convolution<'a> {
    input: &'a Tensor,
    weight: &'a Tensor,
    spatial: usize,
    batched: bool,
    transposed: bool,
    groups: i64,
}

impl<'a> Convolution<'a> {
    fn of(call: &'a Call<'_>, transposed: bool) -> Result<Self, Failure> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        if weight.rank() < 3 {
            return Err(Failure::invalid(
                "a weight of three dimensions or more",
                weight.ty.to_string(),
            ));
        }
        let spatial = weight.rank() - 2;
        Ok(Self {
            input,
            weight,
            spatial,
            batched: is_batched(input, spatial)?,
            transposed,
            groups: call.int("groups")?.unwrap_or(1),
        })
    }

    fn check(&self) -> Result<(), Failure> {
        same_dtype(self.weight, self.input)?;
        let channels = &self.input.shape[usize::from(self.batched)];
        let expected = if self.transposed {
            self.weight.shape[0].clone()
        } else {
            self.weight.shape[1].clone() * Dim::Known(self.groups)
        };
        if same_size(channels, &expected)? {
            return Ok(());
        }
        Err(Failure::invalid(
            format!("an input with {expected} channels"),
            self.input.ty.to_string(),
        ))
    }

    fn input_sizes(&self) -> &'a [Dim] {
        &self.input.shape[1 + usize::from(self.batched)..]
    }

    fn kernel(&self) -> &'a [Dim] {
        &self.weight.shape[2..]
    }

    fn made(&self, sizes: Shape) -> Value {
        let mut shape = Shape::new();
        if self.batched {
            shape.push(self.input.shape[0].clone());
        }
        shape.push(if self.transposed {
            self.weight.shape[1].clone() * Dim::Known(self.groups)
        } else {
            self.weight.shape[0].clone()
        });
        shape.extend(sizes);
        let strides = self.strides(&shape);
        TensorType {
            strides,
            device: self.input.device,
            ..TensorType::new(self.input.dtype, shape)
        }
        .into()
    }

    /// Channels-last if the input or the weight is.
    fn strides(&self, shape: &Shape) -> Strides {
        if !self.batched {
            // Computed with a batch of one, and then selected from it.
            return match self.input.is_contiguous() {
                Some(true) => Strides::Contiguous,
                _ => Strides::Unknown,
            };
        }
        let formats = [self.input, self.weight].map(|t| t.suggested_format());
        match formats {
            [
                Some(MemoryFormat::Contiguous),
                Some(MemoryFormat::Contiguous),
            ] => Strides::Contiguous,
            [None, _] | [_, None] => Strides::Unknown,
            // Kernels of meta tensors do not lay out as those of the processor do.
            _ if self.input.device != CPU => Strides::Unknown,
            _ => Strides::in_format(shape, MemoryFormat::ChannelsLast),
        }
    }
}

/// Padding of both sides together, per dimension.
fn paddings(
    call: &Call<'_>,
    kernel: &[Dim],
    dilation: &[i64],
) -> Result<SmallVec<[i64; 3]>, Failure> {
    let Some(Value::Str(text)) = call.get("padding") else {
        let sides = call.per_axis("padding", kernel.len(), 0)?;
        return Ok(sides
            .into_iter()
            .map(|side| side.saturating_mul(2))
            .collect());
    };
    match &**text {
        "valid" => Ok(SmallVec::from_elem(0, kernel.len())),
        "same" => {
            let total = kernel.iter().zip(dilation).map(|(kernel, dilation)| {
                kernel
                    .known()
                    .map(|kernel| dilation.saturating_mul(kernel.saturating_sub(1)))
                    .ok_or_else(|| Failure::unknown("the kernel's size is not known"))
            });
            total.collect()
        }
        other => Err(Failure::invalid("same, valid or numbers as padding", other)),
    }
}

fn forward(call: &Call<'_>) -> Result<Value, Failure> {
    let conv = Convolution::of(call, false)?;
    conv.check()?;
    let stride = call.per_axis("stride", conv.spatial, 1)?;
    let dilation = call.per_axis("dilation", conv.spatial, 1)?;
    let padding = paddings(call, conv.kernel(), &dilation)?;
    let mut sizes = Shape::new();
    for (at, (size, kernel)) in conv.input_sizes().iter().zip(conv.kernel()).enumerate() {
        sizes.push(windows(
            size,
            padding[at],
            kernel,
            dilation[at],
            stride[at],
        )?);
    }
    Ok(conv.made(sizes))
}

fn transposed(call: &Call<'_>) -> Result<Value, Failure> {
    let conv = Convolution::of(call, true)?;
    conv.check()?;
    let stride = call.per_axis("stride", conv.spatial, 1)?;
    let dilation = call.per_axis("dilation", conv.spatial, 1)?;
    let padding = call.per_axis("padding", conv.spatial, 0)?;
    let output_padding = call.per_axis("output_padding", conv.spatial, 0)?;
    let mut sizes = Shape::new();
    for (at, (size, kernel)) in conv.input_sizes().iter().zip(conv.kernel()).enumerate() {
        let covered = (size.clone() - Dim::ONE) * Dim::Known(stride[at]);
        let reach = (kernel.clone() - Dim::ONE) * Dim::Known(dilation[at]);
        sizes.push(covered + reach + Dim::Known(output_padding[at] + 1 - 2 * padding[at]));
    }
    if sizes
        .iter()
        .any(|size| size.less_than(&Dim::ONE) == Some(true))
    {
        return Err(Failure::invalid("sizes above zero", shape_text(&sizes)));
    }
    Ok(conv.made(sizes))
}

fn either(call: &Call<'_>) -> Result<Value, Failure> {
    if call.flag("transposed", false)? {
        transposed(call)
    } else {
        forward(call)
    }
}

fn macs_of(call: &Call<'_>, result: &Value, transposed: bool) -> Option<Dim> {
    let conv = Convolution::of(call, transposed).ok()?;
    let taps = Dim::product(conv.kernel()) * conv.weight.shape[1].clone();
    if transposed {
        return Some(conv.input.numel() * taps);
    }
    Some(result.as_tensor()?.numel() * taps)
}

fn forward_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    macs_of(call, result, false)
}

fn transposed_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    macs_of(call, result, true)
}

fn either_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    macs_of(call, result, call.flag("transposed", false).ok()?)
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "conv1d conv2d conv3d",
        "input weight bias stride padding dilation groups",
        forward,
        Cost::Macs(forward_macs),
    )
    .shards(sharding::convolved)
    .sizes(Sizes::Groups("groups")),
    rule(
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        "input weight bias stride padding output_padding groups dilation",
        transposed,
        Cost::Macs(transposed_macs),
    ),
    rule(
        "convolution _convolution",
        "input weight bias stride padding dilation transposed output_padding groups benchmark \
         deterministic cudnn_enabled allow_tf32",
        either,
        Cost::Macs(either_macs),
    ),
];
