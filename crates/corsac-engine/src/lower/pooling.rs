//! Pooling, and resizing of images.

use smallvec::SmallVec;

use corsac_ops::is_operator;

use super::call::{Call, as_number};
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Element, Float, Op, Pool, Taps, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("adaptive_avg_pool1d", |own, call| own.adaptive_pool_of_lines(call)),
    tensor("adaptive_avg_pool2d", |own, call| own.adaptive_pool(call)),
    tensor("_adaptive_avg_pool2d", |own, call| own.adaptive_pool(call)),
    tensor("avg_pool1d", |own, call| own.pool_of_lines(call)),
    tensor("avg_pool2d", |own, call| own.avg_pool(call)),
    tensor("interpolate", |own, call| own.interpolated(call)),
    tensor("max_pool1d", |own, call| own.pool_of_lines(call)),
    lowered("max_pool2d", |own, call| own.max_pool(call)).of_any_type(),
    lowered("max_pool2d_with_indices", |own, call| own.max_pool(call)).of_any_type(),
    tensor("pixel_shuffle", |own, call| own.pixels(call, true)),
    tensor("pixel_unshuffle", |own, call| own.pixels(call, false)),
    tensor("upsample", |own, call| own.interpolated(call)),
];

impl Lowerer<'_, '_> {
    fn adaptive_pool(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let shape = self.result_shape()?;
        Ok(self.emit(Op::AdaptiveAvgPool, [call.tensor("input")?], shape))
    }

    fn adaptive_pool_of_lines(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (image, shape) = self.line_as_image(call)?;
        let value = self.emit(Op::AdaptiveAvgPool, [image], shape);
        let result = self.result_shape()?;
        Ok(self.alias(value, result))
    }

