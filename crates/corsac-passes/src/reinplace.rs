//! Lets operators overwrite their input.
//!
//! An operator with a form that writes its result into its first argument takes that form where the
//! argument is not used afterwards, so that no memory is allocated for the result.
//! [`corsac_ops::in_place`] lists the operators.
//!
//! | node | becomes |
//! |---|---|
//! | `torch.nn.functional.relu(x)` | the same with `inplace=True` |
//! | `torch.add(x, y)`, `x.add(y)`, `torch.sigmoid(x)` | `x.add_(y)`, `x.sigmoid_()` |
//! | `operator.add(x, y)` | `operator.iadd(x, y)`, or `operator.iadd(y, x)` |
//! | `torch.ops.aten.add.Tensor(x, y)` | `torch.ops.aten.add_.Tensor(x, y)` |
//! | `torch.ops.aten.select_scatter(x, y, 0, 1)` | `copy_` of `y` into `torch.ops.aten.select.int(x, 0, 1)` |
//! | `nn.ReLU()(x)` and others without settings | `torch.nn.functional.relu(x, inplace=True)` |
//!
//! Not changed: operators that would write to an input, a parameter, or a value that may be
//! reachable from outside; to a value that is used or returned later, directly or through shared
//! storage; to a value whose strides are not those of the result (an expanded tensor has several
//! elements in one place); where another argument may overlap with it; where the result has, or may
//! have, another element type or shape. With [`Options::gradients`] also those that would overwrite
//! a value that a gradient is computed from.
//!
//! Needs: shapes and element types that hold for every call, where any are given ([`TensorFacts`]):
//! most operators promote and broadcast. A graph in which definitions come before uses.
//!
//! Preserves: nodes, their order, names and metadata.
//!
//! ```text
//! conv = self.conv(x)                 conv = self.conv(x)
//! add = operator.add(conv, y)    →    add = operator.iadd(conv, y)
//! relu = torch.relu(add)              relu = add.relu_()
//! ```
//!
//! Reference: `torch.fx.passes.reinplace`, for functional ATen graphs.

mod form;
mod lifetimes;

use corsac_ir::{Arg, DType, EntityId, FunctionId, Graph, InsertPoint, NodeId, Op, Target};
use corsac_ops::{Effects, Host, OperatorId};
use thiserror::Error;

use self::form::{COPY, Change, Form, Rewritten, form_of};
use self::lifetimes::Lifetimes;
use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::error::PassError;
use crate::no_ops::called;
use crate::pass::{Context, Pass};
use crate::report;
use crate::tensors::TensorFacts;

/// Options of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether gradients may be computed through the program: values that they need must not be
    /// overwritten.
    pub gradients: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { gradients: true }
    }
}

/// Why an operator does not overwrite its input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The input is not the program's own.
    #[error("its input comes from outside the program, or may have been seen there")]
    Outside,
    /// The input is used afterwards.
    #[error("its input, or what may share storage with it, is used later, by {user}")]
    UsedLater {
        /// The name of the last node that uses it.
        user: String,
    },
    /// The caller gets the input in a container.
    #[error("the caller may get its input")]
    Returned,
    /// Another argument may lie in the same memory.
    #[error("its input, or what may share storage with it, is another argument too")]
    Overlap,
    /// Element types or shapes are not known.
    #[error("element types and shapes are not known: propagate them first")]
    Unknown,
    /// The result has another element type.
    #[error("its input is {input}, the result {result}")]
    DType {
        /// The element type of the input.
        input: DType,
        /// The element type of the result.
        result: DType,
    },
    /// The result has another shape.
    #[error("its input has the shape {input:?}, the result {result:?}")]
    Shape {
        /// The sizes of the input.
        input: Vec<i64>,
        /// The sizes of the result.
        result: Vec<i64>,
    },
    /// The result has, or may have, other strides.
    #[error("its input is not known to have the strides of the result")]
    Strides,
    /// The input is one number, which may be on another device.
    #[error("its input has no dimensions, and may be on another device than the result")]
    Scalar,
    /// A gradient needs the value that would be overwritten.
    #[error("gradients may be computed from what would be overwritten")]
    Gradients,
    /// The module has settings, which would have to be passed to the function.
    #[error("the module has settings: make a function call of it first")]
    Settings,
    /// The in-place form does not take the arguments.
    #[error("the in-place form does not take these arguments")]
    Arguments,
    /// It could be changed, but no more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
}

