//! Kernels for blocks against naive sums.

use corsac_kernels::bf16_unit::Bf16Unit;

use super::ConvAlgorithm;
use super::conv::{self, BlockedConv};
use super::depthwise::BlockedDepthwise;
use super::linear::{self, LinearKernel, LinearWeight};
use super::reorder::{from_blocks, to_blocks};
use crate::kernels::bf16::{self, conv::Bf16Conv, linear::Bf16Linear};
use crate::program::ConvShape;
use crate::program::{Conv, Half, Order, Precision, stored_len};

/// Small whole numbers, whose sums are exact.
fn numbers(len: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| (at * 7 + seed * 13 + at / 11) % 9;
    (0..len).map(|at| number(at) as f32 - 4.0).collect()
}

/// The definition of a convolution.
fn plain(shape: &ConvShape, input: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let [channels, rows, columns] = shape.input;
    let [out_channels, out_rows, out_columns] = shape.output;
    let conv = &shape.conv;
    let (inputs, outputs) = (channels / conv.groups, out_channels / conv.groups);
    let mut out = Vec::new();
    for image in input.chunks_exact(channels * rows * columns) {
        for (k, &bias) in bias.iter().enumerate() {
            for y in 0..out_rows {
                for x in 0..out_columns {
                    let mut sum = bias;
                    for c in 0..inputs {
                        for ky in 0..shape.kernel[0] {
                            for kx in 0..shape.kernel[1] {
                                let at_y = (y * conv.stride[0] + ky * conv.dilation[0])
                                    .checked_sub(conv.padding[0][0])
                                    .filter(|&at| at < rows);
                                let at_x = (x * conv.stride[1] + kx * conv.dilation[1])
                                    .checked_sub(conv.padding[0][1])
                                    .filter(|&at| at < columns);
                                if let (Some(at_y), Some(at_x)) = (at_y, at_x) {
                                    let channel = k / outputs * inputs + c;
                                    let x = image[(channel * rows + at_y) * columns + at_x];
                                    let kernel = (k * inputs + c) * shape.kernel[0] + ky;
                                    sum += x * weight[kernel * shape.kernel[1] + kx];
                                }
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
    }
    out
}

/// A convolution of `channels` planes of `size` to `outputs` planes.
struct Case {
    batch: usize,
    channels: [usize; 2],
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [[usize; 2]; 2],
    dilation: [usize; 2],
    groups: usize,
}

const CASE: Case = Case {
    batch: 1,
    channels: [16, 16],
    size: [6, 6],
    kernel: [3, 3],
    stride: [1, 1],
    padding: [[1, 1], [1, 1]],
    dilation: [1, 1],
    groups: 1,
};

impl Case {
    fn shape(&self) -> ConvShape {
        let out = |dim: usize| {
            let padding = self.padding[0][dim] + self.padding[1][dim];
            let kernel = (self.kernel[dim] - 1) * self.dilation[dim] + 1;
            (self.size[dim] + padding - kernel) / self.stride[dim] + 1
        };
        ConvShape {
            batch: self.batch,
            input: [self.channels[0], self.size[0], self.size[1]],
            output: [self.channels[1], out(0), out(1)],
            kernel: self.kernel,
            conv: Conv {
                stride: self.stride,
                padding: self.padding,
                dilation: self.dilation,
                groups: self.groups,
            },
        }
    }

    fn check(&self) {
        let shape = self.shape();
        let [channels, rows, columns] = shape.input;
        let [outputs, out_rows, out_columns] = shape.output;
        let weight = outputs * channels / self.groups * self.kernel[0] * self.kernel[1];
        let (weight, bias) = (numbers(weight, 1), numbers(outputs, 2));
        let input = numbers(self.batch * channels * rows * columns, 3);
        let expected = plain(&shape, &input, &weight, &bias);
        let mut blocks = vec![f32::NAN; stored_len(&[self.batch, channels, rows, columns])];
        to_blocks(&input, Order::Planes, channels, rows * columns, &mut blocks);
        let mut out = vec![f32::NAN; stored_len(&[self.batch, outputs, out_rows, out_columns])];
        // `epilogue` is applied to each element once.
        let epilogue = |_: usize, chunk: &mut [f32]| chunk.iter_mut().for_each(|x| *x += 1.0);
        let Some(algorithm) = ConvAlgorithm::of(&shape, Precision::F32) else {
            panic!("{shape:?}")
        };
        if algorithm == ConvAlgorithm::Depthwise {
            let kernel = BlockedDepthwise::new(shape.clone(), &weight, Some(&bias));
            kernel.run(&blocks, &mut out, &epilogue);
        } else {
            let mut workspace = vec![f32::NAN; conv::workspace_len(&shape, algorithm)];
            let source = match algorithm {
                ConvAlgorithm::Planes => &input,
                _ => &blocks,
            };
            let kernel = BlockedConv::new(shape.clone(), algorithm, &weight, Some(&bias));
            kernel.run(source, None, &mut workspace, &mut out, &epilogue);
        }
        let expected: Vec<f32> = expected.iter().map(|x| x + 1.0).collect();
        let rows_of = |out: &[f32]| {
            let mut got = vec![f32::NAN; expected.len()];
            from_blocks(
                out,
                Order::Planes,
                outputs,
                out_rows * out_columns,
                &mut got,
            );
            got
        };
        assert_eq!(rows_of(&out), expected, "{shape:?}");
        // Small whole numbers are bfloat16 numbers, too.
        if let Some(unit) = Bf16Unit::detect().filter(|_| bf16::conv::is_supported(&shape)) {
            let mut workspace = vec![f32::NAN; bf16::conv::workspace_len(&shape)];
            let kernel = Bf16Conv::new(unit, shape.clone(), &weight, Some(&bias));
            out.fill(f32::NAN);
            kernel.run(&blocks, &mut workspace, &mut out, &epilogue);
            assert_eq!(rows_of(&out), expected, "in tiles: {shape:?}");
        }
    }
}

#[test]
fn channels_of_an_image_are_multiplied() {
    for (channels, size) in [
        ([16, 16], [4, 4]),
        ([5, 40], [7, 7]),
        ([70, 33], [14, 14]),
        ([24, 100], [56, 9]),
        ([33, 7], [11, 13]),
    ] {
        let case = Case {
            channels,
            size,
            kernel: [1, 1],
            padding: [[0; 2]; 2],
            ..CASE
        };
        case.check();
        let shape = case.shape();
        let [inputs, outputs] = channels;
        let plane = size[0] * size[1];
        let (weight, bias) = (numbers(outputs * inputs, 1), numbers(outputs, 2));
        let (image, factors) = (numbers(inputs * plane, 3), numbers(inputs, 4));
        let rows = image.chunks_exact(plane).zip(&factors);
        let product: Vec<f32> = rows
            .flat_map(|(row, factor)| row.iter().map(move |x| x * factor))
            .collect();
        let expected = plain(&shape, &product, &weight, &bias);
        let blocks_of = |data: &[f32], plane: usize| {
            let mut blocks = vec![f32::NAN; stored_len(&[1, inputs, plane, 1])];
            to_blocks(data, Order::Planes, inputs, plane, &mut blocks);
            blocks
        };
        let mut out = vec![f32::NAN; stored_len(&[1, outputs, size[0], size[1]])];
        let kernel = BlockedConv::new(shape.clone(), ConvAlgorithm::Blocks, &weight, Some(&bias));
        let factors = blocks_of(&factors, 1);
        let image = blocks_of(&image, plane);
        kernel.run(&image, Some(&factors), &mut [], &mut out, &|_, _| {});
        let mut got = vec![f32::NAN; expected.len()];
        from_blocks(&out, Order::Planes, outputs, plane, &mut got);
        assert_eq!(got, expected, "{shape:?}");
    }
}

#[test]
fn rows_of_every_width() {
    for columns in 3..34 {
        Case {
            size: [3, columns],
            ..CASE
        }
        .check();
    }
}

#[test]
fn channels_that_fill_no_block() {
    for channels in [[8, 1], [9, 15], [17, 33], [24, 40], [16, 80], [70, 5]] {
        for size in [[5, 4], [9, 9], [2, 30]] {
            Case {
                channels,
                size,
                ..CASE
            }
            .check();
        }
    }
}

#[test]
fn few_channels_are_read_plane_by_plane() {
    for (kernel, stride) in [(7, 2), (4, 4), (3, 1), (16, 16)] {
        for channels in [1, 3, 7] {
            Case {
                batch: 2,
                channels: [channels, 20],
                size: [35, 33],
                kernel: [kernel, kernel],
                stride: [stride, stride],
                padding: [[2, 1], [0, 3]],
                ..CASE
            }
            .check();
        }
    }
}

#[test]
fn steps_dilation_and_groups() {
    for groups in [1, 2, 4] {
        for stride in [[1, 1], [2, 2], [3, 2], [2, 1]] {
            for dilation in [[1, 1], [2, 3]] {
                Case {
                    batch: 2,
                    channels: [64, 128],
                    size: [9, 17],
                    kernel: [2, 3],
                    stride,
                    dilation,
                    groups,
                    ..CASE
                }
                .check();
            }
        }
    }
}

#[test]
fn pointwise_convolutions() {
    for padding in [[[0, 0], [0, 0]], [[1, 0], [0, 2]]] {
        for stride in [1, 2] {
            Case {
                batch: 3,
                channels: [40, 56],
                size: [7, 7],
                kernel: [1, 1],
                stride: [stride, stride],
                padding,
                ..CASE
            }
            .check();
        }
    }
}

#[test]
fn channels_on_their_own() {
    for channels in [2, 16, 24, 72] {
        for stride in [1, 2] {
            for (kernel, dilation) in [(3, 1), (5, 1), (7, 1), (3, 2)] {
                Case {
                    batch: 2,
                    channels: [channels, channels],
                    size: [15, 23],
                    kernel: [kernel, kernel],
                    stride: [stride, stride],
                    padding: [[kernel / 2, 1], [kernel / 2, 3]],
                    dilation: [dilation, dilation],
                    groups: channels,
                }
                .check();
            }
        }
    }
}

#[test]
fn blocks_hold_the_same_elements() {
    let channels = 21;
    for (order, plane) in [Order::Planes, Order::Pixels]
        .into_iter()
        .flat_map(|order| [(order, 6), (order, 37)])
    {
        let image = numbers(2 * channels * plane, 5);
        let mut blocks = vec![f32::NAN; stored_len(&[2, channels, 1, plane])];
        to_blocks(&image, order, channels, plane, &mut blocks);
        assert!(blocks.iter().all(|x| !x.is_nan()));
        let mut back = vec![f32::NAN; image.len()];
        from_blocks(&blocks, order, channels, plane, &mut back);
        assert_eq!(back, image);
    }
}

#[test]
fn linear_layers() {
    let heights = [1, 2, 6, 7, 9, 14, 15, 29, 57, 131];
    let sizes = [
        [1, 1],
        [16, 16],
        [33, 7],
        [40, 50],
        [130, 31],
        [5, 0],
        [50, 2100],
    ];
    let few = heights
        .iter()
        .flat_map(|&rows| sizes.map(|sizes| (rows, sizes)));
    // Rows that are packed a strip at a time.
    let many = [(517, [20, 530]), (1400, [33, 210])];
    // Rows that each piece of work packs: of many inputs, and for many outputs.
    let pieces = [(15, [40, 4501]), (29, [50, 6016]), (300, [16_500, 230])];
    assert_eq!(linear::workspace_len(15, [40, 4501]), 0);
    assert_eq!(linear::workspace_len(300, [16_500, 230]), 0);
    let many = many.into_iter().chain(pieces);
    for (at, (rows, [outputs, inputs])) in few.chain(many).enumerate() {
        let (weight, bias) = (numbers(outputs * inputs, at), numbers(outputs, 8));
        let input = numbers(rows * inputs, 4);
        let sizes = [outputs, inputs];
        // `epilogue` is called with the start of each piece.
        let epilogue = |start: usize, chunk: &mut [f32]| {
            for (at, x) in chunk.iter_mut().enumerate() {
                *x += (start + at) as f32;
            }
        };
        let mut expected = Vec::with_capacity(rows * outputs);
        for at in 0..rows * outputs {
            let (row, output) = (at / outputs, at % outputs);
            let own = input[row * inputs..].iter().zip(&weight[output * inputs..]);
            let sum: f32 = own.take(inputs).map(|(x, weight)| x * weight).sum();
            expected.push(sum + bias[output] + at as f32);
        }
        let turned = (0..weight.len()).map(|at| weight[at % outputs * inputs + at / outputs]);
        let turned: Vec<f32> = turned.collect();
        for (data, by_input) in [(&weight, false), (&turned, true)] {
            let weight = LinearWeight {
                data,
                sizes,
                by_input,
            };
            let mut out = vec![f32::NAN; rows * outputs];
            let mut workspace = vec![f32::NAN; linear::workspace_len(rows, sizes)];
            let kernel = LinearKernel::new(&weight, Some(&bias), rows);
            kernel.run(&input, &mut workspace, &mut out, &epilogue);
            assert_eq!(out, expected, "{rows} {outputs} {inputs} {by_input}");
            for half in [Half::Bf16, Half::F16] {
                let bits = |&x: &f32| match half {
                    Half::Bf16 => half::bf16::from_f32(x).to_bits(),
                    Half::F16 => half::f16::from_f32(x).to_bits(),
                };
                let data: Vec<u16> = data.iter().map(bits).collect();
                let narrow = LinearWeight {
                    data: &data[..],
                    sizes,
                    by_input,
                };
                out.fill(f32::NAN);
                let kernel = LinearKernel::of_half((&narrow, half), Some(&bias), rows);
                kernel.run(&input, &mut workspace, &mut out, &epilogue);
                assert_eq!(
                    out, expected,
                    "{half:?}: {rows} {outputs} {inputs} {by_input}"
                );
            }
            let Some(unit) = Bf16Unit::detect() else {
                continue;
            };
            out.fill(f32::NAN);
            let mut workspace = vec![f32::NAN; bf16::linear::workspace_len(rows, inputs)];
            let kernel = Bf16Linear::new(unit, &weight, Some(&bias));
            kernel.run(&input, &mut workspace, &mut out, &epilogue);
            assert_eq!(
                out, expected,
                "in tiles: {rows} {outputs} {inputs} {by_input}"
            );
        }
    }
}

#[test]
fn many_pixels_of_many_channels() {
    for (channels, size, stride) in [([70, 34], [40, 41], 1), ([48, 16], [70, 33], 2)] {
        Case {
            channels,
            size,
            stride: [stride; 2],
            ..CASE
        }
        .check();
    }
}
