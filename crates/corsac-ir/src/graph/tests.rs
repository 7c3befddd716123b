use super::*;
use crate::arg::Dict;
use crate::entity::SecondaryMap;
use crate::verify::FaultKind;

fn chain(len: usize) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::new();
    let add = graph.function("operator.add");
    let mut ids = vec![graph.placeholder("x").unwrap()];
    for _ in 0..len {
        let last = *ids.last().unwrap();
        ids.push(
            graph
                .call_function(add, [last.into(), Arg::Int(1)])
                .unwrap(),
        );
    }
    let last = *ids.last().unwrap();
    ids.push(graph.output(last).unwrap());
    (graph, ids)
}

fn names(graph: &Graph, ids: impl IntoIterator<Item = NodeId>) -> Vec<String> {
    ids.into_iter()
        .map(|id| graph.node(id).name().to_owned())
        .collect()
}

#[test]
fn users_keep_the_order_in_which_they_came() {
    let mut graph = Graph::new();
    let (a, b) = (
        graph.placeholder("a").unwrap(),
        graph.placeholder("b").unwrap(),
    );
    let add = graph.function("operator.add");
    let c = graph.call_function(add, [a.into(), b.into()]).unwrap();
    let d = graph.call_function(add, [a.into(), c.into()]).unwrap();
    assert_eq!(graph.users(a).collect::<Vec<_>>(), [c, d]);
    graph.set_args(c, [a.into(), a.into()]).unwrap();
    assert_eq!(graph.users(a).collect::<Vec<_>>(), [d, c]);
    assert_eq!(graph.users(b).count(), 0);
    assert_eq!(graph.inputs(c).collect::<Vec<_>>(), [a]);
    assert_eq!(graph.replace_all_uses(a, b).unwrap(), [d, c]);
    assert_eq!(graph.inputs(d).collect::<Vec<_>>(), [b, c]);
}

#[test]
fn order_survives_many_insertions_at_one_place() {
    let (mut graph, ids) = chain(3);
    graph.set_insert_point(InsertPoint::After(ids[1])).unwrap();
    let mut inserted: Vec<_> = (0..200).map(|_| graph.get_attr("w").unwrap()).collect();
    inserted.reverse();
    let order: Vec<_> = graph.nodes().collect();
    assert_eq!(order[..2], ids[..2]);
    assert_eq!(order[2..202], inserted);
    assert_eq!(order[202..], ids[2..]);
    assert!(order.windows(2).all(|w| graph.is_before(w[0], w[1])));
    assert_eq!(
        graph.nodes().rev().collect::<Vec<_>>(),
        order.iter().rev().copied().collect::<Vec<_>>()
    );
}

#[test]
fn erasing_needs_a_node_without_users_and_leaves_a_readable_shell() {
    let (mut graph, ids) = chain(2);
    assert_eq!(
        graph.erase(ids[1]),
        Err(GraphError::HasUsers {
            node: ids[1],
            name: "add".into(),
            users: vec!["add_1".into()]
        })
    );
    graph.erase(ids[3]).unwrap();
    graph.erase(ids[2]).unwrap();
    assert_eq!(graph.len(), 2);
    assert_eq!(graph.node(ids[2]).args(), [Arg::None, Arg::None]);
    assert_eq!(graph.node(ids[2]).name(), "add_1");
    assert_eq!(graph.next(ids[2]), NodeId::ROOT);
    assert_eq!(
        graph.erase(ids[2]),
        Err(GraphError::Erased {
            node: ids[2],
            name: "add_1".into()
        })
    );
    assert_eq!(graph.users(ids[1]).count(), 0);
}

#[test]
fn names_of_erased_nodes_are_not_given_out_again() {
    let (mut graph, ids) = chain(1);
    graph.erase(ids[2]).unwrap();
    graph.erase(ids[1]).unwrap();
    let add = graph.function("operator.add");
    let again = graph
        .call_function(add, [ids[0].into(), Arg::Int(2)])
        .unwrap();
    assert_eq!(graph.node(again).name(), "add_1");
}

