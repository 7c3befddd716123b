//! Casts and their places.

use corsac_ops::Unhosted;
use corsac_ops::shape::NoModules;

use super::*;
use crate::tensors::TensorFact;

fn by_host(graph: &mut Graph) -> Casts<'static> {
    Casts::ByHost {
        cast: graph.function("mine.cast"),
        widest: graph.function("mine.widest"),
    }
}

fn casted(graph: &mut Graph, casts: &Casts<'_>, budget: &mut Budget) -> Casted {
    let (host, types) = (&Unhosted, &NoModules);
    let done = insert(graph, host, types, DType::BFloat16, casts, budget).unwrap();
    graph.verify().unwrap();
    done
}

fn call(graph: &mut Graph, name: &str, args: impl Into<ThinVec<Arg>>) -> NodeId {
    let function = graph.function(name);
    graph.call_function(function, args).unwrap()
}

/// The types that calls get their arguments in.
fn types(done: &Casted) -> Vec<Option<&str>> {
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
        let casts = by_host(&mut graph);
        let done = casted(&mut graph, &casts, &mut Budget::unlimited());
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
    let casts = by_host(&mut graph);
    let done = casted(&mut graph, &casts, &mut Budget::unlimited());
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
    assert_eq!(done.stale, [mm, prod, cat, output]);
}

#[test]
fn what_writes_to_its_arguments_stays() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let mm = call(&mut graph, "torch.mm", [x.into(), x.into()]);
    let out = graph.intern("out");
    graph.set_kwargs(mm, [(out, x.into())]).unwrap();
    graph.output(mm).unwrap();
    let casts = by_host(&mut graph);
    let done = casted(&mut graph, &casts, &mut Budget::unlimited());
    assert_eq!(done.sites[0].refusal, Some(WRITES));
    assert_eq!(graph.len(), 3);
}

#[test]
fn known_types_need_no_host() {
    let mut facts = TensorFacts::new();
    let mut graph = Graph::new();
    let mut input = |graph: &mut Graph, name: &str, dtype| {
        let node = graph.placeholder(name).unwrap();
        let fact = TensorFact {
            dtype,
            ..TensorFact::default()
        };
        facts.set(node, fact);
        node
    };
    let x = input(&mut graph, "x", Some(DType::Float32));
    let d = input(&mut graph, "d", Some(DType::Float64));
    let u = input(&mut graph, "u", None);
    let single = call(&mut graph, "torch.mm", [x.into(), x.into()]);
    let double = call(&mut graph, "torch.mm", [d.into(), d.into()]);
    let unknown = call(&mut graph, "torch.mm", [x.into(), u.into()]);
    graph.output(single).unwrap();
    let casts = Casts::ByType(&facts);
    let done = casted(&mut graph, &casts, &mut Budget::unlimited());
    assert_eq!(types(&done), [Some("torch.bfloat16"), None]);
    let reason = "the element type of u is not known";
    assert_eq!(done.sites[1].refusal, Some(Refusal::because(reason)));
    let to = graph.inputs(single).next().unwrap();
    assert_eq!(graph.node(to).target_name(), "to");
    assert_eq!(graph.inputs(double).next(), Some(d));
    assert_eq!(graph.inputs(unknown).next(), Some(x));
}

#[test]
fn a_budget_is_used_in_order() {
    let mut graph = Graph::new();
    let mut x = graph.placeholder("x").unwrap();
    for _ in 0..3 {
        x = call(&mut graph, "torch.mm", [x.into(), x.into()]);
    }
    graph.output(x).unwrap();
    let casts = by_host(&mut graph);
    let mut budget = Budget::of(2);
    let done = casted(&mut graph, &casts, &mut budget);
    assert_eq!(budget.spent(), 2);
    assert_eq!(done.sites[2].refusal, Some(Refusal::BUDGET));
}
