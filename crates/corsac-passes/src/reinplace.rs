//! Lets operators overwrite their input.
//!
//! An operator with a form that writes its result into its first argument takes that form where the
//! argument is not used afterwards, so that no memory is allocated for the result.
//! The column `in_place` of [`corsac_ops::Operator`] lists the operators.
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
//! have, another element type or shape. With [`Reinplace::gradients`] also those that would overwrite
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

use corsac_ir::{Arg, EntityId, FunctionId, Graph, InsertPoint, NodeId, Op, Target};
use corsac_ops::{Effects, Host, OperatorId, is_operator};

use self::form::{COPY, Change, Form, Rewritten, form_of};
use self::lifetimes::Lifetimes;
use crate::analysis::Analysis;
use crate::edits::{Added, Edits};
use crate::error::PassError;
use crate::pass::{Context, Functions, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};
use crate::tensors::TensorFacts;

/// It is not the program's own.
const OUTSIDE: Refusal =
    Refusal::because("its input comes from outside the program, or may have been seen there");
const RETURNED: Refusal = Refusal::because("the caller may get its input");
const OVERLAP: Refusal =
    Refusal::because("its input, or what may share storage with it, is another argument too");
const UNKNOWN: Refusal =
    Refusal::because("element types and shapes are not known: propagate them first");
const STRIDES: Refusal =
    Refusal::because("its input is not known to have the strides of the result");
const SCALAR: Refusal =
    Refusal::because("its input has no dimensions, and may be on another device than the result");
const GRADIENTS: Refusal =
    Refusal::because("gradients may be computed from what would be overwritten");
/// They would have to be passed to the function.
const SETTINGS: Refusal =
    Refusal::because("the module has settings: make a function call of it first");
const ARGUMENTS: Refusal = Refusal::because("the in-place form does not take these arguments");

/// The pass.
#[derive(Clone, Copy, Debug)]
pub struct Reinplace {
    /// Whether gradients may be computed through the program: values that they need must not be
    /// overwritten.
    pub gradients: bool,
}

impl Default for Reinplace {
    fn default() -> Self {
        Self { gradients: true }
    }
}

impl Pass for Reinplace {
    fn name(&self) -> &'static str {
        "in place"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        option == "gradients" && setting.put_flag(&mut self.gradients)
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            tensors: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let tensors = context.tensors;
        let is_tensor = |node| tensors.dtype(node).is_some();
        let analysis = Analysis::with_tensors(graph, context.host, is_tensor)?;
        let mut search = Search {
            graph,
            host: context.host,
            tensors,
            gradients: self.gradients,
            lifetimes: Lifetimes::of(graph, &analysis),
            fresh: vec![false; graph.id_bound()],
        };
        let (mut sites, mut changes) = (Vec::new(), Vec::new());
        for (place, node, effects) in analysis.walk() {
            search.fresh[node.index()] = is_fresh(graph, node, effects);
            if !(effects.is_pure() && effects.aliases.is_empty()) {
                continue;
            }
            let Some(form) = form_of(graph, context.host, node) else {
                continue;
            };
            let granted = form
                .and_then(|change| search.choose(node, place, change))
                .and_then(|change| context.budget.grant(change));
            let (other, refusal) = match granted {
                Ok(change) => {
                    search.lifetimes.join(node, change.input);
                    search.fresh[node.index()] = search.fresh[change.input.index()];
                    let other = change.form.callee().to_owned();
                    changes.push((node, change));
                    (Some(other), None)
                }
                Err(refusal) => (None, Some(refusal)),
            };
            sites.push(Site::new(graph, node, refusal).with_other(other));
        }
        let functions = changes.iter().flat_map(|(_, change)| match &change.form {
            Form::Function(name) => vec![name.clone()],
            Form::IntoView { view } => vec![view.clone(), COPY.to_owned()],
            Form::Method(_) => Vec::new(),
        });
        let functions = functions.collect();
        Ok(Plan::other(
            sites,
            functions,
            move |graph, function, _, _| apply(&changes, graph, function),
        ))
    }
}

