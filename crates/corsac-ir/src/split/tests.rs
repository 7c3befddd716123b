use super::*;
use crate::entity::{EntityId, NodeId, PartId};
use crate::error::GraphError;
use crate::graph::{Graph, Translation};
use crate::text::NoHost;

/// A graph with a line `name <- uses` for each call; names used and not defined are inputs.
fn graph(lines: &[(&str, &[&str])]) -> Graph {
    let mut text = String::from("graph v1:\n    %x = placeholder[target=x]\n");
    for (name, uses) in lines {
        let args: String = uses.iter().map(|used| format!("%{used}, ")).collect();
        text += &format!("    %{name} = call_method[target=f](args = ({args}), kwargs = {{}})\n");
    }
    Graph::parse(&text).unwrap()
}

fn node(graph: &Graph, name: &str) -> NodeId {
    graph
        .nodes()
        .find(|&n| graph.node(n).name() == name)
        .unwrap()
}

fn is_call(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op() == crate::Op::CallMethod
}

/// The names of the nodes of each part.
fn shown(graph: &Graph, parts: &Parts) -> Vec<String> {
    let names = |nodes: Vec<NodeId>| -> String {
        let names: Vec<_> = nodes.iter().map(|&n| graph.node(n).name()).collect();
        names.join(" ")
    };
    parts.members(graph).into_iter().map(names).collect()
}

/// Nodes with an upper-case name are wanted.
fn is_wanted(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).name().starts_with(char::is_uppercase)
}

#[test]
fn nodes_of_a_colour_go_together_where_no_other_comes_between() {
    type Lines = &'static [(&'static str, &'static [&'static str])];
    let cases: &[(Lines, &[&str])] = &[
        // A line of wanted nodes is one part.
        (&[("A", &["x"]), ("B", &["A"]), ("C", &["B"])], &["A B C"]),
        // An unwanted node separates those before it from those behind it.
        (&[("A", &["x"]), ("u", &["A"]), ("B", &["u"])], &["B", "A"]),
        // A residual edge around it does not help.
        (
            &[("A", &["x"]), ("u", &["A"]), ("B", &["u", "A"])],
            &["B", "A"],
        ),
        // Unconnected nodes go together; the length of the path between does not matter.
        (
            &[
                ("A", &["x"]),
                ("u", &["A"]),
                ("v", &["u"]),
                ("B", &["v"]),
                ("C", &["x"]),
                ("w", &["C"]),
                ("D", &["w"]),
            ],
            &["B D", "A C"],
        ),
        (&[("u", &["x"])], &[]),
    ];
    for (lines, expected) in cases {
        let graph = graph(lines);
        let grown = Parts::coloured(&graph, |n| is_wanted(&graph, n).then_some(0));
        assert_eq!(shown(&graph, &grown.parts), *expected);
        assert_eq!(grown.parts.check(&graph), Ok(()));
        assert_eq!(grown.seeds.len(), expected.len());
    }
}

#[test]
fn colours_do_not_mix() {
    let graph = graph(&[("a", &["x"]), ("b", &["a"]), ("c", &["b"]), ("d", &["a"])]);
    let colour = |n: NodeId| match graph.node(n).name() {
        "a" | "c" | "d" => Some(7),
        "b" => Some(3),
        _ => None,
    };
    let grown = Parts::coloured(&graph, colour);
    assert_eq!(grown.parts.check(&graph), Ok(()));
    assert_eq!(shown(&graph, &grown.parts), ["c d", "b", "a"]);
}

#[test]
fn parts_in_sections_are_those_of_each_section_alone() {
    // `B` begins a section. `A` is read there and `C` is not, which does not part them.
    let graph = graph(&[
        ("A", &["x"]),
        ("C", &["x"]),
        ("B", &["A"]),
        ("u", &["B"]),
        ("D", &["u"]),
    ]);
    let begins = graph.node(node(&graph, "B")).order();
    let section = |n: NodeId| u32::from(graph.node(n).order() >= begins);
    let wanted = |n: NodeId| is_wanted(&graph, n).then_some(0);
    let grown = Parts::coloured_in_sections(&graph, section, wanted);
    assert_eq!(grown.parts.check(&graph), Ok(()));
    assert_eq!(shown(&graph, &grown.parts), ["D", "B", "A C"]);
    assert_eq!(grown.seeds.len(), 3);
    let mut alone = Vec::new();
    for own in [1, 0] {
        let grown = Parts::coloured(&graph, |n| wanted(n).filter(|_| section(n) == own));
        alone.extend(shown(&graph, &grown.parts));
    }
    assert_eq!(shown(&graph, &grown.parts), alone);
}

#[test]
fn along_uses_only_connected_nodes_go_together() {
    let graph = graph(&[
        ("A", &["x"]),
        ("B", &["A"]),
        ("C", &["x"]),
        ("D", &["C"]),
        ("u", &["B"]),
        ("E", &["u", "B", "D"]),
    ]);
    let grown = Parts::along_uses(&graph, |n| is_wanted(&graph, n));
    assert_eq!(shown(&graph, &grown.parts), ["C D E", "A B"]);
    assert_eq!(grown.parts.check(&graph), Ok(()));
}

