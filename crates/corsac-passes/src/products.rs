//! Merges matrix products with the same right-hand side.
//!
//! `x @ w` and `y @ w` become one product of the rows of `x` and of `y`, which is split again.
//! Users of a result that come before the last of the products move behind it.
//!
//! Needs: left-hand sides that agree in all dimensions but the first, of two or more, and a
//! right-hand side of two dimensions or one, according to [`TensorFacts`]; where shapes are not
//! known, the products stay. No node between the first and the last product may have an effect or
//! use random numbers, and no result may be written to, since it is a view of all of them
//! afterwards.
//!
//! Preserves: names and metadata of the results. Results differ in rounding, since a product of
//! more rows may be summed in another order.
//!
//! ```text
//! a = x @ w          cat = torch.cat([x, y])
//! b = y @ w     →    matmul = torch.matmul(cat, w)
//!                    split = torch.split(matmul, [2, 5])
//!                    a = split[0]
//!                    b = split[1]
//! ```
//!
//! Reference: `torch.fx.experimental.merge_matmul`, which checks neither the shape of the
//! right-hand side nor effects in between, and then computes another result, or fails.

use corsac_ir::{Arg, EntityId, FunctionId, Graph, NodeId, Op, Target, ThinVec};
use corsac_ops::{Host, OperatorId, is_operator};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::edits::{Call, Edits};
use crate::error::PassError;
use crate::pass::{Context, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};
use crate::tensors::TensorFacts;

const ALONE: Refusal = Refusal::because("no other product has its right-hand side");
/// It has another shape, or too few dimensions.
const SHAPE: Refusal = Refusal::because("its left-hand side does not fit to those of the others");
const WRITTEN: Refusal = Refusal::because("the result of one of the products is written to");

/// The pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeProducts {
    /// The function that splits a product, given the product and the list of left-hand sides; by
    /// default `torch.split`, given the product and their sizes.
    pub split: Option<FunctionId>,
}

const FUNCTIONS: [&str; 4] = [
    "torch.cat",
    "torch.matmul",
    "operator.getitem",
    "torch.split",
];

impl Pass for MergeProducts {
    fn name(&self) -> &'static str {
        "matrix products"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        let ("split", Setting::Function(split)) = (option, setting) else {
            return false;
        };
        self.split = Some(split);
        true
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            attributes: true,
            tensors: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let mut found = find(graph, context.host, context.tensors)?;
        found.limit(context.budget);
        let functions = FUNCTIONS.map(str::to_owned).to_vec();
        let (split, groups) = (self.split, found.groups);
        Ok(Plan::other(
            found.sites,
            functions,
            move |graph, function, sites, _| {
                let [cat, matmul, getitem, sizes] = FUNCTIONS.map(|name| function(graph, name));
                let functions = Functions {
                    cat,
                    matmul,
                    getitem,
                    split: split.map_or(Split::Sizes(sizes), Split::ByInputs),
                };
                merge(graph, groups, sites, &functions)
            },
        ))
    }
}

/// Products to merge into one, in order of the graph.
type Group = Vec<Member>;

/// One of several products to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    /// Its place among the sites.
    site: usize,
    /// Rows of its left-hand side.
    rows: i64,
}

/// Every product of two values, and the groups to merge.
#[derive(Debug, Default)]
struct Products {
    sites: Vec<Site>,
    groups: Vec<Group>,
}

/// The functions that merged products consist of.
struct Functions {
    cat: FunctionId,
    matmul: FunctionId,
    getitem: FunctionId,
    split: Split,
}

/// A function that splits a product.
enum Split {
    /// With the sizes of the left-hand sides.
    Sizes(FunctionId),
    /// With the left-hand sides.
    ByInputs(FunctionId),
}

/// The operands of a product of two values.
fn operands(graph: &Graph, node: NodeId) -> Option<(NodeId, NodeId)> {
    let node = graph.node(node);
    let ([Arg::Node(left), Arg::Node(right)], []) = (node.args(), node.kwargs()) else {
        return None;
    };
    let operator = OperatorId::of(node.op(), node.target_name())?;
    is_operator!(operator, "matmul").then_some((*left, *right))
}

/// The identity of a right-hand side: two nodes may read the same attribute.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Attribute(Target),
    Node(NodeId),
}

