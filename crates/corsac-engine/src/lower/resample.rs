//! Resizing of images, and convolutions in three dimensions and transposed ones.

use smallvec::SmallVec;

use super::call::{Call, as_number};
use super::{Lowered, Lowerer, Reason};
use crate::program::{ConvNd, Element, Op, Taps, ValueId};

impl Lowerer<'_, '_> {
    /// `F.interpolate`, one dimension after the other.
    pub(super) fn interpolated(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.flag("antialias", false)? {
            return Err("interpolation with antialias".to_owned());
        }
        let input = call.tensor("input")?;
        let (from, to) = (self.shape(input), self.result_shape()?);
        let mode = call.text("mode")?.unwrap_or("nearest").to_owned();
        let corners = match call.get("align_corners") {
            None => false,
            Some(_) => call.flag("align_corners", false)?,
        };
        let spatial = from.len().saturating_sub(2);
        // The given factor is used, unless it is recomputed from the sizes.
        let anew = match call.get("recompute_scale_factor") {
            None => false,
            Some(_) => call.flag("recompute_scale_factor", false)?,
        };
        let mut factors: Vec<Option<f64>> = vec![None; spatial];
        if !anew && let Some(given) = call.known("scale_factor")? {
            for (at, factor) in factors.iter_mut().enumerate() {
                let own = match given.as_items() {
                    Some(items) => items.get(at),
                    None => Some(given),
                };
                *factor = own.and_then(as_number);
            }
        }
        if from.contains(&0) || to.contains(&0) {
            return Err("an image without elements".to_owned());
        }
        if mode == "area" {
            if spatial != 2 {
                return Err("areas of what is no image".to_owned());
            }
            return Ok(self.emit(Op::AdaptiveAvgPool, [input], to));
        }
        if spatial == 2 && mode.starts_with("nearest") {
            let mut places = [Vec::new(), Vec::new()];
            for (at, places) in places.iter_mut().enumerate() {
                let sizes = [from[at + 2], to[at + 2]];
                for own in resampling(&mode, spatial, sizes, factors[at], corners)? {
                    places.push(own[0].0);
                }
            }
            let [rows, columns] = places;
            return Ok(self.arranged(input, &rows, &columns));
        }
        let mut value = input;
        let mut shape = from.clone();
        // The dimensions that shrink most come first, and of equal ones the last, as in PyTorch.
        let mut order: SmallVec<[usize; 3]> = (0..spatial).rev().collect();
        order.sort_by(|&a, &b| {
            let grown = |at: usize| to[at + 2] as f64 / from[at + 2] as f64;
            grown(a).total_cmp(&grown(b))
        });
        for at in order {
            let (dim, factor) = (at + 2, factors[at]);
            let [size, count] = [from[dim], to[dim]];
            let taps = resampling(&mode, spatial, [size, count], factor, corners)?;
            if size == count && taps.iter().enumerate().all(|(i, t)| t[..] == [(i, 1.0)]) {
                continue;
            }
            shape[dim] = count;
            let op = Op::Resample { dim, taps };
            value = self.emit_typed(op, [value], Element::F32, shape.clone());
        }
        Ok(value)
    }

    /// Convolutions in three dimensions, and transposed ones.
    pub(super) fn volume(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let kernel = self.shape(weight);
        let spatial = kernel.len().saturating_sub(2);
        if !(1..=3).contains(&spatial) {
            return Err(format!("a convolution in {spatial} dimensions"));
        }
        let transposed = match call.name {
            "convolution" | "_convolution" => call.flag("transposed", false)?,
            name => name.starts_with("conv_transpose"),
        };
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
        Ok(self.emit_typed(Op::ConvNd(volume), inputs, Element::F32, result))
    }
}

/// Taps of each of `count` elements of the result along a dimension of `size` elements, in images
/// of `spatial` dimensions.
fn resampling(
    mode: &str,
    spatial: usize,
    [size, count]: [usize; 2],
    factor: Option<f64>,
    corners: bool,
) -> Result<Taps, Reason> {
    // In single precision, as PyTorch computes it.
    let scale = match factor {
        Some(factor) => (1.0 / factor) as f32,
        None => size as f32 / count as f32,
    };
    // Where the ratio of the sizes is a whole number, a given factor is ignored.
    let plain = match mode {
        "linear" | "bilinear" | "trilinear" if count == size => Some(1),
        "nearest" if spatial == 2 && count == size => Some(1),
        "nearest" if spatial == 2 && count == 2 * size => Some(2),
        _ => None,
    };
    let tap = |i: usize| match plain {
        Some(times) => Ok(SmallVec::from_iter([(i / times, 1.0)])),
        None => taps(mode, i, [size, count], scale, corners),
    };
    (0..count).map(tap).collect()
}

/// Taps of element `i` of `count`, over `size` elements. Source: `UpSample.h` of PyTorch.
fn taps(
    mode: &str,
    i: usize,
    [size, count]: [usize; 2],
    scale: f32,
    corners: bool,
) -> Result<SmallVec<[(usize, f32); 4]>, Reason> {
    let last = size - 1;
    let place = |half: bool| -> f32 {
        match (corners, half) {
            (true, _) if count > 1 => i as f32 * (last as f32 / (count - 1) as f32),
            (true, _) => 0.0,
            (false, true) => scale * (i as f32 + 0.5) - 0.5,
            (false, false) => i as f32 * scale,
        }
    };
    let mut taps: SmallVec<[(usize, f32); 4]> = SmallVec::new();
    match mode {
        "nearest" => taps.push((((i as f32 * scale).floor() as usize).min(last), 1.0)),
        "nearest-exact" => {
            taps.push(((((i as f32 + 0.5) * scale).floor() as usize).min(last), 1.0));
        }
        "linear" | "bilinear" | "trilinear" => {
            let at = place(true).max(0.0);
            let low = (at.floor() as usize).min(last);
            let part = (at - low as f32).clamp(0.0, 1.0);
            taps.push((low, 1.0 - part));
            if low < last {
                taps.push((low + 1, part));
            } else {
                taps[0].1 = 1.0;
            }
        }
        "bicubic" => {
            let at = place(true);
            let low = at.floor();
            let part = at - low;
            for (offset, weight) in cubic(part).into_iter().enumerate() {
                let own = (low as i64 + offset as i64 - 1).clamp(0, last as i64);
                taps.push((own.unsigned_abs() as usize, weight));
            }
        }
        other => return Err(format!("interpolation by {other}")),
    }
    Ok(taps)
}

/// Weights of four neighbours: Keys' cubic convolution with the parameter -0.75.
fn cubic(t: f32) -> [f32; 4] {
    let a = -0.75;
    let near = |x: f32| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}
