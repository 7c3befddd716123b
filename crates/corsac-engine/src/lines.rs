//! Memory that begins at a line of the cache.

use std::ops::{Deref, DerefMut};

/// How many numbers a line has: as many as a vector of AVX-512.
pub(crate) const LINE: usize = 16;
const LINE_BYTES: usize = LINE * size_of::<f32>();

/// Numbers of which the first is at the beginning of a line, so that each vector of sixteen is a line. A vector
/// that is parts of two lines is read twice, which costs products a tenth of their time.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Up to a line longer than what is used of it.
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

impl Lines {
    /// This many zeros.
    #[must_use]
    pub(crate) fn zeros(len: usize) -> Self {
        if len == 0 {
            return Self::default();
        }
        let memory = vec![0.0; len + LINE - 1];
        // An allocator may give memory of which this cannot be said.
        let start = memory.as_ptr().align_offset(LINE_BYTES).min(LINE - 1);
        Self { memory, start, len }
    }

    /// Makes them `len` zeros.
    pub(crate) fn clear_to(&mut self, len: usize) {
        self.reuse(len);
        self.fill(0.0);
    }

    /// Makes them `len` numbers, of which nobody knows what they are.
    pub(crate) fn reuse(&mut self, len: usize) {
        if self.memory.len() < len + LINE - 1 {
            *self = Self::zeros(len);
        }
        self.len = len;
    }
}

/// Whether there is memory for this many. To ask for more than there is ends the process.
pub(crate) fn has_room<T>(len: usize) -> bool {
    Vec::<T>::new().try_reserve_exact(len).is_ok()
}

/// This many zeros.
///
/// # Panics
///
/// Where there is no memory for them: unlike the end of the process, that can be caught.
pub(crate) fn zeros(len: usize) -> Vec<f32> {
    assert!(has_room::<f32>(len), "no memory for {len} numbers");
    vec![0.0; len]
}

impl Deref for Lines {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.start..][..self.len]
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_at_the_beginning_of_a_line() {
        for len in [1, 15, 16, 17, 1000, 1_000_000] {
            let mut numbers = Lines::zeros(len);
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
        assert!(Lines::zeros(0).is_empty());
    }
}