/// Finds the products that can be merged.
fn find(graph: &Graph, host: &dyn Host, tensors: &TensorFacts) -> Result<Products, PassError> {
    let mut found = Products::default();
    let mut groups: Vec<Group> = Vec::new();
    let mut by_key: FxHashMap<Key, usize> = FxHashMap::default();
    for node in graph.nodes() {
        let Some((left, right)) = operands(graph, node) else {
            continue;
        };
        let key = match graph.node(right).op() {
            Op::GetAttr => Key::Attribute(graph.node(right).target()),
            _ => Key::Node(right),
        };
        let group = *by_key.entry(key).or_insert_with(|| {
            groups.push(Group::new());
            groups.len() - 1
        });
        // The zero is not used: groups with an unknown shape are refused.
        let rows = tensors.shape(left).and_then(|shape| shape.first().copied());
        groups[group].push(Member {
            site: found.sites.len(),
            rows: rows.unwrap_or_default(),
        });
        found.sites.push(Site::new(graph, node, None));
    }
    if groups.iter().all(|group| group.len() < 2) {
        for site in &mut found.sites {
            site.refusal = Some(ALONE);
        }
        return Ok(found);
    }
    let program = Program::of_graph(graph, host)?;
    for group in groups {
        let nodes = nodes_of(&found.sites, &group);
        let refusal = program
            .refusal(graph, &nodes)
            .or_else(|| shapes(graph, tensors, &nodes));
        match refusal {
            Some(refusal) => refuse(&mut found.sites, &group, &refusal),
            None => found.groups.push(group),
        }
    }
    Ok(found)
}

/// The effects of a graph that matter for products.
struct Program {
    /// Nodes with effects, in order.
    busy: Vec<NodeId>,
    /// By node: whether its value is written to.
    written: Vec<bool>,
}

impl Program {
    fn of_graph(graph: &Graph, host: &dyn Host) -> Result<Self, PassError> {
        let analysis = Analysis::of_graph(graph, host)?;
        let mut classes = vec![false; graph.id_bound().max(1)];
        for (_, effects) in analysis.special() {
            for &value in &effects.mutates {
                classes[analysis.classes.class(value).index()] = true;
            }
        }
        let mut written = vec![false; graph.id_bound()];
        let mut busy = Vec::new();
        for (_, node, effects) in analysis.walk() {
            written[node.index()] = classes[analysis.classes.class(node).index()];
            if !effects.is_pure() && graph.node(node).op() != Op::Output {
                busy.push(node);
            }
        }
        Ok(Self { busy, written })
    }

    fn refusal(&self, graph: &Graph, nodes: &[NodeId]) -> Option<Refusal> {
        let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else {
            return Some(ALONE);
        };
        if nodes.len() < 2 {
            return Some(ALONE);
        }
        if let Some(user) = dependent(graph, nodes) {
            return Some(is_dependent(graph, user));
        }
        let after = self.busy.partition_point(|&n| !graph.is_before(first, n));
        if let Some(&node) = self.busy.get(after)
            && graph.is_before(node, last)
        {
            let node = graph.node(node).name();
            let reason = format!("{node} comes in between and does more than compute a value");
            return Some(reason.into());
        }
        let written = nodes.iter().any(|node| self.written[node.index()]);
        written.then_some(WRITTEN)
    }
}

/// A node of `nodes`, which come in order, that depends on another one of them.
fn dependent(graph: &Graph, nodes: &[NodeId]) -> Option<NodeId> {
    let (&first, &last) = (nodes.first()?, nodes.last()?);
    let chosen: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let mut tainted = FxHashSet::default();
    let mut node = first;
    loop {
        let depends = graph
            .inputs(node)
            .any(|input| tainted.contains(&input) || chosen.contains(&input));
        if depends && chosen.contains(&node) {
            return Some(node);
        }
        if depends {
            tainted.insert(node);
        }
        if node == last {
            return None;
        }
        node = graph.next(node);
    }
}

