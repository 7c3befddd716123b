//! Linear layers: rows of features are packed in blocks like the pixels of an image, and multiplied
//! with weights packed for blocks of outputs.

use std::cell::RefCell;
use std::fmt::Debug;
use std::ops::{DerefMut, Range};
use std::sync::Arc;

use rayon::prelude::*;
use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

use super::tile::{Tile, by_width, load, share, vectors_per_block, widest, widest_tile};
use super::{BLOCK, narrow};
use crate::aligned_buffer::{AlignedBuffer, LINE};
use crate::kernels::ApplyEpilogue;
use crate::kernels::GRAIN;
use crate::kernels::piece::{Piece, pieces};
use crate::parallel::{Parallel, thread_count};
use crate::program::Half;

/// Number of inputs that are summed before the next columns are, so that many rows of them stay in
/// the cache.
const DEPTH: usize = 1024;
/// Number of elements of the input that a piece of work reads repeatedly, for each group of
/// columns, from the cache.
const CACHED: usize = 256 * 1024;
/// From this many rows on, there are enough for all threads to have whole rows.
const MANY: usize = 512;

/// With fewer rows than this, a product takes as long as its weights take to read. They are read in order, which the
/// processor foresees: prefetching the next ones takes 15 % longer (measured on an AMD EPYC with AVX-512, one row of 768).
const FEW: usize = 4;

/// With more outputs than this, the time to pack rows once for each piece of work is negligible.
const WIDE: usize = 16 * 1024;
/// With more inputs than this, all rows, packed, are too much memory to write and read again.
const DEEP: usize = 4 * DEPTH;

/// Number of elements of a result of which the epilogue is computed at a time.
const FINISHED: usize = 64 * 1024;

/// Number of inputs whose weights of 16 bits are widened at a time: those of a group of outputs, 16
/// KB, stay in the first-level cache.
const WIDENED_INPUTS: usize = 64;

/// The weight of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearWeight<'a, T = f32> {
    /// Its elements.
    pub data: &'a [T],
    /// Numbers of outputs and inputs.
    pub sizes: [usize; 2],
    /// Whether the weights of an input are contiguous, rather than those of an output.
    pub by_input: bool,
}

impl<T: Copy> LinearWeight<'_, T> {
    /// The weight of `input` in `output`.
    pub(crate) fn at(&self, output: usize, input: usize) -> T {
        let [outputs, inputs] = self.sizes;
        match self.by_input {
            true => self.data[input * outputs + output],
            false => self.data[output * inputs + input],
        }
    }

    /// Packs the weights of `width` outputs from `first` on, together for each input. The last ones
    /// may be missing: their elements are not written.
    fn pack(&self, first: usize, width: usize, packed: &mut [T]) {
        let [outputs, inputs] = self.sizes;
        let count = width.min(outputs - first);
        if self.by_input {
            let rows = self.data.chunks_exact(outputs);
            for (row, packed) in rows.zip(packed.chunks_exact_mut(width)) {
                packed[..count].copy_from_slice(&row[first..first + count]);
            }
            return;
        }
        let own = &self.data[first * inputs..][..count * inputs];
        // A few inputs of all outputs at a time, so that whole cache lines are written.
        for start in (0..inputs).step_by(BLOCK) {
            let end = inputs.min(start + BLOCK);
            for (output, row) in own.chunks_exact(inputs).enumerate() {
                for (input, &weight) in (start..end).zip(&row[start..end]) {
                    packed[input * width + output] = weight;
                }
            }
        }
    }
}

/// For each group of blocks of outputs, by input: weights of the outputs.
#[derive(Debug)]
enum PackedWeights {
    F32(AlignedBuffer),
    /// Half the bytes, which is what a product with a few rows takes its time to read.
    Half(Half, Vec<u16>),
    /// Those of another format.
    Other(Arc<dyn Widen>),
}

