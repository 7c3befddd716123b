//! Convolutions of images in blocks of channels.
//!
//! A row of the result is computed in [tiles](super::tile); all tiles of the same channels are
//! computed before others, so that their weights stay in the cache.

use std::cell::RefCell;
use std::ops::Range;

use multiversion::multiversion;
use rayon::prelude::*;
use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};
use smallvec::SmallVec;

use super::tile::{Tile, by_width, load, share, vectors_per_block, widest, widest_tile};
use super::{BLOCK, ConvAlgorithm, surround};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::ApplyEpilogue;
use crate::kernels::bf16;
use crate::parallel::{Parallel, thread_count};
use crate::program::ConvShape;

/// A convolution with its weights packed for blocks.
#[derive(Debug)]
pub struct BlockedConv {
    shape: ConvShape,
    source: Image,
    /// Offsets of the runs of elements that are multiplied with weights, for all groups.
    taps: Vec<usize>,
    /// Elements of a run.
    depth: usize,
    /// Blocks of output channels that are computed together.
    groups: Vec<Group>,
    weights: AlignedBuffer,
    /// For all blocks.
    bias: Vec<f32>,
    /// Rows and columns of a result, as the kernel iterates over them.
    result: [usize; 2],
    /// Elements of the source from a row of the result to the next.
    pitch: usize,
    /// Number of vectors of a block.
    vectors: usize,
}

/// Layout of the image that a kernel reads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    /// Whether channels lie in blocks; otherwise each has a plane.
    blocked: bool,
    /// Number of planes of pixels.
    planes: usize,
    /// Elements of a pixel.
    pixel: usize,
    /// Rows and columns of a plane.
    size: [usize; 2],
    /// Zeros before and after, for rows and columns.
    padding: [[usize; 2]; 2],
}

/// Blocks of output channels that are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    /// Blocks of the result.
    blocks: Range<usize>,
    /// Range of its weights.
    weights: Range<usize>,
    /// Offset of the input channels that it reads.
    input: usize,
}

impl Image {
    fn of(shape: &ConvShape, algorithm: ConvAlgorithm) -> Self {
        let [channels, rows, columns] = shape.input;
        let blocked = algorithm == ConvAlgorithm::Blocks;
        let (planes, pixel) = match blocked {
            true => (channels.div_ceil(BLOCK), BLOCK),
            false => (channels, 1),
        };
        Self {
            blocked,
            planes,
            pixel,
            size: [rows, columns],
            padding: shape.conv.padding,
        }
    }

    fn is_padded(&self) -> bool {
        self.padding != [[0; 2]; 2]
    }

    /// Elements of a row, and of a plane, with the zeros around.
    fn pitch(&self) -> [usize; 2] {
        let [[top, left], [bottom, right]] = self.padding;
        let row = (left + self.size[1] + right) * self.pixel;
        [row, (top + self.size[0] + bottom) * row]
    }

    /// Number of elements of its copy, with the zeros around; 0 if no copy is needed.
    fn copy_len(&self) -> usize {
        match self.is_padded() {
            true => self.planes * self.pitch()[1],
            false => 0,
        }
    }

    fn copy(&self, image: &[f32], to: &mut [f32]) {
        let plane = self.size[0] * self.size[1] * self.pixel;
        let pitch = self.pitch()[1];
        to.par_chunks_exact_mut(pitch)
            .zip(image.par_chunks_exact(plane))
            .with_min_len(crate::kernels::GRAIN.div_ceil(pitch))
            .run_parallel(|(to, image)| surround(image, self.size, self.padding, self.pixel, to));
    }
}

/// Number of elements of the workspace of the kernel for `algorithm`.
#[must_use]
pub fn workspace_len(shape: &ConvShape, algorithm: ConvAlgorithm) -> usize {
    match algorithm {
        ConvAlgorithm::Planes | ConvAlgorithm::Blocks => Image::of(shape, algorithm).copy_len(),
        ConvAlgorithm::Bf16 => bf16::conv::workspace_len(shape),
        ConvAlgorithm::Depthwise => 0,
    }
}

