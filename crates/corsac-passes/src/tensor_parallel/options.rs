//! The ways in which each node may be run, as far as values may be sharded at all.

use corsac_ir::{Graph, NodeId, Op, SecondaryMap};
use corsac_ops::is_operator;
use corsac_ops::shape::{Form, Kind, Relation, Run, ShardedCall, Side, Value, kind};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::hints::Hints;
use super::{Pieces, Placement, Placements, Problem, Uneven, bytes_of};

/// The cost of computing with summands, so that of equal plans the one that sums early is taken.
const SUMMAND: f64 = 2.0;
/// The most pieces of a dimension.
pub(super) const PIECES: usize = 32;

/// A way to run a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// The values that it uses, by number, and as which of their placements.
    pub(super) inputs: SmallVec<[(usize, usize); 3]>,
    /// The number of the placements of its result.
    pub(super) output: usize,
    pub(super) form: Form,
    pub(super) split: bool,
    pub(super) cost: f64,
}

/// A value: a node, or all attributes that are the same weight.
pub(super) struct ValueFacts {
    pub(super) node: NodeId,
    /// What it may lie as; all replicated first.
    pub(super) placements: Vec<Placements>,
    pub(super) bytes: f64,
    /// Whether it has a gradient.
    pub(super) gradient: bool,
    /// Whether it has no memory of its own.
    pub(super) is_view: bool,
    /// The number of the placement as parts of a sequence, if it is a sum that may become that.
    pub(super) sequence: Option<usize>,
    /// Whether its placement makes no difference: it has no tensors.
    pub(super) free: bool,
    /// Whether it is a tuple, whose tensors are changed one by one once they are taken out.
    pub(super) is_tuple: bool,
    /// Whether it is a weight, whose parts are rarely made whole again.
    pub(super) is_weight: bool,
    /// Whether they never are.
    pub(super) is_fixed: bool,
}

/// All ways to run a graph.
pub(super) struct Choices {
    pub(super) values: Vec<ValueFacts>,
    /// The number of the value of each node.
    pub(super) number: SecondaryMap<NodeId, usize>,
    /// The ways to run each value's node.
    pub(super) choices: Vec<Vec<Choice>>,
    /// The values in an order in which weights come right before their first use.
    pub(super) order: Vec<usize>,
    pub(super) uneven: Vec<Uneven>,
}

fn tensors(value: &Value) -> Vec<SmallVec<[i64; 4]>> {
    let mut found = Vec::new();
    value.for_each_tensor(&mut |tensor| {
        found.push(
            tensor
                .shape
                .iter()
                .map(|d| d.known().unwrap_or(-1))
                .collect(),
        );
    });
    found
}

fn floats(value: &Value) -> bool {
    let mut floats = false;
    value.for_each_tensor(&mut |tensor| {
        floats |= kind(tensor.dtype) >= Some(Kind::Float);
    });
    floats
}

/// A call that may be made on parts.
#[derive(Clone, Copy)]
struct Site<'c> {
    /// The number of its value.
    value: usize,
    call: &'c ShardedCall,
    /// Its cost on whole tensors.
    work: f64,
}

pub(super) struct Builder<'g, 'f> {
    pub(super) graph: &'g Graph,
    pub(super) problem: &'g Problem<'f>,
    pub(super) number: SecondaryMap<NodeId, usize>,
    pub(super) values: Vec<ValueFacts>,
    pub(super) shapes: Vec<Vec<SmallVec<[i64; 4]>>>,
    pub(super) hints: Hints,
    pub(super) uneven: Vec<Uneven>,
}

impl Choices {
    pub(super) fn of_graph(graph: &Graph, problem: &Problem<'_>) -> Result<Self, String> {
        let mut builder = Builder::new(graph, problem)?;
        builder.find_hints();
        let order = builder.order();
        let mut choices: Vec<Vec<Choice>> = vec![Vec::new(); builder.values.len()];
        for &value in &order {
            choices[value] = builder.choices_of(value)?;
            builder.open_sequence(value);
        }
        Ok(Self {
            values: builder.values,
            number: builder.number,
            choices,
            order,
            uneven: builder.uneven,
        })
    }
}

