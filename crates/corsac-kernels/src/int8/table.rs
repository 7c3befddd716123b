//! Functions of bytes, as tables.

/// Writes `table[byte]` for each byte.
///
/// # Panics
/// If the lengths differ.
pub fn map(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a byte for each");
    #[cfg(target_arch = "x86_64")]
    if x86_64::has() {
        let (whole, rest) = from.as_chunks();
        let (to, last) = to.as_chunks_mut();
        // SAFETY: the processor has the instructions.
        unsafe { x86_64::map(table, whole, to) };
        return one_by_one(table, rest, last);
    }
    one_by_one(table, from, to);
}

fn one_by_one(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    for (to, &byte) in to.iter_mut().zip(from) {
        *to = table[usize::from(byte)];
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _mm512_loadu_si512, _mm512_mask_blend_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8,
        _mm512_storeu_si512,
    };

    /// Bytes of a vector.
    const LANES: usize = 64;

    /// Whether the processor has the instructions.
    pub(super) fn has() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
    }

    /// [`map`](super::map) of whole vectors.
    ///
    /// # Safety
    /// `has` has returned true.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) unsafe fn map(table: &[u8; 256], from: &[[u8; LANES]], to: &mut [[u8; LANES]]) {
        let part = |at: usize| {
            let part = &table[at * LANES..][..LANES];
            // SAFETY: these are 64 bytes.
            unsafe { _mm512_loadu_si512(part.as_ptr().cast()) }
        };
        let [a, b, c, d] = [part(0), part(1), part(2), part(3)];
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: these are 64 bytes.
            let bytes = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
            let low = _mm512_permutex2var_epi8(a, bytes, b);
            let high = _mm512_permutex2var_epi8(c, bytes, d);
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high);
            // SAFETY: these are 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), found) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_mapped_by_the_table() {
        let table: [u8; 256] = std::array::from_fn(|at| (at * 167 % 256) as u8 ^ 0x5a);
        let from: Vec<u8> = (0..1000_usize).map(|at| (at * 97 % 256) as u8).collect();
        for len in [0, 1, 63, 64, 65, 1000] {
            let mut to = vec![0; len];
            map(&table, &from[..len], &mut to);
            let expected: Vec<u8> = from[..len]
                .iter()
                .map(|&own| table[usize::from(own)])
                .collect();
            assert_eq!(to, expected);
        }
    }
}
