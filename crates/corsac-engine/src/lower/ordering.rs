//! Reductions of elements of any type, extremes, and sorting.

use super::call::Call;
use super::{Lowered, Lowerer, Reason};
use crate::program::{Element, Op, Reduction, ValueId};

impl Lowerer<'_, '_> {
    pub(super) fn folded(
        &mut self,
        call: &Call,
        input: ValueId,
        reduction: Reduction,
    ) -> Result<ValueId, Reason> {
        let element = self.program.element(input);
        let input = self.at_least_a_vector(input);
        let sizes = self.shape(input);
        let dims = call.dims(sizes.len())?;
        let extreme =
            matches!(reduction, Reduction::Max | Reduction::Min) && element == Element::I64;
        if extreme && dims.iter().any(|&dim| sizes[dim] == 0) {
            return Err("an extreme of nothing".to_owned());
        }
        let shape = self.result_shape()?;
        Ok(self.emit_typed(Op::Reduce { reduction, dims }, [input], element, shape))
    }

    pub(super) fn extreme(
        &mut self,
        input: ValueId,
        dim: usize,
        largest: bool,
    ) -> Result<ValueId, Reason> {
        let mut shape = self.shape(input);
        if shape[dim] == 0 {
            return Err("an extreme of nothing".to_owned());
        }
        shape[dim] = 1;
        let op = Op::ArgReduce { dim, largest };
        Ok(self.emit_typed(op, [input], Element::I64, shape))
    }

    /// `torch.max(x, dim)`: the largest elements, and their indices.
    pub(super) fn extremes(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let element = self.program.element(input);
        let input = self.at_least_a_vector(input);
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), 0)?;
        let places = self.extreme(input, dim, call.name == "max")?;
        let kept = self.shape(places);
        let wraps = false;
        let op = Op::Gather { dim, wraps };
        let values = self.emit_typed(op, [input, places], element, kept);
        self.pair([values, places])
    }

    /// A pair of tensors, with the shapes of the results of the node.
    pub(super) fn pair(&mut self, values: [ValueId; 2]) -> Result<Lowered, Reason> {
        let results = self.types.value(self.node);
        let mut shapes = Vec::new();
        let mut failed = None;
        results.for_each_tensor(&mut |tensor| match super::sizes(tensor) {
            Ok(shape) => shapes.push(shape),
            Err(reason) => failed = Some(reason),
        });
        match (failed, shapes.len()) {
            (Some(reason), _) => Err(reason),
            (None, 2) => {
                let both = values.into_iter().zip(shapes);
                let both = both.map(|(value, shape)| Lowered::Tensor(self.alias(value, shape)));
                Ok(Lowered::Items(both.collect()))
            }
            (None, _) => Err("it has other results than two tensors".to_owned()),
        }
    }

    pub(super) fn sorted(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let element = self.program.element(input);
        let input = self.at_least_a_vector(input);
        let mut shape = self.shape(input);
        let default = if call.name == "msort" { 0 } else { -1 };
        let dim = match call.name {
            "msort" => 0,
            _ => call.dim("dim", shape.len(), default)?,
        };
        let descending = match call.name {
            "topk" => call.flag("largest", true)?,
            "sort" | "argsort" => call.flag("descending", false)?,
            _ => false,
        };
        if matches!(call.name, "topk" | "kthvalue") {
            let keep = call.int("k")?.ok_or_else(|| "there is no k".to_owned())?;
            let keep = usize::try_from(keep).map_err(|_| "k is negative".to_owned())?;
            if keep > shape[dim] {
                return Err(format!("{keep} of {} elements", shape[dim]));
            }
            shape[dim] = keep;
        }
        let op = Op::Sort { dim, descending };
        let mut places = self.emit_typed(op, [input], Element::I64, shape.clone());
        if call.name == "kthvalue" {
            let last = shape[dim].checked_sub(1).ok_or("k is 0")?;
            places = self.narrowed(places, dim, last, 1);
            shape[dim] = 1;
        }
        if call.name == "argsort" {
            let shape = self.result_shape()?;
            return Ok(Lowered::Tensor(self.alias(places, shape)));
        }
        let wraps = false;
        let op = Op::Gather { dim, wraps };
        let values = self.emit_typed(op, [input, places], element, shape);
        if call.name == "msort" {
            let shape = self.result_shape()?;
            return Ok(Lowered::Tensor(self.alias(values, shape)));
        }
        self.pair([values, places])
    }
}
