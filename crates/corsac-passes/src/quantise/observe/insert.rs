//! Insertion of observers, node by node.

use corsac_ir::{Arg, Graph, InsertPoint, NodeId, Op, ThinVec};
use rustc_hash::{FxHashMap, FxHashSet};

use super::matched::{Match, Matched, Matches};
use super::requirements::{Required, Requirements, ValueType};
use super::results::split;
use super::support::is_supported;
use super::{Backend, Observed, Part, Placed, Request};
use crate::error::PassError;
use crate::quantise::dtypes::{FLOAT, QUINT8, is_observed};

/// The prefix of the names of observers.
const PREFIX: &str = "activation_post_process_";

pub(crate) struct Insertion<'a> {
    backend: &'a Backend,
    request: &'a Request,
    matches: &'a Matches,
    requirements: Requirements,
    observed: Observed,
    /// The places of observers in the list, by their nodes.
    by_node: FxHashMap<NodeId, usize>,
    /// The nodes that are to be quantised.
    seen: FxHashSet<NodeId>,
    next: usize,
    next_stub: usize,
}

impl<'a> Insertion<'a> {
    pub(crate) fn new(
        backend: &'a Backend,
        request: &'a Request,
        matches: &'a Matches,
        requirements: Requirements,
    ) -> Self {
        Self {
            backend,
            request,
            matches,
            requirements,
            observed: Observed::default(),
            by_node: FxHashMap::default(),
            seen: FxHashSet::default(),
            next: 0,
            next_stub: 0,
        }
    }

    pub(crate) fn finish(self) -> Observed {
        self.observed
    }

    /// Puts observers on inputs and result of a node.
    pub(crate) fn visit(&mut self, graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
        let matches = self.matches;
        let (Some(found), Some(qconfig)) = (
            matches.of(node),
            self.request.choices.get(&node).copied().flatten(),
        ) else {
            return Ok(());
        };
        let choice = Some(qconfig);
        if !is_supported(
            graph,
            self.backend,
            self.request,
            &self.requirements,
            found,
            choice,
        ) {
            return Ok(());
        }
        for &member in &found.nodes {
            if self.seen.insert(member) {
                self.observed.nodes.push(member);
            }
        }
        if node == found.root {
            self.observe_inputs(graph, node, found, qconfig)?;
        }
        if node == found.last {
            if !self.split_result(graph, node, qconfig)? {
                self.observe_result(graph, node)?;
            }
            if found.matched == Matched::Custom {
                self.observed.custom.push(node);
            }
        }
        Ok(())
    }

    fn observe_inputs(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        found: &Match,
        qconfig: usize,
    ) -> Result<(), PassError> {
        let view = graph.node(node);
        let args: Vec<Arg> = view.args().to_vec();
        let kwargs: Vec<_> = view.kwargs().to_vec();
        let mut new_args = ThinVec::new();
        let call = Call {
            node,
            qconfig,
            found,
        };
        for arg in &args {
            new_args.push(self.observed_arg(graph, &call, arg)?);
        }
        let mut new_kwargs = ThinVec::new();
        for (name, arg) in &kwargs {
            new_kwargs.push((*name, self.observed_arg(graph, &call, arg)?));
        }
        graph.set_arguments(node, new_args, new_kwargs)?;
        Ok(())
    }

    /// An argument with observers on its values.
    fn observed_arg(
        &mut self,
        graph: &mut Graph,
        at: &Call<'_>,
        arg: &Arg,
    ) -> Result<Arg, PassError> {
        match arg {
            Arg::Node(input) => Ok(Arg::Node(self.observed_input(graph, at, *input)?)),
            Arg::List(items) => {
                let items = items.iter().map(|item| self.observed_arg(graph, at, item));
                Ok(Arg::list(items.collect::<Result<ThinVec<_>, _>>()?)?)
            }
            Arg::Tuple(items) => {
                let items = items.iter().map(|item| self.observed_arg(graph, at, item));
                Ok(Arg::tuple(items.collect::<Result<ThinVec<_>, _>>()?)?)
            }
            other => Ok(other.clone()),
        }
    }

