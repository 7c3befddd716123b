//! Properties of random graphs split in random ways.

use corsac_ir::split::{
    Interface, Options, Order, Parts, Returns, Sequence, SplitError, ValueNames, inline, split,
};
use corsac_ir::{EntityId, ExternalId, Graph, NodeId, Op, Translation};
use corsac_testkit::assert_sound;
use corsac_testkit::strategy::graphs;
use proptest::collection::vec;
use proptest::prelude::{
    ProptestConfig, TestCaseError, any, prop_assert, prop_assert_eq, prop_assume, proptest,
};
use rustc_hash::{FxHashMap, FxHashSet};

fn is_call(graph: &Graph, node: NodeId) -> bool {
    matches!(
        graph.node(node).op(),
        Op::CallFunction | Op::CallMethod | Op::CallModule
    )
}

/// A function from nodes to numbers of `dice`.
fn thrown(graph: &Graph, dice: &[u8]) -> impl Fn(NodeId) -> u8 + use<> {
    let nodes: Vec<NodeId> = graph.nodes().collect();
    let dice = dice.to_vec();
    move |node| {
        let place = nodes.iter().position(|&n| n == node).unwrap_or(0);
        dice[place % dice.len()]
    }
}

/// Whether the nodes can run as one part: no path that leaves them leads back.
fn is_convex(graph: &Graph, nodes: &[NodeId]) -> bool {
    let inside: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let out = |n: &NodeId| {
        graph
            .users(*n)
            .filter(|u| !inside.contains(u))
            .collect::<Vec<_>>()
    };
    let mut open: Vec<NodeId> = nodes.iter().flat_map(out).collect();
    let mut seen = FxHashSet::default();
    while let Some(node) = open.pop() {
        if inside.contains(&node) {
            return false;
        }
        if seen.insert(node) {
            open.extend(graph.users(node));
        }
    }
    true
}

/// Checks that each wanted node is in one part, no other node is in any, and parts are as large as
/// possible.
fn check_grown(
    graph: &Graph,
    parts: &Parts,
    wanted: impl Fn(NodeId) -> bool,
    may_join: impl Fn(&[NodeId], &[NodeId]) -> bool,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(parts.check(graph), Ok(()));
    for node in graph.nodes() {
        prop_assert_eq!(parts.part_of(node).is_some(), wanted(node));
    }
    let members = parts.members(graph);
    for nodes in &members {
        prop_assert!(!nodes.is_empty() && is_convex(graph, nodes));
    }
    for (i, a) in members.iter().enumerate() {
        for b in members[i + 1..].iter().filter(|b| may_join(a, b)) {
            let mut joined = parts.clone();
            let part = joined.part_of(a[0]).expect("a member");
            b.iter().for_each(|&node| joined.assign(node, part));
            prop_assert!(joined.check(graph).is_err(), "{a:?} and {b:?} could join");
        }
    }
    Ok(())
}

