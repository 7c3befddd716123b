//! Indexing by integers and booleans.

use corsac_ir::DType;
use corsac_ops::shape::Value;

use super::call::Call;
use super::operators::broadcast;
use super::typed::all;
use super::{Lowered, Lowerer, Reason};
use crate::program::{Arithmetic, Element, Op, Scalar, ValueId};

impl Lowerer<'_, '_> {
    /// Slices of `table` along `dim`: the dimensions of `indices` replace `dim`.
    pub(super) fn rows(
        &mut self,
        table: ValueId,
        dim: usize,
        indices: ValueId,
        wraps: bool,
    ) -> Result<ValueId, Reason> {
        self.expect_indices(indices, &[DType::Int32])?;
        let own = self.shape(table);
        if dim >= own.len() {
            return Err("rows of a number".to_owned());
        }
        let shape = [&own[..dim], &self.shape(indices)[..], &own[dim + 1..]].concat();
        if own[dim] == 0 && shape.iter().product::<usize>() > 0 {
            return Err("rows of what has none".to_owned());
        }
        let element = self.program.element(table);
        Ok(self.emit_typed(
            Op::IndexSelect { dim, wraps },
            [table, indices],
            element,
            shape,
        ))
    }

    pub(super) fn has_index_tensors(&self, call: &Call) -> bool {
        if call.name != "getitem" {
            return true;
        }
        match call.get("other") {
            Some(Lowered::Tensor(_) | Lowered::Items(_)) => {
                !matches!(call.get("input"), Some(Lowered::Items(_)))
            }
            Some(Lowered::Known(value)) => value
                .as_items()
                .is_some_and(|items| items.iter().any(|item| matches!(item, Value::List(_)))),
            None => false,
        }
    }

    /// `x[i, :, j]` with tensors of integers among the indices.
    pub(super) fn indexed(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let mut input = call.tensor("input")?;
        let given: Vec<Lowered> = match (call.name, call.get("other")) {
            ("getitem", Some(Lowered::Items(items))) => items.clone(),
            ("getitem", Some(other @ Lowered::Tensor(_))) => vec![other.clone()],
            ("getitem", Some(Lowered::Known(Value::Tuple(items)))) => {
                items.iter().cloned().map(Lowered::Known).collect()
            }
            (_, _) => match call.get("indices") {
                Some(Lowered::Items(items)) => items
                    .iter()
                    .map(|item| match item {
                        // `None` of an operator is `:` in Python.
                        Lowered::Known(Value::None) => Lowered::Known(all()),
                        other => other.clone(),
                    })
                    .collect(),
                _ => return Err("an index that is not known".to_owned()),
            },
        };
        // All other indices make a view, which is taken first.
        let basic: Vec<Value> = given
            .iter()
            .map(|item| match item {
                Lowered::Tensor(_) => Ok(all()),
                Lowered::Known(value @ (Value::None | Value::Ellipsis | Value::Slice(_))) => {
                    Ok(value.clone())
                }
                Lowered::Known(_) => Err("an integer or list beside a tensor".to_owned()),
                Lowered::Items(_) => Err("a list of tensors as an index".to_owned()),
            })
            .collect::<Result<_, _>>()?;
        if basic.iter().any(|item| !is_all(item)) {
            input = self.basic_index(input, &basic)?;
        }
        // The dimensions of the view that tensors index.
        let rank = self.shape(input).len();
        let spread = rank + 1 - basic.len().min(rank + 1);
        let mut at = 0;
        let mut indices: Vec<(usize, ValueId)> = Vec::new();
        for item in &given {
            match item {
                Lowered::Tensor(value) => {
                    if self.program.element(*value) != Element::I64
                        || self.narrow_type(*value) == Some(DType::UInt8)
                    {
                        return Err("an index whose result's size depends on values".to_owned());
                    }
                    indices.push((at, *value));
                    at += 1;
                }
                Lowered::Known(Value::Ellipsis) => at += spread,
                _ => at += 1,
            }
        }
        if indices.iter().any(|&(dim, _)| dim >= rank) {
            return Err("too many indices".to_owned());
        }
        if let [(dim, index)] = indices[..] {
            return self.rows(input, dim, index, true);
        }
        // Several tensors: their dimensions move to the front and are merged into one, with one
        // combined index.
        let own = self.shape(input);
        let dims: Vec<usize> = indices.iter().map(|&(dim, _)| dim).collect();
        let rest: Vec<usize> = (0..rank).filter(|dim| !dims.contains(dim)).collect();
        let order = [&dims[..], &rest[..]].concat();
        let front = self.permuted(input, &order);
        let sizes: Vec<usize> = dims.iter().map(|&dim| own[dim]).collect();
        let rest_sizes: Vec<usize> = rest.iter().map(|&dim| own[dim]).collect();
        let count = sizes.iter().product();
        let front = self.alias(front, [&[count][..], &rest_sizes].concat());
        let mut shape: Vec<usize> = Vec::new();
        for &(_, index) in &indices {
            shape = broadcast(&shape, &self.shape(index))?.to_vec();
        }
        let mut flat: Option<ValueId> = None;
        for (number, &(_, index)) in indices.iter().enumerate() {
            let size = sizes[number];
            // Negative indices are counted from the end; an index that is out of range stays so.
            let range = self.emit_typed(
                Op::Range {
                    start: Scalar::Int(0),
                    step: Scalar::Int(1),
                },
                [],
                Element::I64,
                vec![size],
            );
            let own_shape = self.shape(index);
            let op = Op::IndexSelect {
                dim: 0,
                wraps: true,
            };
            let place = self.emit_typed(op, [range, index], Element::I64, own_shape);
            flat = Some(match flat {
                None => place,
                Some(so_far) => {
                    let factor = self.constant(Scalar::Int(size as i64), Element::I64);
                    let scaled_shape = self.shape(so_far);
                    let op = Op::Arithmetic(Arithmetic::Mul);
                    let scaled =
                        self.emit_typed(op, [so_far, factor], Element::I64, scaled_shape.clone());
                    let shape = broadcast(&scaled_shape, &self.shape(place))?.to_vec();
                    let op = Op::Arithmetic(Arithmetic::Add);
                    self.emit_typed(op, [scaled, place], Element::I64, shape)
                }
            });
        }
        let Some(flat) = flat else {
            return Err("an index without tensors".to_owned());
        };
        let flat = self.broadcast_to(flat, &shape);
        let value = self.rows(front, 0, flat, true)?;
        // If the indexed dimensions are adjacent, those of the result take their place.
        let adjacent = dims.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let before = rest.iter().filter(|&&dim| dim < dims[0]).count();
        if !adjacent || before == 0 {
            return Ok(value);
        }
        let count = shape.len();
        let order: Vec<usize> = (count..count + before)
            .chain(0..count)
            .chain(count + before..count + rest.len())
            .collect();
        Ok(self.permuted(value, &order))
    }
}

fn is_all(value: &Value) -> bool {
    matches!(value, Value::Slice(parts) if parts.iter().all(|part| matches!(part, Value::None)))
}
