//! Makes graphs of the parts, and the graph that calls them.

use rustc_hash::FxHashMap;

use super::error::SplitError;
use super::interface::Crossing;
use super::parts::{Order, Parts, Quotient, Waits};
use crate::arg::Arg;
use crate::entity::{EntityId, ExternalId, FunctionId, NodeId, PartId};
use crate::graph::{Graph, NodeSpec, Translation};
use crate::op::{Op, Target};
use crate::{Symbol, ThinVec};

/// The place of the inputs of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Before everything else; attributes that the part reads itself come after them.
    Front,
    /// Each right before the first node that uses it, attributes as well.
    AtFirstUse,
}

/// The names of the inputs of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputNames {
    /// As the values that they stand for.
    Original,
    /// `arg_0`, `arg_1`, …
    Numbered,
}

/// The names of the values of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueNames {
    /// As in the graph that is split.
    Original,
    /// After their targets, anew.
    AfterTarget,
}

/// The form of the values that a part returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// One value by itself, several as a tuple.
    Plain,
    /// A tuple, also of one value.
    Tuple,
    /// A list, also of one value.
    List,
}

/// Style of the graphs of parts.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The place of inputs.
    pub inputs: Inputs,
    /// The names of inputs.
    pub input_names: InputNames,
    /// The names of other values.
    pub value_names: ValueNames,
    /// Whether dots in the names of called modules become underscores.
    pub flat_targets: bool,
    /// The form of the returned values.
    pub returns: Returns,
}

/// The place where the calling graph reads attributes that it passes to parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributePlace {
    /// All attributes of the graph, in their order among the inputs.
    Front,
    /// Right before the call of the first part that takes them.
    BeforeUse,
    /// Nowhere but for the result: the target is then the name of the value.
    ResultOnly,
}

/// Style of the calling graph.
#[derive(Clone, Copy, Debug)]
pub struct ParentStyle {
    /// The place where attributes are read.
    pub attributes: AttributePlace,
    /// Whether inputs have the names of their values for targets, and so for parameters.
    pub inputs_by_name: bool,
    /// Whether inputs keep their default values.
    pub defaults: bool,
}

/// The order in which the calling graph calls the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// One in which they can run.
    Sorted(Order),
    /// That of their ids, without checking that they can run.
    ById,
}

/// A stretch of the program in which some mode is on, such as automatic casting. Nodes that turn it
/// on and off are copied into each part with nodes of the stretch.
#[derive(Clone, Debug)]
pub struct Region {
    /// The node that turns it on.
    pub enter: NodeId,
    /// The node that turns it off, with the value of `enter` as its only argument. Without one,
    /// the mode is on until another one is.
    pub exit: Option<NodeId>,
    /// The parts with nodes of the stretch, in order. The first one has `enter`, the last `exit`.
    pub parts: Vec<PartId>,
}

/// Options of a split.
#[derive(Clone)]
pub struct Options<'a> {
    /// The name of each part, by which the calling graph calls it.
    pub names: &'a [String],
    /// The style of the parts.
    pub style: Style,
    /// The style of the calling graph.
    pub parent: ParentStyle,
    /// The order of the calls.
    pub sequence: Sequence,
    /// Whether parts read an attribute themselves; others are passed to them.
    pub local: &'a dyn Fn(NodeId) -> bool,
    /// Values that are passed along with a value, such as the symbols in its shape.
    pub companions: FxHashMap<NodeId, Vec<NodeId>>,
    /// Stretches with a mode of their own.
    pub regions: Vec<Region>,
    /// Nodes that have to run after others that they do not use.
    pub waits: Waits,
}

impl<'a> Options<'a> {
    /// Options of `split_module`, for parts with these names.
    #[must_use]
    pub fn new(names: &'a [String]) -> Self {
        Self {
            names,
            style: Style {
                inputs: Inputs::Front,
                input_names: InputNames::Original,
                value_names: ValueNames::AfterTarget,
                flat_targets: true,
                returns: Returns::Plain,
            },
            parent: ParentStyle {
                attributes: AttributePlace::Front,
                inputs_by_name: false,
                defaults: true,
            },
            sequence: Sequence::Sorted(Order::DepthFirst),
            local: &|_| false,
            companions: FxHashMap::default(),
            regions: Vec::new(),
            waits: Waits::default(),
        }
    }

