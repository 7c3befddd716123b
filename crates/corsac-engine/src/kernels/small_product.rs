//! Products of small matrices, on the calling thread.
//!
//! rten-gemm asks rayon for the number of threads, however small a product is, and so starts
//! threads where there are none. Small products need neither threads nor blocking for caches: the
//! second matrix is read where it is, and tiles of the result are summed in registers.

use std::cell::RefCell;
use std::ops::Range;

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use super::matmul::Product;

/// From this many multiplications on, a product is left to rten-gemm.
///
/// On one thread of an AMD EPYC with AVX-512, 64 x 64 x 64 took 4.7 µs here and 5.2 there, 16 x 64
/// x 16 0.3 and 1.6, 1 x 256 x 256 4.6 and 4.4, 16 x 144 x 196 10 and 15, but 1 x 512 x 512 22 and
/// 17. From here on blocking for caches makes a difference, and several threads are worth it.
const LIMIT: usize = 512 * 1024;

/// Up to this many rows, each element is computed by itself, where both matrices are contiguous
/// along the depth: with so few, tiles save less than packing columns for them costs.
const FEW: usize = 7;

/// Rows of a tile.
const ROWS: usize = 6;
/// Vectors of a row of a tile.
const VECTORS: usize = 2;
/// Largest number of elements of a row of a tile.
const WIDEST: usize = VECTORS * 16;

thread_local! {
    /// Columns of the second matrix, packed for a tile.
    static PACKED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Whether a product of so many rows, of this depth and so many columns is a small one.
pub(crate) fn is_small([rows, depth, columns]: [usize; 3]) -> bool {
    rows.saturating_mul(depth).saturating_mul(columns) < LIMIT
}

impl Product<'_> {
    /// Whether each product is a small one.
    pub(crate) fn is_small(&self) -> bool {
        is_small([self.rows, self.depth, self.columns])
    }

    /// Writes the product of two matrices to `out`.
    pub(super) fn run_small(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        PACKED.with_borrow_mut(|packed| {
            Small {
                product: self,
                a,
                b,
                packed,
                out,
            }
            .dispatch()
        });
    }
}

/// Two matrices, and their product.
struct Small<'a> {
    product: &'a Product<'a>,
    a: &'a [f32],
    b: &'a [f32],
    packed: &'a mut Vec<f32>,
    out: &'a mut [f32],
}

impl SimdOp for Small<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(mut self, isa: I) {
        let product = self.product;
        if product.transposed && !product.first_transposed && product.rows <= FEW {
            return self.dots(isa);
        }
        let len = isa.f32().len();
        for first in (0..product.columns).step_by(VECTORS * len) {
            match product.columns - first {
                rest if rest <= len => self.columns::<I, 1>(isa, first),
                _ => self.columns::<I, VECTORS>(isa, first),
            }
        }
    }
}

impl Small<'_> {
    /// Computes each element by itself, where rows of both matrices are contiguous along the depth.
    #[inline(always)]
    fn dots<I: Isa>(&mut self, isa: I) {
        let depth = self.product.depth;
        let rows = self.a.chunks_exact(depth);
        for (a, out) in rows.zip(self.out.chunks_exact_mut(self.product.columns)) {
            for (b, out) in self.b.chunks_exact(depth).zip(out) {
                *out = self.product.scale as f32 * dot(isa, a, b);
            }
        }
    }

    /// Computes the columns of `V` vectors from `first` on; fewer, if there are no more.
    #[inline(always)]
    fn columns<I: Isa, const V: usize>(&mut self, isa: I, first: usize) {
        let product = self.product;
        let width = V * isa.f32().len();
        let count = width.min(product.columns - first);
        let (b, pitch) = match count == width && !product.transposed {
            true => (&self.b[first..], product.columns),
            false => {
                pack(product, self.b, first..first + count, width, self.packed);
                (&self.packed[..], width)
            }
        };
        for (strip, out) in self.out.chunks_mut(ROWS * product.columns).enumerate() {
            let (a, steps) = match product.first_transposed {
                true => (&self.a[strip * ROWS..], [1, product.rows]),
                false => (&self.a[strip * ROWS * product.depth..], [product.depth, 1]),
            };
            let tile = Tile {
                a,
                steps,
                b,
                pitch,
                depth: product.depth,
                scale: product.scale as f32,
            };
            let mut out = out
                .chunks_exact_mut(product.columns)
                .map(|row| &mut row[first..first + count]);
            match out.len() {
                1 => tile.run::<I, 1, V>(isa, &mut out),
                2 => tile.run::<I, 2, V>(isa, &mut out),
                3 => tile.run::<I, 3, V>(isa, &mut out),
                4 => tile.run::<I, 4, V>(isa, &mut out),
                5 => tile.run::<I, 5, V>(isa, &mut out),
                _ => tile.run::<I, ROWS, V>(isa, &mut out),
            }
        }
    }
}