impl BlockedConv {
    /// Packs `weight`, of shape `[out, in / groups, rows, columns]`.
    #[must_use]
    pub fn new(
        shape: ConvShape,
        algorithm: ConvAlgorithm,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Self {
        let source = Image::of(&shape, algorithm);
        let vectors = vectors_per_block();
        let [out_channels, rows, columns] = shape.output;
        // The rows of an image are one long row, if there are no zeros between them.
        let flat = source.blocked && shape.is_pointwise();
        let mut result = if flat {
            [1, rows * columns]
        } else {
            [rows, columns]
        };
        let mut padded = vec![0.0; out_channels.next_multiple_of(BLOCK)];
        if let Some(bias) = bias {
            padded[..out_channels].copy_from_slice(bias);
        }
        let taps = taps(&shape, &source);
        let depth = match source.blocked {
            true => BLOCK,
            false => shape.kernel[1],
        };
        let widest = widest(result[1], vectors);
        let groups = groups(&shape, &source, taps.len() * depth * BLOCK, widest);
        if flat && groups.len() < FEW {
            result = long_rows(rows, columns);
        }
        let pitch = match flat {
            true => result[1] * BLOCK,
            false => source.pitch()[0] * shape.conv.stride[0],
        };
        let len = groups.last().map_or(0, |group| group.weights.end);
        let mut weights = AlignedBuffer::zeros(len);
        let mut rest = &mut weights[..];
        let mut parts = Vec::with_capacity(groups.len());
        for group in &groups {
            let (part, after) = rest.split_at_mut(group.weights.len());
            parts.push((group, part));
            rest = after;
        }
        parts
            .into_par_iter()
            .run_parallel(|(group, packed)| pack(&shape, &source, group, weight, packed));
        Self {
            shape,
            source,
            taps,
            depth,
            groups,
            weights,
            bias: padded,
            result,
            pitch,
            vectors,
        }
    }

    /// Writes the convolution of `input` to `out`. Calls `epilogue(at, chunk)` with each piece of the
    /// result, which begins at element `at`. For a convolution of single pixels, the channels of
    /// `input` may be multiplied by `factors`.
    pub fn run(
        &self,
        input: &[f32],
        factors: Option<&[f32]>,
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        let [rows, columns] = self.source.size;
        let image = self.source.planes * rows * columns * self.source.pixel;
        let plane = self.result[0] * self.result[1] * BLOCK;
        let result = self.bias.len() / BLOCK * plane;
        if image == 0 || result == 0 {
            return;
        }
        let images = input.chunks_exact(image).zip(out.chunks_exact_mut(result));
        for (index, (input, out)) in images.enumerate() {
            let source = match self.source.is_padded() {
                true => {
                    self.source.copy(input, workspace);
                    &*workspace
                }
                false => input,
            };
            self.pieces(out, plane)
                .into_par_iter()
                .run_parallel(|mut piece| {
                    self.piece(source, factors, &mut piece);
                    for (block, chunk) in piece.group.blocks.clone().zip(&mut piece.blocks) {
                        let start = block * plane + piece.row * self.result[1] * BLOCK;
                        epilogue(index * result + start, chunk);
                    }
                });
        }
    }

    /// Divides a result into pieces of work: a group of channels, and a part of the rows if there
    /// are too few groups to keep all threads busy.
    fn pieces<'a>(&'a self, out: &'a mut [f32], plane: usize) -> Vec<Piece<'a>> {
        let [rows, columns] = self.result;
        let wanted = 4 * thread_count();
        let parts = match thread_count() {
            1 => 1,
            _ => wanted.div_ceil(self.groups.len()).min(rows),
        };
        let step = rows.div_ceil(parts);
        let mut pieces = Vec::with_capacity(self.groups.len() * parts);
        let mut planes = out.chunks_exact_mut(plane);
        for group in &self.groups {
            let first = pieces.len();
            for plane in planes.by_ref().take(group.blocks.len()) {
                for (at, chunk) in plane.chunks_mut(step * columns * BLOCK).enumerate() {
                    if pieces.len() == first + at {
                        pieces.push(Piece {
                            group,
                            part: at,
                            parts: rows.div_ceil(step),
                            row: at * step,
                            blocks: SmallVec::new(),
                        });
                    }
                    pieces[first + at].blocks.push(chunk);
                }
            }
        }
        pieces
    }

    fn piece(&self, source: &[f32], factors: Option<&[f32]>, piece: &mut Piece<'_>) {
        let weights = &self.weights[piece.group.weights.clone()];
        match factors {
            Some(factors) => SCALED.with_borrow_mut(|scaled| {
                scaled.reuse(weights.len());
                scale(weights, factors, scaled);
                self.multiply(source, scaled, piece);
            }),
            None => self.multiply(source, weights, piece),
        }
    }

    fn multiply(&self, source: &[f32], weights: &[f32], piece: &mut Piece<'_>) {
        let step = self.shape.conv.stride[1] * self.source.pixel;
        match step {
            1 => self.by_step::<1>(source, weights, piece),
            2 => self.by_step::<2>(source, weights, piece),
            4 => self.by_step::<4>(source, weights, piece),
            16 => self.by_step::<16>(source, weights, piece),
            _ => self.by_step::<32>(source, weights, piece),
        }
    }

    fn by_step<const STEP: usize>(&self, source: &[f32], weights: &[f32], piece: &mut Piece<'_>) {
        // A block is one, two or four vectors; where it is one, two to four blocks are a tile.
        match (self.vectors, piece.blocks.len()) {
            (1, 1) => self.by_tile::<STEP, 1, 1>(source, weights, piece),
            (1, 2) => self.by_tile::<STEP, 2, 1>(source, weights, piece),
            (1, 3) => self.by_tile::<STEP, 3, 1>(source, weights, piece),
            (1, _) => self.by_tile::<STEP, 4, 1>(source, weights, piece),
            (2, _) => self.by_tile::<STEP, 2, 2>(source, weights, piece),
            (_, _) => self.by_tile::<STEP, 4, 4>(source, weights, piece),
        }
    }

    fn by_tile<const STEP: usize, const V: usize, const PER_BLOCK: usize>(
        &self,
        source: &[f32],
        weights: &[f32],
        piece: &mut Piece<'_>,
    ) {
        let group = piece.group;
        let next = &self.weights[group.weights.end..];
        let next = &next[..next.len().min(group.weights.len())];
        Rows::<STEP, V, PER_BLOCK> {
            taps: &self.taps,
            depth: self.depth,
            source: &source[group.input..],
            pitch: self.pitch,
            weights,
            ahead: share(next, piece.part, piece.parts),
            bias: &self.bias[group.blocks.start * BLOCK..group.blocks.end * BLOCK],
            first: piece.row,
            columns: self.result[1],
            out: &mut piece.blocks,
        }
        .dispatch();
    }
}

thread_local! {
    /// The weights of a group, multiplied by factors that a program computes.
    static SCALED: RefCell<AlignedBuffer> = RefCell::default();
}

/// Multiplies the weights of each input channel by its factor.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn scale(weights: &[f32], factors: &[f32], scaled: &mut [f32]) {
    let width = weights.len() / factors.len();
    let rows = weights
        .chunks_exact(width)
        .zip(scaled.chunks_exact_mut(width));
    for ((weights, scaled), &factor) in rows.zip(factors) {
        for (to, &weight) in scaled.iter_mut().zip(weights) {
            *to = weight * factor;
        }
    }
}

