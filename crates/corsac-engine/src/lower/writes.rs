//! Calls that write: each computes a new value of the tensor that holds the elements, and of all
//! its aliases that are read later.

use corsac_ir::{Arg, NodeId, Op as GraphOp};
use corsac_ops::schema::Schema;
use corsac_ops::shape::Value;
use corsac_ops::{OperatorId, is_operator};
use smallvec::SmallVec;

use super::call::{Call, wrapped};
use super::element::{broadcast, element_of, scalar};
use super::sharing::several_out;
use super::view::{View, all, slice_of};
use super::{Lowered, Lowerer, Reason, Writes, tensor_of};
use crate::kernels::rows::broadcast_strides;
use crate::program::{Combination, Element, Half, IndexPut, Op, Source, ValueId};

/// Target of a write.
struct Written {
    /// The node of the graph that holds the elements: no view of another one.
    base: NodeId,
    /// The part of it that is written to.
    view: View,
    /// Its aliases that are read afterwards, as views of it.
    shown: Vec<(NodeId, View)>,
    /// The call of which the elements are a result, if that is taken again afterwards, and the number of the result.
    result: Option<(NodeId, usize)>,
}

impl Lowerer<'_, '_> {
    /// Lowers a call that writes to its first argument.
    pub(super) fn call_in_place(
        &mut self,
        node: NodeId,
        mut call: Call,
    ) -> Result<Lowered, Reason> {
        let argument = self.graph.node(node).args().first().and_then(Arg::as_node);
        let argument = argument.ok_or("it writes to what is no value of the graph")?;
        let written = self.written(node, argument)?;
        let base = self.value_of(written.base)?;
        let sizes = self.shape(base);
        let is_whole = written.view.is_whole(&sizes);
        let is_input = matches!(
            self.program.value(self.program.root(base)).source,
            Source::Input(_)
        );
        let put =
            match is_whole && !is_input && is_operator!(call.operator, "fill" | "zero" | "zero_") {
                true => None,
                false => self.put_by(&call, base, &written.view)?,
            };
        let whole = match put {
            Some(whole) => whole,
            None => {
                let lowered = self.computed(&mut call)?;
                let Lowered::Tensor(value) = lowered else {
                    return Err("it writes several tensors".to_owned());
                };
                // The target keeps its type: `x.gt_(0)` converts booleans to numbers.
                let element = self.program.element(base);
                let lowered = Lowered::Tensor(self.cast(value, element));
                let lowered = self.as_typed(&call, lowered)?;
                self.check_types(&lowered, self.types.value(node))?;
                let Lowered::Tensor(value) = lowered else {
                    return Err("it writes several tensors".to_owned());
                };
                match is_whole {
                    true if self.shape(value) == sizes => value,
                    _ => {
                        let replace = Combination::Replace;
                        self.put(base, &written.view, &[], value, (false, replace))?
                    }
                }
            }
        };
        let result = Lowered::Tensor(self.store(argument, written, base, whole));
        if is_operator!(call.operator, "setitem") {
            return Ok(Lowered::Known(Value::None));
        }
        self.check_types(&result, self.types.value(node))?;
        Ok(result)
    }

    /// Lowers a call that is given what its results are written to: what it gives without is put there.
    pub(super) fn call_into_out(
        &mut self,
        node: NodeId,
        mut call: Call,
    ) -> Result<Lowered, Reason> {
        if call.in_place {
            return Err("it writes to its argument, and to out".to_owned());
        }
        let out = std::mem::take(&mut call.out);
        self.check_out(node, &call, &out)?;
        let mut places = Vec::with_capacity(out.len());
        for &argument in &out {
            places.push((argument, self.written(node, argument)?));
        }
        let lowered = self.computed(&mut call)?;
        let lowered = self.as_typed(&call, lowered)?;
        self.check_types(&lowered, self.types.value(node))?;
        let several = matches!(lowered, Lowered::Items(_));
        let items = match lowered {
            Lowered::Items(items) => items,
            one => vec![one],
        };
        let mut results = Vec::with_capacity(items.len());
        for (item, (argument, written)) in items.into_iter().zip(places) {
            let Lowered::Tensor(value) = item else {
                return Err("what it writes to out is not computed".to_owned());
            };
            let base = self.value_of(written.base)?;
            let source = self.program.value(self.program.root(value)).source;
            let whole = match written.view.is_whole(&self.shape(base)) && source == Source::Step {
                true => value,
                false => {
                    let replace = Combination::Replace;
                    self.put(base, &written.view, &[], value, (false, replace))?
                }
            };
            let value = self.store(argument, written, base, whole);
            results.push(Lowered::Tensor(value));
        }
        match (results.len(), several) {
            (1, false) => Ok(results.swap_remove(0)),
            _ => Ok(Lowered::Items(results)),
        }
    }

