//! Casts and their places.

use super::*;
use crate::budget::Budget;
use crate::pass::{Report, run};

fn casted(graph: &mut Graph, budget: &mut Budget) -> Report {
    run(&Autocast::default(), graph, &mut Context::within(budget)).unwrap()
}

fn call(graph: &mut Graph, name: &str, args: impl Into<ThinVec<Arg>>) -> NodeId {
    let function = graph.function(name);
    graph.call_function(function, args).unwrap()
}

/// The types that calls get their arguments in.
fn types(done: &Report) -> Vec<Option<&str>> {
    let sites = done.sites.iter();
    sites.map(|site| site.other.as_deref()).collect()
}

/// Number of casts to a type.
fn casts_to(graph: &Graph, dtype: DType) -> usize {
    let casts = graph.nodes().filter(|&id| {
        let args = graph.node(id).args();
        args.get(1) == Some(&Arg::DType(dtype))
    });
    casts.count()
}

#[test]
fn a_value_is_cast_once_unless_what_it_shares_is_written_to() {
    for (method, expected) in [("neg", 1), ("add_", 2)] {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let view = graph.call_method("view", [x.into(), (-1).into()]).unwrap();
        call(&mut graph, "torch.mm", [x.into(), x.into()]);
        graph.call_method(method, [view.into(), 1.into()]).unwrap();
        let mm = call(&mut graph, "torch.mm", [x.into(), x.into()]);
        graph.output(mm).unwrap();
        let done = casted(&mut graph, &mut Budget::unlimited());
        assert_eq!(casts_to(&graph, DType::BFloat16), expected, "{method}");
        assert_eq!(done.edits.added[0].root, x);
        assert!(!done.edits.added[0].has_its_value);
    }
}

#[test]
fn lists_decide_and_what_is_computed_from_cast_values_is_stale() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let relu = call(&mut graph, "torch.relu", [x.into()]);
    let mm = call(&mut graph, "torch.matmul", [relu.into(), relu.into()]);
    let prod = call(&mut graph, "torch.prod", [mm.into()]);
    let list = Arg::list([mm.into(), relu.into()]).unwrap();
    let cat = call(&mut graph, "torch.cat", [list]);
    let output = graph
        .output(Arg::tuple([prod.into(), cat.into()]).unwrap())
        .unwrap();
    let done = casted(&mut graph, &mut Budget::unlimited());
    assert_eq!(
        types(&done),
        [
            Some("torch.bfloat16"),
            Some("torch.float32"),
            Some("widest")
        ]
    );
    assert_eq!(casts_to(&graph, DType::BFloat16), 1);
    assert_eq!(casts_to(&graph, DType::Float32), 1);
    assert_eq!(done.edits.stale, [mm, prod, cat, output]);
}

#[test]
fn what_writes_to_its_arguments_stays() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let mm = call(&mut graph, "torch.mm", [x.into(), x.into()]);
    let out = graph.intern("out");
    graph.set_kwargs(mm, [(out, x.into())]).unwrap();
    graph.output(mm).unwrap();
    let done = casted(&mut graph, &mut Budget::unlimited());
    assert_eq!(done.sites[0].refusal, Some(WRITES));
    assert_eq!(graph.len(), 3);
}

#[test]
fn a_budget_is_used_in_order() {
    let mut graph = Graph::new();
    let mut x = graph.placeholder("x").unwrap();
    for _ in 0..3 {
        x = call(&mut graph, "torch.mm", [x.into(), x.into()]);
    }
    graph.output(x).unwrap();
    let mut budget = Budget::of(2);
    let done = casted(&mut graph, &mut budget);
    assert_eq!(budget.spent(), 2);
    assert_eq!(done.sites[2].refusal, Some(Refusal::BUDGET));
}