    /// The lines to pool as an image of one row, and the shape of the pooled image.
    fn line_as_image(&mut self, call: &Call) -> Result<(ValueId, Vec<usize>), Reason> {
        let input = call.tensor("input")?;
        let (mut image, mut shape) = (self.shape(input), self.result_shape()?);
        let at = image.len().checked_sub(1).ok_or("a line of a number")?;
        image.insert(at, 1);
        shape.insert(at, 1);
        Ok((self.alias(input, image), shape))
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

    /// The largest elements, and where they are asked for, their places.
    fn max_pool(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let element = self.program.element(input);
        if !element.is_float() {
            return Err(format!("{} of {}", call.operator.name(), element.name()));
        }
        let pool = Pool {
            dilation: call.pair("dilation", 1)?,
            ..self.pool(call)?
        };
        if pool.dilation.contains(&0) {
            return Err("a dilation of 0".to_owned());
        }
        let shapes = self.result_shapes()?;
        let shape = shapes.first().ok_or("it has no results")?;
        let op = Op::MaxPool(pool.clone());
        let values = self.emit_typed(op, [input], element, shape.clone());
        if shapes.len() == 1 {
            return Ok(Lowered::Tensor(values));
        }
        let places = self.emit_typed(Op::ArgMaxPool(pool), [input], Element::I64, shape.clone());
        self.pair([values, places])
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

    /// Pooling of lines, as images of one row.
    fn pool_of_lines(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (image, shape) = self.line_as_image(call)?;
        let size = |param: &str, default: usize, beside: usize| -> Result<[usize; 2], Reason> {
            let given = call.ints(param)?.and_then(|sizes| sizes.first().copied());
            match given.map(usize::try_from) {
                None => Ok([beside, default]),
                Some(Ok(size)) => Ok([beside, size]),
                Some(Err(_)) => Err(format!("{param} is negative")),
            }
        };
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
        let op = match is_operator!(call.operator, "max_pool1d") {
            true => Op::MaxPool(pool),
            false => Op::AvgPool {
                pool,
                count_padding: call.flag("count_include_pad", true)?,
                divisor: None,
            },
        };
        let value = self.emit(op, [image], shape);
        let result = self.result_shape()?;
        Ok(self.alias(value, result))
    }

    /// `F.interpolate`, one dimension after the other.
    fn interpolated(&mut self, call: &Call) -> Result<ValueId, Reason> {
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
        self.resampled += to[2..].iter().sum::<usize>();
        if self.resampled > RESAMPLED {
            return Err(format!(
                "interpolation to more than {RESAMPLED} rows and columns"
            ));
        }
        if mode == "area" {
            if spatial != 2 {
                return Err("areas of what is no image".to_owned());
            }
            return Ok(self.emit(Op::AdaptiveAvgPool, [input], to));
        }
        let is_single = self.program.element(input) == Element::F32;
        let resampling = match is_single {
            true => resampling::<f32>,
            false => resampling::<f64>,
        };
        if spatial == 2 && mode.starts_with("nearest") && is_single {
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
            value = self.emit(op, [value], shape.clone());
        }
        Ok(value)
    }

    fn pixels(&mut self, call: &Call, up: bool) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let param = if up {
            "upscale_factor"
        } else {
            "downscale_factor"
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

/// Sum of the sizes to which the images of a program may be interpolated: each takes about 72 bytes.
const RESAMPLED: usize = 1 << 22;

/// Taps of each of `count` elements of the result along a dimension of `size` elements, in images
/// of `spatial` dimensions. Places and weights are computed in the precision of the image, as in
/// PyTorch.
fn resampling<T: Float + Into<f64>>(
    mode: &str,
    spatial: usize,
    [size, count]: [usize; 2],
    factor: Option<f64>,
    corners: bool,
) -> Result<Taps, Reason> {
    let scale = match factor {
        Some(factor) => T::of(1.0 / factor),
        None => number::<T>(size) / number(count),
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
        None if mode.starts_with("nearest") => {
            let own = nearest(mode == "nearest-exact", spatial, i, scale);
            Ok(SmallVec::from_iter([(own.min(size - 1), 1.0)]))
        }
        None => taps(mode, i, [size, count], scale, corners),
    };
    (0..count).map(tap).collect()
}

/// The element nearest to element `i` of a result. PyTorch finds places of pixels in single precision; other
/// places have the precision of the elements, and are rounded to single precision in the end.
fn nearest<T: Float + Into<f64>>(is_exact: bool, spatial: usize, i: usize, scale: T) -> usize {
    let single = scale.into() as f32;
    let place = match (is_exact, spatial) {
        (false, 2) => i as f32 * single,
        (true, 2) => (i as f32 + 0.5) * single,
        (false, _) => (number::<T>(i) * scale).into() as f32,
        (true, _) => {
            // The product and the difference are rounded once.
            let place = T::of(scale.into() * (i as f64 + 0.5) - 0.5);
            (place.max(T::default()) + T::of(0.5)).into() as f32
        }
    };
    place.floor() as usize
}

/// A size or an index as a number.
fn number<T: Float>(size: usize) -> T {
    T::of_integer(size as i64)
}

/// Taps of element `i` of `count`, over `size` elements. Source: `UpSample.h` of PyTorch.
fn taps<T: Float + Into<f64>>(
    mode: &str,
    i: usize,
    [size, count]: [usize; 2],
    scale: T,
    corners: bool,
) -> Result<SmallVec<[(usize, f64); 4]>, Reason> {
    let (last, own) = (size - 1, number::<T>(i));
    let [half, one] = [0.5, 1.0].map(T::of);
    let whole = |number: T| number.into() as usize;
    // Without aligned corners, relative to the middle of an element.
    let place = match corners {
        true if count > 1 => own * (number::<T>(last) / number(count - 1)),
        true => T::default(),
        false => scale * (own + half) - half,
    };
    let mut taps: SmallVec<[(usize, f64); 4]> = SmallVec::new();
    match mode {
        "linear" | "bilinear" | "trilinear" => {
            let at = place.max(T::default());
            let low = whole(at.floor()).min(last);
            let part = (at - number(low)).max(T::default()).min(one);
            taps.push((low, (one - part).into()));
            if low < last {
                taps.push((low + 1, part.into()));
            } else {
                taps[0].1 = 1.0;
            }
        }
        "bicubic" => {
            let low = place.floor();
            for (offset, weight) in cubic(place - low).into_iter().enumerate() {
                let own = (low.into() as i64)
                    .saturating_add(offset as i64 - 1)
                    .clamp(0, last as i64);
                taps.push((own.unsigned_abs() as usize, weight.into()));
            }
        }
        other => return Err(format!("interpolation by {other}")),
    }
    Ok(taps)
}

/// Weights of four neighbours: Keys' cubic convolution with the parameter -0.75.
fn cubic<T: Float>(t: T) -> [T; 4] {
    let [a, one, two, three] = [-0.75, 1.0, 2.0, 3.0].map(T::of);
    let [four, five, eight] = [4.0, 5.0, 8.0].map(T::of);
    let near = |x: T| ((a + two) * x - (a + three)) * x * x + one;
    let far = |x: T| ((a * x - five * a) * x + eight * a) * x - four * a;
    [far(t + one), near(t), near(one - t), far(two - t)]
}