#[test]
fn finding_follows_erasure_and_retargeting() {
    let (mut graph, ids) = chain(3);
    let add = Target::Function(graph.function("operator.add"));
    let mul = Target::Function(graph.function("operator.mul"));
    assert_eq!(graph.find_nodes(Op::CallFunction, Some(add)), ids[1..4]);
    graph.set_target(ids[2], mul).unwrap();
    assert_eq!(
        graph.find_nodes(Op::CallFunction, Some(add)),
        [ids[1], ids[3]]
    );
    assert_eq!(graph.find_nodes(Op::CallFunction, Some(mul)), [ids[2]]);
    assert_eq!(graph.find_calls("operator.mul"), [ids[2]]);
    assert_eq!(graph.find_nodes(Op::CallFunction, None), ids[1..4]);
    graph.erase(ids[4]).unwrap();
    graph.erase(ids[3]).unwrap();
    assert_eq!(graph.find_nodes(Op::CallFunction, None), ids[1..3]);
    assert_eq!(graph.find_nodes(Op::Output, None), []);
}

#[test]
fn retargeted_nodes_are_told_once() {
    let (mut graph, ids) = chain(3);
    let mul = Target::Function(graph.function("operator.mul"));
    let sub = Target::Function(graph.function("operator.sub"));
    for target in [mul, sub, mul, sub] {
        graph.set_target(ids[2], target).unwrap();
        graph.set_target(ids[1], target).unwrap();
    }
    assert_eq!(graph.take_retargeted(), [ids[2], ids[1]]);
    assert_eq!(graph.take_retargeted(), []);
    graph.set_target(ids[1], mul).unwrap();
    assert_eq!(graph.take_retargeted(), [ids[1]]);
}

#[test]
fn a_refused_change_leaves_the_graph_as_it_was() {
    let (mut graph, ids) = chain(2);
    let foreign = NodeId::from_index(99);
    let before = names(&graph, graph.nodes());
    assert_eq!(
        graph.set_args(ids[1], [foreign.into()]),
        Err(GraphError::UnknownNode { node: foreign })
    );
    assert_eq!(
        graph.set_target(ids[0], Target::Function(FunctionId::from_index(0))),
        Err(GraphError::WrongTarget {
            op: Op::Placeholder,
            name: "x".into(),
            expected: "a name"
        })
    );
    assert!(graph.call_method("relu", [foreign.into()]).is_err());
    assert_eq!(names(&graph, graph.nodes()), before);
    assert_eq!(graph.users(ids[0]).collect::<Vec<_>>(), [ids[1]]);
    // The name was not taken either.
    let relu = graph.call_method("relu", [ids[0].into()]).unwrap();
    assert_eq!(graph.node(relu).name(), "relu");
}

#[test]
fn moving_changes_order_only() {
    let (mut graph, ids) = chain(2);
    graph.move_before(ids[1], ids[0]).unwrap();
    assert_eq!(
        graph.nodes().collect::<Vec<_>>(),
        [ids[1], ids[0], ids[2], ids[3]]
    );
    graph.move_after(ids[1], ids[0]).unwrap();
    assert_eq!(graph.nodes().collect::<Vec<_>>(), ids);
    assert!(graph.move_after(ids[1], ids[1]).is_err());
}

#[test]
fn a_compact_copy_has_the_same_nodes_and_fresh_names() {
    let (mut graph, ids) = chain(3);
    graph.erase(ids[4]).unwrap();
    graph.erase(ids[3]).unwrap();
    let keyword = graph.intern("mode");
    let text = graph.intern("constant");
    let file = graph.intern("model.py");
    let source = graph.add_source(Source::Line {
        file,
        line: 7,
        function: text,
    });
    graph.set_origin(
        ids[2],
        Origin {
            source: Some(source),
            scope: None,
        },
    );
    graph
        .set_kwargs(ids[2], [(keyword, Arg::Str(text))])
        .unwrap();
    graph.output(ids[2]).unwrap();

    let copy = graph
        .compact_copy(&mut SecondaryMap::new(), &mut Translation::new())
        .unwrap();
    assert_eq!(
        names(&copy, copy.nodes()),
        ["x", "add", "add_1", "output_1"]
    );
    let last = copy.nodes().nth(2).unwrap();
    let Some(Arg::Str(mode)) = copy.node(last).kwarg("mode") else {
        panic!("kept")
    };
    assert_eq!(copy.text(*mode), "constant");
    let Source::Line { file, line, .. } = copy.source(copy.origin(last).source.unwrap()) else {
        panic!("a line")
    };
    assert_eq!((copy.text(file), line), ("model.py", 7));

    let mut copy = copy;
    let add = copy.function("operator.add");
    let fresh = copy.call_function(add, []).unwrap();
    assert_eq!(copy.node(fresh).name(), "add_2");
}

