//! Prefetching of weights.

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Distance from weights of 4 or 8 bits to those that are prefetched meanwhile, in bytes.
pub(crate) const DISTANCE: usize = 8192;

/// Reads the line at `place` into the nearest cache. The address need not be valid: nothing that a
/// program can observe depends on it.
#[inline(always)]
pub(crate) fn nearest<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect that a program can observe.
    unsafe {
        std::arch::x86_64::_mm_prefetch(place.cast(), std::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
}