/// The lines of a graph, sorted, so that order makes no difference. `number` maps host values to
/// numbers.
fn lines(graph: &Graph, number: impl Fn(usize) -> usize) -> Vec<String> {
    let renumber = |line: &str| -> String {
        let mut pieces = line.split("<x");
        let mut out = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let digits = piece
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(piece.len());
            let (digits, rest) = piece.split_at(digits);
            out += &match digits.parse() {
                Ok(old) if rest.starts_with('>') => format!("<x{}{rest}", number(old)),
                _ => format!("<x{digits}{rest}"),
            };
        }
        out
    };
    let mut lines: Vec<String> = graph.to_string().lines().map(renumber).collect();
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_of_one_colour_are_as_large_as_they_can_be(
        recipe in graphs(14), dice in vec(any::<u8>(), 1..14)
    ) {
        let graph = recipe.build();
        let dice = thrown(&graph, &dice);
        let wanted = |n| is_call(&graph, n) && !dice(n).is_multiple_of(3);
        let grown = Parts::coloured(&graph, |n| wanted(n).then_some(0));
        prop_assert_eq!(grown.seeds.len(), grown.parts.len());
        check_grown(&graph, &grown.parts, wanted, |_, _| true)?;
    }

    #[test]
    fn colours_stay_apart(recipe in graphs(14), dice in vec(any::<u8>(), 1..14)) {
        let graph = recipe.build();
        let dice = thrown(&graph, &dice);
        let colour = |n| is_call(&graph, n).then(|| u32::from(dice(n) % 4)).filter(|&c| c > 0);
        let parts = Parts::coloured(&graph, colour).parts;
        check_grown(&graph, &parts, |n| colour(n).is_some(), |_, _| false)?;
        for nodes in parts.members(&graph) {
            prop_assert!(nodes.iter().all(|&n| colour(n) == colour(nodes[0])));
        }
    }

    #[test]
    fn parts_along_uses_are_connected(recipe in graphs(14), dice in vec(any::<u8>(), 1..14)) {
        let graph = recipe.build();
        let dice = thrown(&graph, &dice);
        let wanted = |n| is_call(&graph, n) && !dice(n).is_multiple_of(4);
        let parts = Parts::along_uses(&graph, wanted).parts;
        check_grown(&graph, &parts, wanted, |_, _| false)?;
        for nodes in parts.members(&graph) {
            let mut reached: FxHashSet<NodeId> = FxHashSet::from_iter([nodes[0]]);
            let mut open = vec![nodes[0]];
            while let Some(node) = open.pop() {
                let near = graph.users(node).chain(graph.inputs(node));
                let near: Vec<_> = near.filter(|n| nodes.contains(n)).collect();
                open.extend(near.into_iter().filter(|&n| reached.insert(n)));
            }
            prop_assert_eq!(reached.len(), nodes.len());
        }
    }

    #[test]
    fn an_order_puts_parts_behind_what_they_use(
        recipe in graphs(14), dice in vec(any::<u8>(), 1..14)
    ) {
        let graph = recipe.build();
        let dice = thrown(&graph, &dice);
        let parts = Parts::by_key(&graph, |n| is_call(&graph, n).then(|| dice(n) % 4));
        let convex = parts.members(&graph).iter().all(|nodes| is_convex(&graph, nodes));
        for order in [Order::DepthFirst, Order::SmallestFirst] {
            match parts.order(&graph, order) {
                Ok(order) => {
                    prop_assert!(convex);
                    prop_assert_eq!(order.len(), parts.len());
                    let place = |n| order.iter().position(|&p| Some(p) == parts.part_of(n));
                    for node in graph.nodes() {
                        for input in graph.inputs(node) {
                            if let (Some(a), Some(b)) = (place(input), place(node)) {
                                prop_assert!(a <= b);
                            }
                        }
                    }
                }
                Err(SplitError::Cycle { path }) => {
                    prop_assert!(path.len() > 2 && path.first() == path.last());
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
    }

    #[test]
    fn splitting_and_inlining_gives_the_graph_back(
        recipe in graphs(14), dice in vec(any::<u8>(), 1..14), style in any::<[bool; 4]>()
    ) {
        let graph = recipe.build();
        // Inputs with defaults that are computed have no place in a calling graph.
        let odd = |n| graph.node(n).op() == Op::Placeholder && graph.inputs(n).count() > 0;
        let odd = graph.nodes().any(odd);
        let dice = thrown(&graph, &dice);
        let mut highest = 0;
        let parts = Parts::by_key(&graph, |n| {
            highest = highest.max(dice(n) % 5);
            is_call(&graph, n).then_some(highest)
        });
        let names: Vec<String> = parts.ids().map(|id| format!("split_part_{id}")).collect();
        let mut options = if style[0] { Options::tagged(&names) } else { Options::new(&names) };
        if !style[0] {
            options.style.value_names = ValueNames::Original;
            options.style.flat_targets = false;
            // Parts ascend, so that they can run in the order of their ids.
            options.sequence = Sequence::Sorted(Order::SmallestFirst);
        } else {
            options.parent.inputs_by_name = false;
            options.parent.defaults = true;
        }
        // Attributes have no arguments, and their types stay behind, as in torch.fx. With tags each
        // part reads its own, so that there are more.
        let attributes = graph.find_nodes(Op::GetAttr, None);
        let is_bare = |&n: &NodeId| {
            let node = graph.node(n);
            node.args().is_empty() && node.kwargs().is_empty() && node.ty().is_none()
        };
        prop_assume!(!odd && attributes.iter().all(is_bare));
        prop_assume!(!style[0] || attributes.is_empty());
        if style[1] {
            options.style.returns = Returns::Tuple;
        }
        let members = parts.members(&graph);
        let split = split(&graph, &parts, &options).unwrap();

        let crossing = Interface::of_parts(&graph, &parts);
        for ((part, nodes), interface) in split.parts.iter().zip(&members).zip(&crossing) {
            prop_assert_eq!(&part.inputs, &interface.inputs);
            prop_assert_eq!(&part.outputs, &interface.outputs);
            let taken: FxHashSet<NodeId> = nodes.iter().flat_map(|&n| graph.inputs(n))
                .filter(|n| !nodes.contains(n)).collect();
            prop_assert_eq!(&taken, &part.inputs.iter().copied().collect::<FxHashSet<_>>());
            let given: FxHashSet<NodeId> = nodes.iter().copied()
                .filter(|&n| graph.users(n).any(|u| !nodes.contains(&u))).collect();
            prop_assert_eq!(&given, &part.outputs.iter().copied().collect::<FxHashSet<_>>());
            assert_sound(&part.graph);
            prop_assert_eq!(part.graph.lint(), Ok(()));
        }
        assert_sound(&split.parent.graph);
        prop_assert_eq!(split.parent.graph.lint(), Ok(()));

        let mut whole = split.parent.graph.clone();
        // Host values of the original, with those of the whole.
        let mut values: FxHashMap<ExternalId, ExternalId> =
            split.parent.externals.iter().copied().collect();
        for id in &split.order {
            let (part, call) = (&split.parts[id.index()], split.calls[id.index()]);
            let mut translation = Translation::new();
            for (original, here) in &part.externals {
                if let Some(&there) = values.get(original) {
                    translation.know_external(*here, there);
                }
            }
            inline(&mut whole, call, &part.graph, &mut translation).unwrap();
            for (here, there) in translation.take_new_externals() {
                let original = part.externals.iter().find(|(_, h)| *h == here).unwrap().0;
                values.insert(original, there);
            }
        }
        assert_sound(&whole);
        // Calls may have taken names meanwhile: restore them.
        let mut renamed = whole.clone();
        for (old, new) in graph.nodes().zip(same_nodes(&graph, &whole)) {
            if let Some(new) = new {
                renamed.set_name(new, graph.node(old).name()).unwrap();
            }
        }
        let original = |index: usize| {
            let found = values.iter().find(|(_, there)| there.index() == index);
            found.map_or(usize::MAX, |(original, _)| original.index())
        };
        prop_assert_eq!(lines(&renamed, original), lines(&graph, |index| index));
    }
}

/// For each node of `graph`, the one of `whole` that it became: both have theirs of each kind and
/// target in the same order, since parts keep the order of their nodes and ascend.
fn same_nodes(graph: &Graph, whole: &Graph) -> Vec<Option<NodeId>> {
    let inputs = |g: &Graph| g.find_nodes(Op::Placeholder, None);
    let attributes = |g: &Graph| g.find_nodes(Op::GetAttr, None);
    let calls = |g: &Graph| g.nodes().filter(|&n| is_call(g, n)).collect::<Vec<_>>();
    let outputs = |g: &Graph| g.find_nodes(Op::Output, None);
    let pairs: Vec<(NodeId, NodeId)> = [
        (inputs(graph), inputs(whole)),
        (attributes(graph), attributes(whole)),
        (calls(graph), calls(whole)),
        (outputs(graph), outputs(whole)),
    ]
    .into_iter()
    .flat_map(|(a, b)| a.into_iter().zip(b))
    .collect();
    let find = |n| pairs.iter().find(|(old, _)| *old == n).map(|(_, new)| *new);
    graph.nodes().map(find).collect()
}