    /// The observed value of an input: a new observer, an old one, or the input where it needs none.
    fn observed_input(
        &mut self,
        graph: &mut Graph,
        at: &Call<'_>,
        input: NodeId,
    ) -> Result<NodeId, PassError> {
        let node = graph.node(at.node);
        let first = node.args().first().and_then(Arg::as_node) == Some(input);
        let required = self.requirements.of(at.node);
        let input_type = self.type_of(input);
        let (input_dtype, _) = self.request.dtype_of(input_type);
        let (value_type, needed) = if at.found.matched == Matched::Standalone {
            let path = node.target_name();
            let takes = self.request.wholes.standalone.get(path);
            let place = node
                .args()
                .iter()
                .position(|arg| arg.as_node() == Some(input));
            let takes = takes
                .zip(place)
                .is_some_and(|(takes, place)| takes.contains(&place));
            let value_type = ValueType::Observed(at.qconfig, Part::Activation);
            (value_type, takes && input_dtype != Some(QUINT8))
        } else {
            let value_type = if required.is_weight(graph, at.node, input) {
                required.weight
            } else if required.is_bias(graph, at.node, input) {
                required.bias
            } else {
                required.input
            };
            (
                value_type,
                self.is_needed(input_dtype, value_type, &required, first),
            )
        };
        let (true, ValueType::Observed(qconfig, part)) = (needed, value_type) else {
            return Ok(input);
        };
        let Some(observer) = self.request.observer(qconfig, part) else {
            return Ok(input);
        };
        let same = |user: &NodeId| {
            let placed = self.by_node.get(user).map(|&at| &self.observed.placed[at]);
            placed.is_some_and(|placed| {
                let module = &self.observed.placed[placed.module];
                let own = self.request.observer(module.qconfig, module.part);
                own.is_some_and(|own| own.class == observer.class && own.dtype == observer.dtype)
            })
        };
        if let Some(known) = graph.users(input).find(same) {
            return Ok(known);
        }
        self.place(graph, input, qconfig, part)
    }

    /// Whether an input of an element type has to be observed.
    fn is_needed(
        &self,
        input_type: Option<&str>,
        value_type: ValueType,
        required: &Required,
        first: bool,
    ) -> bool {
        match self.request.dtype_of(value_type) {
            // Only the first argument is quantised at each call.
            (_, true) => first && input_type.is_some(),
            _ if required.reuses_input => false,
            (Some(dtype), false) if is_observed(dtype) => {
                input_type.is_some_and(|input_type| is_observed(input_type) || input_type == FLOAT)
                    && input_type != Some(dtype)
            }
            (_, false) => false,
        }
    }

    /// The type of a value; that of an observer is its own.
    fn type_of(&self, node: NodeId) -> ValueType {
        match self.by_node.get(&node) {
            Some(&at) => {
                let Placed { qconfig, part, .. } = self.observed.placed[at];
                ValueType::Observed(qconfig, part)
            }
            None => self.requirements.of(node).output,
        }
    }

    /// Puts stubs on a result that is a tuple of quantised values. Returns whether it is one.
    fn split_result(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        qconfig: usize,
    ) -> Result<bool, PassError> {
        let structure = match graph.node(node).op() {
            Op::CallModule => self
                .request
                .wholes
                .tuples
                .get(graph.node(node).target_name()),
            _ => None,
        };
        let activation = ValueType::Observed(qconfig, Part::Activation);
        let (dtype, dynamic) = self.request.dtype_of(activation);
        let (Some(&structure), Some(functions)) = (structure, self.request.tuple_functions) else {
            return Ok(false);
        };
        if dynamic || !dtype.is_some_and(is_observed) {
            return Ok(false);
        }
        let taken = &self.request.taken;
        let next = &mut self.next_stub;
        let made = split(graph, node, structure, functions, &mut |prefix| {
            loop {
                let name = format!("{prefix}{next}");
                *next += 1;
                if !taken.contains(&name) {
                    return name;
                }
            }
        })?;
        for float in made.floats {
            self.requirements.set_output(float, activation);
        }
        self.observed.stubs.extend(made.stubs);
        Ok(true)
    }