    /// That what is given for results is of their types, and read only where each element is read before it is written.
    fn check_out(&self, node: NodeId, call: &Call, out: &[NodeId]) -> Result<(), Reason> {
        let (graph, types) = (self.graph, self.types);
        let view = graph.node(node);
        if (1..out.len()).any(|at| out[..at].contains(&out[at])) {
            return Err("out= is one tensor for two results".to_owned());
        }
        let mut made = Vec::new();
        let result = types.without_out(graph, view)?;
        result.for_each_tensor(&mut |tensor| made.push(tensor.dtype));
        let mut given = Vec::new();
        types
            .value(node)
            .for_each_tensor(&mut |tensor| given.push(tensor.dtype));
        if let Some((made, given)) = made.iter().zip(&given).find(|(made, given)| made != given) {
            return Err(format!("out= is of {given}, and its result of {made}"));
        }
        let schemas = Schema::overloads(call.operator.name());
        let mut schemas = schemas
            .filter(|schema| !schema.params.iter().any(|param| param.written))
            .peekable();
        if schemas.peek().is_some() && schemas.all(|schema| schema.pointwise) {
            return Ok(());
        }
        let mut read = None;
        let mut visit = |own: NodeId| read = read.or(Some(own).filter(|own| out.contains(own)));
        view.args()
            .iter()
            .for_each(|arg| arg.for_each_node(&mut visit));
        let others = view.kwargs().iter();
        let others = others.filter(|(key, _)| graph.text(*key) != "out");
        others.for_each(|(_, arg)| arg.for_each_node(&mut visit));
        match read {
            Some(own) => Err(format!(
                "it reads {}, which is given as out=",
                graph.node(own).name()
            )),
            None => Ok(()),
        }
    }

    /// Makes `whole` the value of what `argument`, of which `written` says where it lies, is a part of, and new ones of
    /// all other parts that are read later; the value of `argument` from now on.
    fn store(
        &mut self,
        argument: NodeId,
        written: Written,
        base: ValueId,
        whole: ValueId,
    ) -> ValueId {
        let dtype = self.dtype(base);
        self.note_narrow(whole, dtype);
        let is_kept =
            self.keeps_inputs() && self.graph.node(written.base).op() == GraphOp::Placeholder;
        let whole = match is_kept {
            true => self.rounded(whole),
            false => whole,
        };
        self.lowered.set(written.base, Some(Lowered::Tensor(whole)));
        if let Some((call, number)) = written.result
            && let Some(Lowered::Items(items)) = self.lowered.get_mut(call)
        {
            items[number] = Lowered::Tensor(whole);
        }
        for (other, view) in written.shown {
            let value = self.copied(whole, view);
            self.note_narrow(value, dtype);
            self.lowered.set(other, Some(Lowered::Tensor(value)));
        }
        let value = self.copied(whole, written.view);
        self.note_narrow(value, dtype);
        self.lowered.set(argument, Some(Lowered::Tensor(value)));
        value
    }

    /// Whether inputs hold the state of a session: its elements have to be numbers of their types between calls.
    fn keeps_inputs(&self) -> bool {
        matches!(self.writes, Writes::State(_))
    }

    fn value_of(&self, node: NodeId) -> Result<ValueId, Reason> {
        match self.lowered.get(node) {
            Some(Lowered::Tensor(value)) => Ok(*value),
            _ => Err("it writes to what is no tensor".to_owned()),
        }
    }

