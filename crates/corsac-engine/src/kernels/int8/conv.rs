//! Convolutions of images of bytes.
//!
//! A row of the kernel is multiplied at once where its pixels follow each other in the image; the image
//! is copied with a margin of zero points where the convolution pads.

use corsac_kernels::int8_depthwise::Depthwise;
use corsac_kernels::int8_unit::{COLUMNS, Dense, Operands, RowSums, Sums};
use rayon::prelude::*;

use super::levels::pixel_len;
use super::{Finish, Panels, QuantisedWeight, RowBytes, space};
use crate::kernels::ApplyEpilogue;
use crate::kernels::blocked::BLOCK;
use crate::parallel::{Parallel, thread_count};
use crate::program::{ConvShape, Levels};

/// Pixels that are multiplied with a panel at a time: their sums, 16 KB, stay in the first-level cache.
const PIXELS: usize = 128;

/// A convolution with its weights packed.
#[derive(Debug)]
pub struct Int8Conv {
    shape: ConvShape,
    panels: Panels,
    source: Source,
    /// The byte of 0 in the image.
    zero: u8,
}

/// Products of a panel with some pixels.
enum Products<'a> {
    Dense(Dense<'a>),
    Depthwise(Depthwise<'a>),
}

impl RowSums for Products<'_> {
    fn rows(&self) -> usize {
        match self {
            Self::Dense(product) => product.rows(),
            Self::Depthwise(product) => product.rows(),
        }
    }

    fn by_blocks(&self, initial: &Sums, pass: impl FnMut(usize, &[Sums])) {
        match self {
            Self::Dense(product) => product.by_blocks(initial, pass),
            Self::Depthwise(product) => product.by_blocks(initial, pass),
        }
    }
}

/// The pixels that a convolution reads.
#[derive(Clone, Debug)]
struct Source {
    /// Bytes of a pixel.
    pixel: usize,
    /// Rows and columns of the image, with its margin.
    sizes: [usize; 2],
    /// Offset of each tap from the first one, in pixels.
    taps: Vec<usize>,
    /// Pixels of a tap.
    together: usize,
    /// Whether each channel is convolved alone.
    depthwise: bool,
}

impl Source {
    fn of(shape: &ConvShape) -> Self {
        let conv = &shape.conv;
        let [channels, rows, columns] = shape.input;
        let [[above, left], [below, right]] = conv.padding;
        let sizes = [rows + above + below, columns + left + right];
        let depthwise = conv.groups > 1;
        let together = match conv.dilation[1] {
            1 if !depthwise => shape.kernel[1],
            _ => 1,
        };
        let across = shape.kernel[1] / together;
        let taps = (0..shape.kernel[0] * across).map(|tap| {
            let (row, column) = (tap / across, tap % across);
            row * conv.dilation[0] * sizes[1] + column * conv.dilation[1]
        });
        Self {
            pixel: pixel_len(channels),
            sizes,
            taps: taps.collect(),
            together,
            depthwise,
        }
    }

    /// Bytes of a copy of an image; none if the image itself can be read.
    fn copy_len(&self, shape: &ConvShape) -> usize {
        let len = self.sizes[0] * self.sizes[1] * self.pixel;
        match self.depthwise {
            // Whole panels are read, also where there are fewer channels.
            true => len + COLUMNS,
            false if self.sizes != shape.input[1..] => len,
            false => 0,
        }
    }

    /// Copies an image into the middle of zeros.
    fn fill(&self, shape: &ConvShape, image: &[u8], zero: u8, to: &mut [u8]) {
        let [above, left] = shape.conv.padding[0];
        let line = self.sizes[1] * self.pixel;
        let own = shape.input[2] * self.pixel;
        let (to, rest) = to.split_at_mut(self.sizes[0] * line);
        rest.fill(zero);
        to.par_chunks_exact_mut(line)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(line))
            .run_parallel(|(row, to)| {
                match row.checked_sub(above).filter(|&row| row < shape.input[1]) {
                    None => to.fill(zero),
                    Some(row) => {
                        let (before, rest) = to.split_at_mut(left * self.pixel);
                        let (pixels, after) = rest.split_at_mut(own);
                        before.fill(zero);
                        after.fill(zero);
                        pixels.copy_from_slice(&image[row * own..][..own]);
                    }
                }
            });
    }

    /// The offsets of the first bytes of pixels of the result, from pixel `first` on.
    fn offsets(&self, shape: &ConvShape, first: usize) -> impl Iterator<Item = usize> {
        let columns = shape.output[2];
        let [down, right] = shape.conv.stride;
        let (line, step) = (down * self.sizes[1] * self.pixel, right * self.pixel);
        let (mut row, mut column) = (first / columns, first % columns);
        std::iter::from_fn(move || {
            let offset = row * line + column * step;
            column += 1;
            if column == columns {
                (row, column) = (row + 1, 0);
            }
            Some(offset)
        })
    }
}

