//! Weights in single precision.

use std::ops::Range;

use multiversion::multiversion;

use super::{Bits, CHUNK, PANEL, Weights};

/// Writes some weights of a panel: for each of `rows`, those of `columns`, rows `stride` apart.
/// Rows past the last are zeros.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn panel(
    weights: &Weights<'_>,
    columns: Range<usize>,
    rows: Range<usize>,
    to: &mut [f32],
    stride: usize,
) {
    let len = weights.bits.chunk_len();
    let in_group = weights.group.div_ceil(CHUNK);
    let (mut scales, mut zero_points) = ([0.0; PANEL], [0; PANEL]);
    let mut last = None;
    for chunk in rows.start / CHUNK..rows.end.div_ceil(CHUNK) {
        let first = chunk * CHUNK;
        let inside = rows.start.max(first)..rows.end.min(first + CHUNK);
        let packed = weights.packed.get(chunk * len..(chunk + 1) * len);
        let group = chunk / in_group;
        if last != Some(group) && packed.is_some() {
            scales = std::array::from_fn(|column| weights.scales.get(group * PANEL + column));
            if let Some(all) = weights.zero_points {
                let own = &all[group * PANEL..][..PANEL];
                zero_points = std::array::from_fn(|column| own[column].into());
            }
            last = Some(group);
        }
        for row in inside {
            let packed = packed.filter(|_| row < weights.depth);
            let steps = packed.map(|packed| match weights.bits {
                Bits::Four => weights_of(Bits::Four, packed, row - first),
                Bits::Eight => weights_of(Bits::Eight, packed, row - first),
            });
            let mut numbers = [0.0; PANEL];
            if let Some(steps) = steps {
                numbers = std::array::from_fn(|column| {
                    (steps[column] - zero_points[column]) as f32 * scales[column]
                });
            }
            let to = &mut to[(row - rows.start) * stride..][..columns.len()];
            match to.first_chunk_mut() {
                Some(all) => *all = numbers,
                None => to.copy_from_slice(&numbers[columns.clone()]),
            }
        }
    }
}

/// The weights of a row of a chunk.
#[inline(always)]
fn weights_of(bits: Bits, packed: &[u8], at: usize) -> [i32; PANEL] {
    let words = &packed.as_chunks().0[at / bits.in_word() * PANEL..][..PANEL];
    std::array::from_fn(|column| bits.weight(u32::from_le_bytes(words[column]), at))
}