#[test]
fn a_cycle_of_parts_is_named() {
    let graph = graph(&[("a", &["x"]), ("b", &["a"]), ("c", &["b"])]);
    let parts = Parts::by_key(&graph, |n| match graph.node(n).name() {
        "a" | "c" => Some('p'),
        "b" => Some('q'),
        _ => None,
    });
    let path = vec!["a".to_owned(), "b".to_owned(), "a".to_owned()];
    assert_eq!(parts.check(&graph), Err(SplitError::Cycle { path }));
    let names = ["p".to_owned(), "q".to_owned()];
    assert!(split(&graph, &parts, &Options::new(&names)).is_err());

    // Paths also lead through nodes in no part.
    let through = Parts::by_key(&graph, |n| {
        matches!(graph.node(n).name(), "a" | "c").then_some(())
    });
    assert!(matches!(
        through.check(&graph),
        Err(SplitError::Cycle { .. })
    ));
    assert_eq!(
        parts.check_ascending(&graph).unwrap_err().to_string(),
        "node c is in part 0, but uses b of the later part 1"
    );
}

#[test]
fn names_and_parts_have_to_fit() {
    let graph = graph(&[("a", &["x"])]);
    let parts = Parts::by_key(&graph, |n| is_call(&graph, n).then_some(()));
    let error = split(&graph, &parts, &Options::new(&[])).unwrap_err();
    assert_eq!(error, SplitError::Names { parts: 1, names: 0 });
}

