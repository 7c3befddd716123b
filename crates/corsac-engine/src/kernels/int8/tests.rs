//! Layers over bytes against sums of integers, one product at a time.

use std::borrow::Cow;

use proptest::prelude::*;

use super::conv::{self, Int8Conv};
use super::levels::{from_pixels, max_pool, pixel_len, to_pixels};
use super::linear::{self, Int8Linear};
use super::weight_only::{self, WeightOnlyLinear};
use super::{Finish, QuantisedWeight};
use crate::data::{Byte, Data};
use crate::kernels::blocked::BLOCK;
use crate::program::{Conv, ConvShape, Levels, Pool, Quantised, Rounding, Sharing, Unary};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn number(&mut self) -> f32 {
        (self.next() % 2001) as f32 / 1000.0 - 1.0
    }
}

fn weight(random: &mut Random, outputs: usize, row: usize) -> QuantisedWeight<'static> {
    QuantisedWeight {
        format: Quantised {
            packed: false,
            sharing: Sharing::Along(0),
        },
        bytes: Cow::Owned(random.bytes(outputs * row)),
        byte: Byte::Signed,
        scales: (0..outputs)
            .map(|_| random.number().abs() / 64.0 + 1e-3)
            .collect(),
        zero_points: Vec::new(),
    }
}

fn integer(weight: &QuantisedWeight<'_>, at: usize) -> i64 {
    i64::from(weight.bytes[at] as i8)
}

const LEVELS: Levels = Levels {
    inverse: 8.0,
    zero: 7.0,
    bounds: [0.0, 255.0],
    of_nan: 0.0,
};

/// The largest byte of rows.
fn largest() -> impl Strategy<Value = u8> {
    prop_oneof![Just(255), Just(127), Just(60)]
}

/// Sums as numbers, with the roundings of the kernels.
fn number(sum: i64, scale: f32, bias: f32) -> f32 {
    sum as f32 * scale + bias
}

/// The convolution of images of bytes, in planes.
fn convolution(
    shape: &ConvShape,
    image: &[u8],
    (zero, scale): (i64, f32),
    weight: &QuantisedWeight<'_>,
    bias: &[f32],
) -> Vec<f32> {
    let [channels, rows, columns] = shape.input;
    let [outputs, out_rows, out_columns] = shape.output;
    let conv = &shape.conv;
    let (own, pixel) = (channels / conv.groups, pixel_len(channels));
    let mut result = Vec::new();
    for image in image.chunks_exact(rows * columns * pixel) {
        for (output, bias) in bias.iter().enumerate() {
            let group = output / (outputs / conv.groups);
            for (y, x) in (0..out_rows).flat_map(|y| (0..out_columns).map(move |x| (y, x))) {
                let mut sum = 0;
                for channel in 0..own {
                    for (down, right) in
                        (0..shape.kernel[0]).flat_map(|a| (0..shape.kernel[1]).map(move |b| (a, b)))
                    {
                        let place = |at: usize, tap: usize, dim: usize, len: usize| {
                            let at = at * conv.stride[dim] + tap * conv.dilation[dim];
                            at.checked_sub(conv.padding[0][dim]).filter(|&at| at < len)
                        };
                        let (Some(row), Some(column)) =
                            (place(y, down, 0, rows), place(x, right, 1, columns))
                        else {
                            continue;
                        };
                        let at = ((output * own + channel) * shape.kernel[0] + down)
                            * shape.kernel[1]
                            + right;
                        let byte = image[(row * columns + column) * pixel + group * own + channel];
                        sum += (i64::from(byte) - zero) * integer(weight, at);
                    }
                }
                result.push(number(sum, weight.scales[output] * scale, *bias));
            }
        }
    }
    result
}