    /// Options of `split_by_tags`: parts in the order of their ids, names and targets as they were,
    /// each part reading its attributes.
    #[must_use]
    pub fn tagged(names: &'a [String]) -> Self {
        let mut options = Self::new(names);
        options.style = Style {
            inputs: Inputs::AtFirstUse,
            input_names: InputNames::Original,
            value_names: ValueNames::Original,
            flat_targets: false,
            returns: Returns::Plain,
        };
        options.parent = ParentStyle {
            attributes: AttributePlace::ResultOnly,
            inputs_by_name: true,
            defaults: false,
        };
        options.sequence = Sequence::ById;
        options.local = &|_| true;
        options
    }
}

/// A graph that was made from another, with the correspondence of their contents.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The graph.
    pub graph: Graph,
    /// The values of the original that its inputs stand for.
    pub inputs: Vec<NodeId>,
    /// The values of the original that it returns.
    pub outputs: Vec<NodeId>,
    /// Nodes of the original with their copies, inputs and attributes included.
    pub copies: Vec<(NodeId, NodeId)>,
    /// The targets of modules and attributes, here and in the original, in the order of their first
    /// use.
    pub targets: Vec<(String, String)>,
    /// Host values of the original with their counterparts here.
    pub externals: Vec<(ExternalId, ExternalId)>,
    /// Functions of the original with their counterparts here.
    pub functions: Vec<(FunctionId, FunctionId)>,
}

/// A graph in parts.
#[derive(Clone, Debug)]
pub struct Split {
    /// The graph that calls the parts. Its `outputs` are empty, and so are its `inputs`.
    pub parent: Part,
    /// The parts, by id.
    pub parts: Vec<Part>,
    /// The order in which they are called.
    pub order: Vec<PartId>,
    /// The node of the calling graph that calls each part.
    pub calls: Vec<NodeId>,
}

/// Splits a graph: each part becomes a graph of its own, and one more graph calls them.
///
/// A part with one output returns it, unless the style says otherwise; one with several returns a
/// tuple, which the calling graph unpacks by `operator.getitem`. Origins and type annotations go
/// with the nodes; [`Part::copies`] serves to carry over other data of nodes.
///
/// Nodes in no part have to be inputs, attributes and outputs.
///
/// # Errors
/// [`SplitError::Cycle`] if no order of the parts is right, [`SplitError::Missing`] if a value is
/// used before it is defined or a call is in no part, [`SplitError::Names`].
pub fn split(graph: &Graph, parts: &Parts, options: &Options<'_>) -> Result<Split, SplitError> {
    if options.names.len() != parts.len() {
        return Err(SplitError::Names {
            parts: parts.len(),
            names: options.names.len(),
        });
    }
    let mut crossing = Crossing::new(parts);
    let mut quotient = Quotient::new(parts.len());
    for user in graph.nodes() {
        // Nodes that turn a mode on or off are copied to where they are needed.
        if options
            .regions
            .iter()
            .any(|r| r.enter == user || r.exit == Some(user))
        {
            continue;
        }
        let used = parts.part_of(user);
        for &earlier in options.waits.of(user) {
            if let (Some(before), Some(after)) = (parts.part_of(earlier), used) {
                quotient.add_edge(before.index(), after.index());
            }
        }
        for input in graph.inputs(user) {
            if !crossing.record(input, used) {
                continue;
            }
            let Some(used) = used else { continue };
            if let Some(defined) = parts.part_of(input) {
                quotient.add_edge(defined.index(), used.index());
            }
            for &companion in options.companions.get(&input).into_iter().flatten() {
                if crossing.record(companion, Some(used))
                    && let Some(defined) = parts.part_of(companion)
                {
                    quotient.add_edge(defined.index(), used.index());
                }
            }
        }
    }
    let order = match options.sequence {
        Sequence::ById => parts.ids().collect(),
        Sequence::Sorted(order) => parts.sorted(graph, order, quotient)?,
    };
    let mut writer = Writer {
        graph,
        style: options.style,
        translation: Translation::new(),
    };
    let mut made = Vec::with_capacity(parts.len());
    let interfaces = crossing.interfaces.into_iter();
    for ((part, members), interface) in parts.ids().zip(parts.members(graph)).zip(interfaces) {
        let is_local = |&&n: &&NodeId| is_attribute(graph, n) && (options.local)(n);
        let locals: Vec<NodeId> = interface.inputs.iter().filter(is_local).copied().collect();
        let inputs = interface.inputs.into_iter();
        let plan = Body {
            inputs: inputs.filter(|n| !is_local(&n)).collect(),
            locals,
            members,
            outputs: interface.outputs,
            regions: modes_of(&options.regions, part),
        };
        made.push(writer.part(plan)?);
    }
    let (parent, calls) = writer.parent(&made, &order, options)?;
    Ok(Split {
        parent,
        parts: made,
        order,
        calls,
    })
}

