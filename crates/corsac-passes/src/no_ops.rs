//! Removes nodes that return their input.
//!
//! Users of a node that is known to return its input use the input instead, and the node is
//! removed. [`Kind`] is the relation between the two; the table lists the nodes.
//!
//! | node | condition |
//! |---|---|
//! | `nn.Identity` | no hooks |
//! | `nn.Flatten` | no hooks, and as many dimensions before as after |
//! | `contiguous` of `contiguous` | no memory format is named |
//! | `to`, `type_as`, `float` and the like | the input has that dtype |
//! | `flatten` | the dimensions to be flattened are one |
//! | `view`, `reshape`, `expand` | to the shape of the input |
//! | `transpose`, `t`, `permute`, `unsqueeze` and back | the second undoes the first |
//! | `clone`, `cat` of one tensor | the copy cannot be told from the original |
//! | `x + 0`, `x - 0`, `x * 1`, `x / 1`, `x ** 1` | exact, and the dtype stays |
//!
//! `x + 0` is removed for integers only: for floating-point numbers it turns -0 into 0. `x * 1` and
//! the others need a known dtype, since they turn truth values into numbers, and `x / 1` turns
//! integers into floating-point numbers.
//!
//! Not removed: a view or `contiguous` where its own or its input's shape is changed in place
//! (`unsqueeze_`); a copy where it or the original is written to, or where it is returned and the
//! caller can reach the original otherwise; a copy of a view, which may have other strides.
//!
//! Needs: shapes and dtypes that hold for every call, where any are given ([`TensorFacts`]); a
//! graph in which definitions come before uses.
//!
//! Preserves: order, names and metadata of the nodes that stay.
//!
//! ```text
//! relu = self.relu(x)           relu = self.relu(x)
//! identity = self.id(relu)  →   flatten = torch.flatten(relu, 1)
//! flatten = torch.flatten(identity, 1)
//! ```

use corsac_ir::{Arg, DType, EntityId, Graph, Node, NodeId, Op};
use corsac_ops::{Catalogue, ClassId, Conversion, Host, OperatorId, is_operator};

use crate::analysis::Analysis;
use crate::common_subexpressions::returned;
use crate::error::PassError;
use crate::pass::{Changes, Context, Needs, Pass, Plan};
use crate::report::{Refusal, Site};
use crate::tensors::{TensorFacts, changes_shape};

/// The relation between the result of a node and its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is the same object.
    Same,
    /// It shares storage with the input, and has its shape.
    View,
    /// It is a tensor of its own, of the same shape, strides and elements.
    Copy,
}

const HOOKS: Refusal = Refusal::because("it has hooks or declares side effects");
/// The shape of one of the two is changed in place, or may be by an unknown call.
const RESHAPED: Refusal = Refusal::because("its shape or its input's may be changed in place");
const WRITTEN: Refusal = Refusal::because("it is a copy, and it or its original is written to");
/// The caller would get one tensor where it got two.
const RETURNED: Refusal = Refusal::because(
    "it is a copy that the caller gets, and it could reach the original otherwise",
);
/// The original is a view or an input, whose strides the copy may not have.
const STRIDES: Refusal =
    Refusal::because("it is a copy of a view or an input, whose strides may be others");

/// The pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveNoOps;

