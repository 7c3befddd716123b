//! Composes strided copies: a copy of a copy reads the original value, and so do readers of a copy that is the same as
//! the original.
//!
//! Queries, keys and values are mostly slices of a permutation of the result of one linear layer.
//! Each is a view of that result itself, so that the permutation need not be computed.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::program::{Op, Program, Strides, ValueId};

/// Makes copies of copies, and readers of copies that change nothing, read the original value. Copies that become unused
/// stay in the program.
pub(crate) fn compose(program: &mut Program) {
    // The step that copies to a value.
    let mut copies: FxHashMap<ValueId, usize> = FxHashMap::default();
    // By copy, the value that is the same.
    let mut same: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for at in 0..program.steps.len() {
        for value in program.steps[at].reads_mut() {
            *value = same.get(value).copied().unwrap_or(*value);
        }
        let step = &program.steps[at];
        let Op::Copy { offset, strides } = &step.op else {
            continue;
        };
        if !step.epilogues.is_empty() {
            continue;
        }
        let before = copies.get(&program.root(step.inputs[0]));
        if let Some(before) = before.map(|&before| &program.steps[before])
            && let Op::Copy {
                offset: first_offset,
                strides: first_strides,
            } = &before.op
            && let Some((offset, strides)) = composed(
                (program.shape(before.output), *first_offset, first_strides),
                (program.shape(step.output), *offset, strides),
            )
        {
            let from = before.inputs[0];
            let step = &mut program.steps[at];
            step.op = Op::Copy { offset, strides };
            step.inputs[0] = from;
        }
        let step = &program.steps[at];
        if let Op::Copy { offset: 0, strides } = &step.op
            && is_in_rows(program.shape(step.output), strides)
            && program.shape(step.output) == program.shape(step.inputs[0])
        {
            same.insert(step.output, step.inputs[0]);
        }
        copies.insert(step.output, at);
    }
}

/// Whether these are the strides of a tensor of this shape row by row.
fn is_in_rows(shape: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1;
    let mut dims = shape.iter().zip(strides).rev();
    dims.all(|(&size, &stride)| {
        let fits = size == 1 || stride == expected;
        expected = expected.saturating_mul(isize::try_from(size).unwrap_or(isize::MAX));
        fits
    })
}

/// The view of a view, each as shape, offset and strides, the second over the elements of the
/// first, row by row. `None` if the result is no strided view, or has rows in pieces where those of
/// the second are contiguous.
fn composed(
    (first_shape, first_offset, first_strides): (&[usize], usize, &[isize]),
    (shape, offset, strides): (&[usize], usize, &[isize]),
) -> Option<(usize, Strides)> {
    if first_shape.contains(&0) || shape.contains(&0) {
        return None;
    }
    let first_strides: SmallVec<[usize; 6]> = first_strides
        .iter()
        .map(|&stride| usize::try_from(stride).ok())
        .collect::<Option<_>>()?;
    let along = |indices: &[usize]| -> usize {
        let steps = indices.iter().zip(&first_strides);
        steps.map(|(index, stride)| index * stride).sum()
    };
    // The index in each dimension of the first view that the elements read so far reach.
    let mut reach = indices(offset, first_shape)?;
    let start = first_offset + along(&reach);
    let mut result = Strides::with_capacity(shape.len());
    for (&size, &stride) in shape.iter().zip(strides) {
        let steps = indices(usize::try_from(stride).ok()?, first_shape);
        result.push(match (steps, size) {
            (Some(steps), _) => {
                for (reach, step) in reach.iter_mut().zip(&steps) {
                    *reach += step * (size - 1);
                }
                isize::try_from(along(&steps)).ok()?
            }
            (None, 1) => 0,
            (None, _) => return None,
        });
    }
    // No index goes past the end of its dimension, where it would carry into the next.
    let stays = reach
        .iter()
        .zip(first_shape)
        .all(|(reach, size)| reach < size);
    let in_one_piece = strides.last() != Some(&1) || matches!(result.last(), Some(0 | 1));
    (stays && in_one_piece).then_some((start, result))
}

