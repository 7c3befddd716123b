//! Numbers from places that are known when the program runs.

/// `to[i] = from[places[i]]`; whether all places are there. If not, what is written is of no use.
///
/// # Panics
/// If there are not as many places as numbers are wanted.
#[must_use]
pub fn gather(from: &[f32], places: &[i64], to: &mut [f32]) -> bool {
    assert_eq!(places.len(), to.len(), "a place for each");
    #[cfg(target_arch = "x86_64")]
    if i32::try_from(from.len()).is_ok() && is_x86_feature_detected!("avx512f") {
        let (places, last_places) = places.as_chunks();
        let (to, last) = to.as_chunks_mut();
        // SAFETY: the processor has these instructions, and places fit 32 bits.
        let whole = unsafe { x86_64::vectors(from, places, to) };
        return one_by_one(from, last_places, last) && whole;
    }
    one_by_one(from, places, to)
}

fn one_by_one(from: &[f32], places: &[i64], to: &mut [f32]) -> bool {
    for (to, &place) in to.iter_mut().zip(places) {
        match usize::try_from(place).ok().and_then(|at| from.get(at)) {
            Some(&x) => *to = x,
            None => return false,
        }
    }
    true
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _mm512_castsi256_si512, _mm512_cmplt_epu64_mask, _mm512_cvtepi64_epi32, _mm512_inserti64x4,
        _mm512_loadu_si512, _mm512_mask_i32gather_ps, _mm512_set1_epi64, _mm512_setzero_ps,
        _mm512_storeu_ps,
    };

    /// Sixteen at a time.
    ///
    /// # Safety
    /// The processor must have the instructions, and `from` fewer than 2^31 numbers.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn vectors(from: &[f32], places: &[[i64; 16]], to: &mut [[f32; 16]]) -> bool {
        let len = _mm512_set1_epi64(from.len() as i64);
        let mut all = u16::MAX;
        for (to, places) in to.iter_mut().zip(places) {
            // SAFETY: there are sixteen places to read, and sixteen numbers to write; numbers are read where places are
            // within the slice only.
            unsafe {
                let low = _mm512_loadu_si512(places.as_ptr().cast());
                let high = _mm512_loadu_si512(places.as_ptr().add(8).cast());
                let inside = u16::from(_mm512_cmplt_epu64_mask(low, len))
                    | u16::from(_mm512_cmplt_epu64_mask(high, len)) << 8;
                all &= inside;
                let low = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(low));
                let short = _mm512_inserti64x4::<1>(low, _mm512_cvtepi64_epi32(high));
                let none = _mm512_setzero_ps();
                let found =
                    _mm512_mask_i32gather_ps::<4>(none, inside, short, from.as_ptr().cast());
                _mm512_storeu_ps(to.as_mut_ptr(), found);
            }
        }
        all == u16::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::gather;

    #[test]
    fn numbers_are_those_of_their_places() {
        let from: Vec<f32> = (0..77_u8).map(f32::from).collect();
        for count in [0, 1, 16, 50] {
            let places: Vec<i64> = (0..count).map(|at| at * 29 % 77).collect();
            let mut to = vec![-1.0; places.len()];
            assert!(gather(&from, &places, &mut to));
            for (&place, &x) in places.iter().zip(&to) {
                assert_eq!(x, place as f32);
            }
        }
    }

    #[test]
    fn nothing_is_read_outside() {
        for count in [3, 16, 40] {
            for at in [0, 2, count - 1] {
                for place in [77, -1, i64::MAX, i64::MIN, 1 << 32] {
                    let mut places = vec![5; count];
                    places[at] = place;
                    assert!(!gather(&[0.0; 77], &places, &mut vec![0.0; count]));
                }
            }
        }
    }
}