/// Weights that are not numbers in single precision.
pub(crate) trait Widen: Debug + Send + Sync {
    /// Writes weights as numbers: for each of the inputs, those of the outputs. Outputs and inputs past
    /// the last, up to whole [blocks](BLOCK), are zeros.
    fn widen(&self, outputs: Range<usize>, inputs: Range<usize>, to: &mut [f32]);
}

/// `x @ weight.T + bias` with the weight packed.
#[derive(Debug)]
pub struct LinearKernel {
    weights: PackedWeights,
    /// For all blocks of outputs.
    bias: Vec<f32>,
    outputs: usize,
    inputs: usize,
    /// Number of blocks of outputs that are computed together; the last group may have fewer.
    widest: usize,
    /// Number of vectors of a block.
    vectors: usize,
}

/// The bias of whole blocks of outputs: zeros where there is none.
fn of_blocks(outputs: usize, bias: Option<&[f32]>) -> Vec<f32> {
    let mut own = vec![0.0; outputs.next_multiple_of(BLOCK)];
    if let Some(bias) = bias {
        own[..outputs].copy_from_slice(bias);
    }
    own
}

/// Whether a piece of work consists of whole rows, with all of their outputs.
fn in_strips(rows: usize, inputs: usize) -> bool {
    rows >= MANY && rows * inputs > CACHED
}

/// Whether each piece of work packs its rows, so that they are never all in memory at once;
/// otherwise all rows are packed before any is multiplied.
fn packs_apart(rows: usize, [outputs, inputs]: [usize; 2]) -> bool {
    let many_times = rows * inputs > CACHED / 4 && (outputs > WIDE || inputs > DEEP);
    in_strips(rows, inputs) || many_times
}

/// Number of elements of the workspace of [`LinearKernel::run`], for `rows` rows and a weight of
/// these sizes: outputs and inputs.
#[must_use]
pub fn workspace_len(rows: usize, sizes: [usize; 2]) -> usize {
    match packs_apart(rows, sizes) {
        true => 0,
        false => rows.next_multiple_of(tile_height(rows)) * sizes[1].next_multiple_of(BLOCK),
    }
}

thread_local! {
    /// Packed rows, which the thread multiplies next.
    static PACKED: RefCell<AlignedBuffer> = RefCell::default();
    /// Weights of 16 bits, widened to be multiplied next.
    static WIDENED_WEIGHTS: RefCell<AlignedBuffer> = RefCell::default();
}