fn geometry() -> impl Strategy<Value = ConvShape> {
    let sizes = (1..7_usize, 1..9_usize, 1..9_usize, 1..40_usize);
    let kernel = (1..4_usize, 1..4_usize);
    let steps = (1..3_usize, 1..3_usize, 1..3_usize, 1..3_usize);
    let padding = (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    (1..3_usize, sizes, kernel, steps, padding, any::<bool>()).prop_filter_map(
        "an image that the kernel fits",
        |(batch, (quarter, rows, columns, outputs), kernel, steps, padding, depthwise)| {
            let channels = 3 * quarter + quarter % 2;
            let outputs = if depthwise { channels } else { outputs };
            let conv = Conv {
                stride: [steps.0, steps.1],
                padding: [[padding.0, padding.1], [padding.2, padding.3]],
                dilation: [steps.2, steps.3],
                groups: if depthwise { channels } else { 1 },
            };
            let kernel = [kernel.0, kernel.1];
            let along = |len: usize, dim: usize| {
                let all = len + conv.padding[0][dim] + conv.padding[1][dim];
                let reach = conv.dilation[dim] * (kernel[dim] - 1) + 1;
                Some(all.checked_sub(reach)? / conv.stride[dim] + 1)
            };
            Some(ConvShape {
                batch,
                input: [channels, rows, columns],
                output: [outputs, along(rows, 0)?, along(columns, 1)?],
                kernel,
                conv,
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 60 } else { 600 }))]

    #[test]
    fn convolutions_are_sums_of_integers(shape in geometry(), largest in largest(), seed: u64) {
        let mut random = Random(seed);
        let [channels, rows, columns] = shape.input;
        let [outputs, out_rows, out_columns] = shape.output;
        let plane = out_rows * out_columns;
        let row = channels / shape.conv.groups * shape.kernel[0] * shape.kernel[1];
        let weight = weight(&mut random, outputs, row);
        let bias: Vec<f32> = (0..outputs).map(|_| random.number()).collect();
        let mut image = random.bytes(shape.batch * rows * columns * pixel_len(channels));
        image.iter_mut().for_each(|byte| *byte = (*byte).min(largest));
        let input = Levels { bounds: [0.0, largest.into()], ..LEVELS };
        let expected = convolution(&shape, &image, (7, 0.125), &weight, &bias);

        prop_assert!(conv::is_supported(&shape));
        let kernel = Int8Conv::new(shape.clone(), (input, 0.125), &weight, Some(&bias)).unwrap();
        let mut workspace = vec![f32::NAN; conv::workspace_len(&shape)];
        let mut blocks = vec![f32::NAN; shape.batch * outputs.next_multiple_of(BLOCK) * plane];
        kernel.to_blocks(&image, &mut workspace, &mut blocks, &|_, _| {});
        for (number, &expected) in expected.iter().enumerate() {
            let (image, rest) = (number / (outputs * plane), number % (outputs * plane));
            let (output, pixel) = (rest / plane, rest % plane);
            let block = image * outputs.div_ceil(BLOCK) + output / BLOCK;
            let found = blocks[(block * plane + pixel) * BLOCK + output % BLOCK];
            prop_assert_eq!(found, expected, "image {}, output {}, pixel {}", image, output, pixel);
        }

        let own = pixel_len(outputs);
        for functions in [&[][..], &[Unary::Relu], &[Unary::Hardswish, Unary::Relu]] {
            let finish = Finish { functions, levels: LEVELS };
            let mut bytes = vec![0xaa; shape.batch * plane * own];
            kernel.to_bytes(&image, &mut workspace, &finish, &mut bytes);
            for (number, &x) in expected.iter().enumerate() {
                let (image, rest) = (number / (outputs * plane), number % (outputs * plane));
                let (output, pixel) = (rest / plane, rest % plane);
                let x = functions.iter().fold(x, |x, function| {
                    let mut numbers = [x];
                    crate::kernels::elementwise::unary_chunk(*function, &mut numbers);
                    numbers[0]
                });
                let found = bytes[(image * plane + pixel) * own + output];
                prop_assert_eq!(f32::from(found), LEVELS.of(x));
            }
        }
    }

    #[test]
    fn linear_layers_are_sums_of_integers(
        rows in 1..140_usize, inputs in 1..40_usize, outputs in 1..70_usize, largest in largest(), seed: u64,
    ) {
        let mut random = Random(seed);
        let weight = weight(&mut random, outputs, inputs);
        let mut bytes = random.bytes(rows * inputs);
        bytes.iter_mut().for_each(|byte| *byte = (*byte).min(largest));
        let input = Levels { bounds: [0.0, largest.into()], ..LEVELS };
        let kernel = Int8Linear::new(Rounding::Levels(input, 0.125), &weight, [outputs, inputs], None).unwrap();
        let mut workspace = vec![f32::NAN; linear::workspace_len(rows, inputs)];
        let mut found = vec![f32::NAN; rows * outputs];
        kernel.run(Data::Bool(&bytes), &mut workspace, &mut found, &|_, _| {});
        let mut levels = vec![0xaa; rows * outputs];
        let finish = Finish { functions: &[Unary::Clamp(-1.0, 3.0)], levels: LEVELS };
        kernel.to_bytes(Data::Bool(&bytes), &mut workspace, &finish, &mut levels);
        for (at, (&found, &level)) in found.iter().zip(&levels).enumerate() {
            let (row, output) = (at / outputs, at % outputs);
            let products = (0..inputs).map(|input| {
                (i64::from(bytes[row * inputs + input]) - 7) * integer(&weight, output * inputs + input)
            });
            let expected = number(products.sum(), weight.scales[output] * 0.125, 0.0);
            prop_assert_eq!(found, expected);
            prop_assert_eq!(f32::from(level), LEVELS.of(expected.clamp(-1.0, 3.0)));
        }
    }

    #[test]
    fn weights_alone_are_those_of_numbers(
        rows in 1..40_usize, groups in 1..5_usize, outputs in 1..150_usize, four: bool, seed: u64,
    ) {
        let mut random = Random(seed);
        let inputs = groups * 16;
        let mut weight = weight(&mut random, outputs, inputs);
        weight.format.sharing = Sharing::Group(16);
        weight.scales = (0..outputs * groups).map(|_| random.number()).collect();
        weight.zero_points = (0..outputs * groups).map(|_| (random.next() % 15) as f32 - 7.0).collect();
        if four {
            let bytes = weight.bytes.to_mut();
            bytes.iter_mut().for_each(|byte| *byte = ((*byte % 16) as i8 - 8) as u8);
        }
        let numbers = weight.numbers(&[outputs, inputs]);
        let x: Vec<f32> = (0..rows * inputs).map(|_| random.number()).collect();
        let kernel = WeightOnlyLinear::new(&weight, [outputs, inputs], None).unwrap();
        let mut workspace = vec![f32::NAN; weight_only::workspace_len(rows, [outputs, inputs])];
        let mut found = vec![f32::NAN; rows * outputs];
        kernel.run(&x, &mut workspace, &mut found, &|_, _| {});
        for (at, &found) in found.iter().enumerate() {
            let (row, output) = (at / outputs, at % outputs);
            let products = (0..inputs).map(|input| {
                f64::from(x[row * inputs + input]) * f64::from(numbers[output * inputs + input])
            });
            let size: f64 = products.clone().map(f64::abs).sum();
            let error = (f64::from(found) - products.sum::<f64>()).abs();
            prop_assert!(error <= 1e-5 * size + 1e-6, "{} of {}", error, size);
        }
    }

    #[test]
    fn images_of_bytes_are_images_of_numbers(
        batch in 1..3_usize, channels in 1..40_usize, rows in 1..9_usize, columns in 1..20_usize,
        in_blocks: bool, signed: bool, seed: u64,
    ) {
        let mut random = Random(seed);
        let image = [channels, rows, columns];
        let together = if in_blocks { BLOCK } else { 1 };
        let len = batch * channels.next_multiple_of(together) * rows * columns;
        let numbers: Vec<f32> = (0..len).map(|_| random.number() * 20.0).collect();
        let levels = match signed {
            true => Levels { zero: -3.0, bounds: [-128.0, 127.0], ..LEVELS },
            false => LEVELS,
        };
        let mut bytes = vec![0xaa; batch * rows * columns * pixel_len(channels)];
        to_pixels(&numbers, in_blocks, image, levels, &mut bytes);
        let mut back = vec![f32::NAN; len];
        from_pixels(&bytes, in_blocks, image, (levels.byte_zero(), 0.125), &mut back);
        let plane = rows * columns;
        for (at, (&x, &found)) in numbers.iter().zip(&back).enumerate() {
            let run = at / (plane * together) % channels.div_ceil(together);
            let channel = run * together + at % together;
            if channel < channels {
                prop_assert_eq!(found, (levels.of(x) - levels.zero) * 0.125);
            }
        }
        let pool = Pool { kernel: [2, 3], stride: [1, 2], padding: [1, 1], dilation: [1, 1] };
        let output = [channels, rows + 1, (columns + 2).saturating_sub(3) / 2 + 1];
        let mut pooled = vec![0xaa; batch * output[1] * output[2] * pixel_len(channels)];
        max_pool(&bytes, &pool, image, output, &mut pooled);
        let pixel = pixel_len(channels);
        for (at, &found) in pooled.iter().enumerate().filter(|(at, _)| at % pixel < channels) {
            let (number, channel) = (at / pixel, at % pixel);
            let (own, y, x) = (
                number / (output[1] * output[2]),
                number / output[2] % output[1],
                number % output[2],
            );
            let window = (0..2_usize).flat_map(|a| (0..3_usize).map(move |b| (y + a, 2 * x + b)));
            let inside = window.filter(|&(a, b)| a >= 1 && b >= 1 && a <= rows && b <= columns);
            let largest = inside.map(|(a, b)| bytes[((own * rows + a - 1) * columns + b - 1) * pixel + channel]);
            prop_assert_eq!(found, largest.max().unwrap_or(0));
        }
    }
}

#[test]
fn integers_that_bytes_do_not_hold_are_refused() {
    let mut random = Random(1);
    let mut weight = weight(&mut random, 4, 8);
    weight.zero_points = vec![-100.0; 4];
    let rounding = Rounding::Levels(LEVELS, 0.125);
    assert!(Int8Linear::new(rounding, &weight, [4, 8], None).is_none());
    weight.zero_points.clear();
    weight.format.sharing = Sharing::Along(1);
    weight.scales.resize(8, 1.0);
    assert!(Int8Linear::new(rounding, &weight, [4, 8], None).is_none());
}
