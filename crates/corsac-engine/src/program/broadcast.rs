//! Reading of tensors that are broadcast to a larger one.

use smallvec::SmallVec;

use super::fused::Access;

/// A dimension of a result, and the stride along it in the tensor that is broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dim {
    size: usize,
    step: usize,
}

/// Layout of a broadcast tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The dimensions of the result but the last, merged where possible.
    outer: SmallVec<[Dim; 4]>,
    /// Number of elements of the last dimension, which are contiguous or one and the same.
    run: usize,
    /// Whether they are contiguous.
    moves: bool,
}

impl Access {
    /// The access to a tensor of shape `shape` for results of shape `result`.
    #[must_use]
    pub fn of(shape: &[usize], result: &[usize]) -> Self {
        let len: usize = shape.iter().product();
        if len == result.iter().product::<usize>() {
            return Self::Whole;
        }
        if len == 1 {
            return Self::Number;
        }
        let mut dims: SmallVec<[Dim; 4]> = SmallVec::new();
        let mut step = 1;
        for (at, &size) in result.iter().enumerate().rev() {
            let own = (at + shape.len()).checked_sub(result.len());
            let own = own.map_or(1, |at| shape[at]);
            let dim = Dim {
                size,
                step: if own == 1 { 0 } else { step },
            };
            step *= own;
            if size == 1 {
                continue;
            }
            match dims.last_mut() {
                Some(last) if dim.step == last.size * last.step => last.size *= size,
                _ => dims.push(dim),
            }
        }
        let run = dims.first().copied().unwrap_or(Dim { size: 1, step: 0 });
        Self::Broadcast(Broadcast {
            outer: dims.iter().skip(1).rev().copied().collect(),
            run: run.size,
            moves: run.step == 1,
        })
    }
}

impl Broadcast {
    /// Number of elements of the result in a row that one element is broadcast to.
    pub(crate) fn run_of_one(&self) -> Option<usize> {
        (!self.moves).then_some(self.run)
    }

    /// Whether one element is broadcast to all `len` elements of the result from `start` on.
    pub(crate) fn is_one(&self, start: usize, len: usize) -> bool {
        let run = self.run_of_one();
        run.is_some_and(|run| (start + len).div_ceil(run) == start / run + 1)
    }

    /// The place of the first element of run number `index`.
    fn place(&self, mut index: usize) -> usize {
        let mut at = 0;
        for dim in self.outer.iter().rev() {
            at += index % dim.size * dim.step;
            index /= dim.size;
        }
        at
    }

    /// Writes the elements of `from` for the elements of the result from `start` on.
    pub(crate) fn read<T: Copy, N: Copy>(
        &self,
        from: &[T],
        start: usize,
        out: &mut [N],
        as_number: impl Fn(T) -> N,
    ) {
        let (mut index, mut skipped) = (start / self.run, start % self.run);
        let mut rest = out;
        while !rest.is_empty() {
            let at = self.place(index);
            let count = rest.len().min(self.run - skipped);
            let (own, after) = rest.split_at_mut(count);
            if self.moves {
                let from = &from[at + skipped..][..count];
                own.iter_mut()
                    .zip(from)
                    .for_each(|(out, &x)| *out = as_number(x));
            } else {
                own.fill(as_number(from[at]));
            }
            (rest, skipped) = (after, 0);
            index += 1;
        }
    }
}