    /// The target of a write, if all its aliases are known.
    fn written(&mut self, node: NodeId, argument: NodeId) -> Result<Written, Reason> {
        let storage = tensor_of(self.types.value(argument))?.storage;
        if storage.index() < self.types.weight_count() {
            return Err("it writes to a weight".to_owned());
        }
        let shown = self.shown(node, argument)?;
        let (base, view) = self.part(argument)?;
        let value = self.value_of(base)?;
        if self.writes == Writes::Inputs
            && self.graph.node(base).op() == GraphOp::Placeholder
            && self.narrow_integers(value).is_some()
        {
            return Err("it writes to an input of narrow integers".to_owned());
        }
        let mut others = Vec::new();
        let mut result = None;
        for other in shown {
            let sharing = self.sharing.as_ref();
            if sharing.is_some_and(|sharing| sharing.has_results_apart(other)) {
                let call = Call::of(self, base)?;
                result = self.taken(base, &call);
                continue;
            }
            let (owner, part) = self.part(other)?;
            let view = self.graph.node(other);
            if owner != base {
                return Err(match view.op() {
                    GraphOp::Placeholder => format!("it writes to the input {}", view.name()),
                    _ => format!(
                        "it writes to what {} may share memory with, which is read",
                        view.name()
                    ),
                });
            }
            if other != base && other != argument {
                others.push((other, part));
            }
        }
        Ok(Written {
            base,
            view,
            shown: others,
            result,
        })
    }

    /// The base of a value, and the view of it that the value is: itself, if it is no view whose
    /// place is always known.
    fn part(&mut self, node: NodeId) -> Result<(NodeId, View), Reason> {
        let graph = self.graph;
        let view = graph.node(node);
        let computes = !matches!(
            view.op(),
            GraphOp::Placeholder | GraphOp::GetAttr | GraphOp::Output
        );
        let first = view.args().first().and_then(Arg::as_node);
        if computes && (first.is_some() || view.kwarg("out").is_some()) {
            let call = Call::of(self, node)?;
            let written = match (&call.out[..], call.in_place) {
                ([out], _) => Some(*out),
                (_, true) => first,
                _ => self.taken_result(node, &call),
            };
            if let Some(written) = written {
                return self.part(written);
            }
            let of = first.ok_or("it writes to what is no tensor")?;
            if self.taken(node, &call).is_some() {
                let first = self.first_taken(node);
                return Ok((first, View::of(&self.shape(self.value_of(first)?))));
            }
            if matches!(call.get("input"), Some(Lowered::Tensor(_))) && is_part(call.operator) {
                let (base, from) = self.part(of)?;
                if let Some(view) = self.view_by(node, &call, from)? {
                    return Ok((base, view));
                }
            }
        }
        let value = self.value_of(node)?;
        Ok((node, View::of(&self.shape(value))))
    }

    /// The first node that takes the result of a call that `node` takes.
    fn first_taken(&self, node: NodeId) -> NodeId {
        let (graph, view) = (self.graph, self.graph.node(node));
        let first = view.args().first().and_then(Arg::as_node);
        let others = first.into_iter().flat_map(|of| graph.node(of).users());
        let same = others.map(|other| graph.node(other)).filter(|other| {
            (other.op(), other.target()) == (view.op(), view.target())
                && other.args() == view.args()
        });
        let earliest = same.min_by_key(|other| other.order());
        earliest.map_or(node, |other| other.id())
    }

    /// The call of which a node takes one of several results, and the number of this.
    fn taken(&self, node: NodeId, call: &Call) -> Option<(NodeId, usize)> {
        let of = self
            .graph
            .node(node)
            .args()
            .first()
            .and_then(Arg::as_node)?;
        let Some(Lowered::Items(results)) = self.lowered.get(of) else {
            return None;
        };
        let Some(Lowered::Known(Value::Int(index))) = call.get("other") else {
            return None;
        };
        let number = wrapped(index.known()?, results.len()).ok()?;
        is_operator!(call.operator, "getitem").then_some((of, number))
    }

    /// The tensor that an item of a call with several `out=` is.
    pub(super) fn taken_result(&self, node: NodeId, call: &Call) -> Option<NodeId> {
        let (of, number) = self.taken(node, call)?;
        several_out(self.graph, of)?.get(number)?.as_node()
    }