#[test]
fn a_value_that_is_defined_too_late_is_named() {
    let text = "graph v1:
    %x = placeholder[target=x]
    %a = call_method[target=f](args = (%b,), kwargs = {})
    %b = call_method[target=f](args = (%x,), kwargs = {})";
    let graph = Graph::parse(text).unwrap();
    let parts = Parts::by_key(&graph, |n| is_call(&graph, n).then_some(()));
    let names = ["p".to_owned()];
    let error = split(&graph, &parts, &Options::new(&names)).unwrap_err();
    let expected = "a uses b, which is no input and not computed before";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn items_follow_their_tuple() {
    let text = "graph v1:
    %x = placeholder[target=x]
    %t = call_method[target=split](args = (%x,), kwargs = {})
    %a = call_function[target=operator.getitem](args = (%t, 0), kwargs = {})
    %b = call_function[target=operator.getitem](args = (%a, 1), kwargs = {})
    %c = call_method[target=f](args = (%b,), kwargs = {})";
    let graph = Graph::parse(text).unwrap();
    let mut parts = Parts::new(1);
    parts.assign(node(&graph, "t"), PartId::from_index(0));
    let moved = parts.take_items_along(&graph);
    assert_eq!(moved, [node(&graph, "a"), node(&graph, "b")]);
    assert_eq!(shown(&graph, &parts), ["t a b"]);
}

#[test]
fn a_call_without_the_arguments_of_the_part_stays() {
    let mut parent = Graph::new();
    let call = parent.call_module("p", []).unwrap();
    let before = parent.to_text(&NoHost);
    let part = graph(&[("a", &["x"])]);
    let error = inline(&mut parent, call, &part, &mut Translation::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call p gives 0 values to a part that takes 1"
    );
    assert_eq!(parent.to_text(&NoHost), before);
}

#[test]
fn origins_and_types_go_along() {
    let text = "graph v1:
    %x = placeholder[target=x]
    %a = call_method[target=f](args = (%x,), kwargs = {})
    %b = call_method[target=g](args = (%a,), kwargs = {})";
    let mut graph = Graph::parse(text).unwrap();
    let (file, function) = (graph.intern("model.py"), graph.intern("forward"));
    let source = graph.add_source(crate::Source::Line {
        file,
        line: 7,
        function,
    });
    let class = graph.add_external(Some("torch.nn.Linear"));
    let path = graph.intern("layer.1");
    let scope = graph.add_scope(crate::Scope {
        parent: None,
        path,
        class,
        call: 0,
    });
    let (a, b) = (node(&graph, "a"), node(&graph, "b"));
    let origin = crate::Origin {
        source: Some(source),
        scope: Some(scope),
    };
    graph.set_origin(a, origin);
    graph.set_ty(a, Some(class)).unwrap();
    let mut parts = Parts::new(2);
    parts.assign(a, PartId::from_index(0));
    parts.assign(b, PartId::from_index(1));
    let names = ["p".to_owned(), "q".to_owned()];
    let split = split(&graph, &parts, &Options::new(&names)).unwrap();
    // The node itself in its part, and the input that stands for it in the other.
    for part in &split.parts {
        let (_, copy) = *part.copies.iter().find(|(old, _)| *old == a).unwrap();
        let origin = part.graph.origin(copy);
        let crate::Source::Line { file, line, .. } = part.graph.source(origin.source.unwrap())
        else {
            panic!("a line stays one");
        };
        assert_eq!((part.graph.text(file), line), ("model.py", 7));
        let scope = part.graph.scope(origin.scope.unwrap());
        assert_eq!(part.graph.text(scope.path), "layer.1");
        assert_eq!(
            part.graph.external_name(scope.class),
            Some("torch.nn.Linear")
        );
        let ty = part.graph.node(copy).ty().unwrap();
        assert_eq!(part.graph.external_name(ty), Some("torch.nn.Linear"));
    }
}

#[test]
fn companions_come_along() {
    let graph = graph(&[("n", &["x"]), ("a", &["x"]), ("b", &["a"])]);
    let (n, a) = (node(&graph, "n"), node(&graph, "a"));
    let parts = Parts::by_key(&graph, |id| match graph.node(id).name() {
        "n" | "a" => Some(0),
        "b" => Some(1),
        _ => None,
    });
    let names = ["p".to_owned(), "q".to_owned()];
    let mut options = Options::new(&names);
    options.companions.insert(a, vec![n]);
    let split = split(&graph, &parts, &options).unwrap();
    assert_eq!(split.parts[1].inputs, [a, n]);
    assert_eq!(split.parts[0].outputs, [a, n]);
}

#[test]
fn groups_take_turns() {
    let kinds = |text: &str| -> Vec<Option<Kind>> {
        let kind = |c| match c {
            'd' => Some(Kind::Device),
            'h' => Some(Kind::Host),
            _ => None,
        };
        text.chars().map(kind).collect()
    };
    let run = |text, before: &[(u32, u32)], together: &[&[u32]]| -> String {
        let groups = alternate(
            &Alternation {
                kinds: kinds(text),
                before: before.to_vec(),
                together: together.iter().map(|t| t.to_vec()).collect(),
            },
            None,
        );
        let show = |(kind, group): &(Kind, Vec<u32>)| format!("{kind:?}{group:?}");
        groups.iter().map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(run("", &[], &[]), "");
    assert_eq!(run("ddd", &[(0, 1)], &[]), "Device[0, 1, 2]");
    assert_eq!(
        run("hdh", &[(0, 1), (1, 2)], &[]),
        "Host[0] Device[1] Host[2]"
    );
    // The device can start, but the host does where it can.
    assert_eq!(run("dhd", &[(0, 2), (1, 2)], &[]), "Host[1] Device[0, 2]");
    // Nodes that have to be together wait for each other's inputs.
    assert_eq!(run("dhd", &[(1, 2)], &[&[0, 2]]), "Host[1] Device[0, 2]");
    // Where that makes a cycle, all of it goes to the host.
    assert_eq!(run("dhd", &[(0, 1), (1, 2)], &[&[0, 2]]), "Host[0, 1, 2]");
    // Nothing waits for things in no group.
    assert_eq!(run("-d", &[(0, 1)], &[]), "Device[1]");
}

#[test]
fn nodes_are_sorted_among_themselves() {
    let graph = graph(&[("a", &["x"]), ("b", &["a"]), ("c", &["x"]), ("d", &["b"])]);
    let ids = |names: &[&str]| -> Vec<NodeId> { names.iter().map(|n| node(&graph, n)).collect() };
    assert_eq!(
        graph.sorted(&ids(&["d", "c", "b"])),
        Ok(ids(&["c", "b", "d"]))
    );
    assert_eq!(graph.sorted(&[]), Ok(Vec::new()));
    let order = graph.queue_order(|n| n == node(&graph, "b")).unwrap();
    assert_eq!(order, ids(&["x", "a", "b", "c", "d"]));
    let order = graph.queue_order(|_| false).unwrap();
    assert_eq!(order, ids(&["x", "a", "c", "b", "d"]));
    let mut own = Graph::parse(
        "graph v1:
        %a = call_method[target=f](args = (%a,), kwargs = {})",
    )
    .unwrap();
    assert!(matches!(
        own.queue_order(|_| false),
        Err(GraphError::Cycle { .. })
    ));
    assert!(own.reorder(&[NodeId::from_index(9)]).is_err());
}

/// A chain of wanted and unwanted nodes with residual edges is split fast, unlike by a search per
/// pair.
#[test]
fn long_chains() {
    let mut graph = Graph::new();
    let f = graph.function("torch.relu");
    let mut values = vec![graph.placeholder("x").unwrap()];
    for i in 0..40_000_usize {
        let back = values[values.len() - 1 - i % 7.min(values.len())];
        let last = values[values.len() - 1];
        let args = [crate::Arg::Node(last), crate::Arg::Node(back)];
        values.push(graph.call_function(f, args).unwrap());
    }
    let wanted = |n: NodeId| !n.index().is_multiple_of(5);
    for grown in [
        Parts::coloured(&graph, |n| wanted(n).then_some(0)),
        Parts::along_uses(&graph, wanted),
    ] {
        assert_eq!(grown.parts.check(&graph), Ok(()));
        assert!(grown.parts.len() >= 8_000);
    }
}
