//! Convolutions in two dimensions, in one of six forms: a product with the image itself, sums of
//! products with shifted runs of it, a product with a matrix of patches that is never stored as a
//! whole, a small product with one that is, or sums of shifted runs in registers, for depthwise
//! convolutions or small groups of channels.

use rayon::prelude::*;
use rten_gemm::{
    BiasVector, ColOffsets, GemmExecutor, GemmInputA, GemmInputB, GemmOptions, Im2Col,
    PackedAMatrix, RowOffsets,
};
use rten_tensor::{Matrix, NdTensorView};

use super::depthwise::{depthwise, scratch_len};
use super::grouped::{Group, Scratch};
use super::shifted::Shifted;
use crate::aligned_buffer::zeros;
use crate::kernels::ApplyEpilogue;
use crate::parallel::Parallel;
use crate::program::ConvNd;
use crate::program::ConvShape;

/// From this many channels on, a product for each element of the kernel is faster: with fewer,
/// writing and reading sums repeatedly takes longer than gathering patches.
const SHIFTED_FROM: usize = 16;

/// A convolution with its weights packed.
pub struct ConvKernel {
    shape: ConvShape,
    bias: Option<Vec<f32>>,
    algorithm: Algorithm,
}

enum Algorithm {
    /// One product for each group.
    Product {
        weights: Vec<PackedAMatrix<f32>>,
        /// Offsets of patches; `None` where the image is the matrix of patches.
        patches: Option<Patches>,
    },
    /// For each group, one product for each element of the kernel.
    Shifted {
        weights: Vec<Vec<PackedAMatrix<f32>>>,
        layout: Shifted,
    },
    /// A small product for each group, on the calling thread.
    Small { weights: Vec<f32>, conv: ConvNd },
    /// Few channels in each group.
    Grouped { weights: Vec<f32>, layout: Shifted },
    /// One channel in and one out for each group.
    Depthwise { weights: Vec<f32>, layout: Shifted },
}

/// Offsets of patches in an image.
struct Patches {
    rows: [Vec<i32>; 3],
    columns: [Vec<i32>; 2],
    sizes: [usize; 2],
}