impl Pass for RemoveNoOps {
    fn name(&self) -> &'static str {
        "no-ops"
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            tensors: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let (host, tensors) = (context.host, context.tensors);
        let mut operators = Catalogue::new(host);
        let mut sites = Vec::new();
        let mut pairs = Vec::new();
        let mut sharing: Option<Sharing> = None;
        // By node to remove: the input that is left in its place.
        let mut given: Vec<Option<NodeId>> = vec![None; graph.id_bound()];
        let calls_contiguous = |operators: &mut Catalogue<'_>, node| {
            let operator = operators.operator(graph, node);
            operator.is_some_and(|it| is_operator!(it, "contiguous"))
        };
        for node in graph.nodes() {
            let Some((input, kind)) = gives(graph, &mut operators, tensors, node) else {
                continue;
            };
            let input = given[input.index()].unwrap_or(input);
            let hooked = graph.node(node).op() == Op::CallModule
                && host
                    .module(graph.node(node).target_name())
                    .is_none_or(|info| info.hooks || info.impure == Some(true));
            let mut refusal = match kind {
                _ if hooked => Some(HOOKS),
                // A value that was contiguous may not be any more, and is copied then.
                Kind::Same if !calls_contiguous(&mut operators, node) => None,
                Kind::Same | Kind::View | Kind::Copy => {
                    let sharing = match &mut sharing {
                        Some(sharing) => sharing,
                        None => sharing.insert(Sharing::of_graph(graph, host)?),
                    };
                    sharing.refusal(node, input, kind)
                }
            };
            if refusal.is_none() {
                refusal = context.budget.grant(()).err();
            }
            if refusal.is_none() {
                given[node.index()] = Some(input);
                pairs.push((node, input));
            }
            let input = graph.node(input).name().to_owned();
            sites.push(Site::new(graph, node, refusal).with_other(Some(input)));
        }
        Ok(Plan {
            sites,
            changes: Changes::Replace(pairs),
            ..Plan::default()
        })
    }
}

/// Conditions under which a view or a copy can be told from its original.
struct Sharing {
    analysis: Analysis,
    /// By class: whether something writes to a value in it.
    written: Vec<bool>,
    /// By class: whether the shape of a value in it may be changed in place.
    reshaped: Vec<bool>,
    /// By node: whether the caller gets its value, or one that may share storage with it.
    returned: Vec<bool>,
    /// By class: whether the caller gets a value in it.
    returned_classes: Vec<bool>,
    /// By node: whether its value may share storage with another.
    is_view: Vec<bool>,
}

impl Sharing {
    fn of_graph(graph: &Graph, host: &dyn Host) -> Result<Self, PassError> {
        let analysis = Analysis::of_graph(graph, host)?;
        let bound = graph.id_bound();
        let (mut written, mut reshaped) = (vec![false; bound], vec![false; bound]);
        let mut is_view = vec![false; bound];
        for (place, effects) in analysis.special() {
            let node = analysis.nodes[place as usize];
            is_view[node.index()] = !effects.aliases.is_empty() || effects.outside;
            let reshapes = effects.opaque || changes_shape(graph.node(node));
            for &value in &effects.mutates {
                let class = analysis.classes.class(value).index();
                written[class] = true;
                reshaped[class] |= reshapes;
            }
            written[ClassId::OUTSIDE.index()] |= effects.writes_state;
        }
        let returned = returned(graph, &analysis, |_| false);
        let mut returned_classes = vec![false; bound];
        for &node in &analysis.nodes {
            returned_classes[analysis.classes.class(node).index()] |= returned[node.index()];
        }
        Ok(Self {
            analysis,
            written,
            reshaped,
            returned,
            returned_classes,
            is_view,
        })
    }

    fn refusal(&mut self, node: NodeId, input: NodeId, kind: Kind) -> Option<Refusal> {
        let class = |n| self.analysis.classes.class(n).index();
        if kind != Kind::Copy {
            return self.reshaped[class(node)].then_some(RESHAPED);
        }
        if self.written[class(node)] || self.written[class(input)] {
            return Some(WRITTEN);
        }
        if self.is_view[input.index()] {
            return Some(STRIDES);
        }
        if self.returned[node.index()] && self.returned_classes[class(input)] {
            return Some(RETURNED);
        }
        // The caller gets the original instead.
        let returned = self.returned_classes[class(node)];
        self.returned_classes[class(input)] |= returned;
        None
    }
}

/// The argument at `position`, or with the keyword `name`.
fn argument<'g>(node: Node<'g>, position: usize, name: &str) -> Option<&'g Arg> {
    node.args().get(position).or_else(|| node.kwarg(name))
}

