use corsac_ir::proxy::trace;
use corsac_ir::{Arg, DType, Graph, NodeId};
use corsac_ops::Unhosted;

use super::{RuleSet, parse, rewrite};
use crate::budget::Budget;
use crate::report::{Refusal, Site};
use crate::tensors::{TensorFact, TensorFacts};

fn rules(text: &str) -> RuleSet {
    RuleSet::new(parse(text).unwrap())
}

fn rewritten(graph: &mut Graph, text: &str, limit: Option<u64>) -> Vec<Site> {
    let (set, facts) = (rules(text), TensorFacts::new());
    let mut budget = limit.map_or_else(Budget::unlimited, Budget::of);
    let sites = rewrite(graph, &set, &Unhosted, facts, &mut budget).unwrap();
    let sites: Vec<Site> = sites.into_iter().map(|(_, site)| site).collect();
    let made = sites.iter().filter(|site| site.is_applied()).count();
    assert_eq!(budget.spent(), made as u64);
    sites
}

fn names(graph: &Graph) -> Vec<&str> {
    graph
        .nodes()
        .map(|id| graph.node(id).target_name())
        .collect()
}

#[test]
fn of_many_rules_only_those_that_may_match_are_tried() {
    let mut text = String::new();
    for n in 0..500 {
        text += &format!("relu(my.f{n}(?x)) => torch.abs(?x)\n");
    }
    let set = rules(&text);
    let mut found = Vec::new();
    let id = |name: &str| set.operators[name];
    let operands = [
        super::index::Shape::Operator(id("my.f7")),
        super::index::Shape::Literal,
        super::index::Shape::Literal,
    ];
    set.index.candidates(id("relu"), &operands, &mut found);
    assert_eq!(found, [7]);
    set.index.candidates(id("my.f7"), &operands, &mut found);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn the_first_of_two_rules_is_applied() {
    let mut graph = trace(|g| {
        let x = g.placeholder("x");
        g.call_function("torch.neg", [g.call_function("torch.abs", [x])])
    })
    .unwrap();
    let text = "neg(?x) => torch.sin(?x)\nneg(abs(?x)) => torch.cos(?x)";
    let sites = rewritten(&mut graph, text, None);
    assert_eq!(sites.len(), 1);
    assert_eq!(names(&graph), ["x", "torch.abs", "torch.sin", "output"]);
    graph.verify().unwrap();
}

#[test]
fn types_that_are_known_let_a_rule_apply() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let mul = graph.function("operator.mul");
    let y = graph.call_function(mul, [x.into(), 1.into()]).unwrap();
    let z = graph.call_method("sin", [y.into()]).unwrap();
    graph.output(z).unwrap();
    let set = rules("mul(?x, 1) => ?x if same_dtype(?x, result)");
    let apply = |graph: &mut Graph, facts| {
        rewrite(graph, &set, &Unhosted, facts, &mut Budget::unlimited()).unwrap()
    };
    let sites = apply(&mut graph, TensorFacts::new());
    assert_eq!(
        sites[0].1.refusal.as_ref().map(Refusal::reason),
        Some("the dtype of x is not known")
    );
    let facts = |result: DType| {
        let mut facts = TensorFacts::new();
        for (node, dtype) in [(x, DType::Int64), (y, result)] {
            let dtype = Some(dtype);
            facts.set(
                node,
                TensorFact {
                    dtype,
                    ..TensorFact::default()
                },
            );
        }
        facts
    };
    let sites = apply(&mut graph, facts(DType::Float32));
    let reason = "same_dtype(x, mul) does not hold";
    assert_eq!(
        sites[0].1.refusal.as_ref().map(Refusal::reason),
        Some(reason)
    );
    assert_eq!(apply(&mut graph, facts(DType::Int64))[0].1.refusal, None);
    assert_eq!(graph.node(z).args(), [Arg::Node(x)]);
}

#[test]
fn a_long_chain_is_rewritten_to_its_end_and_fuel_stops_it() {
    let chain = |length: usize| {
        let mut graph = Graph::new();
        let neg = graph.function("torch.neg");
        let mut value: NodeId = graph.placeholder("x").unwrap();
        for _ in 0..length {
            value = graph.call_function(neg, [value.into()]).unwrap();
        }
        let end = graph.call_method("sin", [value.into()]).unwrap();
        graph.output(end).unwrap();
        graph
    };
    let rule = "neg(neg(?x)) => ?x";
    let mut graph = chain(10_001);
    assert_eq!(rewritten(&mut graph, rule, None).len(), 5_000);
    assert_eq!(graph.len(), 4);
    let mut graph = chain(6);
    let sites = rewritten(&mut graph, rule, Some(2));
    assert_eq!(sites.iter().filter(|site| site.is_applied()).count(), 2);
    assert_eq!(graph.len(), 5);
    graph.verify().unwrap();
}

#[test]
fn a_rule_in_text_that_is_none_says_where() {
    let error = parse("ok: neg(neg(?x)) => ?x\nbad: neg(?x) => ?y").unwrap_err();
    assert_eq!((error.line, error.column), (2, 18));
}

#[test]
fn a_rule_that_goes_both_ways_is_read_once_and_has_a_reverse() {
    let text =
        "assoc: add(add(?a, ?b), ?c) <=> add(?a, add(?b, ?c))  if rank(?a, 2)\nneg(neg(?x)) => ?x";
    let rules = parse(text).unwrap();
    assert_eq!(rules.len(), 2);
    let back = rules[0].reverse.as_deref().unwrap();
    let swapped = parse("assoc: add(?a, add(?b, ?c)) => add(add(?a, ?b), ?c)  if rank(?a, 2)");
    assert_eq!(back, &swapped.unwrap()[0]);
    assert_eq!(rules[1].reverse, None);
    let error = parse("bad: neg(?x) <=> ?x").unwrap_err();
    assert_eq!(
        (error.column, error.message.as_str()),
        (18, "a pattern must be a call of an operator")
    );
    let error = parse("bad: add(?x, ?y) <=> neg(?x)").unwrap_err();
    assert_eq!(error.message, "?y does not occur in the pattern");
}

#[test]
fn indices_and_slices_are_read() {
    let ok = [
        "relu(?x[1:?n]) => torch.relu(?x)[1:?n]",
        "relu(?x[..., ?a:?b:2, None, 0]) => torch.relu(?x)[..., ?a:?b:2, None, 0]",
        "?x[:, 0][1:] => ?x[1:, 0]",
        "neg(?y:relu(?x)[0,]) => torch.neg(?y)",
        "relu(?x[?i:neg(?j)]) => torch.relu(?x[?i:torch.neg(?j)])",
        "cat([?x[:?n], ?x[?n:]], 0) => ?x",
    ];
    for text in ok {
        let rules = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rules.len(), 1);
    }
    for (text, column, message) in [
        ("relu(?x[]) => ?x", 10, "an index is missing"),
        ("relu(?x[1 2]) => ?x", 11, "expected `,`, got `2`"),
        ("relu(?x[1:) => ?x", 11, "expected a pattern, got `)`"),
        ("relu(?x[,]) => ?x", 9, "expected an index, got `,`"),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(
            (error.column, error.message.as_str()),
            (column, message),
            "{text}"
        );
    }
}