impl std::fmt::Debug for ConvKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvKernel")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl ConvKernel {
    /// Packs `weight`, of shape `[out, in / groups, rows, columns]`.
    #[must_use]
    pub fn new(shape: ConvShape, weight: &[f32], bias: Option<&[f32]>) -> Self {
        let groups = shape.conv.groups;
        let (inputs, outputs) = (shape.input[0] / groups, shape.output[0] / groups);
        let algorithm = if shape.is_depthwise() {
            Algorithm::Depthwise {
                weights: weight.to_vec(),
                layout: Shifted::new(&shape),
            }
        } else if shape.is_grouped() {
            Algorithm::Grouped {
                weights: weight.to_vec(),
                layout: Shifted::new(&shape),
            }
        } else if !shape.uses_library() {
            Algorithm::Small {
                weights: weight.to_vec(),
                conv: shape.conv_nd(),
            }
        } else if !shape.is_pointwise() && inputs >= SHIFTED_FROM {
            let gemm = GemmExecutor::new();
            let taps = shape.kernel[0] * shape.kernel[1];
            let of_tap = |group: &[f32], tap: usize| {
                let elements: Vec<f32> = group[tap..].iter().step_by(taps).copied().collect();
                gemm.prepack_a(Matrix::from_data([outputs, inputs], &elements[..]))
            };
            let groups = weight.chunks(outputs * inputs * taps);
            Algorithm::Shifted {
                weights: groups
                    .map(|group| (0..taps).map(|tap| of_tap(group, tap)).collect())
                    .collect(),
                layout: Shifted::new(&shape),
            }
        } else {
            let gemm = GemmExecutor::new();
            let depth = inputs * shape.kernel[0] * shape.kernel[1];
            let matrices = weight.chunks(outputs * depth);
            let weights = matrices
                .map(|data| gemm.prepack_a(Matrix::from_data([outputs, depth], data)))
                .collect();
            let patches = (!shape.is_pointwise()).then(|| Patches::of(&shape, &gemm));
            Algorithm::Product { weights, patches }
        };
        Self {
            shape,
            bias: bias.map(<[f32]>::to_vec),
            algorithm,
        }
    }

    /// Whether its products are computed by rten-gemm, which may start threads.
    pub(crate) fn uses_library(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Product { .. } | Algorithm::Shifted { .. }
        )
    }

    /// Writes the convolution of `input` to `out`. Calls `epilogue(at, chunk)` with each piece of the
    /// result, which begins at element `at`.
    pub fn run(&self, input: &[f32], out: &mut [f32], epilogue: ApplyEpilogue<'_>) {
        let shape = &self.shape;
        let (image, result) = (
            shape.input.iter().product::<usize>(),
            shape.output.iter().product::<usize>(),
        );
        if image == 0 || result == 0 {
            return;
        }
        match &self.algorithm {
            Algorithm::Depthwise { weights, layout } => {
                self.depthwise(layout, weights, input, out, epilogue);
            }
            Algorithm::Grouped { weights, layout } => {
                self.grouped(layout, weights, input, out, epilogue);
            }
            Algorithm::Shifted { weights, layout } => {
                let images = input.chunks(image).zip(out.chunks_mut(result));
                for (index, (input, out)) in images.enumerate() {
                    self.shifted(layout, weights, input, out, index * result, epilogue);
                }
            }
            Algorithm::Product { weights, patches } => {
                for (index, (input, out)) in
                    input.chunks(image).zip(out.chunks_mut(result)).enumerate()
                {
                    self.products(weights, patches.as_ref(), input, out);
                    self.apply(out, index * result, epilogue);
                }
            }
            Algorithm::Small { weights, conv } => {
                conv.run(input, weights, self.bias.as_deref(), out);
                self.apply(out, 0, epilogue);
            }
        }
    }

    /// Calls `epilogue` with pieces of a part of the result, which begins at `start`.
    fn apply(&self, out: &mut [f32], start: usize, epilogue: ApplyEpilogue<'_>) {
        let plane = self.shape.output[1] * self.shape.output[2];
        let rows = (super::GRAIN / 2).div_ceil(plane);
        out.par_chunks_mut(rows * plane)
            .enumerate()
            .run_parallel(|(at, chunk)| epilogue(start + at * rows * plane, chunk));
    }

    fn shifted(
        &self,
        layout: &Shifted,
        weights: &[Vec<PackedAMatrix<f32>>],
        input: &[f32],
        out: &mut [f32],
        start: usize,
        epilogue: ApplyEpilogue<'_>,
    ) {
        let groups = weights.len();
        let [channels, rows, columns] = self.shape.input;
        let (inputs, outputs) = (channels / groups, self.shape.output[0] / groups);
        let plane = self.shape.output[1] * self.shape.output[2];
        let (planes_len, run_len) = (layout.planes_len(), layout.run_len());
        let mut planes = zeros(channels * planes_len);
        planes
            .par_chunks_mut(planes_len)
            .zip(input.par_chunks(rows * columns))
            .with_min_len(super::GRAIN.div_ceil(planes_len))
            .run_parallel(|(planes, image)| layout.separate(image, planes));
        let mut sums = zeros(groups * outputs * run_len);
        let gemm = GemmExecutor::<f32>::new();
        for (group, taps) in weights.iter().enumerate() {
            let planes = &planes[group * inputs * planes_len..][..inputs * planes_len];
            let sums = &mut sums[group * outputs * run_len..][..outputs * run_len];
            let bias = self
                .bias
                .as_ref()
                .map(|bias| &bias[group * outputs..][..outputs]);
            for (tap, weight) in taps.iter().enumerate() {
                let runs = &planes[layout.taps[tap]..];
                let runs = &runs[..(inputs - 1) * planes_len + run_len];
                let runs = Matrix::from_data_with_strides([inputs, run_len], runs, [planes_len, 1]);
                let options = GemmOptions {
                    beta: if tap == 0 { 0.0 } else { 1.0 },
                    bias: bias.filter(|_| tap == 0).map(BiasVector::Column),
                    ..GemmOptions::default()
                };
                let done = runs.map(|runs| {
                    let runs = GemmInputB::Unpacked(runs);
                    gemm.gemm(sums, GemmInputA::Packed(weight), runs, options)
                });
                assert!(matches!(done, Ok(Ok(()))), "shapes were checked");
            }
        }
        out.par_chunks_mut(plane)
            .zip(sums.par_chunks(run_len))
            .enumerate()
            .with_min_len(super::GRAIN.div_ceil(4 * plane))
            .run_parallel(|(at, (out, run))| {
                layout.collect(run, out);
                epilogue(start + at * plane, out);
            });
    }

    fn products(
        &self,
        weights: &[PackedAMatrix<f32>],
        patches: Option<&Patches>,
        input: &[f32],
        out: &mut [f32],
    ) {
        let [_, rows, columns] = self.shape.input;
        // Made anew: it only holds the choice of instructions, and cannot be shared by threads.
        let gemm = GemmExecutor::<f32>::new();
        let groups = weights.len();
        let inputs = self.shape.input[0] / groups;
        let outputs = self.shape.output[0] / groups;
        let plane = self.shape.output[1] * self.shape.output[2];
        for (group, weight) in weights.iter().enumerate() {
            let image = &input[group * inputs * rows * columns..][..inputs * rows * columns];
            let out = &mut out[group * outputs * plane..][..outputs * plane];
            let bias = self
                .bias
                .as_ref()
                .map(|bias| &bias[group * outputs..][..outputs]);
            let options = GemmOptions {
                bias: bias.map(BiasVector::Column),
                ..GemmOptions::default()
            };
            let weight = GemmInputA::Packed(weight);
            let done = match patches {
                None => {
                    let image = Matrix::from_data([inputs, rows * columns], image);
                    gemm.gemm(out, weight, GemmInputB::Unpacked(image), options)
                }
                Some(patches) => {
                    let matrix = patches.matrix(image, [inputs, rows, columns]);
                    gemm.gemm(out, weight, GemmInputB::Im2Col(&matrix), options)
                }
            };
            assert!(done.is_ok(), "shapes were checked: {done:?}");
        }
    }

    fn grouped(
        &self,
        layout: &Shifted,
        weights: &[f32],
        input: &[f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        let shape = &self.shape;
        let groups = shape.conv.groups;
        let (inputs, outputs) = (shape.input[0] / groups, shape.output[0] / groups);
        let image = shape.input[1] * shape.input[2];
        let plane = shape.output[1] * shape.output[2];
        let depth = inputs * layout.taps.len();
        out.par_chunks_mut(outputs * plane)
            .zip(input.par_chunks(inputs * image))
            .enumerate()
            .with_min_len(super::GRAIN.div_ceil(outputs * plane * depth))
            .run_parallel_with(
                || Scratch::new(layout, inputs, outputs),
                |scratch, (at, (out, images))| {
                    let group = at % groups;
                    let bias = self.bias.as_ref();
                    let group = Group {
                        layout,
                        inputs,
                        weights: &weights[group * outputs * depth..][..outputs * depth],
                        bias: bias.map(|bias| &bias[group * outputs..][..outputs]),
                    };
                    group.run(images, image, out, plane, scratch);
                    epilogue(at * outputs * plane, out);
                },
            );
    }

    fn depthwise(
        &self,
        layout: &Shifted,
        weights: &[f32],
        input: &[f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        let shape = &self.shape;
        let channels = shape.input[0];
        let plane = shape.output[1] * shape.output[2];
        let taps = shape.kernel[0] * shape.kernel[1];
        out.par_chunks_mut(plane)
            .zip(input.par_chunks(shape.input[1] * shape.input[2]))
            .enumerate()
            .with_min_len(super::GRAIN.div_ceil(plane * taps))
            .run_parallel_with(
                || vec![0.0; scratch_len(layout)],
                |scratch, (at, (out, image))| {
                    let channel = at % channels;
                    let bias = self.bias.as_ref().map_or(0.0, |bias| bias[channel]);
                    let weights = &weights[channel * taps..][..taps];
                    depthwise(layout, weights, bias, image, out, scratch);
                    epilogue(at * plane, out);
                },
            );
    }
}

impl ConvShape {
    /// Whether the convolution is depthwise.
    fn is_depthwise(&self) -> bool {
        let groups = self.conv.groups;
        self.input[0] == groups && self.output[0] == groups
    }

    /// Whether channels are in groups of so few that a product for each is too small.
    fn is_grouped(&self) -> bool {
        let groups = self.conv.groups;
        groups > 1 && !self.is_depthwise() && self.input[0] / groups < SHIFTED_FROM
    }

    /// Whether [`ConvKernel`] computes its products by rten-gemm, which may start threads.
    pub(crate) fn uses_library(&self) -> bool {
        !self.is_depthwise() && !self.is_grouped() && !self.conv_nd().product().is_small()
    }

    fn conv_nd(&self) -> ConvNd {
        let line = |[rows, columns]: [usize; 2], one: usize| [one, rows, columns];
        let conv = &self.conv;
        ConvNd {
            channels: self.input[0],
            out_channels: self.output[0],
            groups: conv.groups,
            input: line([self.input[1], self.input[2]], 1),
            output: line([self.output[1], self.output[2]], 1),
            kernel: line(self.kernel, 1),
            stride: line(conv.stride, 1),
            padding: line(conv.padding[0], 0),
            dilation: line(conv.dilation, 1),
            transposed: false,
        }
    }

    /// Whether a patch is one element, so that the image is the matrix of patches.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.conv.stride == [1, 1] && self.conv.padding == [[0; 2]; 2]
    }
}

