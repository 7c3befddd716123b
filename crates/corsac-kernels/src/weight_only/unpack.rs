//! Weights in single precision.

use multiversion::multiversion;

use super::{Bits, CHUNK, PANEL, Weights};

/// Chunks of a column that are written one after the other: columns may be a power of two apart, and
/// then share few places of a cache.
const RUN: usize = 16;

/// Writes the first `width` columns of a panel.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn panel(weights: &Weights<'_>, width: usize, to: &mut [f32], stride: usize) {
    let len = weights.bits.chunk_len();
    let in_group = weights.group.div_ceil(CHUNK);
    for (run, packed) in weights.packed.chunks(RUN * len).enumerate() {
        for (lane, to) in to.chunks_mut(stride).enumerate().take(width) {
            for (at, packed) in (run * RUN..).zip(packed.chunks_exact(len)) {
                let of_group = at / in_group * PANEL + lane;
                let scale = weights.scales.get(of_group);
                let zero_point: i32 = weights.zero_points.map_or(0, |all| all[of_group].into());
                let steps = match weights.bits {
                    Bits::Four => four(packed, lane),
                    Bits::Eight => eight(packed, lane),
                };
                let own = steps.map(|step| (step - zero_point) as f32 * scale);
                let to = &mut to[at * CHUNK..weights.depth.min((at + 1) * CHUNK)];
                match to.first_chunk_mut() {
                    Some(all) => *all = own,
                    None => to.copy_from_slice(&own[..to.len()]),
                }
            }
        }
    }
}

/// The weights of a column of a chunk.
#[inline(always)]
fn four(packed: &[u8], lane: usize) -> [i32; CHUNK] {
    let bits = packed.as_chunks().0[lane];
    let bits = u32::from_le_bytes(bits);
    std::array::from_fn(|at| ((bits >> (4 * at)) & 15).cast_signed() - 8)
}

#[inline(always)]
fn eight(packed: &[u8], lane: usize) -> [i32; CHUNK] {
    std::array::from_fn(|at| packed[at * PANEL + lane].cast_signed().into())
}
