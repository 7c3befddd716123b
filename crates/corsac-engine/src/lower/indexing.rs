//! Indexing by integers and booleans, scattering, and embeddings.

use corsac_ir::DType;
use corsac_ops::is_operator;
use corsac_ops::shape::{Dim, Value};

use super::call::Call;
use super::element::broadcast;
use super::table::{Lowering, lowered, tensor};
use super::view::{View, all};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Arithmetic, Combination, Element, Op, Scalar, ValueId};

/// Most integers of a list that is an index: each is a step.
const MOST_INTEGERS: usize = 256;

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("embedding", |own, call| own.embedding(call)).of_any_type(),
    tensor("gather", |own, call| own.gather(call)).of_any_type(),
    tensor("_get_relative_position_bias", |own, call| own.position_bias(call)).of_any_type(),
    lowered("getitem", |own, call| match own.has_index_tensors(call) {
        true => own.indexed(call).map(Lowered::Tensor),
        false => own.item(call),
    })
    .of_any_type(),
    tensor("index", |own, call| own.indexed(call)).of_any_type(),
    tensor("index_add", |own, call| own.updated(call)).of_any_type(),
    tensor("index_copy", |own, call| own.updated(call)).of_any_type(),
    tensor("index_fill", |own, call| own.updated(call)).of_any_type(),
    tensor("index_put", |own, call| own.updated(call)).of_any_type(),
    tensor("index_select", |own, call| own.index_select(call)).of_any_type(),
    tensor("scatter", |own, call| own.scattered(call)).of_any_type(),
    tensor("scatter_add", |own, call| own.scattered(call)).of_any_type(),
    tensor("scatter_reduce", |own, call| own.scattered(call)).of_any_type(),
    tensor("take", |own, call| own.take(call)).of_any_type(),
    tensor("take_along_dim", |own, call| own.gather(call)).of_any_type(),
    tensor("_unsafe_index", |own, call| own.indexed(call)).of_any_type(),
];

impl Lowerer<'_, '_> {
    fn embedding(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.get("max_norm").is_some() {
            return Err("embedding with max_norm".to_owned());
        }
        let (mut table, mut indices) = (call.tensor("weight")?, call.tensor("input")?);
        if self.program.element(table) == Element::I64 {
            std::mem::swap(&mut table, &mut indices);
        }
        self.rows(table, 0, indices, false)
    }