/// A piece of work.
struct Piece<'a> {
    group: &'a Group,
    /// Number of the part of the rows of the group, and number of parts.
    part: usize,
    parts: usize,
    /// The first row.
    row: usize,
    /// Its rows, in each block of the group.
    blocks: SmallVec<[&'a mut [f32]; 4]>,
}

/// With fewer groups of channels than this, an image is several long rows instead of one.
const FEW: usize = 4;

/// The pixels of an image without zeros between its rows, as fewer and longer rows: several, so
/// that there is work for several threads, each at least two tiles long.
fn long_rows(rows: usize, columns: usize) -> [usize; 2] {
    const MOST: usize = 8;
    const LEAST_LEN: usize = 28;
    let fits = |&count: &usize| rows.is_multiple_of(count) && rows / count * columns >= LEAST_LEN;
    let count = (1..=MOST).rev().find(fits).unwrap_or(1);
    [count, rows / count * columns]
}

/// Divides the blocks of a result, which have `weights` weights each, into groups of at most
/// `widest` blocks.
fn groups(shape: &ConvShape, source: &Image, weights: usize, widest: usize) -> Vec<Group> {
    let parts = shape.conv.groups;
    let blocks = shape.output[0].div_ceil(BLOCK) / parts;
    let planes = source.planes / parts;
    let mut groups = Vec::new();
    let mut at = 0;
    for part in 0..parts {
        let mut block = 0;
        while block < blocks {
            let count = widest.min(blocks - block);
            let len = count * weights;
            groups.push(Group {
                blocks: part * blocks + block..part * blocks + block + count,
                weights: at..at + len,
                input: part * planes * source.pitch()[1],
            });
            at += len;
            block += count;
        }
    }
    groups
}

