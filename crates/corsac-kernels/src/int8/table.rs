//! Functions of bytes, as tables.

/// Writes `table[byte]` for each byte.
///
/// # Panics
/// If the lengths differ.
pub fn map(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a byte for each");
    #[cfg(target_arch = "x86_64")]
    if x86_64::has_avx512() {
        let (whole, rest) = from.as_chunks();
        let (to, last) = to.as_chunks_mut();
        // SAFETY: the processor has the instructions.
        unsafe { x86_64::avx512(table, whole, to) };
        return one_by_one(table, rest, last);
    } else if is_x86_feature_detected!("avx2") {
        let (whole, rest) = from.as_chunks();
        let (to, last) = to.as_chunks_mut();
        // SAFETY: the processor has the instructions.
        unsafe { x86_64::avx2(table, whole, to) };
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
        __m256i, _mm_loadu_si128, _mm256_adds_epu8, _mm256_broadcastsi128_si256,
        _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256,
        _mm256_shuffle_epi8, _mm256_storeu_si256, _mm256_xor_si256, _mm512_loadu_si512,
        _mm512_mask_blend_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8, _mm512_storeu_si512,
    };

    /// Bytes of a vector.
    const LANES: usize = 64;

    /// Whether the processor has the instructions of [`avx512`].
    pub(super) fn has_avx512() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
    }

    /// [`map`](super::map) of whole vectors.
    ///
    /// # Safety
    /// `has_avx512` has returned true.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(super) unsafe fn avx512(table: &[u8; 256], from: &[[u8; LANES]], to: &mut [[u8; LANES]]) {
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

    /// [`map`](super::map) of whole vectors: of each sixteen numbers of the table, those that bytes
    /// choose, and zero for other bytes.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(table: &[u8; 256], from: &[[u8; 32]], to: &mut [[u8; 32]]) {
        let parts: [__m256i; 16] = std::array::from_fn(|at| {
            let part = &table[at * 16..][..16];
            // SAFETY: the processor has AVX2, and these are sixteen bytes.
            unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(part.as_ptr().cast())) }
        });
        for (to, from) in to.iter_mut().zip(from) {
            // SAFETY: these are 32 bytes.
            let bytes = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
            let mut found = _mm256_setzero_si256();
            for (at, &part) in parts.iter().enumerate() {
                // Bytes of this part are below 16, and the highest bit of all others is set.
                let own = _mm256_xor_si256(bytes, _mm256_set1_epi8((at * 16) as u8 as i8));
                let own = _mm256_adds_epu8(own, _mm256_set1_epi8(0x70));
                found = _mm256_or_si256(found, _mm256_shuffle_epi8(part, own));
            }
            // SAFETY: these are 32 bytes.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), found) };
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
