//! Merged products, and refusals.

use corsac_ops::Unhosted;

use super::*;
use crate::tensors::TensorFact;

/// Two products with `w`, and the nodes that `between` puts between them.
fn program(between: impl FnOnce(&mut Graph, NodeId, NodeId)) -> (Graph, [NodeId; 5]) {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.placeholder("y").unwrap();
    let w = graph.get_attr("w").unwrap();
    let matmul = graph.function("torch.matmul");
    let a = graph.call_function(matmul, [x.into(), w.into()]).unwrap();
    between(&mut graph, y, a);
    let b = graph.call_function(matmul, [y.into(), w.into()]).unwrap();
    graph
        .output(Arg::tuple([a.into(), b.into()]).unwrap())
        .unwrap();
    (graph, [x, y, w, a, b])
}

/// Values with their shapes.
type Shapes<'s> = &'s [(NodeId, &'s [i64])];

fn facts(shapes: Shapes<'_>) -> TensorFacts {
    let mut facts = TensorFacts::new();
    for &(node, shape) in shapes {
        let fact = TensorFact {
            shape: Some(shape.to_vec()),
            ..TensorFact::default()
        };
        facts.set(node, fact);
    }
    facts
}

fn refusals(graph: &Graph, facts: &TensorFacts) -> Vec<Option<Refusal>> {
    let found = find(graph, &Unhosted, facts).unwrap();
    found.sites.into_iter().map(|site| site.refusal).collect()
}

/// Shapes with which the products of `program` can be merged.
fn fitting([x, y, w, ..]: [NodeId; 5]) -> TensorFacts {
    facts(&[(x, &[2, 3]), (y, &[5, 3]), (w, &[3, 4])])
}

#[test]
fn known_shapes_become_sizes() {
    let (mut graph, nodes) = program(|_, _, _| {});
    let mut found = find(&graph, &Unhosted, &fitting(nodes)).unwrap();
    let functions = Functions::of_torch(&mut graph);
    let edits = found.merge(&mut graph, &functions).unwrap();
    graph.verify().unwrap();
    let text = graph.to_lossless();
    assert!(text.contains("(args = (%matmul_2, [2, 5])"), "{text}");
    assert_eq!(edits.erased.len(), 2);
    let same: Vec<_> = edits.added.iter().filter(|d| d.has_its_value).collect();
    assert_eq!((same.len(), same[0].root), (2, nodes[3]));
    assert_eq!(graph.node(same[0].node).name(), "matmul");
}

#[test]
fn shapes_decide() {
    let (graph, [x, y, w, ..]) = program(|_, _, _| {});
    let name = |operand: &str| operand.to_owned();
    let unknown = |operand| {
        Some(Refusal::Unknown {
            operand: name(operand),
        })
    };
    let cases: [(Shapes<'_>, Option<Refusal>); 6] = [
        (&[(x, &[2, 3]), (y, &[5, 3]), (w, &[3, 4])], None),
        (&[(x, &[2, 3]), (y, &[5, 3]), (w, &[3])], None),
        (
            &[(x, &[2, 3]), (y, &[3]), (w, &[3, 4])],
            Some(Refusal::Shape),
        ),
        (
            &[(x, &[2, 3]), (y, &[2, 5, 3]), (w, &[3, 4])],
            Some(Refusal::Shape),
        ),
        (
            &[(x, &[2, 3]), (y, &[5, 3]), (w, &[7, 3, 4])],
            Some(Refusal::Batched {
                operand: name("w"),
                rank: 3,
            }),
        ),
        (&[(x, &[2, 3]), (w, &[3, 4])], unknown("y")),
    ];
    for (shapes, expected) in cases {
        let found = refusals(&graph, &facts(shapes));
        assert_eq!(found, [expected.clone(), expected], "{shapes:?}");
    }
    let none = TensorFacts::new();
    assert_eq!(refusals(&graph, &none), [unknown("w"), unknown("w")]);
}

#[test]
fn what_is_done_in_between_or_written_keeps_them_apart() {
    let (written, nodes) = program(|graph, y, _| {
        graph.call_method("mul_", [y.into(), 2.into()]).unwrap();
    });
    let node = "mul_".to_owned();
    let expected = Some(Refusal::Between { node });
    assert_eq!(
        refusals(&written, &fitting(nodes)),
        [expected.clone(), expected]
    );
    let (mut result, nodes) = program(|_, _, _| {});
    let [.., a, b] = nodes;
    result.restore_insert_point(corsac_ir::InsertPoint::After(b));
    result.call_method("add_", [a.into(), 1.into()]).unwrap();
    let expected = Some(Refusal::Written);
    assert_eq!(
        refusals(&result, &fitting(nodes)),
        [expected.clone(), expected]
    );
}

#[test]
fn a_group_that_another_merge_makes_depend_on_itself_stays() {
    // a = x @ v, c = a @ w; d = y @ w, b = d @ v: either pair can be merged, and then the other
    // cannot.
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.placeholder("y").unwrap();
    let v = graph.get_attr("v").unwrap();
    let w = graph.get_attr("w").unwrap();
    let matmul = graph.function("torch.matmul");
    let mut product = |left: NodeId, right: NodeId| {
        graph
            .call_function(matmul, [left.into(), right.into()])
            .unwrap()
    };
    let a = product(x, v);
    let c = product(a, w);
    let d = product(y, w);
    let b = product(d, v);
    graph
        .output(Arg::tuple([b.into(), c.into()]).unwrap())
        .unwrap();
    let square: &[i64] = &[3, 3];
    let shapes = facts(&[x, y, v, w, a, d].map(|node| (node, square)));
    let mut found = find(&graph, &Unhosted, &shapes).unwrap();
    assert_eq!(found.groups.len(), 2);
    let functions = Functions::of_torch(&mut graph);
    found.merge(&mut graph, &functions).unwrap();
    graph.verify().unwrap();
    assert_eq!(found.groups.len(), 1);
    let stays: Vec<_> = found.sites.iter().filter(|s| s.refusal.is_some()).collect();
    assert_eq!(stays.len(), 2);
    assert!(matches!(stays[0].refusal, Some(Refusal::Dependent { .. })));
}

#[test]
fn a_budget_counts_groups() {
    let (graph, nodes) = program(|_, _, _| {});
    let mut found = find(&graph, &Unhosted, &fitting(nodes)).unwrap();
    found.limit(&mut Budget::of(0));
    assert_eq!(found.groups, []);
    assert_eq!(found.sites[0].refusal, Some(Refusal::Budget));
}