fn integer(arg: &Arg) -> Option<i64> {
    match arg {
        Arg::Int(value) => Some(*value),
        _ => None,
    }
}

/// The integers from `position` on: one by one, or as a tuple or list. `None` if not all are
/// literals or there are other arguments.
fn integers(node: Node<'_>, position: usize) -> Option<Vec<i64>> {
    if !node.kwargs().is_empty() {
        return None;
    }
    let rest = node.args().get(position..)?;
    let items = match rest {
        [Arg::Tuple(items) | Arg::List(items)] => items,
        rest => rest,
    };
    items.iter().map(integer).collect()
}

/// The input that a node is known to return, and the relation; `None` if there is none.
fn gives(
    graph: &Graph,
    operators: &mut Catalogue<'_>,
    tensors: &TensorFacts,
    id: NodeId,
) -> Option<(NodeId, Kind)> {
    let node = graph.node(id);
    let operator = operators.operator(graph, id)?;
    if node.op() == Op::CallModule {
        let ([arg], []) = (node.args(), node.kwargs()) else {
            return None;
        };
        let input = arg.as_node()?;
        let rank = || tensors.rank(id).filter(|&rank| rank > 0);
        // Flattening dimensions reduces their number.
        let gives_input = is_operator!(operator, "Identity")
            || (is_operator!(operator, "flatten") && rank()? == tensors.rank(input)?);
        return gives_input.then_some((input, Kind::Same));
    }
    if is_operator!(operator, "cat") {
        let list = argument(node, 0, "tensors")?.as_items()?;
        return match (list, node.kwarg("out")) {
            ([one], None) => Some((one.as_node()?, Kind::Copy)),
            _ => None,
        };
    }
    let input = argument(node, 0, "input").or_else(|| node.kwarg("self"))?;
    let input = input.as_node()?;
    let inner = graph.node(input);
    let alone = is_alone(node);
    match operator.name() {
        "contiguous" if alone => {
            let again = is_operator!(operators.operator(graph, input)?, "contiguous");
            (again && is_alone(inner)).then_some((input, Kind::Same))
        }
        "clone" if alone => Some((input, Kind::Copy)),
        "flatten" => {
            let rank = i64::try_from(tensors.rank(input)?).ok()?;
            let place = |position, name, default| match argument(node, position, name) {
                Some(arg) => Some(integer(arg)?.rem_euclid(rank.max(1))),
                None => Some(default),
            };
            let (start, end) = (place(1, "start_dim", 0)?, place(2, "end_dim", rank - 1)?);
            (rank > 0 && start == end).then_some((input, Kind::Same))
        }
        "view" | "reshape" => {
            let wanted = integers(node, 1)?;
            same_shape(&wanted, tensors.shape(input)?).then_some((input, Kind::View))
        }
        "expand" => {
            let (wanted, shape) = (integers(node, 1)?, tensors.shape(input)?);
            let same = wanted.len() == shape.len()
                && wanted.iter().zip(shape).all(|(&w, &s)| w == s || w == -1);
            same.then_some((input, Kind::View))
        }
        "transpose" | "t" | "permute" | "squeeze" => {
            let origin = argument(inner, 0, "input")?.as_node()?;
            let first = operators.operator(graph, input)?;
            undoes((inner, first), (node, operator)).then_some((origin, Kind::View))
        }
        "add" | "sub" | "mul" | "div" | "pow" => {
            let dtype = known_dtype(graph, operators, tensors, input)?;
            is_neutral(node, operator, dtype).then_some((input, Kind::Copy))
        }
        _ => {
            let wanted = wanted_dtype(node, operator, tensors)?;
            let known = known_dtype(graph, operators, tensors, input)?;
            (known == wanted).then_some((input, Kind::Same))
        }
    }
}

/// Whether a call has one argument only.
fn is_alone(node: Node<'_>) -> bool {
    node.args().len() == 1 && node.kwargs().is_empty()
}

