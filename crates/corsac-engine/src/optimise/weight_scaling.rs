//! Folds factors of channels into the weights before them: layer scale, as in ConvNeXt and DINOv2,
//! and norms that were folded by hand.
//!
//! Before: `%3 = linear(%1, w0, w1)`, `%4 = copy(%3)`, `%5 = mul(w2, %4)`; after:
//! `%3 = linear(%1, d0, d1)`, `%5 = copy(%3)`, for any permutation that the copy makes.

use rustc_hash::FxHashMap;

use crate::program::{Op, Program, Step, ValueId, WeightTransform};

/// A layer and the factor of its channels.
pub(crate) struct Scaling {
    /// The step whose weights are scaled.
    layer: usize,
    factor: ValueId,
    /// The step whose result replaces the product.
    pub(crate) result: usize,
}

impl Scaling {
    /// Matches a product with a factor of channels. `made_by` returns the step that computes a
    /// value, if the value has one use.
    pub(crate) fn of(
        program: &Program,
        kept: &[Step],
        product: &Step,
        made_by: impl Fn(ValueId) -> Option<usize>,
    ) -> Option<Self> {
        let [a, b] = product.inputs[..] else {
            return None;
        };
        let (factor, value) = if program.is_weight(a) { (a, b) } else { (b, a) };
        let shape = program.shape(product.output);
        if !program.is_weight(factor) || program.shape(value) != shape {
            return None;
        }
        let mut dim = only_dim(program.shape(factor), shape)?;
        let result = made_by(value)?;
        let mut layer = result;
        if let Op::Copy { offset: 0, strides } = &kept[result].op {
            let before = kept[result].inputs[0];
            dim = source_dim(program.shape(before), shape, strides, dim)?;
            layer = made_by(before)?;
        }
        let channels = match kept[layer].op {
            // Integers stay such in memory.
            Op::Linear if program.has_integers(&kept[layer]) => return None,
            Op::Linear => program.shape(kept[layer].output).len() - 1,
            Op::Conv(_) => 1,
            _ => return None,
        };
        let weights = &kept[layer].inputs[1..];
        let known = weights.iter().all(|&weight| program.is_weight(weight));
        let plain = kept[layer].epilogues.is_empty() && kept[result].epilogues.is_empty();
        (dim == channels && known && plain).then_some(Self {
            layer,
            factor,
            result,
        })
    }

    /// Scales the weights of the layer.
    pub(crate) fn apply(&self, program: &mut Program, kept: &mut [Step]) {
        for weight in &mut kept[self.layer].inputs[1..] {
            let shape = program.shape(*weight).to_vec();
            *weight =
                program.add_transformed(WeightTransform::Scale, vec![*weight, self.factor], shape);
        }
    }
}

/// The only dimension of `shape` along which a factor of shape `own` varies.
fn only_dim(own: &[usize], shape: &[usize]) -> Option<usize> {
    let rest = shape.len().checked_sub(own.len())?;
    let mut long = (0..own.len()).filter(|&dim| own[dim] != 1);
    let dim = long.next()?;
    (long.next().is_none() && own[dim] == shape[rest + dim]).then_some(rest + dim)
}

/// The dimension of a row-major tensor of shape `from` that becomes dimension `dim` of its
/// permutation with shape `to` and these strides. `None` if it is no permutation.
fn source_dim(from: &[usize], to: &[usize], strides: &[isize], dim: usize) -> Option<usize> {
    let mut at: FxHashMap<(usize, isize), usize> = FxHashMap::default();
    let mut stride = 1;
    for (dim, &size) in from.iter().enumerate().rev() {
        if size > 1 {
            at.insert((size, stride), dim);
        }
        stride *= size as isize;
    }
    let mut found = None;
    for (own, (&size, &stride)) in to.iter().zip(strides).enumerate() {
        if size > 1 {
            // Each dimension once: no element is repeated or left out.
            let source = at.remove(&(size, stride))?;
            if own == dim {
                found = Some(source);
            }
        }
    }
    found.filter(|_| at.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_has_one_dimension() {
        let shape = [2, 3, 5, 7];
        assert_eq!(only_dim(&[3, 1, 1], &shape), Some(1));
        assert_eq!(only_dim(&[7], &shape), Some(3));
        assert_eq!(only_dim(&[1, 1, 5, 1], &shape), Some(2));
        assert_eq!(only_dim(&[5, 7], &shape), None);
        assert_eq!(only_dim(&[1], &shape), None);
        assert_eq!(only_dim(&[], &shape), None);
        assert_eq!(only_dim(&[2, 1, 1, 1, 1], &shape), None);
    }

    #[test]
    fn dimensions_are_followed_through_permutations_only() {
        // Rows, columns, channels to channels, rows, columns.
        let from = [1, 5, 7, 3];
        assert_eq!(
            source_dim(&from, &[1, 3, 5, 7], &[105, 1, 21, 3], 1),
            Some(3)
        );
        assert_eq!(
            source_dim(&from, &[1, 3, 5, 7], &[105, 1, 21, 3], 2),
            Some(1)
        );
        // A part of the tensor, one that repeats elements, and one with a negative stride.
        assert_eq!(source_dim(&from, &[1, 3, 5, 6], &[105, 1, 21, 3], 1), None);
        assert_eq!(source_dim(&from, &[2, 3, 5, 7], &[0, 1, 21, 3], 1), None);
        assert_eq!(source_dim(&from, &[1, 3, 5, 7], &[105, -1, 21, 3], 1), None);
        assert_eq!(source_dim(&from, &[1, 3, 5], &[105, 1, 21], 1), None);
    }
}