/// A call of an operator with an in-place form, with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// Why it stays, if it does.
    pub refusal: Option<Refusal>,
    change: Option<Change>,
}

impl Site {
    /// The value that it overwrites, if any.
    #[must_use]
    pub fn input(&self) -> Option<NodeId> {
        self.change.as_ref().map(|change| change.input)
    }

    /// The name of the method or function called instead, if any.
    #[must_use]
    pub fn becomes(&self) -> Option<&str> {
        let change = self.change.as_ref()?;
        Some(match &change.form {
            Form::Method(name) => name,
            Form::Function(name) => name,
            Form::IntoView { .. } => COPY,
        })
    }
}

/// Every call of an operator with an in-place form, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The sites.
    pub sites: Vec<Site>,
}

impl Report {
    /// Whether there is something to change, or was.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.changes().next().is_some()
    }

    fn changes(&self) -> impl Iterator<Item = (NodeId, &Change)> {
        let sites = self.sites.iter();
        sites.filter_map(|site| Some((site.node, site.change.as_ref()?)))
    }

    /// The names of the functions in new calls.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.changes()
            .flat_map(|(_, change)| match &change.form {
                Form::Function(name) => [Some(name.as_str()), None],
                Form::IntoView { view } => [Some(view.as_str()), Some(COPY)],
                Form::Method(_) => [None, None],
            })
            .flatten()
    }

    /// Changes the graph; `function` finds functions by name.
    ///
    /// # Errors
    /// If the graph is not the one that the report was made for.
    pub fn apply(
        &self,
        graph: &mut Graph,
        mut function: impl FnMut(&mut Graph, &str) -> FunctionId,
    ) -> Result<Applied, PassError> {
        let mut applied = Applied::default();
        for (node, change) in self.changes() {
            let (op, target) = match &change.form {
                Form::Method(name) => (Op::CallMethod, Target::Name(graph.intern(name))),
                Form::Function(name) => (Op::CallFunction, Target::Function(function(graph, name))),
                Form::IntoView { .. } => continue,
            };
            graph.set_op_and_target(node, op, target)?;
            if let Some(arguments) = &change.arguments {
                let (args, kwargs) = arguments.interned(graph);
                graph.set_arguments(node, args, kwargs)?;
            }
        }
        // Only now, since the arguments above refer to the nodes that are erased here.
        for (node, change) in self.changes() {
            if let (Form::IntoView { view }, Some(arguments)) = (&change.form, &change.arguments) {
                let functions = (function(graph, view), function(graph, COPY));
                applied.copy_into_view(graph, node, change.input, functions, arguments)?;
            }
        }
        Ok(applied)
    }
}

/// Added and erased nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New nodes, each with the node that it comes from.
    pub added: Vec<(NodeId, NodeId)>,
    /// Nodes removed.
    pub erased: Vec<NodeId>,
}

impl Applied {
    fn copy_into_view(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        input: NodeId,
        (view, copy): (FunctionId, FunctionId),
        arguments: &Rewritten,
    ) -> Result<(), PassError> {
        let Some(source) = graph.node(node).args().get(1).cloned() else {
            return Ok(());
        };
        // The input may have been replaced by its own input.
        let input = graph
            .node(node)
            .args()
            .first()
            .and_then(Arg::as_node)
            .unwrap_or(input);
        let (mut args, kwargs) = arguments.interned(graph);
        if let Some(first) = args.first_mut() {
            *first = Arg::Node(input);
        }
        let outer = graph.set_insert_point(InsertPoint::Before(node))?;
        let made = graph.call_function(view, args).and_then(|part| {
            graph.set_kwargs(part, kwargs)?;
            Ok((part, graph.call_function(copy, [Arg::Node(part), source])?))
        });
        graph.restore_insert_point(outer);
        let (part, copied) = made?;
        for new in [part, copied] {
            graph.set_origin(new, graph.origin(node));
            self.added.push((new, node));
        }
        graph.replace_all_uses(node, input)?;
        graph.erase(node)?;
        self.erased.push(node);
        Ok(())
    }
}