/// Whether a view to the sizes `wanted` does not change a tensor of this shape.
fn same_shape(wanted: &[i64], shape: &[i64]) -> bool {
    let unknown = wanted.iter().filter(|&&size| size == -1).count();
    wanted.len() == shape.len()
        && unknown <= 1
        && wanted
            .iter()
            .zip(shape)
            .all(|(&w, &s)| w == s || (w == -1 && s > 0))
}

/// The dtype that a conversion returns, if it converts only the dtype.
fn wanted_dtype(node: Node<'_>, operator: OperatorId, tensors: &TensorFacts) -> Option<DType> {
    match operator.row().conversion? {
        Conversion::To(dtype) => is_alone(node).then_some(dtype),
        Conversion::Given if is_operator!(operator, "to") => match (node.args(), node.kwargs()) {
            ([_, Arg::DType(dtype)], []) => Some(*dtype),
            ([_], [(_, Arg::DType(dtype))]) => node.kwarg("dtype").and(Some(*dtype)),
            _ => None,
        },
        Conversion::Given if is_operator!(operator, "type_as") => {
            // It also moves to another device: it must be the very tensor's own type.
            let [x, like] = node.args() else { return None };
            (x == like).then(|| tensors.dtype(x.as_node()?)).flatten()
        }
        Conversion::Given => None,
    }
}

/// The dtype of a value, from the facts or from a conversion.
fn known_dtype(
    graph: &Graph,
    operators: &mut Catalogue<'_>,
    tensors: &TensorFacts,
    value: NodeId,
) -> Option<DType> {
    tensors.dtype(value).or_else(|| {
        let node = graph.node(value);
        let operator = operators.operator(graph, value)?;
        // A function may be given numbers.
        let converts = node.op() == Op::CallMethod;
        converts.then(|| wanted_dtype(node, operator, tensors))?
    })
}

/// Whether the second of two calls, applied to the result of the first, returns the input of the first.
fn undoes((inner, first): (Node<'_>, OperatorId), (outer, second): (Node<'_>, OperatorId)) -> bool {
    let (Some(a), Some(b)) = (integers(inner, 1), integers(outer, 1)) else {
        return false;
    };
    match (first.name(), second.name()) {
        ("transpose", "transpose") => {
            let sorted = |dims: &[i64]| {
                let mut dims = dims.to_vec();
                dims.sort_unstable();
                dims
            };
            a.len() == 2 && sorted(&a) == sorted(&b)
        }
        ("t", "t") => a.is_empty() && b.is_empty(),
        ("permute", "permute") => is_inverse(&a, &b),
        ("unsqueeze", "squeeze") => a.len() == 1 && a == b,
        _ => false,
    }
}

/// Whether one permutation is the inverse of the other.
fn is_inverse(first: &[i64], second: &[i64]) -> bool {
    let len = first.len() as i64;
    first.len() == second.len()
        && second.iter().enumerate().all(|(place, &dim)| {
            let at = usize::try_from(dim.rem_euclid(len)).ok();
            let of = at.and_then(|at| first.get(at));
            of.is_some_and(|&dim| dim.rem_euclid(len) == place as i64)
        })
}

/// Whether arithmetic with a literal leaves every element of this dtype as it is, to the bit.
fn is_neutral(node: Node<'_>, operator: OperatorId, dtype: DType) -> bool {
    let ([_, literal], []) = (node.args(), node.kwargs()) else {
        return false;
    };
    let floating = matches!(
        dtype,
        DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64
    );
    let integral = matches!(
        dtype,
        DType::UInt8 | DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64
    );
    // A floating-point literal turns integers into floating-point numbers.
    let is = |value: i64| match literal {
        Arg::Int(x) => *x == value,
        Arg::Float(x) => floating && *x == value as f64 && x.is_sign_positive(),
        _ => false,
    };
    match operator.name() {
        "add" => integral && is(0),
        "sub" => (integral || floating) && is(0),
        "mul" | "pow" => (integral || floating) && is(1),
        "div" => floating && is(1),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