fn apply(
    changes: &[(NodeId, Change)],
    graph: &mut Graph,
    function: &Functions<'_>,
) -> Result<Edits, PassError> {
    let mut edits = Edits::default();
    for (node, change) in changes {
        let (op, target) = match &change.form {
            Form::Method(name) => (Op::CallMethod, Target::Name(graph.intern(name))),
            Form::Function(name) => (Op::CallFunction, Target::Function(function(graph, name))),
            Form::IntoView { .. } => continue,
        };
        graph.set_op_and_target(*node, op, target)?;
        if let Some(arguments) = &change.arguments {
            let (args, kwargs) = arguments.interned(graph);
            graph.set_arguments(*node, args, kwargs)?;
        }
    }
    // Only now, since the arguments above refer to the nodes that are erased here.
    for (node, change) in changes {
        if let (Form::IntoView { view }, Some(arguments)) = (&change.form, &change.arguments) {
            let functions = (function(graph, view), function(graph, COPY));
            copy_into_view(&mut edits, graph, *node, change.input, functions, arguments)?;
        }
    }
    Ok(edits)
}

/// Copies into a view of the input, which takes the place of the node.
fn copy_into_view(
    edits: &mut Edits,
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
        edits.added.push(Added {
            node: new,
            root: node,
            has_its_value: false,
        });
    }
    graph.replace_all_uses(node, input)?;
    graph.erase(node)?;
    edits.erased.push(node);
    Ok(())
}

/// Whether the value of a node was allocated by it: dense, and shared with no other.
fn is_fresh(graph: &Graph, node: NodeId, effects: &Effects) -> bool {
    let node = graph.node(node);
    let operator = OperatorId::of(node.op(), node.target_name());
    let chosen_strides =
        operator.is_some_and(|it| is_operator!(it, "empty_strided" | "new_empty_strided"));
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
    gradients: bool,
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
            return Err(OUTSIDE);
        }
        let (last, user) = self.lifetimes.last_use(input);
        if last > place {
            let user = user.map_or("", |user| self.graph.node(user).name());
            let reason =
                format!("its input, or what may share storage with it, is used later, by {user}");
            return Err(reason.into());
        }
        if self.lifetimes.is_returned(input) {
            return Err(RETURNED);
        }
        self.check_overlap(node, change)?;
        self.check_type(node, change)?;
        self.check_layout(node, change)?;
        if self.gradients && !self.may_lose(input) {
            return Err(GRADIENTS);
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
        let twice = uses > 1 && (!change.elementwise || self.gradients);
        if overlaps || twice {
            return Err(OVERLAP);
        }
        Ok(())
    }

    fn check_type(&self, node: NodeId, change: &Change) -> Result<(), Refusal> {
        let tensors = self.tensors;
        let (from, to) = (tensors.dtype(change.input), tensors.dtype(node));
        match (from, to) {
            (Some(input), Some(result)) if input != result => {
                return Err(format!("its input is {input}, the result {result}").into());
            }
            (Some(dtype), Some(_)) if dtype.name().starts_with('q') => {
                return Err(UNKNOWN);
            }
            (Some(_), Some(_)) => {}
            _ if change.keeps_type => {}
            _ => return Err(UNKNOWN),
        }
        let others = self.graph.inputs(node).any(|used| used != change.input);
        match (tensors.shape(change.input), tensors.shape(node)) {
            (Some(input), Some(result)) if input != result => {
                let reason = format!("its input has the shape {input:?}, the result {result:?}");
                return Err(reason.into());
            }
            (Some([]), Some(_)) if others && change.elementwise => return Err(SCALAR),
            (Some(_), Some(_)) => {}
            _ if change.keeps_type || !others => {}
            _ => return Err(UNKNOWN),
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
            Some(false) | None => Err(STRIDES),
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