/// The pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reinplace(pub Options);

impl Pass for Reinplace {
    fn name(&self) -> &'static str {
        "in place"
    }

    fn run(
        &self,
        graph: &mut Graph,
        context: &mut Context<'_>,
    ) -> Result<report::Report, PassError> {
        let found = find(
            graph,
            context.host,
            context.tensors,
            self.0,
            &mut context.budget,
        )?;
        found.apply(graph, Graph::function)?;
        let sites = found.sites.iter().map(|site| {
            let form = site.becomes().map(str::to_owned);
            let reason = site.refusal.as_ref().map(ToString::to_string);
            report::Site::new(graph, site.node, form, reason)
        });
        Ok(report::Report {
            pass: self.name().to_owned(),
            sites: sites.collect(),
            nodes_before: graph.len(),
            nodes_after: graph.len(),
        })
    }
}

/// Finds the operators that may overwrite their inputs, without changing the graph.
///
/// # Errors
/// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
pub fn find(
    graph: &Graph,
    host: &dyn Host,
    tensors: &TensorFacts,
    options: Options,
    budget: &mut Budget,
) -> Result<Report, PassError> {
    let is_tensor = |node| tensors.dtype(node).is_some();
    let analysis = Analysis::with_tensors(graph, host, is_tensor)?;
    let mut search = Search {
        graph,
        host,
        tensors,
        options,
        lifetimes: Lifetimes::of(graph, &analysis),
        fresh: vec![false; graph.id_bound()],
    };
    let mut report = Report::default();
    for (place, node, effects) in analysis.walk() {
        search.fresh[node.index()] = is_fresh(graph, node, effects);
        if !(effects.is_pure() && effects.aliases.is_empty()) {
            continue;
        }
        let Some(form) = form_of(graph, host, node) else {
            continue;
        };
        let found = form
            .and_then(|change| search.choose(node, place, change))
            .and_then(|change| match budget.take() {
                true => Ok(change),
                false => Err(Refusal::Budget),
            });
        let (change, refusal) = match found {
            Ok(change) => {
                search.lifetimes.join(node, change.input);
                search.fresh[node.index()] = search.fresh[change.input.index()];
                (Some(change), None)
            }
            Err(refusal) => (None, Some(refusal)),
        };
        report.sites.push(Site {
            node,
            refusal,
            change,
        });
    }
    Ok(report)
}

/// Whether the value of a node was allocated by it: dense, and shared with no other.
fn is_fresh(graph: &Graph, node: NodeId, effects: &Effects) -> bool {
    let node = graph.node(node);
    let chosen_strides = matches!(called(node), Some("empty_strided" | "new_empty_strided"));
    matches!(
        node.op(),
        Op::CallFunction | Op::CallMethod | Op::CallModule
    ) && effects.aliases.is_empty()
        && !effects.outside
        && !effects.opaque
        && !chosen_strides
}

struct Search<'a> {
    graph: &'a Graph,
    host: &'a dyn Host,
    tensors: &'a TensorFacts,
    options: Options,
    lifetimes: Lifetimes,
    /// By node: whether its value was allocated by it.
    fresh: Vec<bool>,
}

