//! Lets products read a transposed matrix in place of a transposed copy.
//!
//! Gradients of linear layers are products with transposed weights and transposed operands.
//!
//! Before: `%3 = copy(%1)`, `%4 = matmul(%3, %2)`; after: `%4 = matmul(%1, %2)`, the first operand
//! transposed. Large operands of products that the library computes stay copies: it packs them with steps that miss the
//! caches.

use rustc_hash::FxHashMap;

use crate::kernels::small_product;
use crate::program::{Element, Op, Program, Source, ValueId};

/// Distance of two numbers, in numbers, from which on reading many of them evicts them from the first-level cache.
const FAR: usize = 512;
/// Rows of a product from which on its second operand is read several times, and so worth a copy.
const FEW: usize = 8;

/// Lets products read the matrices that copies transpose. Copies stay in the program; they are
/// unused then, unless other steps read them.
pub(crate) fn read_in_place(program: &mut Program) {
    let mut copied: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for step in &program.steps {
        if let (Op::Copy { offset: 0, strides }, [input], true) =
            (&step.op, &step.inputs[..], step.epilogues.is_empty())
            && is_transposition(program.shape(step.output), strides)
            && program.value(*input).len() == program.value(step.output).len()
        {
            copied.insert(step.output, *input);
        }
    }
    for at in 0..program.steps.len() {
        let Op::MatMul {
            first_transposed,
            transposed,
            scale,
        } = program.steps[at].op
        else {
            continue;
        };
        let [first, second] = program.steps[at].inputs[..] else {
            continue;
        };
        let in_place = read_well(program, first, program.steps[at].output);
        let [first_source, second_source] = [(first, in_place[0]), (second, in_place[1])]
            .map(|(own, in_place)| in_place.then(|| source(program, &copied, own)).flatten());
        let step = &mut program.steps[at];
        step.op = Op::MatMul {
            first_transposed: first_transposed != first_source.is_some(),
            transposed: transposed != second_source.is_some(),
            scale,
        };
        step.inputs = [
            first_source.unwrap_or(first),
            second_source.unwrap_or(second),
        ]
        .into_iter()
        .collect();
    }
}

/// Whether a view of this shape over a row-major tensor exchanges its last two dimensions.
fn is_transposition(shape: &[usize], strides: &[isize]) -> bool {
    let rank = shape.len();
    if rank < 2 || shape.contains(&0) {
        return false;
    }
    let mut expected = 1;
    for dim in (0..rank).rev() {
        // The columns of the result are the rows of the operand.
        let dim = match rank - dim {
            1 => rank - 2,
            2 => rank - 1,
            _ => dim,
        };
        if strides[dim] != expected && shape[dim] != 1 {
            return false;
        }
        expected *= shape[dim] as isize;
    }
    true
}

/// Whether each operand of a product is better read where it lies transposed than copied.
///
/// On one thread of an AMD EPYC, transposing 512 x 1024 numbers took 0.1 ms, and packing them as they were 1.4 ms as
/// the first operand and 0.6 ms as the second one.
fn read_well(program: &Program, first: ValueId, product: ValueId) -> [bool; 2] {
    let (first, product) = (program.shape(first), program.shape(product));
    match (first, product) {
        ([.., depth], [.., rows, columns]) => {
            let is_small = small_product::is_small([*rows, *depth, *columns]);
            [is_small, is_small || *depth < FAR || *rows < FEW]
        }
        _ => [true; 2],
    }
}

/// The matrix that `value` is the transpose of; `None` if it is none.
fn source(
    program: &mut Program,
    copied: &FxHashMap<ValueId, ValueId>,
    value: ValueId,
) -> Option<ValueId> {
    let root = program.root(value);
    let input = *copied.get(&root)?;
    let mut shape = program.shape(root).to_vec();
    if program.shape(value) != shape || program.element(value) != Element::F32 {
        return None;
    }
    let rank = shape.len();
    shape.swap(rank - 2, rank - 1);
    if program.shape(input) == shape {
        return Some(input);
    }
    let whole = program.root(input);
    Some(program.add_value(shape, Source::Alias(whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_exchange_rows_and_columns() {
        for (shape, strides, expected) in [
            (&[3, 4][..], &[1, 3][..], true),
            (&[3, 4], &[4, 1], false),
            (&[2, 3, 4], &[12, 1, 3], true),
            (&[2, 3, 4], &[1, 2, 6], false),
            (&[2, 3, 4], &[0, 1, 3], false),
            // One row is a column.
            (&[1, 4], &[7, 1], true),
            (&[0, 4], &[1, 0], false),
            (&[4], &[1], false),
        ] {
            assert_eq!(
                is_transposition(shape, strides),
                expected,
                "{shape:?} {strides:?}"
            );
        }
    }
}