/// Packs columns of the second matrix, with zeros up to `width`.
fn pack(
    product: &Product<'_>,
    b: &[f32],
    columns: Range<usize>,
    width: usize,
    packed: &mut Vec<f32>,
) {
    let count = columns.len();
    packed.clear();
    packed.resize(product.depth * width, 0.0);
    if product.transposed {
        let own = &b[columns.start * product.depth..columns.end * product.depth];
        // A part of the depth of all columns at a time, so that whole cache lines are written.
        for start in (0..product.depth).step_by(16) {
            let end = product.depth.min(start + 16);
            for (at, column) in own.chunks_exact(product.depth).enumerate() {
                for (k, &x) in (start..end).zip(&column[start..end]) {
                    packed[k * width + at] = x;
                }
            }
        }
    } else {
        let rows = b.chunks_exact(product.columns);
        for (to, row) in packed.chunks_exact_mut(width).zip(rows) {
            to[..count].copy_from_slice(&row[columns.clone()]);
        }
    }
}

/// Some rows of the first matrix, and columns of the second.
struct Tile<'a> {
    a: &'a [f32],
    /// Strides of the first matrix: from a row to the next, and along the depth.
    steps: [usize; 2],
    b: &'a [f32],
    /// Elements from a row of the columns to the next.
    pitch: usize,
    depth: usize,
    scale: f32,
}

impl Tile<'_> {
    /// Writes rows of the result.
    // Loops over ranges, as in the tiles of blocks: they are unrolled before sums are put in
    // registers.
    #[expect(clippy::needless_range_loop, reason = "iterators are not unrolled")]
    #[inline(always)]
    fn run<'o, I: Isa, const P: usize, const V: usize>(
        &self,
        isa: I,
        out: &mut impl Iterator<Item = &'o mut [f32]>,
    ) {
        let ops = isa.f32();
        let len = ops.len();
        let [down, along] = self.steps;
        let mut sums = [[ops.splat(0.0); V]; P];
        for k in 0..self.depth {
            let row = &self.b[k * self.pitch..][..V * len];
            let mut b = [ops.splat(0.0); V];
            for v in 0..V {
                b[v] = ops.load(&row[v * len..][..len]);
            }
            let a = &self.a[k * along..][..(P - 1) * down + 1];
            for p in 0..P {
                let a = ops.splat(a[p * down]);
                for v in 0..V {
                    sums[p][v] = ops.mul_add(a, b[v], sums[p][v]);
                }
            }
        }
        let scale = ops.splat(self.scale);
        let mut padded = [0.0; WIDEST];
        for p in 0..P {
            let Some(out) = out.next() else { return };
            if out.len() == V * len {
                for v in 0..V {
                    ops.store(ops.mul(sums[p][v], scale), &mut out[v * len..][..len]);
                }
            } else {
                for v in 0..V {
                    ops.store(ops.mul(sums[p][v], scale), &mut padded[v * len..][..len]);
                }
                out.copy_from_slice(&padded[..out.len()]);
            }
        }
    }
}

/// The dot product of two rows.
#[inline(always)]
pub(super) fn dot<I: Isa>(isa: I, a: &[f32], b: &[f32]) -> f32 {
    const SUMS: usize = 4;
    let ops = isa.f32();
    let len = ops.len();
    let mut sums = [ops.splat(0.0); SUMS];
    let whole = a.len() / (SUMS * len) * (SUMS * len);
    for k in (0..whole).step_by(SUMS * len) {
        let (a, b) = (&a[k..][..SUMS * len], &b[k..][..SUMS * len]);
        for v in 0..SUMS {
            let (a, b) = (
                ops.load(&a[v * len..][..len]),
                ops.load(&b[v * len..][..len]),
            );
            sums[v] = ops.mul_add(a, b, sums[v]);
        }
    }
    for k in (whole..a.len()).step_by(len) {
        let (a, b) = (&a[k..], &b[k..]);
        let (a, b) = (
            ops.load_pad(&a[..len.min(a.len())]).0,
            ops.load_pad(&b[..len.min(b.len())]).0,
        );
        sums[0] = ops.mul_add(a, b, sums[0]);
    }
    ops.sum(ops.add(ops.add(sums[0], sums[1]), ops.add(sums[2], sums[3])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_products_are_sums_of_products() {
        let numbers = |count: usize, step: usize| -> Vec<f32> {
            (0..count).map(|at| (at * step % 17) as f32 - 8.0).collect()
        };
        for rows in [1, 2, 3, 4, 5, 11] {
            for depth in [1, 7, 32, 33] {
                for columns in [1, 8, 9, 31, 32, 33, 70] {
                    for (first_transposed, transposed) in
                        [(false, false), (false, true), (true, false), (true, true)]
                    {
                        let product = Product {
                            rows,
                            depth,
                            columns,
                            first_transposed,
                            transposed,
                            scale: 0.5,
                            pairs: &[[0, 0]],
                        };
                        let (a, b) = (numbers(rows * depth, 5), numbers(depth * columns, 3));
                        let mut out = vec![f32::NAN; rows * columns];
                        product.run_small(&a, &b, &mut out);
                        for (at, &x) in out.iter().enumerate() {
                            let (row, column) = (at / columns, at % columns);
                            let terms = (0..depth).map(|k| {
                                let a = match first_transposed {
                                    true => a[k * rows + row],
                                    false => a[row * depth + k],
                                };
                                let b = match transposed {
                                    true => b[column * depth + k],
                                    false => b[k * columns + column],
                                };
                                a * b
                            });
                            // Whole numbers: exact in any order.
                            assert_eq!(x, 0.5 * terms.sum::<f32>(), "{product:?} at {at}");
                        }
                    }
                }
            }
        }
    }
}
