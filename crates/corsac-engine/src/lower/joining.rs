//! Joining of tensors.

use corsac_ops::is_operator;

use super::call::Call;
use super::table::{Lowering, tensor};
use super::{Lowerer, Reason};
use crate::program::{Op, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("cat", |own, call| own.concatenated(call)),
    tensor("column_stack", |own, call| own.stacked(call)),
    tensor("dstack", |own, call| own.stacked(call)),
    tensor("hstack", |own, call| own.stacked(call)),
    tensor("row_stack", |own, call| own.stacked(call)),
    tensor("stack", |own, call| own.concatenated(call)),
    tensor("vstack", |own, call| own.stacked(call)),
];

impl Lowerer<'_, '_> {
    fn concatenated(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let mut parts = call.tensors("tensors")?;
        let shape = self.result_shape()?;
        let dim = call.dim("dim", shape.len(), 0)?;
        if is_operator!(call.operator, "stack") {
            for part in &mut parts {
                let mut own = self.shape(*part);
                own.insert(dim, 1);
                *part = self.alias(*part, own);
            }
        }
        // PyTorch skips tensors of shape [0], the legacy form of an empty one. Caches of
        // language models begin with such a tensor.
        let whole_is_empty = shape.contains(&0);
        parts.retain(|&part| match whole_is_empty {
            true => self.shape(part) != [0],
            false => !self.shape(part).contains(&0),
        });
        let element = self.result_element()?;
        if let [only] = parts[..] {
            let only = self.cast(only, element);
            return Ok(self.alias(only, shape));
        }
        let parts = parts.into_iter();
        let parts: Vec<_> = parts.map(|p| self.cast(p, element)).collect();
        Ok(self.emit_typed(Op::Concat { dim }, parts, element, shape))
    }

    fn stacked(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let parts = call.tensors("tensors")?;
        let shape = self.result_shape()?;
        let element = self.result_element()?;
        let mut own = Vec::with_capacity(parts.len());
        let mut dim = 0;
        for part in parts {
            let mut sizes = self.shape(part);
            match call.operator.name() {
                "hstack" => {
                    if sizes.is_empty() {
                        sizes.push(1);
                    }
                    dim = usize::from(sizes.len() > 1);
                }
                "vstack" | "row_stack" => {
                    while sizes.len() < 2 {
                        sizes.insert(0, 1);
                    }
                }
                "column_stack" => {
                    while sizes.len() < 2 {
                        sizes.push(1);
                    }
                    dim = 1;
                }
                _ => {
                    if sizes.is_empty() {
                        sizes.push(1);
                    }
                    if sizes.len() == 1 {
                        sizes.insert(0, 1);
                    }
                    if sizes.len() == 2 {
                        sizes.push(1);
                    }
                    dim = 2;
                }
            }
            let part = self.cast(part, element);
            own.push(self.alias(part, sizes));
        }
        Ok(self.emit_typed(Op::Concat { dim }, own, element, shape))
    }
}