/// Number of rows of a tile.
fn tile_height(rows: usize) -> usize {
    let vectors = vectors_per_block();
    let most = match (vectors, widest(rows, vectors)) {
        (1, 2) => const { widest_tile(2, 1) },
        (1, 3) => const { widest_tile(3, 1) },
        (1, _) => const { widest_tile(4, 1) },
        (2, _) => const { widest_tile(2, 2) },
        (_, _) => const { widest_tile(4, 4) },
    };
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

/// Packs rows of `inputs` inputs into the blocks of a tile of `height` rows: for each block, its
/// inputs of each row. The first block begins at input `first`.
fn pack(rows: &[f32], inputs: usize, first: usize, height: usize, tile: &mut [f32]) {
    for (at, block) in tile.chunks_exact_mut(height * BLOCK).enumerate() {
        let (to, _) = block.as_chunks_mut::<BLOCK>();
        for (to, row) in to.iter_mut().zip(rows.chunks_exact(inputs)) {
            let own = &row[first + at * BLOCK..];
            match own.first_chunk::<BLOCK>() {
                Some(whole) => *to = *whole,
                None => {
                    to.fill(0.0);
                    to[..own.len()].copy_from_slice(own);
                }
            }
        }
    }
}

impl LinearKernel {
    /// Number of blocks of outputs that are computed together for `rows` rows. A packed weight
    /// depends on it and on its sizes.
    #[must_use]
    pub fn width(rows: usize) -> usize {
        widest(rows, vectors_per_block())
    }

    /// Packs `weight` for `rows` rows.
    #[must_use]
    pub fn new(weight: &LinearWeight<'_>, bias: Option<&[f32]>, rows: usize) -> Self {
        Self::packed(weight, bias, rows, AlignedBuffer::zeros, PackedWeights::F32)
    }

    /// Packs a weight of numbers of 16 bits, which stay so in memory, for `rows` rows.
    #[must_use]
    pub fn of_half(
        (weight, half): (&LinearWeight<'_, u16>, Half),
        bias: Option<&[f32]>,
        rows: usize,
    ) -> Self {
        let zeros = |len| vec![0; len];
        Self::packed(weight, bias, rows, zeros, |own| {
            PackedWeights::Half(half, own)
        })
    }

    /// Takes weights of another format, of these numbers of outputs and inputs, for `rows` rows.
    pub(crate) fn of_other(
        weights: Arc<dyn Widen>,
        [outputs, inputs]: [usize; 2],
        bias: Option<&[f32]>,
        rows: usize,
    ) -> Self {
        let vectors = vectors_per_block();
        Self {
            weights: PackedWeights::Other(weights),
            bias: of_blocks(outputs, bias),
            outputs,
            inputs,
            widest: widest(rows, vectors),
            vectors,
        }
    }

    fn packed<T: Copy + Send + Sync, B: DerefMut<Target = [T]>>(
        weight: &LinearWeight<'_, T>,
        bias: Option<&[f32]>,
        rows: usize,
        zeros: impl FnOnce(usize) -> B,
        made: impl FnOnce(B) -> PackedWeights,
    ) -> Self {
        let [outputs, inputs] = weight.sizes;
        let vectors = vectors_per_block();
        let widest = widest(rows, vectors);
        let depth = inputs.next_multiple_of(BLOCK);
        let own = of_blocks(outputs, bias);
        let mut weights = zeros(own.len() * depth);
        let group = (widest * BLOCK * depth).max(1);
        weights
            .par_chunks_mut(group)
            .enumerate()
            .run_parallel(|(at, packed)| {
                weight.pack(at * widest * BLOCK, packed.len() / depth, packed);
            });
        Self {
            weights: made(weights),
            bias: own,
            outputs,
            inputs,
            widest,
            vectors,
        }
    }

    /// Writes a row of outputs for each row of `input`. Calls `epilogue(at, chunk)` with each piece
    /// of the result, which begins at element `at`.
    pub fn run(
        &self,
        input: &[f32],
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) {
        if out.is_empty() {
            return;
        }
        let rows = out.len() / self.outputs;
        if self.inputs == 0 {
            for (at, row) in out.chunks_exact_mut(self.outputs).enumerate() {
                row.copy_from_slice(&self.bias[..self.outputs]);
                epilogue(at * self.outputs, row);
            }
            return;
        }
        if let PackedWeights::F32(weights) = &self.weights
            && self.inputs == self.outputs
            && narrow::run(self.inputs, weights, &self.bias, input, out, epilogue)
        {
            return;
        }
        let depth = self.inputs.next_multiple_of(BLOCK);
        let height = tile_height(rows);
        let taps: Vec<usize> = (0..depth / BLOCK).map(|at| at * height * BLOCK).collect();
        let sizes = [self.outputs, self.inputs];
        let apart = packs_apart(rows, sizes);
        let blocks = &mut workspace[..workspace_len(rows, sizes)];
        if !apart {
            let tiles = input.par_chunks(height * self.inputs);
            tiles
                .zip(blocks.par_chunks_exact_mut(height * depth))
                .with_min_len(GRAIN.div_ceil(height * depth))
                .run_parallel(|(rows, tile)| pack(rows, self.inputs, 0, height, tile));
        }
        let blocks = &*blocks;
        let pieces = match in_strips(rows, self.inputs) {
            true => self.strips(rows, height, out),
            false => self.pieces(rows, height, out),
        };
        pieces.into_par_iter().run_parallel(|mut piece| {
            let row = piece.row;
            for start in (0..depth).step_by(DEPTH) {
                let inputs = start..depth.min(start + DEPTH);
                let finish = (inputs.end == depth).then_some(epilogue);
                if apart {
                    PACKED.with_borrow_mut(|packed| {
                        self.pack_inputs(input, inputs.clone(), height, &piece, packed);
                        let panel = Panel {
                            taps: &taps[..inputs.len() / BLOCK],
                            source: packed,
                            depth: inputs.len(),
                            inputs,
                        };
                        self.panel(&panel, height, &mut piece, finish);
                    });
                } else {
                    let panel = Panel {
                        taps: &taps[start / BLOCK..inputs.end / BLOCK],
                        source: &blocks[row * depth..],
                        depth,
                        inputs,
                    };
                    self.panel(&panel, height, &mut piece, finish);
                }
            }
        });
    }

    /// Divides a result into strips: whole rows, few enough to stay in the cache.
    fn strips<'a>(&self, rows: usize, tile: usize, out: &'a mut [f32]) -> Vec<Piece<'a>> {
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let fits = (CACHED / self.inputs).min(rows.div_ceil(wanted)).max(1);
        let height = rows.div_ceil(rows.div_ceil(fits)).next_multiple_of(tile);
        pieces(out, self.outputs, [height, self.outputs])
    }

    /// Packs the given inputs of the rows of `piece`.
    fn pack_inputs(
        &self,
        input: &[f32],
        inputs: Range<usize>,
        height: usize,
        piece: &Piece<'_>,
        packed: &mut AlignedBuffer,
    ) {
        let tile = height * inputs.len();
        let rows = &input[piece.row * self.inputs..][..piece.rows.len() * self.inputs];
        let rows = rows.chunks(height * self.inputs);
        packed.reuse(rows.len() * tile);
        for (rows, tile) in rows.zip(packed.chunks_exact_mut(tile)) {
            pack(rows, self.inputs, inputs.start, height, tile);
        }
    }

    /// Divides a result into pieces of work. They are about as high as wide, because the memory
    /// that each reads grows with its height and its width, and low enough for its rows to stay in
    /// the cache.
    fn pieces<'a>(&self, rows: usize, tile: usize, out: &'a mut [f32]) -> Vec<Piece<'a>> {
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let area = (rows * self.outputs).div_ceil(wanted);
        let fits = CACHED / self.inputs.clamp(1, DEPTH);
        let height = rows.min(area.isqrt().max(1)).min(fits.max(1));
        // Whole tiles.
        let height = rows.div_ceil(rows.div_ceil(height)).next_multiple_of(tile);
        let group = self.widest * BLOCK;
        let width = area.div_ceil(height.min(rows)).next_multiple_of(group);
        let parts = self.outputs.div_ceil(width);
        let width = self.outputs.div_ceil(parts).next_multiple_of(group);
        pieces(out, self.outputs, [height, width])
    }

    /// Adds the products of some inputs to a piece; sums begin with the bias for the first inputs.
    /// Calls `finish` with the parts of rows, while they are in the cache.
    fn panel(
        &self,
        panel: &Panel<'_>,
        height: usize,
        piece: &mut Piece<'_>,
        finish: Option<ApplyEpilogue<'_>>,
    ) {
        let (mut unfinished, together) = (0, FINISHED / piece.rows.len());
        let depth = self.inputs.next_multiple_of(BLOCK);
        let end = piece.rows.first().map_or(0, |row| row.len());
        let group = self.widest * BLOCK;
        let width_at = |first: usize| group.min(self.bias.len() - first);
        // Places of the weights of some inputs for the columns from `first` on.
        let places = |first: usize, inputs: &Range<usize>| {
            let (start, width) = (first * depth, width_at(first));
            start + inputs.start * width..start + inputs.end * width
        };
        for column in (0..end).step_by(group) {
            let first = piece.column + column;
            let (width, next) = (width_at(first), first + group);
            match &self.weights {
                PackedWeights::F32(weights) => {
                    let ahead = match next < self.bias.len() && piece.rows.len() >= FEW {
                        true => &weights[places(next, &panel.inputs)],
                        false => &[],
                    };
                    let own = [&weights[places(first, &panel.inputs)], ahead];
                    self.columns(panel, height, (column, width), own, piece);
                }
                PackedWeights::Half(half, weights) => {
                    self.widened(panel, height, (column, width), piece, |inputs, wide| {
                        half.widen(&weights[places(first, &inputs)], wide);
                    });
                }
                PackedWeights::Other(weights) => {
                    self.widened(panel, height, (column, width), piece, |inputs, wide| {
                        weights.widen(first..first + width, inputs, wide);
                    });
                }
            }
            let done = end.min(column + width);
            if let Some(finish) = finish
                && (done == end || done - unfinished >= together)
            {
                for (at, row) in piece.rows.iter_mut().enumerate() {
                    let start = (piece.row + at) * self.outputs + piece.column + unfinished;
                    finish(start, &mut row[unfinished..done]);
                }
                unfinished = done;
            }
        }
    }

    /// The same for one group of columns, whose weights are widened, those of some inputs at a time.
    fn widened(
        &self,
        panel: &Panel<'_>,
        height: usize,
        (column, width): (usize, usize),
        piece: &mut Piece<'_>,
        widen: impl Fn(Range<usize>, &mut [f32]),
    ) {
        WIDENED_WEIGHTS.with_borrow_mut(|wide| {
            let Range { start, end } = panel.inputs;
            for at in (start..end).step_by(WIDENED_INPUTS) {
                let inputs = at..end.min(at + WIDENED_INPUTS);
                wide.reuse(inputs.len() * width);
                widen(inputs.clone(), wide);
                let part = Panel {
                    taps: &panel.taps[(at - start) / BLOCK..(inputs.end - start) / BLOCK],
                    inputs,
                    ..panel.clone()
                };
                self.columns(&part, height, (column, width), [wide, &[]], piece);
            }
        });
    }

    /// The same for one group of columns, with its weights, and those of the next one to prefetch.
    fn columns(
        &self,
        panel: &Panel<'_>,
        height: usize,
        (column, width): (usize, usize),
        [weights, ahead]: [&[f32]; 2],
        piece: &mut Piece<'_>,
    ) {
        let first = piece.column + column;
        let product = Columns {
            taps: panel.taps,
            source: panel.source,
            depth: panel.depth,
            height,
            weights,
            ahead,
            bias: (panel.inputs.start == 0).then(|| &self.bias[first..][..width]),
            column,
            out: &mut piece.rows,
        };
        match (self.vectors, width / BLOCK) {
            (1, 1) => WithVectors::<1, 1>(product).dispatch(),
            (1, 2) => WithVectors::<2, 1>(product).dispatch(),
            (1, 3) => WithVectors::<3, 1>(product).dispatch(),
            (1, _) => WithVectors::<4, 1>(product).dispatch(),
            (2, _) => WithVectors::<2, 2>(product).dispatch(),
            (_, _) => WithVectors::<4, 4>(product).dispatch(),
        }
    }
}