/// Makes a graph of `members`, which takes `inputs` and returns `outputs`, all nodes of `graph`.
///
/// Nodes are copied in the order given.
///
/// # Errors
/// [`SplitError::Missing`] if a member uses a node that is neither an input nor an earlier member.
pub fn extract(
    graph: &Graph,
    inputs: Vec<NodeId>,
    members: Vec<NodeId>,
    outputs: Vec<NodeId>,
    style: Style,
) -> Result<Part, SplitError> {
    let mut writer = Writer {
        graph,
        style,
        translation: Translation::new(),
    };
    writer.part(Body {
        inputs,
        locals: Vec::new(),
        members,
        outputs,
        regions: Vec::new(),
    })
}

/// The handling of a mode in one part.
struct Mode {
    enter: NodeId,
    /// Whether the part has to turn it on itself.
    turn_on: bool,
    /// The node that turns it off, if the part has to do that itself.
    turn_off: Option<NodeId>,
}

fn modes_of(regions: &[Region], part: PartId) -> Vec<Mode> {
    let modes = regions.iter().filter(|region| region.parts.contains(&part));
    let mode = |region: &Region| Mode {
        enter: region.enter,
        turn_on: region.parts.first() != Some(&part),
        turn_off: region.exit.filter(|_| region.parts.last() != Some(&part)),
    };
    modes.map(mode).collect()
}

fn is_attribute(graph: &Graph, node: NodeId) -> bool {
    graph.node(node).op() == Op::GetAttr
}

/// The contents of a part, as nodes of the original.
struct Body {
    inputs: Vec<NodeId>,
    locals: Vec<NodeId>,
    members: Vec<NodeId>,
    outputs: Vec<NodeId>,
    regions: Vec<Mode>,
}

struct Writer<'g> {
    graph: &'g Graph,
    style: Style,
    translation: Translation,
}

/// A graph that is being written, with the counterparts of the nodes of the original.
#[derive(Default)]
struct Draft {
    part: Part,
    values: FxHashMap<NodeId, NodeId>,
    /// Number of inputs that were given a numbered name.
    numbered: usize,
}

impl Draft {
    fn enter(&mut self, old: NodeId, new: NodeId) {
        self.values.insert(old, new);
        self.part.copies.push((old, new));
    }

    fn value(&self, from: &Graph, old: NodeId) -> Result<Arg, SplitError> {
        value_in(&self.values, from, old, None)
    }
}

/// The counterpart in a part of the node `old` of `from`, which `user` uses, or else the caller.
fn value_in(
    values: &FxHashMap<NodeId, NodeId>,
    from: &Graph,
    old: NodeId,
    user: Option<NodeId>,
) -> Result<Arg, SplitError> {
    let known = values.get(&old);
    known
        .map(|&new| Arg::Node(new))
        .ok_or_else(|| SplitError::Missing {
            node: old,
            name: from.node(old).name().to_owned(),
            user: user.map(|user| from.node(user).name().to_owned()),
        })
}

