//! Products in plain Rust.

use multiversion::multiversion;

use super::{Bits, CHUNK, PANEL, Product};

/// Sets the sums of each row.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
pub(super) fn multiply(product: &Product<'_>, results: &mut [[f32; PANEL]]) {
    let len = product.bits.chunk_len();
    let chunks = product.packed.len() / len;
    let groups = chunks.div_ceil(product.group);
    for (row, result) in results.iter_mut().enumerate() {
        let numbers = product.rows[row * chunks * CHUNK..].as_chunks::<CHUNK>().0;
        *result = [0.0; PANEL];
        for group in 0..groups {
            let first = group * product.group;
            let last = chunks.min(first + product.group);
            let packed = product.packed[first * len..last * len].chunks_exact(len);
            let mut sums = [0.0; PANEL];
            for (packed, numbers) in packed.zip(&numbers[first..last]) {
                match product.bits {
                    Bits::Four => chunk(Bits::Four, packed, numbers, &mut sums),
                    Bits::Eight => chunk(Bits::Eight, packed, numbers, &mut sums),
                }
            }
            let own = group * PANEL..(group + 1) * PANEL;
            if let Some(zero_points) = product.zero_points {
                let all = product.sums[row * groups + group];
                for (sum, &zero_point) in sums.iter_mut().zip(&zero_points[own.clone()]) {
                    *sum -= all * f32::from(zero_point);
                }
            }
            for (lane, at) in own.enumerate() {
                result[lane] += sums[lane] * product.scales.get(at);
            }
        }
    }
}

/// Adds the products of a chunk.
#[inline(always)]
fn chunk(bits: Bits, packed: &[u8], numbers: &[f32; CHUNK], sums: &mut [f32; PANEL]) {
    let words = packed.as_chunks().0.chunks_exact(PANEL);
    for (words, numbers) in words.zip(numbers.chunks_exact(bits.in_word())) {
        for (at, &x) in numbers.iter().enumerate() {
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum += x * bits.weight(u32::from_le_bytes(*word), at) as f32;
            }
        }
    }
}
