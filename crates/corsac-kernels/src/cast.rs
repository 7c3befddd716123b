//! Conversions between number types.

/// Converts floating-point numbers to integers, rounding towards zero. As with the processor's own
/// instruction, NaN and numbers out of range become the smallest integer.
///
/// # Panics
/// If the lengths differ.
pub fn to_integers(from: &[f32], to: &mut [i64]) {
    assert_eq!(from.len(), to.len(), "an integer for each");
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
        let (from, last_from) = from.as_chunks();
        let (to, last_to) = to.as_chunks_mut();
        // SAFETY: the processor has these instructions.
        unsafe { x86_64::vectors(from, to) };
        return one_by_one(last_from, last_to);
    }
    one_by_one(from, to);
}

fn one_by_one(from: &[f32], to: &mut [i64]) {
    for (to, &x) in to.iter_mut().zip(from) {
        // 2^63 is the first float that does not fit.
        *to = match (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&x) {
            true => x as i64,
            false => i64::MIN,
        };
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{_mm256_loadu_ps, _mm512_cvttps_epi64, _mm512_storeu_si512};

    /// Converts eight numbers at a time.
    ///
    /// # Safety
    /// The processor must have the instructions.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn vectors(from: &[[f32; 8]], to: &mut [[i64; 8]]) {
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: there are eight numbers to read, and as many to write.
            unsafe {
                let integers = _mm512_cvttps_epi64(_mm256_loadu_ps(from.as_ptr()));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), integers);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_the_same_by_vectors_and_one_by_one() {
        let special = [
            0.0, -0.0, 0.9, -0.9, 1e10, -1e10, 9.2e18, -9.2e18, 9.3e18, -9.3e18,
        ];
        let special = special
            .into_iter()
            .chain([f32::NAN, -f32::NAN, f32::INFINITY]);
        let from: Vec<f32> = special
            .chain([f32::NEG_INFINITY, 1e-45, f32::MAX])
            .collect();
        for start in 0..from.len() {
            let from = &from[start..];
            let (mut to, mut expected) = (vec![7; from.len()], vec![9; from.len()]);
            to_integers(from, &mut to);
            one_by_one(from, &mut expected);
            assert_eq!(to, expected);
        }
    }
}