impl<'g, 'f> Builder<'g, 'f> {
    fn new(graph: &'g Graph, problem: &'g Problem<'f>) -> Result<Self, String> {
        let mut number = SecondaryMap::with_capacity(graph.id_bound());
        let mut values: Vec<ValueFacts> = Vec::new();
        let mut shapes = Vec::new();
        let mut of_weight: FxHashMap<usize, usize> = FxHashMap::default();
        for node in graph.nodes() {
            let weight = (problem.weight)(node);
            if let Some(&known) = weight.and_then(|weight| of_weight.get(&weight)) {
                number.set(node, known);
                continue;
            }
            if let Some(weight) = weight {
                of_weight.insert(weight, values.len());
            }
            let value = (problem.value)(node);
            let own = tensors(value);
            if own.iter().flatten().any(|&size| size < 0) {
                let name = graph.node(node).name();
                return Err(format!(
                    "expected sizes that are numbers, but {name} is {value}"
                ));
            }
            let gradient = match weight {
                Some(weight) => problem.weights[weight].trained,
                None => graph
                    .inputs(node)
                    .any(|input| values[number[input]].gradient),
            };
            number.set(node, values.len());
            values.push(ValueFacts {
                node,
                placements: vec![smallvec![Placement::Replicate; own.len()]],
                bytes: bytes_of(value),
                gradient: problem.training && gradient && floats(value),
                is_view: (problem.view)(node),
                sequence: None,
                free: own.is_empty(),
                is_tuple: !matches!(value, Value::Tensor(_)),
                is_weight: weight.is_some(),
                is_fixed: weight.is_some_and(|own| problem.weights[own].fixed),
            });
            shapes.push(own);
        }
        Ok(Self {
            graph,
            problem,
            number,
            values,
            shapes,
            hints: Hints::default(),
            uneven: Vec::new(),
        })
    }

