use corsac_ir::{FunctionId, ThinVec};
use corsac_ops::{FunctionInfo, ModuleInfo, Unhosted};

use super::*;
use crate::pass::testing::{run_on, run_with, run_within};
use crate::tensors::TensorFact;

/// Whether the node that `make` adds is removed, with `y` of the right shape and dtype.
fn removed(make: impl FnOnce(&mut Graph, NodeId) -> NodeId) -> bool {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.call_method("relu", [x.into()]).unwrap();
    let last = make(&mut graph, y);
    let result = graph.call_method("neg", [last.into()]).unwrap();
    graph.output(result).unwrap();
    let mut tensors = TensorFacts::default();
    let fact = TensorFact {
        shape: Some(vec![2, 3]),
        dtype: Some(DType::Float32),
        strides: None,
    };
    tensors.set(y, fact);
    run_with(&RemoveNoOps, &mut graph, &Unhosted, &tensors);
    !graph.contains(last)
}

fn method(name: &'static str, rest: &[Arg]) -> bool {
    removed(|graph, y| {
        let args: ThinVec<Arg> = [y.into()].into_iter().chain(rest.iter().cloned()).collect();
        graph.call_method(name, args).unwrap()
    })
}

fn ints(values: &[i64]) -> Vec<Arg> {
    values.iter().map(|&v| Arg::Int(v)).collect()
}

#[test]
fn one_call_is_removed_where_it_changes_nothing() {
    assert!(method("view", &ints(&[2, 3])));
    assert!(method("view", &ints(&[-1, 3])));
    assert!(!method("view", &ints(&[3, 2])));
    assert!(!method("view", &ints(&[6])));
    assert!(method("reshape", &[Arg::tuple(ints(&[2, -1])).unwrap()]));
    assert!(method("expand", &ints(&[-1, 3])));
    assert!(method("flatten", &ints(&[1])));
    assert!(!method("flatten", &[]));
    assert!(method("to", &[Arg::DType(DType::Float32)]));
    assert!(!method("to", &[Arg::DType(DType::Float64)]));
    assert!(method("float", &[]));
    assert!(!method("half", &[]));
    assert!(method("clone", &[]));
    assert!(method("mul", &[Arg::Int(1)]));
    assert!(!method("mul", &[Arg::Int(2)]));
    for spelling in ["multiply", "__mul__"] {
        assert!(method(spelling, &[Arg::Int(1)]), "{spelling}");
    }
    assert!(method("sub", &[Arg::Int(0)]));
    assert!(!method("add", &[Arg::Int(0)]), "-0 + 0 is 0");
}

fn pair(first: (&'static str, &[i64]), second: (&'static str, &[i64])) -> bool {
    removed(|graph, y| {
        let mut value = y;
        for (name, dims) in [first, second] {
            let args: ThinVec<Arg> = [value.into()].into_iter().chain(ints(dims)).collect();
            value = graph.call_method(name, args).unwrap();
        }
        value
    })
}

#[test]
fn conversions_to_any_type_return_what_has_it() {
    for name in ["double", "short", "char", "byte", "half"] {
        assert!(pair((name, &[]), (name, &[])), "{name}");
        assert!(!pair(("int", &[]), (name, &[])), "{name}");
    }
}

#[test]
fn a_call_is_removed_that_undoes_the_one_before() {
    assert!(pair(("transpose", &[0, 1]), ("transpose", &[1, 0])));
    assert!(!pair(("transpose", &[0, 1]), ("transpose", &[1, 2])));
    assert!(pair(("permute", &[1, 2, 0]), ("permute", &[2, 0, 1])));
    assert!(!pair(("permute", &[1, 2, 0]), ("permute", &[1, 2, 0])));
    assert!(pair(("unsqueeze", &[1]), ("squeeze", &[1])));
    assert!(!pair(("squeeze", &[1]), ("unsqueeze", &[1])));
    assert!(pair(("contiguous", &[]), ("contiguous", &[])));
}

/// Why the clone in `clone = y.clone(); …` stays.
fn refusal(make: impl FnOnce(&mut Graph, NodeId, NodeId) -> Arg) -> Option<Refusal> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.call_method("relu", [x.into()]).unwrap();
    let clone = graph.call_method("clone", [y.into()]).unwrap();
    let result = make(&mut graph, y, clone);
    graph.output(result).unwrap();
    let report = run_on(&RemoveNoOps, &mut graph, &Unhosted);
    let mut sites = report.sites.into_iter();
    sites.find(|s| s.node == clone).unwrap().refusal
}

#[test]
fn a_copy_stays_where_it_can_be_told_from_the_original() {
    assert_eq!(refusal(|_, _, clone| clone.into()), None);
    let both = refusal(|_, y, clone| Arg::tuple([y.into(), clone.into()]).unwrap());
    assert_eq!(both, Some(RETURNED));
    let written = refusal(|graph, _, clone| {
        graph.call_method("add_", [clone.into(), 1.into()]).unwrap();
        clone.into()
    });
    assert_eq!(written, Some(WRITTEN));
    let original = refusal(|graph, y, clone| {
        let view = graph.call_method("t", [y.into()]).unwrap();
        graph.call_method("zero_", [view.into()]).unwrap();
        clone.into()
    });
    assert_eq!(original, Some(WRITTEN));
}

#[test]
fn two_copies_of_one_value_are_not_both_returned_as_one() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let y = graph.call_method("relu", [x.into()]).unwrap();
    let a = graph.call_method("clone", [y.into()]).unwrap();
    let b = graph.call_method("clone", [y.into()]).unwrap();
    graph
        .output(Arg::tuple([a.into(), b.into()]).unwrap())
        .unwrap();
    let refusals = run_on(&RemoveNoOps, &mut graph, &Unhosted).refusals();
    assert_eq!(refusals, [None, Some(RETURNED)]);
}

struct Identity;

impl Host for Identity {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        Some(ModuleInfo {
            class: "torch.nn.modules.linear.Identity".to_owned(),
            hooks: path == "hooked",
            ..ModuleInfo::default()
        })
    }

    fn function(&self, _: &Graph, _: FunctionId) -> FunctionInfo {
        FunctionInfo::ByName
    }
}

#[test]
fn chains_of_identities_go_and_hooks_stay() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let a = graph.call_module("id", [x.into()]).unwrap();
    let b = graph.call_module("id", [a.into()]).unwrap();
    let c = graph.call_module("hooked", [b.into()]).unwrap();
    graph.output(c).unwrap();
    assert!(!run_within(0, &RemoveNoOps, &mut graph, &Identity).changed());
    run_on(&RemoveNoOps, &mut graph, &Identity);
    assert_eq!(graph.nodes().count(), 3);
    assert_eq!(graph.inputs(c).collect::<Vec<_>>(), [x]);
}

#[test]
fn what_was_contiguous_may_be_transposed_in_place() {
    for reshapes in [false, true] {
        let removed = removed(|graph, y| {
            let first = graph.call_method("contiguous", [y.into()]).unwrap();
            if reshapes {
                graph.call_method("t_", [first.into()]).unwrap();
            }
            graph.call_method("contiguous", [first.into()]).unwrap()
        });
        assert_eq!(removed, !reshapes);
    }
}