/// Why the operands of `nodes` do not fit, if they do not.
fn shapes(graph: &Graph, tensors: &TensorFacts, nodes: &[NodeId]) -> Option<Refusal> {
    let unknown = |operand| Refusal::from(format!("the shape of {operand} is not known"));
    let name = |node: NodeId| graph.node(node).name();
    let mut like: Option<&[i64]> = None;
    for &node in nodes {
        let (left, right) = operands(graph, node)?;
        let operand = name(right);
        match tensors.rank(right) {
            Some(rank @ 3..) => return Some(format!("{operand} has {rank} dimensions").into()),
            Some(_) => {}
            None => return Some(unknown(operand)),
        }
        match tensors.shape(left) {
            Some([_, rest @ ..]) if !rest.is_empty() && like.is_none_or(|like| like == rest) => {
                like = Some(rest);
            }
            Some(_) => return Some(SHAPE),
            None => return Some(unknown(name(left))),
        }
    }
    None
}

fn nodes_of(sites: &[Site], group: &Group) -> Vec<NodeId> {
    group.iter().map(|member| sites[member.site].node).collect()
}

fn refuse(sites: &mut [Site], group: &Group, refusal: &Refusal) {
    for member in group {
        sites[member.site].refusal = Some(refusal.clone());
    }
}

fn is_dependent(graph: &Graph, user: NodeId) -> Refusal {
    let user = graph.node(user).name();
    format!("{user} is computed from it, or it from {user}").into()
}

impl Products {
    /// Refuses the groups that the budget does not allow to merge; each takes one change.
    fn limit(&mut self, budget: &mut Budget) {
        let granted = budget.take_up_to(self.groups.len());
        for group in self.groups.split_off(granted) {
            refuse(&mut self.sites, &group, &Refusal::BUDGET);
        }
    }
}

/// Merges each group into one product. A group that depends on itself because of an earlier merge
/// stays, with a refusal at its sites.
fn merge(
    graph: &mut Graph,
    groups: Vec<Group>,
    sites: &mut [Site],
    functions: &Functions,
) -> Result<Edits, PassError> {
    let mut edits = Edits::default();
    for mut group in groups {
        // Earlier merges have moved users, and so the order may have changed.
        group.sort_by_key(|member| graph.node(sites[member.site].node).order());
        let nodes = nodes_of(sites, &group);
        match dependent(graph, &nodes) {
            Some(user) => refuse(sites, &group, &is_dependent(graph, user)),
            None => merge_group(graph, &nodes, &group, functions, &mut edits)?,
        }
    }
    Ok(edits)
}

fn merge_group(
    graph: &mut Graph,
    nodes: &[NodeId],
    group: &Group,
    functions: &Functions,
    edits: &mut Edits,
) -> Result<(), PassError> {
    let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else {
        return Ok(());
    };
    // All operands are available at the last product; users of the others move behind it.
    sink_users(graph, nodes)?;
    let Some((_, right)) = operands(graph, first) else {
        return Ok(());
    };
    let left: Vec<NodeId> = nodes
        .iter()
        .filter_map(|&node| Some(operands(graph, node)?.0))
        .collect();
    let list = list(left.iter().map(|&node| node.into()))?;
    let cat = Call::function(functions.cat, [list.clone()]);
    let cat = edits.add_before(graph, last, first, cat)?;
    let product = Call::function(functions.matmul, [cat.into(), right.into()]);
    let product = edits.add_before(graph, last, first, product)?;
    let parts = match functions.split {
        Split::ByInputs(function) => Call::function(function, [product.into(), list]),
        Split::Sizes(function) => {
            let rows = group.iter().map(|member| Arg::Int(member.rows));
            Call::function(function, [product.into(), self::list(rows)?])
        }
    };
    let parts = edits.add_before(graph, last, first, parts)?;
    for (index, &node) in (0..).zip(nodes) {
        let part = Call::function(functions.getitem, [parts.into(), Arg::Int(index)]);
        let part = edits.add_before(graph, last, node, part)?;
        edits.take_place(graph, part, node)?;
    }
    Ok(())
}

fn list(items: impl Iterator<Item = Arg>) -> Result<Arg, PassError> {
    Ok(Arg::list(items.collect::<ThinVec<_>>())?)
}

/// Moves nodes that depend on one of `nodes` and come before the last of them behind it.
fn sink_users(graph: &mut Graph, nodes: &[NodeId]) -> Result<(), PassError> {
    let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else {
        return Ok(());
    };
    let mut tainted: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let (mut node, mut place) = (first, last);
    while node != last {
        let following = graph.next(node);
        if !nodes.contains(&node) && graph.inputs(node).any(|input| tainted.contains(&input)) {
            tainted.insert(node);
            graph.move_after(node, place)?;
            place = node;
        }
        node = following;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