/// Some inputs of packed rows.
#[derive(Clone)]
struct Panel<'a> {
    /// Offsets of their blocks in a tile.
    taps: &'a [usize],
    source: &'a [f32],
    /// Number of inputs of a tile.
    depth: usize,
    inputs: Range<usize>,
}

/// Computes rows of a result, for one group of blocks of outputs.
struct Columns<'a, 'b> {
    taps: &'a [usize],
    source: &'a [f32],
    /// Number of inputs of a tile.
    depth: usize,
    /// Number of rows of a tile.
    height: usize,
    weights: &'a [f32],
    /// The weights of the next group, to prefetch.
    ahead: &'a [f32],
    /// Initial sums; those in `out`, if there are none.
    bias: Option<&'a [f32]>,
    /// Position of the group in the parts of rows.
    column: usize,
    out: &'a mut [&'b mut [f32]],
}

/// Computes with `V` vectors at a time.
struct WithVectors<'a, 'b, const V: usize, const PER_BLOCK: usize>(Columns<'a, 'b>);

impl<const V: usize, const PER_BLOCK: usize> SimdOp for WithVectors<'_, '_, V, PER_BLOCK> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let own = self.0;
        if isa.f32().len() * PER_BLOCK != BLOCK {
            // Compiled for another instruction set.
            return;
        }
        let tiles = own.out.len().div_ceil(own.height);
        for (at, out) in own.out.chunks_mut(own.height).enumerate() {
            let tile = Tile {
                taps: own.taps,
                depth: BLOCK,
                source: &own.source[at * own.height * own.depth..],
                weights: own.weights,
                ahead: share(own.ahead, at, tiles),
            };
            // The sums are stored far apart: their lines are prefetched while they are computed.
            for row in out.iter_mut() {
                for line in row[own.column..]
                    .chunks_mut(LINE)
                    .take(const { (V / PER_BLOCK) * BLOCK / LINE })
                {
                    isa.f32().prefetch_write(line.as_mut_ptr());
                }
            }
            by_width!(out.len(), V, PER_BLOCK, P => {
                let Ok(out) = <&mut [&mut [f32]; P]>::try_from(out) else {
                    unreachable!("these are so many rows");
                };
                let begin = match own.bias {
                    Some(bias) => [load::<I, V>(isa, bias); P],
                    None => load_rows::<I, P, V>(isa, own.column, out),
                };
                let sums = tile.sums::<I, P, BLOCK, V>(isa, begin);
                store::<I, P, V>(isa, own.column, sums, out);
            });
        }
    }
}

