//! The canonical form of random graphs: equal for equal programs, different for different ones.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: a failure is a failed test"
)]

use corsac_ir::canonical::{Canonical, DataFlow, ExternalIdentity, canonical};
use corsac_ir::{Arg, EntityId, ExternalId, Graph, NodeId, Op, Target, ThinVec};
use corsac_testkit::edit::Editor;
use corsac_testkit::strategy::{edits, graphs};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection::vec, prop_assume};

/// Host values are the same in copies of one graph.
struct ById;

impl ExternalIdentity for ById {
    fn text(&self, _graph: &Graph, external: ExternalId) -> Option<String> {
        Some(external.index().to_string())
    }
}

fn form(graph: &Graph) -> Canonical {
    canonical(graph, &DataFlow, &ById)
}

/// The graph in canonical order, each node named after its place: equal texts are equal programs,
/// by construction and without hashes.
fn text(graph: &Graph) -> String {
    use std::fmt::Write;

    let order = form(graph).order;
    assert_eq!(order.len(), graph.len());
    let place = |id: NodeId| order.iter().position(|&n| n == id).unwrap();
    let mut text = String::new();
    for &id in &order {
        let node = graph.node(id);
        let external = match node.target() {
            Target::Function(f) => graph.function_info(f).external,
            Target::Name(_) => None,
        };
        write!(text, "{} {} {external:?}", node.op(), node.target_name()).unwrap();
        let args: Vec<String> = node
            .args()
            .iter()
            .map(|a| spelled(graph, a, &place))
            .collect();
        let mut kwargs: Vec<_> = node
            .kwargs()
            .iter()
            .map(|(k, a)| (graph.text(*k), spelled(graph, a, &place)))
            .collect();
        kwargs.sort_by_key(|(key, _)| *key);
        writeln!(text, " {args:?} {kwargs:?}").unwrap();
    }
    text
}

/// An argument as text, keys included: nodes by their place, strings by their content, numbers by
/// their bits.
fn spelled(graph: &Graph, arg: &Arg, place: &dyn Fn(NodeId) -> usize) -> String {
    let spell =
        |items: &[Arg]| -> Vec<String> { items.iter().map(|a| spelled(graph, a, place)).collect() };
    match arg {
        Arg::Node(n) => format!("%{}", place(*n)),
        Arg::Str(s) => format!("{:?}", graph.text(*s)),
        Arg::Float(x) => format!("float {}", x.to_bits()),
        Arg::Complex(x) => format!("complex {} {}", x.0.to_bits(), x.1.to_bits()),
        Arg::Tuple(items) => format!("tuple {:?}", spell(items)),
        Arg::List(items) => format!("list {:?}", spell(items)),
        Arg::Slice(items) => format!("slice {:?}", spell(items)),
        Arg::Range(items) => format!("range {:?}", spell(items)),
        Arg::NamedTuple(named) => format!("named {:?} {:?}", named.0, spell(&named.1)),
        Arg::Dict(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(k, v)| format!("{}: {}", spelled(graph, k, place), spelled(graph, v, place)))
                .collect();
            format!("dict {entries:?}")
        }
        other => format!("{other:?}"),
    }
}

