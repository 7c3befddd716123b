//! Memory aligned to cache lines.

use std::ops::{Deref, DerefMut};

/// Numbers of a cache line: as many as of a vector of AVX-512.
pub(crate) const LINE: usize = 16;
const LINE_BYTES: usize = 64;

/// Numbers aligned to a cache line, so that each vector of sixteen is one line. A vector that
/// straddles two lines is read twice, which costs products a tenth of their time.
#[derive(Debug)]
pub(crate) struct AlignedBuffer<T = f32> {
    /// Up to a line longer than the part in use.
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T> Default for AlignedBuffer<T> {
    fn default() -> Self {
        Self {
            memory: Vec::new(),
            start: 0,
            len: 0,
        }
    }
}

impl<T: Copy + Default> AlignedBuffer<T> {
    /// `len` zeros.
    #[must_use]
    pub(crate) fn zeros(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        let memory = vec![T::default(); len + LINE - 1];
        // `align_offset` may find no offset.
        let start = memory.as_ptr().align_offset(LINE_BYTES).min(LINE - 1);
        Self { memory, start, len }
    }

    /// Resizes to `len` zeros.
    pub(crate) fn clear_to(&mut self, len: usize) {
        self.reuse(len);
        self.fill(T::default());
    }

    /// Resizes to `len` numbers with unspecified values.
    pub(crate) fn reuse(&mut self, len: usize) {
        if self.memory.len() < len + LINE - 1 {
            *self = Self::zeros(len);
        }
        self.len = len;
    }
}

/// Whether this many elements can be allocated. A failed allocation would abort the process.
pub(crate) fn has_room<T>(len: usize) -> bool {
    Vec::<T>::new().try_reserve_exact(len).is_ok()
}

/// `len` zeros.
///
/// # Panics
///
/// If they cannot be allocated: unlike an abort of the process, a panic can be caught.
pub(crate) fn zeros<T: Copy + Default>(len: usize) -> Vec<T> {
    assert!(has_room::<T>(len), "no memory for {len} numbers");
    vec![T::default(); len]
}

impl<T> Deref for AlignedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory[self.start..][..self.len]
    }
}

impl<T> DerefMut for AlignedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_at_the_beginning_of_a_line() {
        for len in [1, 15, 16, 17, 1000, 1_000_000] {
            let mut numbers = AlignedBuffer::<f32>::zeros(len);
            assert_eq!(numbers.len(), len);
            assert_eq!(numbers.as_ptr().addr() % LINE_BYTES, 0);
            numbers.fill(1.0);
            for other in [len / 2, len, 3 * len] {
                numbers.reuse(other);
                assert_eq!(numbers.len(), other);
                assert_eq!(numbers.as_ptr().addr() % LINE_BYTES, 0);
            }
            numbers.fill(1.0);
            numbers.clear_to(len / 2);
            assert!(numbers.iter().all(|&number| number == 0.0));
            assert_eq!(numbers.len(), len / 2);
        }
        assert!(AlignedBuffer::<f32>::zeros(0).is_empty());
    }
}
