//! Linear layers and products of matrices.

use super::call::Call;
use super::element::broadcast;
use super::table::{Lowering, tensor};
use super::{Lowerer, Reason};
use crate::program::{Binary, Op, Source, ValueId, WeightTransform};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("addmm", |own, call| own.sum_and_product(call, ["mat1", "mat2"])),
    tensor("baddbmm", |own, call| own.sum_and_product(call, ["batch1", "batch2"])),
    tensor("bmm", |own, call| own.matrix_product(call)),
    tensor("dot", |own, call| own.matrix_product(call)),
    tensor("einsum", |own, call| own.einsum(call)),
    tensor("ger", |own, call| own.outer(call)),
    tensor("linear", |own, call| own.linear(call)),
    tensor("matmul", |own, call| own.matrix_product(call)),
    tensor("mm", |own, call| own.matrix_product(call)),
    tensor("mv", |own, call| own.matrix_product(call)),
    tensor("outer", |own, call| own.outer(call)),
    tensor("vdot", |own, call| own.matrix_product(call)),
];

impl Lowerer<'_, '_> {
    fn matrix_product(&mut self, call: &Call) -> Result<ValueId, Reason> {
        self.matmul(call.tensor("input")?, call.tensor("other")?)
    }

    fn linear(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let bias = call.optional("bias")?;
        let shape = self.result_shape()?;
        if self.shape(weight).len() == 1 {
            // One feature, without a dimension of its own.
            let product = self.matmul(input, weight)?;
            return Ok(match bias {
                Some(bias) => self.emit(Op::Binary(Binary::Add), [product, bias], shape),
                None => product,
            });
        }
        if let Some(bias) = bias {
            let rows = self.shape(weight).into_iter().take(1).collect::<Vec<_>>();
            self.expect_shape(bias, &rows)?;
        }
        let inputs = [input, weight].into_iter().chain(bias);
        Ok(self.emit(Op::Linear, inputs, shape))
    }

    /// The product of rows with a matrix that is a weight, as a linear layer, whose weight is
    /// packed once; `None` for other products.
    fn product_with_weight(
        &mut self,
        a: ValueId,
        b: ValueId,
        bias: Option<ValueId>,
    ) -> Option<ValueId> {
        let is_weight = |value: ValueId| {
            let root = self.program.root(value);
            matches!(self.program.value(root).source, Source::Weight(_))
                && self.program.element(value).is_float()
        };
        let (left, right) = (self.shape(a), self.shape(b));
        let ([.., depth], [inputs, outputs]) = (&left[..], &right[..]) else {
            return None;
        };
        let fits = depth == inputs
            && left.len() >= 2
            && is_weight(b)
            && bias.is_none_or(|bias| is_weight(bias) && self.shape(bias) == [*outputs]);
        if !fits {
            return None;
        }
        let sizes = vec![*outputs, *inputs];
        let weight = self
            .program
            .add_transformed(WeightTransform::Transpose, vec![b], sizes);
        let shape = [&left[..left.len() - 1], &[*outputs]].concat();
        Some(self.emit(Op::Linear, [a, weight].into_iter().chain(bias), shape))
    }

    pub(super) fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Reason> {
        if let Some(product) = self.product_with_weight(a, b, None) {
            return Ok(product);
        }
        let (mut left, mut right) = (self.shape(a), self.shape(b));
        // A vector is a row on the left and a column on the right; its dimension is removed from
        // the result.
        let (row, column) = (left.len() == 1, right.len() == 1);
        if row {
            left.insert(0, 1);
        }
        if column {
            right.push(1);
        }
        let ([.., rows, _], [.., columns]) = (&left[..], &right[..]) else {
            return Err("a product with a number".to_owned());
        };
        let batch = broadcast(&left[..left.len() - 2], &right[..right.len() - 2])?;
        let mut shape = [&batch[..], &[*rows, *columns]].concat();
        let op = Op::MatMul {
            first_transposed: false,
            transposed: false,
            scale: 1.0,
        };
        let (a, b) = (self.alias(a, left), self.alias(b, right));
        let product = self.emit(op, [a, b], shape.clone());
        if column {
            shape.pop();
        }
        if row {
            shape.remove(shape.len() - 1 - usize::from(!column));
        }
        Ok(self.alias(product, shape))
    }

    /// `beta * input + alpha * a @ b`
    fn sum_and_product(&mut self, call: &Call, [a, b]: [&str; 2]) -> Result<ValueId, Reason> {
        let (alpha, beta) = (
            call.number("alpha")?.unwrap_or(1.0),
            call.number("beta")?.unwrap_or(1.0),
        );
        let (a, b) = (call.tensor(a)?, call.tensor(b)?);
        if (alpha, beta) == (1.0, 1.0)
            && let Some(sum) = self.product_with_weight(a, b, Some(call.tensor("input")?))
        {
            return Ok(sum);
        }
        let product = self.matmul(a, b)?;
        let product = self.scaled(product, alpha);
        // The operand of a zero factor is ignored: it may be NaN.
        if beta == 0.0 {
            return Ok(product);
        }
        let input = self.scaled(call.tensor("input")?, beta);
        self.pairwise(Binary::Add, product, input)
    }

    fn outer(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (a, b) = (call.tensor("input")?, call.tensor("other")?);
        let column = self.shape(a)[0];
        let a = self.alias(a, vec![column, 1]);
        self.pairwise(Binary::Mul, a, b)
    }
}
