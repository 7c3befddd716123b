//! Rows of numbers, rounded to levels that span the range of each.

use corsac_kernels::int8::rows::{RowScale, choose, range};
use rayon::prelude::*;

use crate::aligned_buffer::zeros;
use crate::parallel::Parallel;
use crate::program::{Levels, Rounding};

/// Writes rows of `width` numbers as levels between `bounds` give them, which span the range of each
/// row and 0. Those of a range that is not finite become NaN.
pub fn round_rows(from: &[f32], width: usize, bounds: [i32; 2], to: &mut [f32]) {
    let width = width.max(1);
    let rows = to.par_chunks_mut(width).zip(from.par_chunks(width));
    rows.with_min_len(crate::kernels::GRAIN.div_ceil(width))
        .run_parallel(|(to, row)| {
            let RowScale { scale, zero_point } = choose(range(row), bounds, 0.0);
            // A range of nothing but 0 has the scale 1, whatever that of PyTorch: 0 stays 0.
            let levels = Levels {
                inverse: 1.0 / scale,
                zero: zero_point as f32,
                bounds: bounds.map(|bound| bound as f32),
                of_nan: 0.0,
            };
            for (to, &x) in to.iter_mut().zip(row) {
                *to = (levels.of(x) - levels.zero) * scale;
            }
        });
}

impl Rounding {
    /// Rows of `width` numbers, rounded.
    pub(crate) fn rounded(self, from: &[f32], width: usize) -> Vec<f32> {
        let mut to = zeros(from.len());
        match self {
            Self::Levels(levels, scale) => {
                for (to, &x) in to.iter_mut().zip(from) {
                    *to = (levels.of(x) - levels.zero) * scale;
                }
            }
            Self::ByRow { signed } => round_rows(from, width, Self::bounds(signed), &mut to),
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_rounded_by_their_own_range() {
        let rows = [
            0.0, 1.0, 2.0, 255.0, -1.0, 0.0, 0.5, 254.0, 0.0, 0.0, 0.0, 0.0,
        ];
        let mut rounded = [1.0; 12];
        round_rows(&rows, 4, [-128, 127], &mut rounded);
        assert_eq!(rounded[..4], rows[..4]);
        assert_eq!(rounded[4..8], [-1.0, 0.0, 0.0, 254.0]);
        assert_eq!(rounded[8..], [0.0; 4]);
        round_rows(
            &[1.0, f32::NAN, f32::INFINITY, 1.0],
            2,
            [0, 255],
            &mut rounded[..4],
        );
        assert!(rounded[..4].iter().all(|x| x.is_nan()));
    }
}
