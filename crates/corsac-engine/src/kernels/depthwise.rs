//! Depthwise convolutions: shifted runs of an image are summed piece by piece, in registers.

use multiversion::multiversion;

use super::shifted::Shifted;

/// Elements of the result that are summed at a time.
const BLOCK: usize = 64;

/// Number of scratch elements of [`depthwise`]: planes, and a result with their pitch.
pub(super) fn scratch_len(layout: &Shifted) -> usize {
    // Runs are read in whole blocks.
    layout.planes_len() + BLOCK + layout.run_len()
}

/// Writes the convolution of one plane.
pub(super) fn depthwise(
    layout: &Shifted,
    weights: &[f32],
    bias: f32,
    image: &[f32],
    out: &mut [f32],
    scratch: &mut [f32],
) {
    let (planes, sums) = scratch.split_at_mut(layout.planes_len() + BLOCK);
    layout.separate(image, planes);
    sum_taps(&layout.taps, weights, bias, planes, sums);
    layout.collect(sums, out);
}

/// `sums[i] = bias + Σ weights[t] * planes[i + taps[t]]`
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn sum_taps(taps: &[usize], weights: &[f32], bias: f32, planes: &[f32], sums: &mut [f32]) {
    for (block, sums) in sums.chunks_mut(BLOCK).enumerate() {
        let mut sum = [bias; BLOCK];
        for (&tap, &weight) in taps.iter().zip(weights) {
            let run = &planes[block * BLOCK + tap..][..BLOCK];
            for (sum, x) in sum.iter_mut().zip(run) {
                *sum += weight * x;
            }
        }
        sums.copy_from_slice(&sum[..sums.len()]);
    }
}
