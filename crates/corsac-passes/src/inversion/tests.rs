//! Inverses, and obstacles to them.

use corsac_ops::Unhosted;

use super::step::inverse_permutation;
use super::*;

/// The functions that the inverse of a program of one input calls.
fn inverted(program: impl FnOnce(&mut Graph, NodeId) -> NodeId) -> Result<Vec<String>, String> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let result = program(&mut graph, x);
    graph.output(result).unwrap();
    let inverse = invert(&graph, &Unhosted).map_err(|error| error.to_string())?;
    inverse.graph.verify().unwrap();
    let nodes = inverse.graph.nodes();
    let names = nodes.map(|id| inverse.graph.node(id).target_name().to_owned());
    Ok(names.collect())
}

fn call(graph: &mut Graph, name: &str, args: impl Into<ThinVec<Arg>>) -> NodeId {
    let function = graph.function(name);
    graph.call_function(function, args).unwrap()
}

#[test]
fn steps_are_undone_in_reverse() {
    let names = inverted(|g, x| {
        let w = g.get_attr("w").unwrap();
        let scale = call(g, "torch.exp", [w.into()]);
        let y = call(g, "torch.rsqrt", [x.into()]);
        let y = call(g, "torch.mul", [scale.into(), y.into()]);
        call(g, "operator.sub", [1.into(), y.into()])
    });
    let expected = [
        "sub",
        "operator.sub",
        "w",
        "torch.exp",
        "operator.truediv",
        "torch.square",
        "torch.reciprocal",
        "output",
    ];
    assert_eq!(names.unwrap(), expected);
}

#[test]
fn permutations_are_inverted() {
    let ints = |dims: &[i64]| dims.iter().copied().map(Arg::Int).collect::<Vec<_>>();
    let (one_by_one, list) = (ints(&[2, 0, -2]), ints(&[1, 0]));
    let refs: Vec<&Arg> = one_by_one.iter().collect();
    assert_eq!(inverse_permutation(&refs), Some(vec![1, 2, 0]));
    let list = Arg::list(list.into_iter().collect::<ThinVec<_>>()).unwrap();
    assert_eq!(inverse_permutation(&[&list]), Some(vec![1, 0]));
    for wrong in [[0, 0], [0, 2], [-3, 1]] {
        let wrong = ints(&wrong);
        let refs: Vec<&Arg> = wrong.iter().collect();
        assert_eq!(inverse_permutation(&refs), None);
    }
}

#[test]
fn what_is_in_the_way_is_named() {
    type Program = fn(&mut Graph, NodeId) -> NodeId;
    let cases: [(Program, &str); 8] = [
        (
            |g, x| call(g, "torch.relu", [x.into()]),
            "relu: the inverse of relu is not known",
        ),
        (
            |g, x| call(g, "torch.add", [x.into(), x.into()]),
            "add: several of its operands depend on the input",
        ),
        (
            |g, x| {
                let y = call(g, "torch.exp", [x.into()]);
                let z = call(g, "torch.neg", [y.into()]);
                call(g, "torch.mul", [y.into(), z.into()])
            },
            "mul: several of its operands depend on the input",
        ),
        (
            |g, _| g.get_attr("w").unwrap(),
            "w: it does not depend on the input",
        ),
        (
            |g, x| {
                let w = g.get_attr("w").unwrap();
                let noise = call(g, "torch.rand_like", [w.into()]);
                call(g, "torch.add", [x.into(), noise.into()])
            },
            "rand_like: it uses random numbers, which the inverse would generate anew",
        ),
        (
            |g, x| {
                let w = g.get_attr("w").unwrap();
                g.call_method("add_", [w.into(), 1.into()]).unwrap();
                call(g, "torch.mul", [x.into(), w.into()])
            },
            "add_: it writes to something, or may do",
        ),
        (
            |g, x| call(g, "mine.exp", [x.into()]),
            "exp: the inverse of exp is not known",
        ),
        (
            |g, x| g.call_module("m", [x.into()]).unwrap(),
            "m: what call_module does is not known to have an inverse",
        ),
    ];
    for (program, expected) in cases {
        let expected = format!("the program cannot be inverted at {expected}");
        assert_eq!(inverted(program), Err(expected));
    }
}

#[test]
fn what_nobody_uses_is_in_nobodys_way() {
    let names = inverted(|g, x| {
        let y = call(g, "torch.exp", [x.into()]);
        call(g, "torch.relu", [y.into()]);
        call(g, "torch.neg", [y.into()])
    });
    assert_eq!(names.unwrap(), ["neg", "torch.neg", "torch.log", "output"]);
}

#[test]
fn every_step_says_what_is_in_its_way() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let a = call(&mut graph, "torch.exp", [x.into()]);
    let b = call(&mut graph, "torch.relu", [a.into()]);
    let c = call(&mut graph, "torch.neg", [b.into()]);
    let d = call(&mut graph, "torch.mul", [b.into(), c.into()]);
    let result = call(&mut graph, "torch.sigmoid", [d.into()]);
    graph.output(result).unwrap();
    let Err(InversionError::NotInvertible { place, sites, .. }) = invert(&graph, &Unhosted) else {
        panic!("it has no inverse");
    };
    assert_eq!(place, "mul");
    let sites = sites.iter();
    let found: Vec<_> = sites
        .map(|site| (site.name.as_str(), site.refusal.as_ref().unwrap().reason()))
        .collect();
    let elsewhere = "it could be undone, were it not for mul";
    let expected = [
        ("exp", elsewhere),
        ("relu", "the inverse of relu is not known"),
        ("neg", elsewhere),
        ("mul", "several of its operands depend on the input"),
        ("sigmoid", elsewhere),
    ];
    assert_eq!(found, expected);
}