/// The same graph with its nodes in another order, chosen by `choices`.
fn shuffled(graph: &Graph, choices: &[u16]) -> Graph {
    let mut shuffled = graph.clone();
    let mut left: Vec<NodeId> = graph.nodes().collect();
    let mut done = vec![false; graph.id_bound()];
    let mut choices = choices.iter().copied().cycle();
    while !left.is_empty() {
        // Inputs keep their order, and the result comes last.
        let first_input = left
            .iter()
            .find(|&&n| graph.node(n).op() == Op::Placeholder);
        let ready: Vec<NodeId> = left
            .iter()
            .copied()
            .filter(|&n| match graph.node(n).op() {
                Op::Placeholder => Some(&n) == first_input,
                Op::Output => left.len() == 1,
                _ => true,
            })
            .filter(|&n| graph.inputs(n).all(|i| done[i.index()]))
            .collect();
        let chosen = ready[usize::from(choices.next().unwrap()) % ready.len()];
        shuffled.move_before(chosen, NodeId::ROOT).unwrap();
        done[chosen.index()] = true;
        left.retain(|&n| n != chosen);
    }
    shuffled
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_and_the_order_of_independent_nodes_do_not_count(
        recipe in graphs(14), choices in vec(any::<u16>(), 1..16),
    ) {
        let graph = recipe.build();
        let mut other = shuffled(&graph, &choices);
        other.lint().unwrap();
        let nodes: Vec<NodeId> = other.nodes().collect();
        for &node in &nodes {
            other.rename(node, "renamed").unwrap();
            other.set_ty(node, None).unwrap();
        }
        prop_assert_eq!(form(&other).hash, form(&graph).hash);
        prop_assert_eq!(text(&other), text(&graph));
    }

    #[test]
    fn one_hash_means_one_program(
        recipe in graphs(10), edits in vec(edits(), 1..3),
    ) {
        let mut editor = Editor::new(recipe.build());
        let before = editor.graph.clone();
        edits.iter().for_each(|edit| editor.apply(edit));
        prop_assume!(editor.graph.lint().is_ok() && before.lint().is_ok());
        if form(&editor.graph).hash == form(&before).hash {
            prop_assert_eq!(text(&editor.graph), text(&before));
        }
    }

    #[test]
    fn any_change_of_meaning_counts(recipe in graphs(14), at in any::<usize>(), what in 0..6) {
        let graph = recipe.build();
        let mut other = graph.clone();
        let nodes: Vec<NodeId> = graph.nodes().collect();
        prop_assume!(!nodes.is_empty());
        let node = nodes[at % nodes.len()];
        let view = graph.node(node);
        let mut args: ThinVec<Arg> = view.args().into();
        let mut kwargs: ThinVec<_> = view.kwargs().into();
        match what {
            0 => {
                prop_assume!(view.op() != Op::Output);
                let (name, op) = (other.intern("something else"), view.op());
                let target = match op {
                    Op::CallFunction => Target::Function(other.function("something.else")),
                    _ => Target::Name(name),
                };
                other.set_target(node, target).unwrap();
            }
            1 => {
                args.push(Arg::Int(1));
                other.set_arguments(node, args, kwargs).unwrap();
            }
            2 => {
                kwargs.push((other.intern("new"), Arg::None));
                other.set_arguments(node, args, kwargs).unwrap();
            }
            3 => {
                prop_assume!(args.len() >= 2 && args[0] != args[1]);
                prop_assume!(!matches!((&args[0], &args[1]), (Arg::Node(_), Arg::Node(_))));
                prop_assume!(!matches!((&args[0], &args[1]), (Arg::Float(a), Arg::Float(b)) if a.to_bits() == b.to_bits()));
                args.swap(0, 1);
                let swapped = format!("{:?}", &args[..2]);
                prop_assume!(swapped != format!("{:?}", &view.args()[..2]));
                other.set_arguments(node, args, kwargs).unwrap();
            }
            4 => {
                let copy = other.get_attr("copy").unwrap();
                prop_assert!(other.contains(copy));
            }
            _ => {
                let first = args.first().cloned();
                prop_assume!(first.is_some());
                args[0] = Arg::tuple([first.unwrap()]).unwrap_or(Arg::Ellipsis);
                other.set_arguments(node, args, kwargs).unwrap();
            }
        }
        prop_assert!(form(&other).hash != form(&graph).hash);
    }
}

#[test]
fn sharing_counts() {
    let program = |shared: bool| {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let a = graph.call_method("cos", [x.into()]).unwrap();
        let b = graph.call_method("cos", [x.into()]).unwrap();
        let second = if shared { a } else { b };
        graph
            .output(Arg::tuple([a.into(), second.into()]).unwrap())
            .unwrap();
        graph
    };
    assert_ne!(
        program(true).canonical_hash(),
        program(false).canonical_hash()
    );
}

#[test]
fn many_uses_of_one_node_cost_no_more_than_many_nodes() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let values: Vec<Arg> = (0..100_000)
        .map(|_| graph.call_method("cos", [x.into()]).unwrap().into())
        .collect();
    graph.output(Arg::tuple(values).unwrap()).unwrap();
    // Quadratic work would take minutes.
    assert_eq!(form(&graph).order.len(), graph.len());
}