/// Whether there is a kernel for `shape`.
#[must_use]
pub fn is_supported(shape: &ConvShape) -> bool {
    let source = Source::of(shape);
    let bytes = source.sizes[0] * source.sizes[1] * source.pixel;
    let groups = shape.conv.groups;
    let depthwise = groups == shape.input[0] && groups == shape.output[0];
    (groups == 1 || depthwise) && u32::try_from(bytes).is_ok() && !shape.output.contains(&0)
}

/// Number of single-precision elements of the workspace of a run.
#[must_use]
pub fn workspace_len(shape: &ConvShape) -> usize {
    let source = Source::of(shape);
    let pixels = shape.output[1] * shape.output[2];
    space(source.copy_len(shape)) + pixels.next_multiple_of(PIXELS) * source.taps.len()
}

impl Int8Conv {
    /// Packs a weight of shape `[out, in, rows, columns]` for images of these levels and this scale;
    /// `None` if it has integers that bytes do not hold, or too many for an output.
    pub(crate) fn new(
        shape: ConvShape,
        (levels, scale): (Levels, f32),
        weight: &QuantisedWeight<'_>,
        bias: Option<&[f32]>,
    ) -> Option<Self> {
        let source = Source::of(&shape);
        let (pixel, channels) = (source.pixel, shape.input[0]);
        let [height, columns] = shape.kernel;
        let across = columns / source.together;
        let place = |tap: usize, at: usize| {
            let (row, first) = (tap / across, tap % across);
            let (column, channel) = (first + at / pixel, at % pixel);
            (channel < channels).then_some((channel * height + row) * columns + column)
        };
        let rows = RowBytes::of(levels, scale);
        let (outputs, taps) = (shape.output[0], source.taps.len());
        let panels = match source.depthwise {
            true => Panels::depthwise(weight, [outputs, taps], rows, bias)?,
            false => {
                let sizes = [outputs, taps, source.together * pixel];
                Panels::new(weight, sizes, place, rows, bias)?
            }
        };
        Some(Self {
            shape,
            panels,
            source,
            zero: rows.zero_point as u8,
        })
    }

    /// Calls `run(number, source, offsets)` with the bytes of each image, and with the offsets of its
    /// taps: for each [`PIXELS`] pixels of the result, those of each tap.
    fn each(&self, input: &[u8], workspace: &mut [f32], mut run: impl FnMut(usize, &[u8], &[u32])) {
        let [_, rows, columns] = self.shape.input;
        let pixels = self.shape.output[1] * self.shape.output[2];
        let image = rows * columns * self.source.pixel;
        let copy_len = self.source.copy_len(&self.shape);
        let (copy, offsets) = workspace.split_at_mut(space(copy_len));
        let copy: &mut [u8] = &mut bytemuck::cast_slice_mut(copy)[..copy_len];
        let offsets: &mut [u32] = bytemuck::cast_slice_mut(offsets);
        let taps = &self.source.taps;
        let blocks = offsets.chunks_exact_mut(PIXELS * taps.len());
        for (block, offsets) in blocks.take(pixels.div_ceil(PIXELS)).enumerate() {
            let count = PIXELS.min(pixels - block * PIXELS);
            let first = &mut [0; PIXELS][..count];
            let own = self.source.offsets(&self.shape, block * PIXELS);
            for (first, offset) in first.iter_mut().zip(own) {
                *first = offset as u32;
            }
            for (offsets, &tap) in offsets.chunks_exact_mut(count).zip(taps) {
                let tap = (tap * self.source.pixel) as u32;
                let own = offsets.iter_mut().zip(&*first);
                own.for_each(|(offset, first)| *offset = first + tap);
            }
        }
        for (number, image) in input.chunks_exact(image).enumerate() {
            match copy_len {
                0 => run(number, image, offsets),
                _ => {
                    self.source.fill(&self.shape, image, self.zero, copy);
                    run(number, copy, offsets);
                }
            }
        }
    }