    fn observe_result(&mut self, graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
        let required = self.requirements.of(node);
        let (dtype, dynamic) = self.request.dtype_of(required.output);
        let observed = dtype.is_some_and(is_observed) && !dynamic && !required.standalone;
        let (true, ValueType::Observed(qconfig, part)) = (observed, required.output) else {
            return Ok(());
        };
        let dtype = dtype.map(str::to_owned);
        let observer = self.place(graph, node, qconfig, part)?;
        graph.replace_uses_if(node, observer, |_, user| user != observer)?;
        let input_quantised = matches!(dtype.as_deref(), Some(QUINT8 | "uint8"))
            && graph
                .node(node)
                .args()
                .first()
                .and_then(Arg::as_node)
                .is_some_and(|input| graph.node(input).op() == Op::Placeholder);
        if ((required.shared && !input_quantised) || required.reuses_input)
            && !self.share(graph, node, observer)
        {
            graph.replace_all_uses(observer, node)?;
            graph.erase(observer)?;
            if let Some(at) = self.by_node.remove(&observer) {
                self.observed.placed[at].node = None;
            }
        }
        Ok(())
    }

    /// Puts a new observer on a value. Returns its node.
    fn place(
        &mut self,
        graph: &mut Graph,
        value: NodeId,
        qconfig: usize,
        part: Part,
    ) -> Result<NodeId, PassError> {
        let name = loop {
            let name = format!("{PREFIX}{}", self.next);
            self.next += 1;
            if !self.request.taken.contains(&name) {
                break name;
            }
        };
        let outer = graph.set_insert_point(InsertPoint::After(value))?;
        let node = graph.call_module(&name, [value.into()]);
        graph.restore_insert_point(outer);
        let node = node?;
        graph.set_origin(node, graph.origin(value));
        let at = self.observed.placed.len();
        self.observed.placed.push(Placed {
            name,
            qconfig,
            part,
            module: at,
            node: Some(node),
        });
        self.by_node.insert(node, at);
        Ok(node)
    }

    /// Gives the result of a call, and all of its inputs, the observer of its first input. Returns
    /// whether that one was found.
    fn share(&mut self, graph: &Graph, node: NodeId, result: NodeId) -> bool {
        let args = graph.node(node).args();
        let is_value = |arg: &&Arg| matches!(arg, Arg::Node(_) | Arg::List(_) | Arg::Tuple(_));
        let Some(first) = args.iter().find(is_value) else {
            return false;
        };
        let items = first.as_items();
        let source = match items {
            Some(items) => items.first().and_then(Arg::as_node),
            None => first.as_node(),
        };
        let Some(shared) = source.and_then(|source| self.observer_before(graph, source, true))
        else {
            return false;
        };
        let shared = self.observed.placed[shared].module;
        for item in items.into_iter().flatten().skip(1) {
            let Some(item) = item.as_node() else {
                return false;
            };
            let Some(at) = self.observer_before(graph, item, false) else {
                return false;
            };
            self.observed.placed[at].module = shared;
        }
        if let Some(&at) = self.by_node.get(&result) {
            self.observed.placed[at].module = shared;
        }
        true
    }

    /// The observer that a value was computed from, along first inputs. Without `stops`, an input of
    /// the program is looked through, which has no inputs.
    fn observer_before(&self, graph: &Graph, value: NodeId, stops: bool) -> Option<usize> {
        let mut node = value;
        loop {
            if let Some(&at) = self.by_node.get(&node) {
                return Some(at);
            }
            let view = graph.node(node);
            if stops && view.op() == Op::Placeholder {
                return None;
            }
            let mut args = view.args().iter();
            node = match stops {
                true => args.find_map(Arg::as_node)?,
                false => args.next().and_then(Arg::as_node)?,
            };
        }
    }
}

/// A call whose inputs are observed.
struct Call<'m> {
    node: NodeId,
    qconfig: usize,
    found: &'m Match,
}