    /// The new value of the base for calls that put elements into it; `None` for calls that compute
    /// them.
    fn put_by(
        &mut self,
        call: &Call,
        base: ValueId,
        view: &View,
    ) -> Result<Option<ValueId>, Reason> {
        let replace = Combination::Replace;
        let value = match call.operator.name() {
            "copy" | "copy_" | "setitem" | "fill" | "zero" | "zero_" => {
                let source = self.source_for(call, base)?;
                let index = match (call.operator.name(), call.get("other")) {
                    ("setitem", Some(index)) => items_of(index),
                    ("setitem", None) => vec![Lowered::Known(Value::None)],
                    _ => vec![Lowered::Known(Value::Ellipsis)],
                };
                self.put_indexed(base, view, &index, source, replace)?
            }
            "index_put" | "index_copy" | "index_add" | "index_fill" => {
                self.put_by_index(call, base, view)?
            }
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    /// The source of an assignment, or of a call without indices, that writes to `base`.
    fn source_for(&mut self, call: &Call, base: ValueId) -> Result<ValueId, Reason> {
        let element = self.program.element(base);
        let param = match call.operator.name() {
            "copy" | "copy_" => "src",
            "setitem" => "c",
            "fill" => "value",
            _ => return Ok(self.constant(element.zero(), element)),
        };
        let narrow = self.narrow_integers(base);
        match call.get(param) {
            Some(Lowered::Tensor(value)) => {
                if narrow.is_some() && self.narrow_integers(*value) != narrow {
                    return Err("other numbers among narrow integers".to_owned());
                }
                let value = self.cast(*value, element);
                match element {
                    Element::F32 => Ok(self.as_float(value, self.dtype(base))),
                    _ => Ok(value),
                }
            }
            Some(Lowered::Known(value)) => {
                let number = scalar(value).ok_or("what is put there is no number")?;
                if narrow.is_some() {
                    return Err("a number among narrow integers".to_owned());
                }
                Ok(match (element, number) {
                    (Element::I64, crate::program::Scalar::Float(number)) => {
                        return Err(format!("{number} among integers"));
                    }
                    _ => self.constant(number, element),
                })
            }
            _ => Err("what is put there is no tensor and no number".to_owned()),
        }
    }

    /// `index_put`, `index_copy`, `index_add` and `index_fill`, into a part of `base`.
    pub(super) fn put_by_index(
        &mut self,
        call: &Call,
        base: ValueId,
        view: &View,
    ) -> Result<ValueId, Reason> {
        let element = self.program.element(base);
        let same_type = |me: &Self, value: ValueId| match me.dtype(value) == me.dtype(base) {
            true => Ok(()),
            false => Err("elements of another type than the input's".to_owned()),
        };
        if is_operator!(call.operator, "index_put") {
            let values = call.tensor("values")?;
            same_type(self, values)?;
            let combination = match call.flag("accumulate", false)? {
                true => self.sums(base)?,
                false => Combination::Replace,
            };
            let index = match call.get("indices") {
                Some(Lowered::Items(items)) => items.iter().map(|item| match item {
                    // `None` of an operator is `:` in Python.
                    Lowered::Known(Value::None) => Lowered::Known(all()),
                    other => other.clone(),
                }),
                _ => return Err("an index that is not known".to_owned()),
            };
            let index: Vec<Lowered> = index.collect();
            return self.put_indexed(base, view, &index, values, combination);
        }
        let mut view = view.clone();
        if view.shape.is_empty() {
            view.insert(0);
        }
        let rank = view.shape.len();
        let dim = call.dim("dim", rank, 0)?;
        let index = call.tensor("index")?;
        let index = self.at_least_a_vector(index);
        self.expect_indices(index, &[])?;
        let [count] = self.shape(index)[..] else {
            return Err("an index that is no vector".to_owned());
        };
        let mut rows = view.shape.clone();
        rows[dim] = count;
        let (source, combination) = match call.operator.name() {
            "index_fill" => {
                let value = self.operand_as(call, "value", element)?;
                if !self.shape(value).is_empty() {
                    return Err("a value with dimensions".to_owned());
                }
                (value, Combination::Replace)
            }
            name => {
                let source = call.tensor("source").or_else(|_| call.tensor("src"));
                let mut source = source?;
                same_type(self, source)?;
                if self.shape(source) != rows && (self.shape(source).len(), rank) != (0, 1) {
                    return Err("rows of another shape".to_owned());
                }
                source = self.alias(source, rows.clone());
                let mut combination = Combination::Replace;
                if name == "index_add" {
                    combination = self.sums(base)?;
                    match call.number("alpha")?.unwrap_or(1.0) {
                        1.0 => {}
                        factor if element.is_float() => {
                            source = self.scaled(source, factor);
                        }
                        _ => return Err("index_add of integers with alpha".to_owned()),
                    }
                }
                (source, combination)
            }
        };
        let how = (is_operator!(call.operator, "index_fill"), combination);
        self.put(base, &view, &[(dim, index)], source, how)
    }

    /// Checks that sums by indices are supported for `base`.
    fn sums(&self, base: ValueId) -> Result<Combination, Reason> {
        if self.program.element(base) == Element::Bool {
            return Err("sums of truth values by indices".to_owned());
        }
        if self.narrow_integers(base).is_some() {
            // The sums would have to be wrapped to the range of their type.
            return Err("sums of narrow integers by indices".to_owned());
        }
        Ok(Combination::Add)
    }

    /// `base`, with `source` put at `x[index]` of a part of it.
    fn put_indexed(
        &mut self,
        base: ValueId,
        view: &View,
        index: &[Lowered],
        source: ValueId,
        combination: Combination,
    ) -> Result<ValueId, Reason> {
        let index = index.iter().map(|item| self.as_index(item.clone()));
        let index: &[Lowered] = &index.collect::<Result<Vec<_>, _>>()?;
        let mut basic = Vec::with_capacity(index.len());
        let tensors = index.iter().any(|item| matches!(item, Lowered::Tensor(_)));
        for item in index {
            basic.push(match item {
                Lowered::Tensor(_) => all(),
                Lowered::Known(value @ (Value::None | Value::Ellipsis | Value::Slice(_))) => {
                    value.clone()
                }
                Lowered::Known(value @ Value::Int(_)) if !tensors => value.clone(),
                Lowered::Known(_) => {
                    return Err("an integer, truth value or list among indices".to_owned());
                }
                Lowered::Items(_) => return Err("a list of tensors as an index".to_owned()),
            });
        }
        let mut view = view.clone();
        if let [Lowered::Tensor(mask)] = index
            && self.program.element(*mask) == Element::Bool
        {
            return self.put_masked(base, &view, *mask, source, combination);
        }
        let rank = view.shape.len();
        view.index(&basic)?;
        let spread = (rank + 1).saturating_sub(basic.len());
        let mut at = 0;
        let mut places = Vec::new();
        for item in index {
            match item {
                Lowered::Tensor(value) => {
                    self.expect_indices(*value, &[corsac_ir::DType::Int32])?;
                    places.push((at, *value));
                    at += 1;
                }
                Lowered::Known(Value::Ellipsis) => at += spread,
                Lowered::Known(Value::Int(_)) => {}
                _ => at += 1,
            }
        }
        if places.iter().any(|&(dim, _)| dim >= view.shape.len()) {
            return Err("too many indices".to_owned());
        }
        if tensors && self.program.element(base) != self.program.element(source) {
            return Err("elements of another type than the input's".to_owned());
        }
        self.put_tensors(base, &view, &places, source, (true, combination))
    }

    /// `base`, with one element put where a mask is true.
    fn put_masked(
        &mut self,
        base: ValueId,
        view: &View,
        mask: ValueId,
        source: ValueId,
        combination: Combination,
    ) -> Result<ValueId, Reason> {
        let mut sizes = self.shape(mask);
        let fits = view.shape.get(..sizes.len()) == Some(&sizes[..]);
        if !fits || self.program.value(source).len() != 1 || combination != Combination::Replace {
            return Err("elements for each place that is true".to_owned());
        }
        sizes.resize(view.shape.len(), 1);
        let mask = self.alias(mask, sizes);
        let one = self.alias(source, Vec::new());
        let before = self.copied(base, view.clone());
        let value = self.choose(mask, one, before)?;
        let whole = self.shape(base);
        match view.is_whole(&whole) {
            true => Ok(value),
            false => self.put(base, view, &[], value, (false, combination)),
        }
    }

    /// `base`, with `source` put at indices, tensors of integers, of dimensions of a part of it.
    fn put_tensors(
        &mut self,
        base: ValueId,
        view: &View,
        places: &[(usize, ValueId)],
        source: ValueId,
        how: (bool, Combination),
    ) -> Result<ValueId, Reason> {
        let mut shape: Vec<usize> = Vec::new();
        for &(_, index) in places {
            shape = broadcast(&shape, &self.shape(index))?.to_vec();
        }
        let mut indices = Vec::with_capacity(places.len());
        for &(dim, index) in places {
            let index = self.broadcast_to(index, &shape);
            indices.push((dim, index));
        }
        let indices = indices;
        self.put(base, view, &indices, source, how)
    }

    /// The same, where all indices have one shape.
    fn put(
        &mut self,
        base: ValueId,
        view: &View,
        places: &[(usize, ValueId)],
        source: ValueId,
        (wraps, combination): (bool, Combination),
    ) -> Result<ValueId, Reason> {
        let index_shape = match places {
            [] => Vec::new(),
            [(_, first), ..] => self.shape(*first),
        };
        let dims: Vec<usize> = places.iter().map(|&(dim, _)| dim).collect();
        let rest: Vec<usize> = (0..view.shape.len())
            .filter(|d| !dims.contains(d))
            .collect();
        // If the indexed dimensions are adjacent, those of the indices take their place; otherwise
        // they come first.
        let adjacent = dims.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let before = match (dims.first(), adjacent) {
            (Some(&first), true) => rest.iter().filter(|&&dim| dim < first).count(),
            _ => 0,
        };
        let size = |dim: &usize| view.shape[*dim];
        let mut target: Vec<usize> = rest[..before].iter().map(size).collect();
        target.extend(&index_shape);
        target.extend(rest[before..].iter().map(size));
        let mut own = self.shape(source);
        while own.len() > target.len() && own[0] == 1 {
            own.remove(0);
        }
        let fits = own.len() <= target.len()
            && broadcast(&own, &target).is_ok_and(|both| both[..] == target[..]);
        if !fits {
            return Err(format!("elements of shape {own:?} for {target:?}"));
        }
        let steps = broadcast_strides(&own, target.len());
        let step = |at: usize| steps[at].unsigned_abs();
        let count = index_shape.len();
        let along = (0..count).map(|at| (target[before + at], step(before + at)));
        let mut regions: SmallVec<[(usize, usize, usize); 6]> = SmallVec::new();
        for (number, &dim) in rest.iter().enumerate() {
            let at = if number < before {
                number
            } else {
                number + count
            };
            let own = (view.shape[dim], view.strides[dim].unsigned_abs(), step(at));
            if own.0 == 1 {
                continue;
            }
            match regions.last_mut() {
                Some(last) if last.1 == own.0 * own.1 && last.2 == own.0 * own.2 => {
                    *last = (last.0 * own.0, own.1, own.2);
                }
                _ => regions.push(own),
            }
        }
        if regions.is_empty() {
            regions.push((1, 1, 1));
        }
        let indexed = dims.iter();
        let indexed = indexed.map(|&dim| (view.shape[dim], view.strides[dim].unsigned_abs()));
        let kept = Half::of(self.dtype(base)).filter(|_| self.keeps_inputs());
        let source = match kept {
            Some(half) if self.dtype(source) != half.dtype() => self.rounded_to(source, half),
            Some(_) => self.rounded(source),
            None => source,
        };
        let put = IndexPut {
            offset: view.offset,
            indexed: indexed.collect(),
            along: along.collect(),
            rest: regions,
            wraps,
            combination,
        };
        let inputs = [base, source].into_iter();
        let inputs = inputs.chain(places.iter().map(|&(_, index)| index));
        let inputs: Vec<ValueId> = inputs.collect();
        let (element, shape) = (self.program.element(base), self.shape(base));
        if self.program.element(source) != element {
            return Err("elements of another type than the input's".to_owned());
        }
        let value = self.emit_typed(Op::IndexPut(put), inputs, element, shape);
        let dtype = self.dtype(base);
        self.note_narrow(value, dtype);
        if kept.is_some() && combination == Combination::Replace && self.is_rounded(base) {
            self.note_rounded(value);
        }
        Ok(value)
    }
}

/// The items of an index.
fn items_of(index: &Lowered) -> Vec<Lowered> {
    match index {
        Lowered::Items(items) => items.clone(),
        Lowered::Known(Value::Tuple(items)) => items.iter().cloned().map(Lowered::Known).collect(),
        other => vec![other.clone()],
    }
}

/// Whether an operator always returns a view of its input, at known places.
fn is_part(operator: OperatorId) -> bool {
    operator.row().conversion.is_some()
        || is_operator!(
            operator,
            "getitem"
                | "select"
                | "slice"
                | "narrow"
                | "unsqueeze"
                | "squeeze"
                | "permute"
                | "transpose"
                | "t"
                | "detach"
                | "alias"
                | "view"
        )
}

impl Lowerer<'_, '_> {
    /// The view of `from` that a call makes; `None` if its place is not known.
    fn view_by(&self, node: NodeId, call: &Call, mut from: View) -> Result<Option<View>, Reason> {
        let rank = from.shape.len();
        match call.operator.name() {
            "getitem" => {
                let Some(Lowered::Known(index)) = call.get("other") else {
                    return Ok(None);
                };
                let indices: Vec<Value> = match index {
                    Value::Tuple(items) => items.to_vec(),
                    other => vec![other.clone()],
                };
                let basic = indices.iter().all(|index| {
                    matches!(
                        index,
                        Value::None | Value::Ellipsis | Value::Slice(_) | Value::Int(_)
                    )
                });
                if !basic {
                    return Ok(None);
                }
                from.index(&indices)?;
            }
            "select" => {
                let dim = wrapped(call.int("dim")?.unwrap_or(0), rank)?;
                let mut indices = vec![all(); dim];
                indices.push(call.known("index")?.cloned().ok_or("there is no index")?);
                from.index(&indices)?;
            }
            "slice" => {
                let dim = call.dim("dim", rank, 0)?;
                let mut indices = vec![all(); dim];
                indices.push(slice_of(call)?);
                from.index(&indices)?;
            }
            "narrow" => {
                let dim = call.dim("dim", rank, 0)?;
                from.narrow(call, dim)?;
            }
            "permute" => {
                let dims = call.ints("dims")?.ok_or("permute without dims")?;
                let dims = dims.into_iter().map(|dim| wrapped(dim, rank));
                from = from.permuted(&dims.collect::<Result<Vec<_>, _>>()?);
            }
            "transpose" | "t" => {
                let mut dims: Vec<usize> = (0..rank).collect();
                match call.operator.name() {
                    "transpose" if rank > 0 => {
                        dims.swap(call.dim("dim0", rank, 0)?, call.dim("dim1", rank, 1)?);
                    }
                    _ => dims.reverse(),
                }
                from = from.permuted(&dims);
            }
            "unsqueeze" => {
                let dim = wrapped(call.int("dim")?.unwrap_or(0), rank + 1)?;
                from.insert(dim);
            }
            "detach" | "alias" => {}
            _ if call.operator.row().conversion.is_some() => {
                // A conversion to the type that the input has returns the input itself.
                let (own, first) = (
                    tensor_of(self.types.value(node))?,
                    tensor_of(&call.first_type)?,
                );
                if (own.storage, own.dtype) != (first.storage, first.dtype) {
                    return Ok(None);
                }
            }
            "squeeze" => {
                let dims = match call.ints("dim")? {
                    Some(dims) => dims.into_iter().map(|dim| wrapped(dim, rank)).collect(),
                    None => Ok((0..rank).collect::<Vec<_>>()),
                }?;
                for dim in (0..rank).rev() {
                    if from.shape[dim] == 1 && dims.contains(&dim) {
                        from.remove(dim);
                    }
                }
            }
            // `view`: the same elements in the same order.
            _ => {
                let whole = View::of(&from.shape);
                let in_rows = (0..rank)
                    .all(|at| from.shape[at] == 1 || from.strides[at] == whole.strides[at]);
                let tensor = tensor_of(self.types.value(node))?;
                if !in_rows
                    || element_of(tensor.dtype)? != element_of(tensor_of(&call.first_type)?.dtype)?
                {
                    return Ok(None);
                }
                let offset = from.offset;
                from = View::of(&super::sizes(tensor)?);
                from.offset = offset;
            }
        }
        Ok(Some(from))
    }
}
