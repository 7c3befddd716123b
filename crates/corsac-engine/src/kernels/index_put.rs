//! Writing of elements to indexed places of a region.

use smallvec::SmallVec;

use super::generic::{Paired, by_combination};
use crate::program::{Combination, IndexPut};

impl IndexPut {
    /// Puts elements of `source` into `out`; duplicate places are written in the order of the
    /// indices.
    ///
    /// # Errors
    /// An index that is out of range, and the size of its dimension; nothing is written then.
    pub(crate) fn run<T: Paired>(
        &self,
        indices: &[&[i64]],
        source: &[T],
        out: &mut [T],
    ) -> Result<(), (i64, usize)> {
        by_combination!(self.combination, f => self.run_by(indices, source, out, f))
    }

    fn run_by<T: Copy>(
        &self,
        indices: &[&[i64]],
        source: &[T],
        out: &mut [T],
        f: impl Fn(T, T) -> T,
    ) -> Result<(), (i64, usize)> {
        let places = self.places(indices)?;
        if source.is_empty() || self.rest.iter().any(|&(size, ..)| size == 0) {
            return Ok(());
        }
        let (&(row, to_step, from_step), outer) = match self.rest.split_last() {
            Some((row, outer)) => (row, outer),
            None => (&(1, 1, 1), &[][..]),
        };
        let count: usize = outer.iter().map(|&(size, ..)| size).product();
        let mut at: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
        let (mut to, mut from) = (0, 0);
        for _ in 0..count {
            for &(place, read) in &places {
                let (to, from) = (place + to, read + from);
                match (to_step, from_step) {
                    (1, 1) => {
                        let out = &mut out[to..to + row];
                        for (out, &x) in out.iter_mut().zip(&source[from..from + row]) {
                            *out = f(*out, x);
                        }
                    }
                    _ => {
                        for number in 0..row {
                            let out = &mut out[to + number * to_step];
                            *out = f(*out, source[from + number * from_step]);
                        }
                    }
                }
            }
            for (at, &(size, to_step, from_step)) in at.iter_mut().zip(outer).rev() {
                *at += 1;
                to += to_step;
                from += from_step;
                if *at < size {
                    break;
                }
                *at = 0;
                to -= size * to_step;
                from -= size * from_step;
            }
        }
        Ok(())
    }

    /// For each index in order, the offsets in the tensor and in the source.
    fn places(&self, indices: &[&[i64]]) -> Result<Vec<(usize, usize)>, (i64, usize)> {
        let count: usize = self.along.iter().map(|&(size, _)| size).product();
        let mut places = Vec::with_capacity(count);
        for number in 0..count {
            let mut to = self.offset;
            for (index, &(size, step)) in indices.iter().zip(&self.indexed) {
                let index = index[number];
                let at = match index {
                    ..0 if self.wraps => index + size as i64,
                    _ => index,
                };
                let at = usize::try_from(at).ok().filter(|&at| at < size);
                to += at.ok_or((index, size))? * step;
            }
            let (mut from, mut rest) = (0, number);
            for &(size, step) in self.along.iter().rev() {
                from += rest % size * step;
                rest /= size;
            }
            places.push((to, from));
        }
        Ok(places)
    }
}
