//! Rows of numbers, rounded to levels that span the range of each.

use rayon::prelude::*;

use crate::parallel::Parallel;
use crate::program::Levels;

/// The levels of a row between bounds, and their distance: they span its range and 0.
#[must_use]
pub fn levels(row: &[f32], [low, high]: [f32; 2]) -> (Levels, f32) {
    let mut range = [0.0_f32; 2];
    let mut has_nan = false;
    for &x in row {
        range[0] = if x < range[0] { x } else { range[0] };
        range[1] = if x > range[1] { x } else { range[1] };
        has_nan |= x.is_nan();
    }
    let part = |x: f32| x / (high - low);
    let scale = match has_nan {
        true => f32::NAN,
        false => (part(range[1]) - part(range[0])).max(f32::MIN_POSITIVE),
    };
    let zero = low - (range[0] / scale).round_ties_even();
    let levels = Levels {
        inverse: 1.0 / scale,
        zero: zero.clamp(low, high),
        bounds: [low, high],
    };
    (levels, scale)
}

/// Writes rows of `width` numbers as their levels give them.
pub fn round_rows(from: &[f32], width: usize, bounds: [f32; 2], to: &mut [f32]) {
    let width = width.max(1);
    let rows = to.par_chunks_mut(width).zip(from.par_chunks(width));
    rows.with_min_len(crate::kernels::GRAIN.div_ceil(width))
        .run_parallel(|(to, row)| {
            let (levels, scale) = levels(row, bounds);
            for (to, &x) in to.iter_mut().zip(row) {
                *to = (levels.of(x) - levels.zero) * scale;
            }
        });
}