/// Largest number of outputs of a group.
const WIDEST: usize = 4 * BLOCK;

/// Loads vectors from rows from `column` on, with zeros past their end.
#[inline(always)]
fn load_rows<I: Isa, const P: usize, const V: usize>(
    isa: I,
    column: usize,
    rows: &[&mut [f32]; P],
) -> [[I::F32; V]; P] {
    let ops = isa.f32();
    let len = ops.len();
    let mut begin = [[ops.splat(0.0); V]; P];
    // All rows of a piece have the same length.
    if rows.iter().all(|row| row.len() >= column + V * len) {
        for p in 0..P {
            begin[p] = load(isa, &rows[p][column..]);
        }
    } else {
        let mut padded = [[0.0; WIDEST]; P];
        for (padded, row) in padded.iter_mut().zip(rows) {
            let rest = row.get(column..).unwrap_or(&[]);
            padded[..rest.len()].copy_from_slice(rest);
        }
        for p in 0..P {
            begin[p] = load(isa, &padded[p]);
        }
    }
    begin
}

/// Stores sums in rows from `column` on, up to their end.
// Loops over ranges are unrolled before sums are put in registers: sums that are in memory
// anywhere are written there after every run of a tile.
#[inline(always)]
fn store<I: Isa, const P: usize, const V: usize>(
    isa: I,
    column: usize,
    sums: [[I::F32; V]; P],
    out: &mut [&mut [f32]; P],
) {
    let ops = isa.f32();
    let len = ops.len();
    if out.iter().all(|row| row.len() >= column + V * len) {
        for p in 0..P {
            let row = &mut out[p][column..][..V * len];
            for v in 0..V {
                ops.store(sums[p][v], &mut row[v * len..][..len]);
            }
        }
        return;
    }
    let mut padded = [[0.0; WIDEST]; P];
    for p in 0..P {
        for v in 0..V {
            ops.store(sums[p][v], &mut padded[p][v * len..][..len]);
        }
    }
    for (padded, row) in padded.iter().zip(out) {
        let rest = row.get_mut(column..).unwrap_or(&mut []);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}