impl Writer<'_> {
    fn part(&mut self, body: Body) -> Result<Part, SplitError> {
        let mut draft = Draft::default();
        for mode in body.regions.iter().filter(|mode| mode.turn_on) {
            self.copy(&mut draft, mode.enter, None)?;
        }
        let mut waiting: FxHashMap<NodeId, Standing> = FxHashMap::default();
        let inputs = body.inputs.iter().map(|&n| (n, Standing::Input));
        let locals = body.locals.iter().map(|&n| (n, Standing::Attribute));
        for (node, standing) in inputs.chain(locals) {
            match self.style.inputs {
                Inputs::Front => self.stand_in(&mut draft, node, standing)?,
                Inputs::AtFirstUse => {
                    waiting.insert(node, standing);
                }
            }
        }
        for &member in &body.members {
            if !waiting.is_empty() {
                for input in self.graph.inputs(member) {
                    if let Some(standing) = waiting.remove(&input) {
                        self.stand_in(&mut draft, input, standing)?;
                    }
                }
            }
            let name = match self.style.value_names {
                ValueNames::Original => Some(member),
                ValueNames::AfterTarget => None,
            };
            self.copy(&mut draft, member, name)?;
        }
        for mode in body.regions.iter().rev() {
            if let Some(exit) = mode.turn_off {
                self.copy(&mut draft, exit, None)?;
            }
        }
        let outputs = body
            .outputs
            .iter()
            .map(|&node| draft.value(self.graph, node));
        let mut outputs = outputs.collect::<Result<ThinVec<_>, _>>()?;
        let result = match (self.style.returns, outputs.len()) {
            (Returns::Plain, 1) => outputs.swap_remove(0),
            (Returns::Plain | Returns::Tuple, _) => Arg::tuple(outputs)?,
            (Returns::List, _) => Arg::list(outputs)?,
        };
        draft.part.graph.output(result)?;
        (draft.part.inputs, draft.part.outputs) = (body.inputs, body.outputs);
        Ok(self.finish(draft))
    }

    fn finish(&mut self, mut draft: Draft) -> Part {
        draft.part.externals = self.translation.take_new_externals();
        draft.part.functions = self.translation.take_new_functions();
        self.translation.forget();
        draft.part
    }

    /// Adds an input or an attribute of a part for `node`.
    fn stand_in(
        &mut self,
        draft: &mut Draft,
        node: NodeId,
        standing: Standing,
    ) -> Result<(), SplitError> {
        let view = self.graph.node(node);
        let target = match (standing, self.style.input_names) {
            (Standing::Attribute, _) => {
                let target = view.target_name();
                note_target(&mut draft.part, target, target);
                target.to_owned()
            }
            (Standing::Input, InputNames::Original) => view.name().to_owned(),
            (Standing::Input, InputNames::Numbered) => {
                let number = draft.numbered;
                draft.numbered += 1;
                format!("arg_{number}")
            }
        };
        let to = &mut draft.part.graph;
        let ty = view
            .ty()
            .map(|ty| self.translation.external(self.graph, to, ty));
        let spec = NodeSpec {
            op: match standing {
                Standing::Input => Op::Placeholder,
                Standing::Attribute => Op::GetAttr,
            },
            target: Target::Name(to.intern(&target)),
            args: ThinVec::new(),
            kwargs: ThinVec::new(),
            ty,
        };
        self.create(draft, node, spec, None)
    }

    /// Copies a node; the copy gets the name of the node `name`.
    fn copy(
        &mut self,
        draft: &mut Draft,
        node: NodeId,
        name: Option<NodeId>,
    ) -> Result<(), SplitError> {
        let Draft { part, values, .. } = draft;
        let from = self.graph;
        let mut value = |old| value_in(values, from, old, Some(node));
        let mut spec = self
            .translation
            .spec(from, &mut part.graph, node, &mut value)?;
        if spec.op == Op::CallModule {
            let old = from.node(node).target_name();
            if self.style.flat_targets && old.contains('.') {
                let new = old.replace('.', "_");
                spec.target = Target::Name(part.graph.intern(&new));
                note_target(part, &new, old);
            } else {
                note_target(part, old, old);
            }
        }
        self.create(draft, node, spec, name)
    }

    fn create(
        &mut self,
        draft: &mut Draft,
        node: NodeId,
        spec: NodeSpec,
        name: Option<NodeId>,
    ) -> Result<(), SplitError> {
        let to = &mut draft.part.graph;
        let name = name.map(|node| self.graph.node(node).name());
        let new = to.create(spec, name)?;
        self.stand_for(draft, node, new);
        Ok(())
    }

    /// Enters the new node `new` as the counterpart of `node`, with the same origin.
    fn stand_for(&mut self, draft: &mut Draft, node: NodeId, new: NodeId) {
        let to = &mut draft.part.graph;
        let origin = self.graph.origin(node);
        let origin = self.translation.origin(self.graph, to, origin);
        to.set_origin(new, origin);
        draft.enter(node, new);
    }

    fn parent(
        &mut self,
        parts: &[Part],
        order: &[PartId],
        options: &Options<'_>,
    ) -> Result<(Part, Vec<NodeId>), SplitError> {
        let style = options.parent;
        let mut draft = Draft::default();
        let results = self.results();
        for node in self.graph.nodes() {
            match self.graph.node(node).op() {
                Op::Placeholder => self.parent_input(&mut draft, node, style)?,
                Op::GetAttr if style.attributes == AttributePlace::Front => {
                    self.parent_attribute(&mut draft, node, false)?;
                }
                _ => {}
            }
        }
        if style.attributes == AttributePlace::ResultOnly {
            for &node in results.iter().filter(|&&n| is_attribute(self.graph, n)) {
                self.parent_attribute(&mut draft, node, true)?;
            }
        }
        let getitem = draft.part.graph.function("operator.getitem");
        let mut calls = vec![NodeId::ROOT; parts.len()];
        for &id in order {
            let part = &parts[id.index()];
            if style.attributes == AttributePlace::BeforeUse {
                for &input in &part.inputs {
                    if is_attribute(self.graph, input) && !draft.values.contains_key(&input) {
                        self.parent_attribute(&mut draft, input, false)?;
                    }
                }
            }
            let inputs = part
                .inputs
                .iter()
                .map(|&input| draft.value(self.graph, input));
            let inputs = inputs.collect::<Result<ThinVec<_>, _>>()?;
            let call = draft
                .part
                .graph
                .call_module(&options.names[id.index()], inputs)?;
            calls[id.index()] = call;
            if let ([output], Returns::Plain) = (&*part.outputs, options.style.returns) {
                self.stand_for(&mut draft, *output, call);
                continue;
            }
            for (index, &output) in part.outputs.iter().enumerate() {
                let index = i64::try_from(index).unwrap_or(i64::MAX);
                let item = [Arg::Node(call), Arg::Int(index)];
                let item = draft.part.graph.call_function(getitem, item)?;
                self.stand_for(&mut draft, output, item);
            }
        }
        if order.is_empty() && style.attributes == AttributePlace::BeforeUse {
            for &node in results.iter().filter(|&&n| is_attribute(self.graph, n)) {
                self.parent_attribute(&mut draft, node, false)?;
            }
        }
        for node in self.graph.nodes() {
            let view = self.graph.node(node);
            if view.op() != Op::Output {
                continue;
            }
            let Draft { part, values, .. } = &mut draft;
            let from = self.graph;
            let mut value = |old| value_in(values, from, old, Some(node));
            let result = view.args().first().unwrap_or(&Arg::None);
            let result = self
                .translation
                .arg(from, &mut part.graph, result, &mut value)?;
            part.graph.output(result)?;
        }
        Ok((self.finish(draft), calls))
    }

    /// The nodes that the output nodes use, each once, in order.
    fn results(&self) -> Vec<NodeId> {
        let outputs = self.graph.nodes();
        let outputs = outputs.filter(|&n| self.graph.node(n).op() == Op::Output);
        let mut results: Vec<NodeId> = Vec::new();
        for output in outputs {
            let new = self.graph.inputs(output).filter(|n| !results.contains(n));
            let new: Vec<NodeId> = new.collect();
            results.extend(new);
        }
        results
    }

    fn parent_input(
        &mut self,
        draft: &mut Draft,
        node: NodeId,
        style: ParentStyle,
    ) -> Result<(), SplitError> {
        let view = self.graph.node(node);
        let to = &mut draft.part.graph;
        let target: Symbol = if style.inputs_by_name {
            to.intern(view.name())
        } else {
            to.intern(view.target_name())
        };
        let mut none = |node: NodeId| {
            let name = view.graph().node(node).name().to_owned();
            Err(SplitError::Missing {
                node,
                name,
                user: None,
            })
        };
        let defaults = view.args().iter().filter(|_| style.defaults);
        let args = defaults.map(|arg| self.translation.arg(self.graph, to, arg, &mut none));
        let spec = NodeSpec {
            op: Op::Placeholder,
            target: Target::Name(target),
            args: args.collect::<Result<_, SplitError>>()?,
            kwargs: ThinVec::new(),
            ty: view
                .ty()
                .map(|ty| self.translation.external(self.graph, to, ty)),
        };
        self.create(draft, node, spec, None)
    }

    fn parent_attribute(
        &mut self,
        draft: &mut Draft,
        node: NodeId,
        by_name: bool,
    ) -> Result<(), SplitError> {
        let view = self.graph.node(node);
        let to = &mut draft.part.graph;
        let target = if by_name {
            view.name()
        } else {
            view.target_name()
        };
        let ty = view.ty().filter(|_| by_name);
        let spec = NodeSpec {
            op: Op::GetAttr,
            target: Target::Name(to.intern(target)),
            args: ThinVec::new(),
            kwargs: ThinVec::new(),
            ty: ty.map(|ty| self.translation.external(self.graph, to, ty)),
        };
        note_target(&mut draft.part, target, view.target_name());
        self.create(draft, node, spec, None)
    }
}

/// The kind of node that stands in a part for a value from outside.
#[derive(Clone, Copy)]
enum Standing {
    Input,
    Attribute,
}

fn note_target(part: &mut Part, new: &str, old: &str) {
    part.targets.push((new.to_owned(), old.to_owned()));
}
