//! Linear layers of a few features: a row is a vector or less, and is neither packed nor divided.

use std::array::from_fn;

use multiversion::multiversion;
use rayon::prelude::*;

use super::BLOCK;
use crate::kernels::ApplyEpilogue;
use crate::kernels::GRAIN;
use crate::parallel::Parallel;

/// Writes a row of outputs for each row of `input`, with as many outputs as inputs. Returns false
/// if there is no loop for this number of features.
///
/// `weights` has [`BLOCK`] outputs for each input. `epilogue(at, chunk)` is called with each piece of
/// the result, which begins at element `at`.
pub(super) fn run(
    features: usize,
    weights: &[f32],
    bias: &[f32],
    input: &[f32],
    out: &mut [f32],
    epilogue: ApplyEpilogue<'_>,
) -> bool {
    macro_rules! of {
        ($($count:literal),*) => {
            match features {
                $($count => pieces::<$count>(weights, bias, input, out, epilogue),)*
                _ => return false,
            }
        };
    }
    of!(1, 2, 3, 4, 6, 8, 12);
    true
}

fn pieces<const N: usize>(
    weights: &[f32],
    bias: &[f32],
    input: &[f32],
    out: &mut [f32],
    epilogue: ApplyEpilogue<'_>,
) {
    let weights: [[f32; N]; N] = from_fn(|input| from_fn(|output| weights[input * BLOCK + output]));
    let bias: [f32; N] = from_fn(|output| bias[output]);
    let piece = GRAIN / N * N;
    out.par_chunks_mut(piece)
        .zip(input.par_chunks(piece))
        .enumerate()
        .run_parallel(|(at, (out, input))| {
            rows(&weights, &bias, input.as_chunks().0, out.as_chunks_mut().0);
            epilogue(at * piece, out);
        });
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn rows<const N: usize>(
    weights: &[[f32; N]; N],
    bias: &[f32; N],
    input: &[[f32; N]],
    out: &mut [[f32; N]],
) {
    for (row, out) in input.iter().zip(out) {
        let mut sums = *bias;
        for (x, weights) in row.iter().zip(weights) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += weight * x;
            }
        }
        *out = sums;
    }
}
