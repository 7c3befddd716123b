//! Attention of few queries, as of one token: keys and values are read where they are.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, Simd, SimdOp};

use super::{Attention, Exponentials, Operands, Piece};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::blocked::BLOCK;
use crate::kernels::small_product::dot;

/// Up to this many queries of a head, packing keys and values takes longer than it saves. On one thread
/// of an AMD EPYC with AVX-512, 12 heads of 129 keys of 64 features took 16 µs for a query and 88 for
/// six, 70 and 95 with packed keys.
const FEW: usize = 6;
/// Vectors of features of values that are summed at a time.
const VECTORS: usize = 4;

impl Attention {
    /// Whether there are few queries, and the features of keys and values are contiguous.
    pub(super) fn has_few_queries(&self) -> bool {
        self.rows <= FEW && self.key.column == 1 && self.value.column == 1
    }
}

/// Computes a piece, query by query.
pub(super) struct FewQueries<'a, 'b> {
    pub(super) attention: &'a Attention,
    pub(super) operands: &'a Operands<'a>,
    pub(super) piece: &'a mut Piece<'b>,
    /// Scratch memory for a query, times the scale.
    pub(super) query: &'a mut AlignedBuffer,
    /// Scratch memory for the scores of a query, whole blocks; then their exponentials.
    pub(super) scores: &'a mut AlignedBuffer,
}

impl SimdOp for FewQueries<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let (own, head) = (self.attention, self.piece.head);
        self.query.reuse(own.width);
        for (row, out) in (self.piece.first..).zip(&mut self.piece.out) {
            let seen = match own.causal {
                true => own.keys.min(row + 1),
                false => own.keys,
            };
            let from = &self.operands.query[head.query + row * own.query.row..];
            for (feature, to) in self.query.iter_mut().enumerate() {
                *to = from[feature * own.query.column] * own.scale;
            }
            self.scores.reuse(seen.next_multiple_of(BLOCK));
            let (scores, padding) = self.scores.split_at_mut(seen);
            padding.fill(f32::NEG_INFINITY);
            for (key, score) in scores.iter_mut().enumerate() {
                let key = &self.operands.key[head.key + key * own.key.row..][..own.width];
                *score = dot(isa, self.query, key);
            }
            if let Some(pitch) = own.mask {
                let mask = &self.operands.mask[head.mask + row * pitch.row..];
                for (key, score) in scores.iter_mut().enumerate() {
                    *score += mask[key * pitch.column];
                }
            }
            let mut sum = [0.0];
            Exponentials {
                scores: self.scores,
                largest: &mut [f32::NEG_INFINITY],
                sums: &mut sum,
                factors: &mut [1.0],
            }
            .eval(isa);
            let values = Values {
                from: &self.operands.value[head.value..],
                pitch: own.value.row,
                weights: &self.scores[..seen],
                factor: own.factor(sum[0]),
            };
            values.add_up(isa, out);
        }
    }
}

/// Rows of values, and their weights.
struct Values<'a> {
    from: &'a [f32],
    /// Elements from a row to the next.
    pitch: usize,
    weights: &'a [f32],
    /// Of the sums.
    factor: f32,
}

impl Values<'_> {
    #[inline(always)]
    fn add_up<I: Isa>(&self, isa: I, out: &mut [f32]) {
        let len = isa.f32().len();
        let mut first = 0;
        while first < out.len() {
            first += match out.len() - first {
                rest if rest >= VECTORS * len => self.features::<I, VECTORS>(isa, first, out),
                _ => self.features::<I, 1>(isa, first, out),
            };
        }
    }

    /// Sums `V` vectors of features from `first` on, the last one maybe not whole, and gives their number.
    #[inline(always)]
    fn features<I: Isa, const V: usize>(&self, isa: I, first: usize, out: &mut [f32]) -> usize {
        let ops = isa.f32();
        let len = ops.len();
        let count = (V * len).min(out.len() - first);
        let mut sums = [ops.splat(0.0); V];
        for (row, &weight) in self.weights.iter().enumerate() {
            let from = &self.from[row * self.pitch + first..][..count];
            let weight = ops.splat(weight);
            for (v, sum) in sums.iter_mut().enumerate() {
                let own = match V {
                    1 => ops.load_pad(from).0,
                    _ => ops.load(&from[v * len..][..len]),
                };
                *sum = ops.mul_add(own, weight, *sum);
            }
        }
        let factor = ops.splat(self.factor);
        for (sum, to) in sums.into_iter().zip(out[first..][..count].chunks_mut(len)) {
            let all = ops.mul(sum, factor).to_array();
            to.copy_from_slice(&all.as_ref()[..to.len()]);
        }
        count
    }
}