/// The indices of element `number` in a tensor of this shape.
fn indices(mut number: usize, shape: &[usize]) -> Option<SmallVec<[usize; 6]>> {
    let mut indices: SmallVec<[usize; 6]> = SmallVec::from_elem(0, shape.len());
    for (index, &size) in indices.iter_mut().zip(shape).rev() {
        *index = number % size;
        number /= size;
    }
    (number == 0).then_some(indices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::layout::copy;
    use proptest::prelude::*;
    use proptest::sample::{Index, Selector};

    type Plain = (Vec<usize>, usize, Vec<isize>);

    #[test]
    fn a_slice_of_a_permutation_is_a_view_of_the_whole() {
        // A value of shape [4, 3, 2, 5], its permutation to [3, 2, 4, 5], and slice 1 of three.
        let permutation: (&[usize], usize, &[isize]) = (&[3, 2, 4, 5], 0, &[10, 5, 30, 1]);
        let slice: (&[usize], usize, &[isize]) = (&[2, 4, 5], 40, &[20, 5, 1]);
        let (offset, strides) = composed(permutation, slice).unwrap();
        assert_eq!((offset, &strides[..]), (10, &[5, 30, 1][..]));
        // Dimensions merged into one have no single stride in the original.
        let joined: (&[usize], usize, &[isize]) = (&[3, 8, 5], 0, &[40, 5, 1]);
        assert_eq!(composed(permutation, joined), None);
        // Rows would not be contiguous.
        let turned: (&[usize], usize, &[isize]) = (&[5, 4], 0, &[1, 5]);
        let row: (&[usize], usize, &[isize]) = (&[4], 4, &[1]);
        assert_eq!(composed(turned, row), None);
    }

    /// A permutation of slices of a tensor of this shape.
    fn view(shape: &[usize], order: &Selector, starts: &[Index], step: usize) -> Plain {
        let mut dims: Vec<usize> = Vec::new();
        let mut left: Vec<usize> = (0..shape.len()).collect();
        while !left.is_empty() {
            let dim = *order.select(&left);
            left.retain(|&other| other != dim);
            dims.push(dim);
        }
        let strides = |dim: usize| shape[dim + 1..].iter().product::<usize>();
        let mut offset = 0;
        let mut sizes = vec![0; shape.len()];
        for (dim, &size) in shape.iter().enumerate() {
            let start = starts[dim % starts.len()].index(size);
            offset += start * strides(dim);
            sizes[dim] = (size - start).div_ceil(step);
        }
        let own = dims.iter().map(|&dim| sizes[dim]).collect();
        let strides = dims.iter().map(|&dim| (strides(dim) * step) as isize);
        (own, offset, strides.collect())
    }

    fn copied(input: &[f32], (shape, offset, strides): &Plain) -> Vec<f32> {
        let mut out = vec![f32::NAN; shape.iter().product()];
        copy(input, *offset, strides, shape, &mut out);
        out
    }

    proptest! {
        #[test]
        fn a_copy_of_a_copy_is_the_same(
            shape in prop::collection::vec(1..5_usize, 1..5),
            orders: [Selector; 2],
            starts: [[Index; 3]; 2],
            steps in [1..3_usize, 1..3_usize],
            split: bool,
        ) {
            let input: Vec<f32> = (0..shape.iter().product()).map(|at: usize| at as f32).collect();
            let first = view(&shape, &orders[0], &starts[0], steps[0]);
            // Read under another shape: the first two dimensions merged, or one more.
            let mut read_as = first.0.clone();
            if split {
                read_as.insert(0, 1);
            } else if read_as.len() > 1 {
                let size = read_as.remove(0);
                read_as[0] *= size;
            }
            let second = view(&read_as, &orders[1], &starts[1], steps[1]);
            let expected = copied(&copied(&input, &first), &second);
            let own = composed((&first.0, first.1, &first.2), (&second.0, second.1, &second.2));
            if let Some((offset, strides)) = own {
                let found = copied(&input, &(second.0, offset, strides.to_vec()));
                prop_assert_eq!(found, expected);
            }
        }
    }
}