#[test]
fn a_copy_has_its_own_strings_at_every_depth() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    for text in ["filler", "more filler"] {
        graph.intern(text);
    }
    let key = graph.intern("key");
    let dict = Arg::Dict(Dict::new([(Arg::Str(key), x.into())]).unwrap());
    let nested = Arg::list([Arg::tuple([dict]).unwrap()]).unwrap();
    graph.call_method("relu", [nested]).unwrap();

    let mut copy = Graph::new();
    copy.copy_graph(&graph, &mut SecondaryMap::new(), &mut Translation::new())
        .unwrap();
    assert_eq!(copy.to_string(), graph.to_string());
}

#[test]
fn a_value_with_many_users_changes_in_constant_time_per_user() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.placeholder("y").unwrap();
    let users: Vec<_> = (0..50_000)
        .map(|_| graph.call_method("relu", [x.into()]).unwrap())
        .collect();
    let all = Arg::tuple(users.iter().map(|&u| u.into()).collect::<ThinVec<_>>()).unwrap();
    let output = graph.output(all).unwrap();
    assert_eq!(graph.inputs(output).count(), users.len());
    assert_eq!(graph.replace_all_uses(x, y).unwrap(), users);
    assert_eq!(
        (graph.node(x).num_users(), graph.node(y).num_users()),
        (0, users.len())
    );
}

#[test]
fn strings_in_nested_dictionaries_are_translated() {
    let (mut graph, ids) = chain(1);
    for padding in ["a", "b", "c"] {
        graph.intern(padding);
    }
    let key = Arg::Str(graph.intern("key"));
    let dict = Arg::Dict(crate::arg::Dict::new([(key, ids[0].into())]).unwrap());
    graph
        .set_args(ids[1], [Arg::list([dict]).unwrap()])
        .unwrap();
    let copy = graph
        .compact_copy(&mut SecondaryMap::new(), &mut Translation::new())
        .unwrap();
    let add = copy.nodes().nth(1).unwrap();
    let Arg::Dict(dict) = &copy.node(add).args()[0].as_items().unwrap()[0] else {
        panic!("a dictionary")
    };
    let Arg::Str(key) = dict[0].0 else {
        panic!("a string")
    };
    assert_eq!(copy.text(key), "key");
}

#[test]
fn verify_finds_arguments_that_uses_do_not_know_of() {
    let faults = |graph: &Graph| -> Vec<(NodeId, FaultKind)> {
        let report = graph.verify().unwrap_err();
        let faults = report.faults.into_iter();
        faults.map(|fault| (fault.node, fault.kind)).collect()
    };
    let (mut graph, ids) = chain(6);
    assert_eq!(graph.verify(), Ok(()));
    // 1 + 4 users and 2 + 3 users: as many, and their numbers have equal sums.
    for (user, input) in [(5, 1), (4, 2)] {
        graph.nodes[ids[user].index()].args[0] = ids[input].into();
    }
    assert_eq!(
        faults(&graph),
        [
            (ids[4], FaultKind::InputsOutOfStep),
            (ids[5], FaultKind::InputsOutOfStep),
            (ids[1], FaultKind::UsersOutOfStep),
            (ids[2], FaultKind::UsersOutOfStep),
            (ids[3], FaultKind::UsersOutOfStep),
            (ids[4], FaultKind::UsersOutOfStep),
        ]
    );
}