impl Patches {
    fn of(shape: &ConvShape, gemm: &GemmExecutor) -> Self {
        let groups = shape.conv.groups;
        let inputs = shape.input[0] / groups;
        let [_, image_rows, image_columns] = shape.input;
        let [kernel_rows, kernel_columns] = shape.kernel;
        let conv = &shape.conv;
        // Images larger than 31 bits of elements are refused when a program is made.
        let offset = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        let taps = (0..inputs).flat_map(|c| {
            (0..kernel_rows).flat_map(move |y| (0..kernel_columns).map(move |x| (c, y, x)))
        });
        let mut rows = [Vec::new(), Vec::new(), Vec::new()];
        for (c, y, x) in taps {
            rows[0].push(offset(c * image_rows * image_columns));
            rows[1].push(offset(y * conv.dilation[0] * image_columns));
            rows[2].push(offset(x * conv.dilation[1]));
        }
        let [_, out_rows, out_columns] = shape.output;
        let mut columns = [Vec::new(), Vec::new()];
        for y in 0..out_rows {
            for x in 0..out_columns {
                let top = offset(y * conv.stride[0]) - offset(conv.padding[0][0]);
                let left = offset(x * conv.stride[1]) - offset(conv.padding[0][1]);
                columns[0].push(top * offset(image_columns));
                columns[1].push(left);
            }
        }
        let sizes = [rows[0].len(), columns[0].len()];
        let padded = |len: usize, step: usize| len.next_multiple_of(step);
        for list in &mut rows {
            list.resize(padded(sizes[0], gemm.im2col_row_count_step()), i32::MAX);
        }
        for list in &mut columns {
            list.resize(padded(sizes[1], gemm.im2col_col_count_step()), i32::MAX);
        }
        Self {
            rows,
            columns,
            sizes,
        }
    }

    fn matrix<'a>(&self, image: &'a [f32], shape: [usize; 3]) -> Im2Col<'a, f32> {
        let offset = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
        let [chan, y, x] = self.rows.clone();
        let [column_y, column_x] = self.columns.clone();
        Im2Col {
            image: NdTensorView::from_data(shape, image),
            row_offsets: RowOffsets { chan, y, x },
            col_offsets: ColOffsets {
                y: column_y,
                x: column_x,
            },
            n_cols: self.sizes[1],
            n_rows: self.sizes[0],
            max_y_offset: offset((shape[1] - 1) * shape[2]),
            max_x_offset: offset(shape[2] - 1),
        }
    }
}
