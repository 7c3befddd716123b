//! Fourier transforms. Source: <https://pytorch.org/docs/stable/fft.html>.

use corsac_ir::DType;

use super::call::{Call, wrap_axis};
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::promotion::{complex_of, is_inexact, real_part};
use super::rule::{Cost, Rule, rule};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// The length of the last dimension of a transform.
#[derive(Clone, Copy)]
enum Last {
    /// It stays as long as it is.
    Kept,
    /// Half the length and one: the frequencies of a real signal.
    Halved,
    /// The inverse: a real signal from its frequencies.
    Doubled,
}

fn transformed(
    call: &Call<'_>,
    input: &Tensor,
    axes: &[usize],
    sizes: Option<&Shape>,
    last: Last,
) -> Result<Value, Failure> {
    let float = if is_inexact(input.dtype) {
        input.dtype
    } else {
        call.settings.default_dtype
    };
    let complex = complex_of(float).unwrap_or(float);
    let dtype: DType = match last {
        Last::Doubled => real_part(complex),
        Last::Kept | Last::Halved => complex,
    };
    let mut shape = input.shape.clone();
    for (i, &axis) in axes.iter().enumerate() {
        if let Some(size) = sizes
            .and_then(|sizes| sizes.get(i))
            .filter(|size| !size.is(-1))
        {
            shape[axis] = size.clone();
        }
    }
    if let Some(&axis) = axes.last() {
        let given = sizes.is_some_and(|sizes| sizes.last().is_some_and(|size| !size.is(-1)));
        let own = shape[axis].clone();
        shape[axis] = match last {
            Last::Kept => own,
            Last::Halved => own.floor_div(&Dim::Known(2)).unwrap_or(Dim::ZERO) + Dim::ONE,
            Last::Doubled if given => own,
            Last::Doubled => (own - Dim::ONE) * Dim::Known(2),
        };
    }
    // Results are laid out by the library that computes them.
    Ok(TensorType {
        strides: Strides::Unknown,
        device: input.device,
        ..TensorType::new(dtype, shape)
    }
    .into())
}

fn along_one(call: &Call<'_>, last: Last) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if input.rank() == 0 {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    }
    let axis = wrap_axis(call.int("dim")?.unwrap_or(-1), input.rank())?;
    let size = call.dim("n")?.map(|n| Shape::from_iter([n]));
    transformed(call, input, &[axis], size.as_ref(), last)
}

fn along_many(call: &Call<'_>, default: Option<usize>, last: Last) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let sizes = call.dims("s")?;
    if input.rank() == 0 {
        return Err(Failure::unknown("a tensor without dimensions"));
    }
    let axes: Vec<usize> = match call.dims("dim")? {
        Some(dims) => dims
            .iter()
            .map(|d| {
                let known = d
                    .known()
                    .ok_or_else(|| Failure::unknown("a dimension is not known"));
                wrap_axis(known?, input.rank())
            })
            .collect::<Result<_, _>>()?,
        None => {
            let count = sizes.as_ref().map(|sizes| sizes.len()).or(default);
            let count = count.unwrap_or(input.rank());
            let Some(first) = input.rank().checked_sub(count) else {
                return Err(Failure::invalid(
                    format!("a tensor of {count} dimensions or more"),
                    input.ty.to_string(),
                ));
            };
            (first..input.rank()).collect()
        }
    };
    transformed(call, input, &axes, sizes.as_ref(), last)
}

fn kept(call: &Call<'_>) -> Result<Value, Failure> {
    along_one(call, Last::Kept)
}

fn halved(call: &Call<'_>) -> Result<Value, Failure> {
    along_one(call, Last::Halved)
}

fn doubled(call: &Call<'_>) -> Result<Value, Failure> {
    along_one(call, Last::Doubled)
}

fn kept2(call: &Call<'_>) -> Result<Value, Failure> {
    along_many(call, Some(2), Last::Kept)
}

fn halved2(call: &Call<'_>) -> Result<Value, Failure> {
    along_many(call, Some(2), Last::Halved)
}

fn doubled2(call: &Call<'_>) -> Result<Value, Failure> {
    along_many(call, Some(2), Last::Doubled)
}

fn kept_n(call: &Call<'_>) -> Result<Value, Failure> {
    along_many(call, None, Last::Kept)
}

fn halved_n(call: &Call<'_>) -> Result<Value, Failure> {
    along_many(call, None, Last::Halved)
}

fn doubled_n(call: &Call<'_>) -> Result<Value, Failure> {
    along_many(call, None, Last::Doubled)
}

fn shift(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

const ONE: &str = "input n dim norm";
const MANY: &str = "input s dim norm";

pub(super) const RULES: &[Rule] = &[
    rule("fft.fft fft.ifft", ONE, kept, Cost::Unknown),
    rule("fft.rfft fft.ihfft", ONE, halved, Cost::Unknown),
    rule("fft.irfft fft.hfft", ONE, doubled, Cost::Unknown),
    rule("fft.fft2 fft.ifft2", MANY, kept2, Cost::Unknown),
    rule("fft.rfft2", MANY, halved2, Cost::Unknown),
    rule("fft.irfft2", MANY, doubled2, Cost::Unknown),
    rule("fft.fftn fft.ifftn", MANY, kept_n, Cost::Unknown),
    rule("fft.rfftn", MANY, halved_n, Cost::Unknown),
    rule("fft.irfftn", MANY, doubled_n, Cost::Unknown),
    rule("fft.fftshift fft.ifftshift", "input dim", shift, Cost::Move),
];
