//! Merged products, and refusals.

use corsac_ops::Unhosted;

use super::*;
use crate::pass::testing::run_with;
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
    run_with(
        &MergeProducts::default(),
        &mut graph.clone(),
        &Unhosted,
        facts,
    )
    .refusals()
}

/// Shapes with which the products of `program` can be merged.
fn fitting([x, y, w, ..]: [NodeId; 5]) -> TensorFacts {
    facts(&[(x, &[2, 3]), (y, &[5, 3]), (w, &[3, 4])])
}

#[test]
fn every_spelling_of_a_product_counts() {
    for product in [
        "torch.matmul",
        "operator.matmul",
        "torch.ops.aten.matmul.default",
    ] {
        let (mut graph, nodes) = program(|_, _, _| {});
        let function = graph.function(product);
        for &node in &nodes[3..] {
            graph.set_target(node, Target::Function(function)).unwrap();
        }
        assert_eq!(refusals(&graph, &fitting(nodes)), [None, None], "{product}");
    }
}

#[test]
fn known_shapes_become_sizes() {
    let (mut graph, nodes) = program(|_, _, _| {});
    let pass = MergeProducts::default();
    let edits = run_with(&pass, &mut graph, &Unhosted, &fitting(nodes)).edits;
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
    let unknown = |operand| {
        let reason = format!("the shape of {operand} is not known");
        Some(Refusal::from(reason))
    };
    let cases: [(Shapes<'_>, Option<Refusal>); 6] = [
        (&[(x, &[2, 3]), (y, &[5, 3]), (w, &[3, 4])], None),
        (&[(x, &[2, 3]), (y, &[5, 3]), (w, &[3])], None),
        (&[(x, &[2, 3]), (y, &[3]), (w, &[3, 4])], Some(SHAPE)),
        (&[(x, &[2, 3]), (y, &[2, 5, 3]), (w, &[3, 4])], Some(SHAPE)),
        (
            &[(x, &[2, 3]), (y, &[5, 3]), (w, &[7, 3, 4])],
            Some(Refusal::because("w has 3 dimensions")),
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
    let reason = "mul_ comes in between and does more than compute a value";
    let expected = Some(Refusal::because(reason));
    assert_eq!(
        refusals(&written, &fitting(nodes)),
        [expected.clone(), expected]
    );
    let (mut result, nodes) = program(|_, _, _| {});
    let [.., a, b] = nodes;
    result.restore_insert_point(corsac_ir::InsertPoint::After(b));
    result.call_method("add_", [a.into(), 1.into()]).unwrap();
    let expected = Some(WRITTEN);
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
    assert_eq!(find(&graph, &Unhosted, &shapes).unwrap().groups.len(), 2);
    let report = run_with(&MergeProducts::default(), &mut graph, &Unhosted, &shapes);
    let stays: Vec<_> = report.refusals().into_iter().flatten().collect();
    assert_eq!(stays.len(), 2);
    assert!(
        stays[0]
            .reason()
            .contains("is computed from it, or it from")
    );
}

#[test]
fn a_budget_counts_groups() {
    let (graph, nodes) = program(|_, _, _| {});
    let mut found = find(&graph, &Unhosted, &fitting(nodes)).unwrap();
    found.limit(&mut Budget::of(0));
    assert!(found.groups.is_empty());
    assert_eq!(found.sites[0].refusal, Some(Refusal::BUDGET));
}
