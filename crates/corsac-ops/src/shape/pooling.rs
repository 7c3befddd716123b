//! Pooling: windows of fixed size, and of the size for a requested output.

use corsac_ir::{DType, MemoryFormat};
use smallvec::SmallVec;

use super::call::Call;
use super::convolution::{is_batched, windows};
use super::dim::Dim;
use super::error::Failure;
use super::rule::{Cost, Rule, Work, rule};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// `input` with other sizes in its last dimensions, in the layout of pooling results.
fn resized(input: &Tensor, sizes: Shape) -> TensorType {
    let mut shape: Shape = input.shape[..input.rank() - sizes.len()].into();
    shape.extend(sizes);
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

fn pooled_sizes(call: &Call<'_>, input: &Tensor, spatial: usize) -> Result<Shape, Failure> {
    is_batched(input, spatial)?;
    let kernel = call.per_axis("kernel_size", spatial, 0)?;
    let stride = match call.get("stride") {
        None => kernel.clone(),
        Some(value) if value.as_items().is_some_and(<[_]>::is_empty) => kernel.clone(),
        Some(_) => call.per_axis("stride", spatial, 1)?,
    };
    let has = |name| call.signature.position(name).is_some();
    let dilation = if has("dilation") {
        call.per_axis("dilation", spatial, 1)?
    } else {
        SmallVec::from_elem(1, spatial)
    };
    let padding = if has("padding") {
        call.per_axis("padding", spatial, 0)?
    } else {
        SmallVec::from_elem(0, spatial)
    };
    let ceil = call.flag("ceil_mode", false)?;
    let mut sizes = Shape::new();
    for (at, size) in input.shape[input.rank() - spatial..].iter().enumerate() {
        if padding[at] * 2 > kernel[at] {
            return Err(Failure::invalid(
                "a padding of at most half of the window",
                padding[at].to_string(),
            ));
        }
        let window = Dim::Known(kernel[at]);
        let rounding = if ceil { stride[at] - 1 } else { 0 };
        let total = 2 * padding[at];
        let mut count = windows(size, total + rounding, &window, dilation[at], stride[at])?;
        if ceil {
            // The last window must begin inside the input or its left padding.
            let last = (count.clone() - Dim::ONE) * Dim::Known(stride[at]);
            let end = size.clone() + Dim::Known(padding[at]);
            match last.less_than(&end) {
                Some(true) => {}
                Some(false) => count = count - Dim::ONE,
                None => {
                    return Err(Failure::unknown(
                        "where the last window begins is not known",
                    ));
                }
            }
        }
        sizes.push(count);
    }
    Ok(sizes)
}

/// The values, and with `INDICES` or on demand their indices.
fn max_pool<const SPATIAL: usize, const INDICES: bool>(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let values = resized(input, pooled_sizes(call, input, SPATIAL)?);
    with_indices(call, values, INDICES)
}

fn with_indices(call: &Call<'_>, values: TensorType, always: bool) -> Result<Value, Failure> {
    if !always && !call.flag("return_indices", false)? {
        return Ok(values.into());
    }
    let places = TensorType {
        dtype: DType::Int64,
        ..values.clone()
    };
    Ok(Value::tensors([values, places]))
}

fn avg_pool<const SPATIAL: usize>(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(resized(input, pooled_sizes(call, input, SPATIAL)?).into())
}

/// The requested sizes; `None` keeps a size.
fn wanted(call: &Call<'_>, input: &Tensor, spatial: usize) -> Result<Shape, Failure> {
    is_batched(input, spatial)?;
    let given = call.need("output_size")?;
    let own = &input.shape[input.rank() - spatial..];
    let Some(items) = given.as_items() else {
        let all = super::call::dims_of(given, "output_size")?;
        return Ok(Shape::from_elem(all[0].clone(), spatial));
    };
    if items.len() != spatial && items.len() != 1 {
        return Err(Failure::invalid(
            format!("{spatial} sizes as output_size"),
            items.len().to_string(),
        ));
    }
    let size = |at: usize| match &items[at.min(items.len() - 1)] {
        Value::None => Ok(own[at].clone()),
        item => super::call::as_dim(item)
            .ok_or_else(|| Failure::expected("integers as output_size", item)),
    };
    (0..spatial).map(size).collect()
}

fn adaptive_avg<const SPATIAL: usize>(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let sizes = wanted(call, input, SPATIAL)?;
    let one = sizes.iter().all(|size| size.is(1));
    let mut ty = resized(input, sizes);
    if SPATIAL == 1 {
        ty.strides = Strides::Contiguous;
    } else if one && input.rank() == SPATIAL + 2 && is_known_otherwise(&ty.strides) {
        // A mean, whose strides are then set to those of channels-last at size 1.
        let channels = ty.shape[1].clone();
        let mut strides = Shape::from_elem(channels, input.rank());
        strides[1] = Dim::ONE;
        ty.strides = Strides::of(&ty.shape, strides);
    }
    Ok(ty.into())
}

fn is_known_otherwise(strides: &Strides) -> bool {
    !matches!(strides, Strides::Contiguous | Strides::Unknown)
}

fn adaptive_max<const SPATIAL: usize>(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut values = resized(input, wanted(call, input, SPATIAL)?);
    if SPATIAL != 2 {
        values.strides = Strides::Contiguous;
    }
    with_indices(call, values, call.exact)
}

/// One operation for each element of each window.
fn window<const SPATIAL: usize>(call: &Call<'_>, result: &Value) -> Option<Work> {
    let mut values = None;
    result.for_each_tensor(&mut |tensor| values = values.or(Some(tensor)));
    let kernel = call.per_axis("kernel_size", SPATIAL, 0).ok()?;
    let area = kernel.iter().product::<i64>();
    Some(Work {
        macs: Dim::ZERO,
        flops: values?.numel() * Dim::Known(area),
    })
}

const MAX: &str = "input kernel_size stride padding dilation ceil_mode return_indices";
const AVG: &str = "input kernel_size stride padding ceil_mode count_include_pad divisor_override";
const LP: &str = "input norm_type kernel_size stride ceil_mode";
const ONE: Cost = Cost::PerInput(1);

pub(super) const RULES: &[Rule] = &[
    rule(
        "max_pool1d",
        MAX,
        max_pool::<1, false>,
        Cost::By(window::<1>),
    ),
    rule(
        "max_pool2d",
        MAX,
        max_pool::<2, false>,
        Cost::By(window::<2>),
    ),
    rule(
        "max_pool3d",
        MAX,
        max_pool::<3, false>,
        Cost::By(window::<3>),
    ),
    rule(
        "max_pool1d_with_indices",
        MAX,
        max_pool::<1, true>,
        Cost::By(window::<1>),
    ),
    rule(
        "max_pool2d_with_indices",
        MAX,
        max_pool::<2, true>,
        Cost::By(window::<2>),
    ),
    rule(
        "max_pool3d_with_indices",
        MAX,
        max_pool::<3, true>,
        Cost::By(window::<3>),
    ),
    rule("avg_pool1d", AVG, avg_pool::<1>, Cost::By(window::<1>)),
    rule("avg_pool2d", AVG, avg_pool::<2>, Cost::By(window::<2>)),
    rule("avg_pool3d", AVG, avg_pool::<3>, Cost::By(window::<3>)),
    rule("lp_pool1d", LP, avg_pool::<1>, Cost::By(window::<1>)),
    rule("lp_pool2d", LP, avg_pool::<2>, Cost::By(window::<2>)),
    rule(
        "adaptive_avg_pool1d",
        "input output_size",
        adaptive_avg::<1>,
        ONE,
    ),
    rule(
        "adaptive_avg_pool2d _adaptive_avg_pool2d",
        "input output_size",
        adaptive_avg::<2>,
        ONE,
    ),
    rule(
        "adaptive_avg_pool3d _adaptive_avg_pool3d",
        "input output_size",
        adaptive_avg::<3>,
        ONE,
    ),
    rule(
        "adaptive_max_pool1d",
        "input output_size return_indices",
        adaptive_max::<1>,
        ONE,
    ),
    rule(
        "adaptive_max_pool2d",
        "input output_size return_indices",
        adaptive_max::<2>,
        ONE,
    ),
    rule(
        "adaptive_max_pool3d",
        "input output_size return_indices",
        adaptive_max::<3>,
        ONE,
    ),
];