    fn index_select(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, index) = (call.tensor("input")?, call.tensor("index")?);
        if self.shape(index).len() > 1 {
            return Err("an index that is no vector".to_owned());
        }
        let input = self.at_least_a_vector(input);
        let dim = call.dim("dim", self.shape(input).len(), 0)?;
        let value = self.rows(input, dim, index, false)?;
        let shape = self.result_shape()?;
        Ok(self.alias(value, shape))
    }

    fn gather(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let is_along = is_operator!(call.operator, "take_along_dim");
        let index = if is_along { "indices" } else { "index" };
        let (mut input, mut index) = (call.tensor("input")?, call.tensor(index)?);
        if is_along && call.get("dim").is_none() {
            return Err("take_along_dim without dim".to_owned());
        }
        let result = self.result_shape()?;
        if is_along {
            let rank = self.shape(input).len();
            let dim = call.dim("dim", rank, 0)?;
            let (mut a, mut b) = (self.shape(input), self.shape(index));
            let (size, count) = (a[dim], b[dim]);
            (a[dim], b[dim]) = (1, 1);
            let mut both = broadcast(&a, &b)?.to_vec();
            both[dim] = size;
            input = self.broadcast_to(input, &both);
            both[dim] = count;
            index = self.broadcast_to(index, &both);
        }
        let (input, index) = (self.at_least_a_vector(input), self.at_least_a_vector(index));
        self.expect_indices(index, &[])?;
        let (shape, sizes) = (self.shape(index), self.shape(input));
        let dim = call.dim("dim", sizes.len(), 0)?;
        let fits = |at: usize| at == dim || shape[at] <= sizes[at];
        if shape.len() != sizes.len() || !(0..shape.len()).all(fits) {
            return Err("an index of another shape".to_owned());
        }
        let element = self.program.element(input);
        let op = Op::Gather {
            dim,
            wraps: is_along,
        };
        let value = self.emit_typed(op, [input, index], element, shape);
        Ok(self.alias(value, result))
    }

    fn take(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, index) = (call.tensor("input")?, call.tensor("index")?);
        self.expect_indices(index, &[])?;
        let len = self.program.value(input).len();
        let flat = self.alias(input, vec![len]);
        self.rows(flat, 0, index, true)
    }

    fn updated(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let view = View::of(&self.shape(input));
        self.put_by_index(call, input, &view)
    }

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

    fn has_index_tensors(&self, call: &Call) -> bool {
        match call.get("other") {
            Some(Lowered::Tensor(_) | Lowered::Items(_)) => {
                !matches!(call.get("input"), Some(Lowered::Items(_)))
            }
            Some(Lowered::Known(Value::List(_))) => true,
            Some(Lowered::Known(value)) => value
                .as_items()
                .is_some_and(|items| items.iter().any(|item| matches!(item, Value::List(_)))),
            None => false,
        }
    }

    /// A list of integers as a tensor; others as they are.
    pub(super) fn as_index(&mut self, item: Lowered) -> Result<Lowered, Reason> {
        let Lowered::Known(Value::List(items)) = &item else {
            return Ok(item);
        };
        let numbers = items.iter().map(|item| match item {
            Value::Int(Dim::Known(number)) => Some(Scalar::Int(*number)),
            _ => None,
        });
        let Some(numbers) = numbers.collect::<Option<Vec<Scalar>>>() else {
            return Err("a list of other than integers as an index".to_owned());
        };
        if numbers.len() > MOST_INTEGERS {
            return Err(format!("a list of {} integers as an index", numbers.len()));
        }
        let count = numbers.len();
        let numbers = numbers.into_iter().map(|number| {
            let value = self.constant(number, Element::I64);
            self.alias(value, vec![1])
        });
        let numbers: Vec<ValueId> = numbers.collect();
        let value = match numbers[..] {
            [only] => only,
            _ => self.emit_typed(Op::Concat { dim: 0 }, numbers, Element::I64, vec![count]),
        };
        Ok(Lowered::Tensor(value))
    }

    /// `x[i, :, j]` with tensors of integers, or lists of them, among the indices.
    fn indexed(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let mut input = call.tensor("input")?;
        let given: Vec<Lowered> = match call.get("other") {
            Some(Lowered::Items(items)) => items.clone(),
            Some(other @ (Lowered::Tensor(_) | Lowered::Known(Value::List(_)))) => {
                vec![other.clone()]
            }
            Some(Lowered::Known(Value::Tuple(items))) => {
                items.iter().cloned().map(Lowered::Known).collect()
            }
            _ => match call.get("indices") {
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
        let given = given.into_iter().map(|item| self.as_index(item));
        let given: Vec<Lowered> = given.collect::<Result<_, _>>()?;
        // All other indices make a view, which is taken first.
        let basic: Vec<Value> = given
            .iter()
            .map(|item| match item {
                Lowered::Tensor(_) => Ok(all()),
                Lowered::Known(value @ (Value::None | Value::Ellipsis | Value::Slice(_))) => {
                    Ok(value.clone())
                }
                Lowered::Known(value @ Value::Int(_)) => Ok(value.clone()),
                Lowered::Known(value) => Err(format!("the index {value} beside a tensor")),
                Lowered::Items(_) => Err("a list of tensors as an index".to_owned()),
            })
            .collect::<Result<_, _>>()?;
        if basic.iter().any(|item| !is_all(item)) {
            input = self.basic_index(input, &basic)?;
        }
        // The dimensions of the view that tensors index.
        let rank = self.shape(input).len();
        // An integer takes its dimension away.
        let is_integer = |item: &&Value| matches!(item, Value::Int(_));
        let kept = basic.len() - basic.iter().filter(is_integer).count();
        let spread = rank + 1 - kept.min(rank + 1);
        let mut at = 0;
        let mut indices: Vec<(usize, ValueId)> = Vec::new();
        for item in &given {
            match item {
                Lowered::Tensor(value) => {
                    if self.program.element(*value) != Element::I64
                        || self.narrow_integers(*value) == Some(DType::UInt8)
                    {
                        return Err("an index whose result's size depends on values".to_owned());
                    }
                    indices.push((at, *value));
                    at += 1;
                }
                Lowered::Known(Value::Ellipsis) => at += spread,
                Lowered::Known(Value::Int(_)) => {}
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

    /// A copy of the input in which indexed elements are replaced by others, or combined with them.
    fn scattered(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let element = self.result_element()?;
        let result = self.result_shape()?;
        let (input, index) = (call.tensor("input")?, call.tensor("index")?);
        self.expect_indices(index, &[])?;
        if self.program.element(input) != element {
            return Err("another type of elements than the input's".to_owned());
        }
        let input = self.at_least_a_vector(input);
        let index = self.at_least_a_vector(index);
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), 0)?;
        let combination = self.combination(call)?;
        let is_scatter = is_operator!(call.operator, "scatter");
        let source = match call.tensor("src") {
            Ok(source) => source,
            // A number by either name.
            Err(_) if is_scatter && call.get("src").is_none() => {
                self.operand_as(call, "value", element)?
            }
            Err(_) if is_scatter => self.operand_as(call, "src", element)?,
            Err(reason) => return Err(reason),
        };
        if self.program.element(source) != element {
            return Err("elements of another type than the input's".to_owned());
        }
        let mut source = source;
        if self.shape(source).is_empty() {
            let places = self.shape(index);
            source = self.broadcast_to(source, &places);
        }
        let source = self.at_least_a_vector(source);
        let (places, sizes) = (self.shape(index), self.shape(source));
        let fits = places.len() == shape.len()
            && sizes.len() == shape.len()
            && places.iter().zip(&sizes).all(|(place, size)| place <= size)
            && (0..shape.len()).all(|at| at == dim || places[at] <= shape[at]);
        if !fits && !places.contains(&0) {
            return Err("an index of another shape".to_owned());
        }
        let op = Op::Scatter { dim, combination };
        let value = self.emit_typed(op, [input, index, source], element, shape);
        Ok(self.alias(value, result))
    }

    fn combination(&self, call: &Call) -> Result<Combination, Reason> {
        let element = self.result_element()?;
        let combination = match (call.operator.name(), call.text("reduce")?) {
            ("scatter_add", _) | ("scatter", Some("add")) => Combination::Add,
            ("scatter", Some("multiply")) => Combination::Multiply,
            ("scatter", None) => Combination::Replace,
            ("scatter_reduce", _) if !call.flag("include_self", true)? => {
                return Err("scatter_reduce without the input's elements".to_owned());
            }
            ("scatter_reduce", Some("sum")) => Combination::Add,
            ("scatter_reduce", Some("prod")) => Combination::Multiply,
            ("scatter_reduce", Some("amax")) => Combination::Largest,
            ("scatter_reduce", Some("amin")) => Combination::Smallest,
            (name, reduce) => return Err(format!("{name} by {}", reduce.unwrap_or("nothing"))),
        };
        match (element, combination) {
            (Element::Bool, Combination::Replace)
            | (Element::F32 | Element::F64 | Element::I64, _) => Ok(combination),
            _ => Err("truth values combined by indices".to_owned()),
        }
    }
}

fn is_all(value: &Value) -> bool {
    matches!(value, Value::Slice(parts) if parts.iter().all(|part| matches!(part, Value::None)))
}