impl Search<'_> {
    /// Chooses the argument to overwrite: the first, or else the second, if the two may be swapped.
    fn choose(&mut self, node: NodeId, place: u32, change: Change) -> Result<Change, Refusal> {
        let Err(refusal) = self.check(node, place, &change) else {
            return Ok(change);
        };
        let second = change.of_second(self.graph.node(node));
        match second.filter(|second| self.check(node, place, second).is_ok()) {
            Some(second) => Ok(second),
            None => Err(refusal),
        }
    }

    fn check(&mut self, node: NodeId, place: u32, change: &Change) -> Result<(), Refusal> {
        let input = change.input;
        if self.lifetimes.is_outside(input) {
            return Err(Refusal::Outside);
        }
        let (last, user) = self.lifetimes.last_use(input);
        if last > place {
            let user = user.map_or("", |user| self.graph.node(user).name());
            return Err(Refusal::UsedLater {
                user: user.to_owned(),
            });
        }
        if self.lifetimes.is_returned(input) {
            return Err(Refusal::Returned);
        }
        self.check_overlap(node, change)?;
        self.check_type(node, change)?;
        self.check_layout(node, change)?;
        if self.options.gradients && !self.may_lose(input) {
            return Err(Refusal::Gradients);
        }
        Ok(())
    }

    /// Checks that no other argument shares memory with the input, unless it is the input itself
    /// and each element is read before it is written.
    fn check_overlap(&mut self, node: NodeId, change: &Change) -> Result<(), Refusal> {
        let view = self.graph.node(node);
        let mut uses = 0;
        let mut overlaps = false;
        let mut visit = |lifetimes: &mut Lifetimes, used: NodeId| {
            if used == change.input {
                uses += 1;
            } else {
                overlaps |= lifetimes.share(used, change.input);
            }
        };
        let kwargs = view.kwargs().iter().map(|(_, arg)| arg);
        for arg in view.args().iter().chain(kwargs) {
            arg.for_each_node(&mut |used| visit(&mut self.lifetimes, used));
        }
        let twice = uses > 1 && (!change.elementwise || self.options.gradients);
        if overlaps || twice {
            return Err(Refusal::Overlap);
        }
        Ok(())
    }

    fn check_type(&self, node: NodeId, change: &Change) -> Result<(), Refusal> {
        let tensors = self.tensors;
        let (from, to) = (tensors.dtype(change.input), tensors.dtype(node));
        match (from, to) {
            (Some(input), Some(result)) if input != result => {
                return Err(Refusal::DType { input, result });
            }
            (Some(dtype), Some(_)) if dtype.name().starts_with('q') => {
                return Err(Refusal::Unknown);
            }
            (Some(_), Some(_)) => {}
            _ if change.keeps_type => {}
            _ => return Err(Refusal::Unknown),
        }
        let others = self.graph.inputs(node).any(|used| used != change.input);
        match (tensors.shape(change.input), tensors.shape(node)) {
            (Some(input), Some(result)) if input != result => {
                return Err(Refusal::Shape {
                    input: input.to_vec(),
                    result: result.to_vec(),
                });
            }
            (Some([]), Some(_)) if others && change.elementwise => return Err(Refusal::Scalar),
            (Some(_), Some(_)) => {}
            _ if change.keeps_type || !others => {}
            _ => return Err(Refusal::Unknown),
        }
        Ok(())
    }

    /// Checks that the result has the same strides as when it is computed into new memory.
    fn check_layout(&self, node: NodeId, change: &Change) -> Result<(), Refusal> {
        let input = change.input;
        let (of_input, of_result) = (self.tensors.strides(input), self.tensors.strides(node));
        let same = of_input.zip(of_result).map(|(a, b)| a == b);
        match same {
            Some(true) => Ok(()),
            // The result has the layout of the first argument.
            None if self.fresh[input.index()] && !change.swapped => Ok(()),
            Some(false) | None => Err(Refusal::Strides),
        }
    }

    /// Whether gradients do not need the value of `input`.
    fn may_lose(&self, input: NodeId) -> bool {
        let view = self.graph.node(input);
        let operator = match view.op() {
            Op::CallModule => {
                let info = self.host.module(view.target_name());
                let class = info.as_ref().and_then(|info| info.torch_class());
                class.and_then(OperatorId::of_module)
            }
            op => OperatorId::of(op, view.target_name()),
        };
        operator.is_some_and(|operator| operator.row().result_is_free)
            && self.fresh[input.index()]
            && view.num_users() == 1
    }
}

/// The first argument: by position, or else `keyword`.
fn first_argument<'g>(args: &'g [Arg], keyword: Option<&'g Arg>) -> Option<NodeId> {
    args.first().or(keyword)?.as_node()
}

#[cfg(test)]
mod tests;
