//! Images and signals at another size: interpolation, padding, shuffling of pixels.

use corsac_ir::MemoryFormat;

use super::broadcast::size_is;
use super::call::Call;
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

fn in_own_format(input: &Tensor, shape: Shape) -> TensorType {
    let strides = match input.suggested_format() {
        Some(MemoryFormat::Contiguous) => Strides::Contiguous,
        Some(format) => Strides::in_format(&shape, format),
        None => Strides::Unknown,
    };
    TensorType {
        strides,
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(Dim::Known(value)) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

/// A size times a factor, rounded down.
fn scaled(size: &Dim, factor: f64) -> Result<Dim, Failure> {
    if let Some(size) = size.known() {
        return Ok(Dim::Known((size as f64 * factor).floor() as i64));
    }
    if factor.fract() == 0.0 && factor >= 1.0 {
        return Ok(size.clone() * Dim::Known(factor as i64));
    }
    let inverse = 1.0 / factor;
    if inverse.fract() == 0.0 && inverse >= 1.0 {
        return size
            .floor_div(&Dim::Known(inverse as i64))
            .ok_or_else(|| Failure::unknown("a factor of zero"));
    }
    Err(Failure::unknown(format!("{size} times {factor}")))
}

fn interpolate(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let spatial = input.rank().checked_sub(2).filter(|s| (1..=3).contains(s));
    let Some(spatial) = spatial else {
        return Err(Failure::invalid(
            "a tensor of three to five dimensions",
            input.ty.to_string(),
        ));
    };
    let own = &input.shape[2..];
    let sizes: Shape = if let Some(size) = call.dims("size")? {
        match size.len() {
            1 => Shape::from_elem(size[0].clone(), spatial),
            n if n == spatial => size,
            n => {
                return Err(Failure::invalid(
                    format!("1 or {spatial} sizes"),
                    n.to_string(),
                ));
            }
        }
    } else {
        let factor = call.need("scale_factor")?;
        let factors: Option<Vec<f64>> = match factor.as_items() {
            Some(items) if items.len() == spatial => items.iter().map(number).collect(),
            Some(items) => {
                return Err(Failure::invalid(
                    format!("{spatial} factors"),
                    items.len().to_string(),
                ));
            }
            None => number(factor).map(|factor| vec![factor; spatial]),
        };
        let Some(factors) = factors else {
            return Err(Failure::expected("numbers as scale_factor", factor));
        };
        own.iter()
            .zip(factors)
            .map(|(size, by)| scaled(size, by))
            .collect::<Result<_, _>>()?
    };
    let mut shape: Shape = input.shape[..2].into();
    shape.extend(sizes);
    let mut ty = in_own_format(input, shape);
    // Modes differ in the layout of inputs that are not contiguous.
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

fn pad(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let Some(amounts) = call.dims("pad")? else {
        return Err(Failure::invalid("an argument pad", "none"));
    };
    // The padding of a module with one number for all sides is a tuple by then.
    if amounts.len() % 2 != 0 || amounts.len() > 2 * input.rank() {
        return Err(Failure::invalid(
            format!("pairs for at most {} dimensions", input.rank()),
            amounts.len().to_string(),
        ));
    }
    let mut shape = input.shape.clone();
    for (at, pair) in amounts.chunks_exact(2).enumerate() {
        let axis = input.rank() - 1 - at;
        shape[axis] = shape[axis].clone() + pair[0].clone() + pair[1].clone();
    }
    if shape
        .iter()
        .any(|size| size.less_than(&Dim::ZERO) == Some(true))
    {
        return Err(Failure::invalid(
            "sizes of zero or more",
            super::broadcast::shape_text(&shape),
        ));
    }
    let mode = call.text("mode")?.unwrap_or("constant");
    let mut ty = in_own_format(input, shape);
    if mode != "constant" && ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    if input.rank() < 4 && input.is_contiguous() != Some(true) {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

/// `[.., c r^2, h, w]` to `[.., c, h r, w r]`.
fn pixel_shuffle(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let factor = call.dim("upscale_factor")?.unwrap_or(Dim::ONE);
    let Some(at) = input.rank().checked_sub(3) else {
        return Err(Failure::invalid(
            "a tensor of three dimensions or more",
            input.ty.to_string(),
        ));
    };
    let square = factor.clone() * factor.clone();
    let channels = input.shape[at].exact_div(&square).ok_or_else(|| {
        Failure::invalid(
            format!("channels that {square} divides"),
            input.ty.to_string(),
        )
    })?;
    let mut shape = input.shape.clone();
    shape[at] = channels;
    shape[at + 1] = shape[at + 1].clone() * factor.clone();
    shape[at + 2] = shape[at + 2].clone() * factor;
    Ok(shuffled(input, shape).into())
}

fn pixel_unshuffle(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let factor = call.dim("downscale_factor")?.unwrap_or(Dim::ONE);
    let Some(at) = input.rank().checked_sub(3) else {
        return Err(Failure::invalid(
            "a tensor of three dimensions or more",
            input.ty.to_string(),
        ));
    };
    let mut shape = input.shape.clone();
    for axis in [at + 1, at + 2] {
        shape[axis] = input.shape[axis].exact_div(&factor).ok_or_else(|| {
            Failure::invalid(format!("sizes that {factor} divides"), input.ty.to_string())
        })?;
    }
    shape[at] = shape[at].clone() * factor.clone() * factor;
    Ok(shuffled(input, shape).into())
}

fn shuffled(input: &Tensor, shape: Shape) -> TensorType {
    let mut ty = in_own_format(input, shape);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    ty
}

fn channel_shuffle(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

fn grid_sample(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, grid) = (call.tensor("input")?, call.tensor("grid")?);
    let spatial = input.rank().saturating_sub(2);
    if input.rank() != grid.rank() || !(2..=3).contains(&spatial) {
        return Err(Failure::invalid(
            "an input and a grid of four or five dimensions each",
            format!("{} and {}", input.ty, grid.ty),
        ));
    }
    if !size_is(&grid.shape[spatial + 1], spatial as i64)? {
        return Err(Failure::invalid(
            format!("a grid whose last size is {spatial}"),
            grid.ty.to_string(),
        ));
    }
    let mut shape: Shape = input.shape[..2].into();
    shape.extend(grid.shape[1..=spatial].iter().cloned());
    Ok(shuffled(input, shape).into())
}

fn affine_grid(call: &Call<'_>) -> Result<Value, Failure> {
    let theta = call.tensor("theta")?;
    let Some(size) = call.dims("size")? else {
        return Err(Failure::invalid("an argument size", "none"));
    };
    let spatial = size.len().saturating_sub(2);
    let mut shape = Shape::from_iter(size.first().cloned());
    shape.extend(size.iter().skip(2).cloned());
    shape.push(Dim::Known(spatial as i64));
    Ok(TensorType {
        strides: Strides::Unknown,
        device: theta.device,
        ..TensorType::new(theta.dtype, shape)
    }
    .into())
}

struct Patches {
    /// Number of elements of a window.
    area: i64,
    /// Number of windows.
    count: Dim,
}

fn patches(call: &Call<'_>, sizes: &[Dim]) -> Result<Patches, Failure> {
    let kernel = call.per_axis("kernel_size", 2, 1)?;
    let dilation = call.per_axis("dilation", 2, 1)?;
    let padding = call.per_axis("padding", 2, 0)?;
    let stride = call.per_axis("stride", 2, 1)?;
    let mut count = Dim::ONE;
    for (at, size) in sizes.iter().enumerate() {
        let kernel = Dim::Known(kernel[at]);
        count = count
            * super::convolution::windows(
                size,
                2 * padding[at],
                &kernel,
                dilation[at],
                stride[at],
            )?;
    }
    Ok(Patches {
        area: kernel.iter().product(),
        count,
    })
}

fn unfold(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if !matches!(input.rank(), 3 | 4) {
        return Err(Failure::invalid(
            "a tensor of three or four dimensions",
            input.ty.to_string(),
        ));
    }
    let at = input.rank() - 3;
    let patches = patches(call, &input.shape[at + 1..])?;
    let mut shape: Shape = input.shape[..at].into();
    shape.push(input.shape[at].clone() * Dim::Known(patches.area));
    shape.push(patches.count);
    Ok(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }
    .into())
}

fn fold(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let Some(sizes) = call.dims("output_size")?.filter(|sizes| sizes.len() == 2) else {
        return Err(Failure::unknown("an output_size of other than two sizes"));
    };
    let patches = patches(call, &sizes)?;
    let Some(at) = input.rank().checked_sub(2) else {
        return Err(Failure::invalid(
            "a tensor of two or three dimensions",
            input.ty.to_string(),
        ));
    };
    let fits = patches.count.equals(&input.shape[at + 1]);
    let channels = input.shape[at].exact_div(&Dim::Known(patches.area));
    let (Some(channels), Some(true)) = (channels, fits) else {
        return Err(Failure::invalid(
            format!(
                "blocks of {} elements, {} of them",
                patches.area, patches.count
            ),
            input.ty.to_string(),
        ));
    };
    let mut shape: Shape = input.shape[..at].into();
    shape.push(channels);
    shape.extend(sizes);
    Ok(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "interpolate upsample",
        "input size scale_factor mode align_corners recompute_scale_factor antialias",
        interpolate,
        Cost::PerOutput(7),
    ),
    rule(
        "upsample_nearest upsample_bilinear",
        "input size scale_factor",
        interpolate,
        Cost::PerOutput(7),
    ),
    rule("pad", "input pad mode value", pad, Cost::Move),
    rule("constant_pad_nd", "input pad value *mode", pad, Cost::Move),
    rule(
        "pixel_shuffle",
        "input upscale_factor",
        pixel_shuffle,
        Cost::Move,
    ),
    rule(
        "pixel_unshuffle",
        "input downscale_factor",
        pixel_unshuffle,
        Cost::Move,
    ),
    rule(
        "channel_shuffle native_channel_shuffle",
        "input groups",
        channel_shuffle,
        Cost::Move,
    ),
    rule(
        "grid_sample",
        "input grid mode padding_mode align_corners",
        grid_sample,
        Cost::Unknown,
    ),
    rule(
        "affine_grid",
        "theta size align_corners",
        affine_grid,
        Cost::Unknown,
    ),
    rule(
        "F.unfold im2col",
        "input kernel_size dilation padding stride",
        unfold,
        Cost::Move,
    ),
    rule(
        "fold col2im",
        "input output_size kernel_size dilation padding stride",
        fold,
        Cost::PerInput(1),
    ),
];