/// Offsets of runs in the planes of a group: by plane, row of the kernel, and column of it if
/// channels lie in blocks.
fn taps(shape: &ConvShape, source: &Image) -> Vec<usize> {
    let planes = source.planes / shape.conv.groups;
    let [row, plane] = source.pitch();
    let columns = if source.blocked { shape.kernel[1] } else { 1 };
    let [down, right] = shape.conv.dilation;
    let mut taps = Vec::with_capacity(planes * shape.kernel[0] * columns);
    for at in 0..planes {
        for y in 0..shape.kernel[0] {
            for x in 0..columns {
                taps.push(at * plane + y * down * row + x * right * source.pixel);
            }
        }
    }
    taps
}

/// Packs the weights of a group: for each run and each element of it, the weights of all channels
/// that the group computes.
fn pack(shape: &ConvShape, source: &Image, group: &Group, weight: &[f32], packed: &mut [f32]) {
    let inputs = shape.input[0] / shape.conv.groups;
    let taps = shape.kernel[0] * shape.kernel[1];
    let width = group.blocks.len() * BLOCK;
    let outputs = group.blocks.start * BLOCK..(group.blocks.end * BLOCK).min(shape.output[0]);
    let own = |output: usize| &weight[output * inputs * taps..][..inputs * taps];
    // A block of inputs of all outputs at a time, so that the lines that are written stay in the
    // cache.
    for block in (0..inputs).step_by(BLOCK) {
        let channels = block..inputs.min(block + BLOCK);
        for (at, output) in outputs.clone().enumerate() {
            let kernels = &own(output)[channels.start * taps..channels.end * taps];
            for (input, kernel) in channels.clone().zip(kernels.chunks_exact(taps)) {
                for (tap, &weight) in kernel.iter().enumerate() {
                    let run = match source.blocked {
                        true => (block / BLOCK * taps + tap) * BLOCK + input - block,
                        // Runs are rows of the kernel.
                        false => input * taps + tap,
                    };
                    packed[run * width + at] = weight;
                }
            }
        }
    }
}

/// Rows of a result, for `V` vectors of channels.
struct Rows<'a, 'b, const STEP: usize, const V: usize, const PER_BLOCK: usize> {
    /// Offsets of the runs.
    taps: &'a [usize],
    /// Elements of a run.
    depth: usize,
    source: &'a [f32],
    /// Elements of the source from a row of the result to the next.
    pitch: usize,
    weights: &'a [f32],
    /// Weights to prefetch.
    ahead: &'a [f32],
    bias: &'a [f32],
    /// The first row.
    first: usize,
    /// Pixels of a row.
    columns: usize,
    /// The rows in each block.
    out: &'a mut [&'b mut [f32]],
}

impl<const STEP: usize, const V: usize, const PER_BLOCK: usize> Rows<'_, '_, STEP, V, PER_BLOCK> {
    #[inline(always)]
    fn store<I: Isa, const P: usize>(&mut self, isa: I, start: usize, sums: &[[I::F32; V]; P]) {
        let ops = isa.f32();
        let len = BLOCK / PER_BLOCK;
        for v in 0..V {
            let (block, at) = (v / PER_BLOCK, v % PER_BLOCK * len);
            let pixels = &mut self.out[block][start..][..P * BLOCK];
            for (pixel, sums) in pixels.chunks_exact_mut(BLOCK).zip(sums) {
                ops.store(sums[v], &mut pixel[at..at + len]);
            }
        }
    }
}

impl<const STEP: usize, const V: usize, const PER_BLOCK: usize> SimdOp
    for Rows<'_, '_, STEP, V, PER_BLOCK>
{
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(mut self, isa: I) {
        let len = isa.f32().len();
        if len * PER_BLOCK != BLOCK {
            // For another instruction set.
            return;
        }
        let rows = self
            .out
            .first()
            .map_or(0, |out| out.len() / BLOCK / self.columns);
        let tiles = self.columns.div_ceil(const { widest_tile(V, PER_BLOCK) });
        let width = self.columns.div_ceil(tiles);
        for row in 0..rows {
            let source = &self.source[(self.first + row) * self.pitch..];
            let mut x = 0;
            while x < self.columns {
                let pixels = width.min(self.columns - x);
                let tile = Tile {
                    taps: self.taps,
                    depth: if STEP >= BLOCK { BLOCK } else { self.depth },
                    source: &source[x * STEP..],
                    weights: self.weights,
                    ahead: share(self.ahead, row * tiles + x / width, rows * tiles),
                };
                let start = (row * self.columns + x) * BLOCK;
                by_width!(pixels, V, PER_BLOCK, P => {
                    let sums = tile.sums::<I, P, STEP, V>(isa, [load(isa, self.bias); P]);
                    self.store::<I, P>(isa, start, &sums);
                });
                x += pixels;
            }
        }
    }
}