    /// The products of a panel with a block of pixels, and what their sums begin with.
    fn product<'a>(
        &'a self,
        source: &'a [u8],
        offsets: &'a [u32],
        panel: usize,
        (block, rows): (usize, usize),
    ) -> (Products<'a>, &'a Sums) {
        let taps = self.source.taps.len();
        let own = self.panels.panel(panel);
        let offsets = &offsets[block * PIXELS * taps..][..taps * rows];
        let product = match self.source.depthwise {
            true => Products::Depthwise(Depthwise {
                source: &source[panel * COLUMNS..],
                offsets,
                rows,
                weights: own.weights,
            }),
            false => Products::Dense(Dense {
                unit: self.panels.unit,
                operands: Operands {
                    source,
                    offsets,
                    depth: self.source.together * self.source.pixel,
                    weights: own.weights,
                    ahead: &[],
                },
                rows,
            }),
        };
        (product, &own.columns.initial)
    }

    /// Writes the convolution of `input` as bytes.
    pub fn to_bytes(
        &self,
        input: &[u8],
        workspace: &mut [f32],
        finish: &Finish<'_>,
        out: &mut [u8],
    ) {
        let [channels, rows, columns] = self.shape.output;
        let (pixel, pixels) = (pixel_len(channels), rows * columns);
        let panels = channels.div_ceil(COLUMNS);
        // A piece of work: some blocks of pixels, whose bytes stay in the second-level cache.
        let threads = thread_count();
        let blocks = pixels.div_ceil(PIXELS);
        let wanted = if threads == 1 {
            1
        } else {
            (4 * threads).min(blocks)
        };
        let together = blocks.div_ceil(wanted).min(8);
        self.each(input, workspace, |number, source, offsets| {
            let out = &mut out[number * pixels * pixel..][..pixels * pixel];
            out.par_chunks_mut(together * PIXELS * pixel)
                .enumerate()
                .run_parallel(|(at, out)| {
                    for panel in 0..panels {
                        let first = panel * COLUMNS;
                        let width = COLUMNS.min(pixel - first);
                        for (block, out) in out.chunks_mut(PIXELS * pixel).enumerate() {
                            let block = (at * together + block, out.len() / pixel);
                            let (product, initial) = self.product(source, offsets, panel, block);
                            let epilogue = self.panels.epilogue(panel);
                            let out = &mut out[first..];
                            finish.bytes(epilogue, (&product, initial), width, out, pixel);
                        }
                    }
                });
        });
    }

    /// Writes the convolution of `input` as numbers in blocks of channels. Calls `epilogue(at, chunk)`
    /// with each piece of the result, which begins at element `at`.
    pub fn to_blocks(
        &self,
        input: &[u8],
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        let [channels, rows, columns] = self.shape.output;
        let pixels = rows * columns;
        let plane = pixels * BLOCK;
        let result = channels.next_multiple_of(BLOCK) * pixels;
        self.each(input, workspace, |number, source, offsets| {
            let out = &mut out[number * result..][..result];
            out.par_chunks_mut(plane * (COLUMNS / BLOCK))
                .enumerate()
                .run_parallel(|(panel, out)| {
                    let mut numbers = [0.0; PIXELS * COLUMNS];
                    for block in 0..pixels.div_ceil(PIXELS) {
                        let count = PIXELS.min(pixels - block * PIXELS);
                        let (product, initial) =
                            self.product(source, offsets, panel, (block, count));
                        let own = self.panels.epilogue(panel);
                        let numbers = &mut numbers[..count * COLUMNS];
                        own.multiply_to_floats(&product, initial, COLUMNS, numbers, COLUMNS);
                        for (at, out) in out.chunks_exact_mut(plane).enumerate() {
                            let to = &mut out[block * PIXELS * BLOCK..][..count * BLOCK];
                            let rows = numbers.chunks_exact(COLUMNS);
                            for (to, row) in to.chunks_exact_mut(BLOCK).zip(rows) {
                                to.copy_from_slice(&row[at * BLOCK..][..BLOCK]);
                            }
                        }
                    }
                    let first = number * result + panel * plane * (COLUMNS / BLOCK);
                    epilogue(first, out);
                });
        });
    }
}