    /// Values in the order of the graph, with weights right before their first use.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.values.len());
        let mut seen = vec![false; self.values.len()];
        for node in self.graph.nodes() {
            if self.graph.node(node).op() == Op::GetAttr {
                continue;
            }
            for value in self.graph.inputs(node).map(|input| self.number[input]) {
                if !std::mem::replace(&mut seen[value], true) {
                    order.push(value);
                }
            }
            let own = self.number[node];
            if !std::mem::replace(&mut seen[own], true) {
                order.push(own);
            }
        }
        // Attributes that nothing uses.
        order.extend((0..seen.len()).filter(|&value| !seen[value]));
        order
    }

    pub(super) fn call(&self, node: NodeId) -> Option<&'f ShardedCall> {
        (self.problem.call)(node)
    }

    pub(super) fn divides(&self, pieces: &[i64]) -> bool {
        let even = |&size: &i64| size > 0 && size % self.problem.ranks == 0;
        !pieces.is_empty() && pieces.iter().all(even)
    }

    pub(super) fn size_of(&self, call: &ShardedCall, leaf: usize, dim: usize) -> i64 {
        let (node, tensor) = call.inputs[leaf];
        self.shapes[self.number[node]][tensor][dim]
    }

    /// The dimension of a run, with its pieces, that is sharded if its elements are in these pieces.
    pub(super) fn fold(&self, run: &Run, pieces: &[i64]) -> Option<(usize, Pieces)> {
        for (at, &size) in run.sizes.iter().enumerate() {
            let outer = usize::try_from(run.sizes[..at].iter().product::<i64>()).ok()?;
            let inner: i64 = run.sizes[at + 1..].iter().product();
            if size == 1 || outer == 0 || !pieces.len().is_multiple_of(outer) {
                continue;
            }
            let each = pieces.len() / outer;
            let first = &pieces[..each];
            let repeats = pieces.chunks(each).all(|chunk| chunk == first);
            if !repeats || first.iter().sum::<i64>() != size * inner {
                continue;
            }
            if first.iter().any(|piece| piece % inner != 0) {
                continue;
            }
            let own: Pieces = first.iter().map(|piece| piece / inner).collect();
            if self.divides(&own) {
                return Some((run.first + at, own));
            }
        }
        None
    }

    /// The ways to run a node, after which its value may lie as their results.
    fn choices_of(&mut self, value: usize) -> Result<Vec<Choice>, String> {
        let node = self.values[value].node;
        let view = self.graph.node(node);
        if let Some(weight) = (self.problem.weight)(node) {
            return self.of_weight(value, weight);
        }
        let mut found: Vec<Choice> = Vec::new();
        let work = match view.op() {
            Op::CallFunction | Op::CallMethod | Op::CallModule => (self.problem.work)(node),
            _ => 0.0,
        };
        let call = self.call(node);
        if let Some(form) = call.and_then(|call| self.reads_type(value, call)) {
            // Whatever a rank has of the tensor.
            return Ok(vec![Choice {
                inputs: SmallVec::new(),
                output: 0,
                form,
                split: false,
                cost: 0.0,
            }]);
        }
        let mut whole: SmallVec<[(usize, usize); 3]> = SmallVec::new();
        for input in self.graph.inputs(node).map(|input| self.number[input]) {
            if !whole.contains(&(input, 0)) && !self.values[input].free {
                whole.push((input, 0));
            }
        }
        found.push(Choice {
            inputs: whole,
            output: 0,
            form: Form::Plain,
            split: false,
            cost: work,
        });
        let Some(call) = call.filter(|_| !(self.problem.whole)(node)) else {
            return Ok(found);
        };
        if let Some(item) = self.item_of_tuple(node) {
            let (tuple, at) = item;
            for number in 1..self.values[tuple].placements.len() {
                let own = self.values[tuple].placements[number][at].clone();
                let output = self.placed(value, smallvec![own]);
                found.push(Choice {
                    inputs: smallvec![(tuple, number)],
                    output,
                    form: Form::Plain,
                    split: true,
                    cost: 0.0,
                });
            }
            return Ok(found);
        }
        let site = Site { value, call, work };
        for relation in &call.relations {
            match relation {
                Relation::Along {
                    inputs,
                    outputs,
                    form,
                } => self.along(site, (inputs, outputs), *form, &mut found),
                Relation::Regroup { inputs, outputs } => {
                    self.regroup(site, (inputs, outputs), &mut found);
                }
            }
        }
        Ok(found)
    }

    /// For a call that reads no elements of a tensor: whether it reads sizes.
    fn reads_type(&self, value: usize, call: &ShardedCall) -> Option<Form> {
        if !self.values[value].free {
            return None;
        }
        if is_operator!(call.operator, "size" | "numel") {
            return Some(Form::Sizes);
        }
        if is_operator!(call.operator, "getattr") {
            let view = self.graph.node(self.values[value].node);
            let Some(corsac_ir::Arg::Str(name)) = view.args().get(1) else {
                return None;
            };
            // Other attributes are read of whole tensors.
            return match self.graph.text(*name) {
                "shape" => Some(Form::Sizes),
                "dtype" | "device" | "layout" | "ndim" | "requires_grad" | "itemsize"
                | "is_cuda" | "is_meta" => Some(Form::Plain),
                _ => None,
            };
        }
        is_operator!(call.operator, "dim").then_some(Form::Plain)
    }

    /// The tuple of which a node takes a tensor, and the number of that tensor.
    fn item_of_tuple(&self, node: NodeId) -> Option<(usize, usize)> {
        let call = self.call(node)?;
        let view = self.graph.node(node);
        let tuple = view.args().first()?.as_node()?;
        if !is_operator!(call.operator, "getitem") {
            return None;
        }
        let items = (self.problem.value)(tuple).as_items()?;
        let corsac_ir::Arg::Int(at) = view.args().get(1)? else {
            return None;
        };
        let at = if *at < 0 {
            *at + items.len() as i64
        } else {
            *at
        };
        let at = usize::try_from(at).ok().filter(|&at| at < items.len())?;
        matches!(items[at], Value::Tensor(_)).then_some(())?;
        let mut before = 0;
        for item in &items[..at] {
            item.for_each_tensor(&mut |_| before += 1);
        }
        Some((self.number[tuple], before))
    }

    fn of_weight(&mut self, value: usize, weight: usize) -> Result<Vec<Choice>, String> {
        let facts = &self.problem.weights[weight];
        let bytes = self.values[value].bytes * self.problem.kept;
        let choice = |output, cost| Choice {
            inputs: SmallVec::new(),
            output,
            form: Form::Plain,
            split: false,
            cost,
        };
        let shape = self.shapes[value].first().cloned().unwrap_or_default();
        let mut wanted: Vec<(usize, Pieces)> = Vec::new();
        if facts.shards {
            wanted.extend(
                shape
                    .iter()
                    .enumerate()
                    .map(|(dim, &size)| (dim, smallvec![size])),
            );
            wanted.extend(self.hints_of(value, 0).to_vec());
        }
        let mut found = Vec::new();
        match facts.along {
            None => found.push(choice(0, bytes)),
            Some(along) => wanted.retain(|(dim, _)| *dim == along),
        }
        for (dim, pieces) in wanted {
            if self.divides(&pieces) {
                let output = self.placed(value, smallvec![Placement::Shard { dim, pieces }]);
                let own = choice(output, bytes / self.problem.ranks as f64);
                if !found.contains(&own) {
                    found.push(own);
                }
            }
        }
        if found.is_empty() {
            let name = self.graph.node(self.values[value].node).target_name();
            let (along, ranks) = (facts.along.unwrap_or(0), self.problem.ranks);
            return Err(format!(
                "{name} of sizes {shape:?} cannot be sharded along dimension {along} among {ranks} ranks"
            ));
        }
        Ok(found)
    }

    /// The number of these placements among those of a value, to which they are added.
    pub(super) fn placed(&mut self, value: usize, own: Placements) -> usize {
        let known = &mut self.values[value].placements;
        known
            .iter()
            .position(|other| *other == own)
            .unwrap_or_else(|| {
                known.push(own);
                known.len() - 1
            })
    }

    /// The choice with these placements of the tensors among the arguments and of the results.
    fn choice(
        &mut self,
        site: Site<'_>,
        inputs: &[Placement],
        outputs: Placements,
        form: Form,
        found: &mut Vec<Choice>,
    ) {
        let Site { value, call, work } = site;
        let mut wanted: SmallVec<[(usize, Placements); 3]> = SmallVec::new();
        for (&(node, tensor), placement) in call.inputs.iter().zip(inputs) {
            let input = self.number[node];
            let at = match wanted.iter().position(|(own, _)| *own == input) {
                Some(at) => at,
                None => {
                    let count = self.shapes[input].len();
                    wanted.push((input, smallvec![Placement::Replicate; count]));
                    wanted.len() - 1
                }
            };
            let own = &mut wanted[at].1[tensor];
            let taken = call.inputs.iter().zip(inputs);
            let taken = taken.filter(|((other, number), _)| (*other, *number) == (node, tensor));
            if taken.clone().any(|(_, other)| other != placement) {
                // One value as two things at a time.
                return;
            }
            *own = placement.clone();
        }
        let computes = |placement: &Placement| matches!(placement, Placement::Shard { .. });
        let parts = inputs.iter().chain(&outputs).any(computes);
        let sums = inputs
            .iter()
            .chain(&outputs)
            .any(|own| *own == Placement::Partial);
        let late = wanted
            .iter()
            .any(|(_, own)| own.contains(&Placement::Partial));
        let cost = if parts {
            work / self.problem.ranks as f64
        } else {
            work
        };
        let inputs = wanted.into_iter();
        let inputs: SmallVec<[(usize, usize); 3]> = inputs
            .map(|(input, own)| (input, self.placed(input, own)))
            .collect();
        let own = Choice {
            inputs,
            output: self.placed(value, outputs),
            form,
            split: parts || sums,
            cost: cost + if late { SUMMAND } else { 0.0 },
        };
        if !found.contains(&own) {
            found.push(own);
        }
    }

    /// The placements that a tensor among the arguments may have.
    fn candidates(&self, call: &ShardedCall, leaf: usize) -> impl Iterator<Item = &Placement> {
        let (node, tensor) = call.inputs[leaf];
        let known = &self.values[self.number[node]].placements;
        known.iter().filter_map(move |own| own.get(tensor))
    }

    fn along(
        &mut self,
        site: Site<'_>,
        (inputs, outputs): (&[Side], &[Side]),
        form: Form,
        found: &mut Vec<Choice>,
    ) {
        let Site { value, call, .. } = site;
        let mut all: Vec<Pieces> = Vec::new();
        let mut sums = false;
        for (leaf, side) in inputs.iter().enumerate() {
            match *side {
                Side::Whole => {}
                Side::Sum => {
                    sums |= self
                        .candidates(call, leaf)
                        .any(|own| *own == Placement::Partial);
                }
                Side::Dim(at) => {
                    for own in self.candidates(call, leaf) {
                        if let Placement::Shard { dim, pieces } = own
                            && *dim == at
                        {
                            let whole = pieces.len() == 1;
                            let own = if whole { Pieces::new() } else { pieces.clone() };
                            if !all.contains(&own) {
                                all.push(own);
                            }
                        }
                    }
                }
            }
        }
        let opens = !inputs.iter().any(|side| *side != Side::Whole);
        if opens {
            for (tensor, side) in outputs.iter().enumerate() {
                if let Side::Dim(dim) = side
                    && self
                        .hints_of(value, tensor)
                        .iter()
                        .any(|(at, own)| at == dim && own.len() == 1)
                {
                    all = vec![Pieces::new()];
                }
            }
        }
        let summed = !inputs.iter().any(|side| matches!(side, Side::Dim(_))) && !opens;
        if summed && sums {
            all = vec![Pieces::new()];
        }
        for pieces in all {
            let placed = |side: Side, size: &dyn Fn(usize) -> i64| match side {
                Side::Whole => Some(Placement::Replicate),
                Side::Sum => Some(Placement::Partial),
                Side::Dim(dim) => {
                    let size = size(dim);
                    let pieces = match pieces.iter().sum::<i64>() {
                        0 => smallvec![size],
                        sum if sum == size => pieces.clone(),
                        _ => return None,
                    };
                    self.divides(&pieces)
                        .then_some(Placement::Shard { dim, pieces })
                }
            };
            let own = inputs.iter().enumerate();
            let own = own.map(|(leaf, &side)| placed(side, &|dim| self.size_of(call, leaf, dim)));
            let shapes = &self.shapes[value];
            let made = outputs.iter().zip(shapes);
            let made = made.map(|(&side, shape)| placed(side, &|dim| shape[dim]));
            let (own, made) = (own.collect::<Option<Vec<_>>>(), made.collect());
            if let (Some(own), Some(made)) = (own, made) {
                self.choice(site, &own, made, form, found);
            }
        }
    }

    fn regroup(
        &mut self,
        site: Site<'_>,
        (inputs, outputs): (&[Run], &[Run]),
        found: &mut Vec<Choice>,
    ) {
        let Site { value, call, .. } = site;
        // For each argument its placements along the run, with the pieces of its elements.
        let mut options: Vec<Vec<(Placement, Vec<i64>)>> = Vec::new();
        for run in inputs {
            let Some(leaf) = run.tensor else { return };
            let mut own = Vec::new();
            for placement in self.candidates(call, leaf) {
                if let Placement::Shard { dim, pieces } = placement
                    && let Some(at) = dim.checked_sub(run.first)
                    && at < run.sizes.len()
                {
                    let most = self.most_pieces();
                    own.push((placement.clone(), spread(run, at, pieces, most)));
                }
            }
            options.push(own);
        }
        let most = options.iter().map(Vec::len).max().unwrap_or(0);
        for number in 0..most {
            let mut own = vec![Placement::Replicate; call.inputs.len()];
            let mut pieces: Vec<i64> = Vec::new();
            for (run, options) in inputs.iter().zip(&options) {
                let Some((placement, mine)) = options.get(number).or(options.last()) else {
                    return;
                };
                if let Some(leaf) = run.tensor {
                    own[leaf] = placement.clone();
                }
                pieces.extend(mine);
            }
            if pieces.len() > self.most_pieces() {
                continue;
            }
            let mut made: Placements = smallvec![Placement::Replicate; self.shapes[value].len()];
            let mut rest = pieces.as_slice();
            let mut fits = true;
            for run in outputs {
                let Some((mine, later)) = head(rest, run.len()) else {
                    fits = false;
                    break;
                };
                rest = later;
                let Some(tensor) = run.tensor else { continue };
                match self.fold(run, mine) {
                    Some((dim, pieces)) => made[tensor] = Placement::Shard { dim, pieces },
                    None => {
                        fits = false;
                        let node = self.values[value].node;
                        let uneven = Uneven {
                            node,
                            size: run.sizes.iter().copied().find(|&own| own > 1).unwrap_or(1),
                        };
                        if run.sizes.len() > 1 && !self.uneven.contains(&uneven) {
                            self.uneven.push(uneven);
                        }
                        break;
                    }
                }
            }
            if fits {
                self.choice(site, &own, made, Form::Plain, found);
            }
        }
    }
}

/// The pieces of the elements of a run of which one dimension is in these pieces; some more than `most` if
/// they are more than that.
pub(super) fn spread(run: &Run, at: usize, pieces: &[i64], most: usize) -> Vec<i64> {
    let outer: i64 = run.sizes[..at].iter().product();
    let inner: i64 = run.sizes[at + 1..].iter().product();
    let outer = usize::try_from(outer).unwrap_or(usize::MAX).min(most + 1);
    let once = pieces.iter().map(|piece| piece * inner);
    std::iter::repeat_n(once, outer).flatten().collect()
}

/// The first pieces, which are `len` elements together, and the others.
pub(super) fn head(pieces: &[i64], len: i64) -> Option<(&[i64], &[i64])> {
    let mut sum = 0;
    for (at, piece) in pieces.iter().enumerate() {
        sum += piece;
        if sum == len {
            return Some(pieces.split_at(at + 1));
        }
        if sum > len {
            return None;
        }
    }
    None
}
