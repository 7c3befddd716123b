use super::*;
use crate::graph::Graph;
use crate::proxy::{Proxy, Tracer, Value, trace};

fn graph<R: Into<Value>>(program: impl FnOnce(&Tracer) -> R) -> Graph {
    trace(program).unwrap()
}

fn relu(g: &Tracer, x: impl Into<Value>) -> Proxy {
    g.call_function("torch.relu", (x,))
}

/// Each match as `pattern=graph` names, in the order of the bindings.
fn found(pattern: &Graph, graph: &Graph, options: MatchOptions) -> Vec<String> {
    let matcher = SubgraphMatcher::new(pattern, options).unwrap();
    shown(pattern, graph, &matcher.find(graph).unwrap())
}

fn shown(pattern: &Graph, graph: &Graph, matches: &[Match]) -> Vec<String> {
    let show = |arg: &Arg| match arg {
        Arg::Node(id) => graph.node(*id).name().to_owned(),
        other => format!("{other:?}"),
    };
    matches
        .iter()
        .map(|m| {
            let pair = |(p, bound): &(_, _)| format!("{}={}", pattern.node(*p).name(), show(bound));
            m.bindings().iter().map(pair).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[test]
fn bindings_come_depth_first_and_matches_in_graph_order() {
    let pattern = graph(|g| {
        let (x, y) = (g.placeholder("x"), g.placeholder("y"));
        relu(g, &x) + y
    });
    let program = graph(|g| {
        let (a, b) = (g.placeholder("a"), g.placeholder("b"));
        let c = relu(g, &a) + &b;
        relu(g, &c) + 3
    });
    assert_eq!(
        found(&pattern, &program, MatchOptions::default()),
        [
            "add=add relu=relu x=a y=b",
            "add=add_1 relu=relu_1 x=add y=Int(3)"
        ]
    );
}

#[test]
fn different_placeholders_stand_for_different_nodes() {
    let pattern = graph(|g| g.placeholder("x") + g.placeholder("y"));
    let program = graph(|g| {
        let a = g.placeholder("a");
        &a + &a
    });
    assert_eq!(found(&pattern, &program, MatchOptions::default()), [""; 0]);
    let square = graph(|g| {
        let x = g.placeholder("x");
        &x + &x
    });
    assert_eq!(
        found(&square, &program, MatchOptions::default()),
        ["add=add x=a"]
    );
}

#[test]
fn inner_nodes_must_not_leak() {
    let pattern = graph(|g| {
        let x = relu(g, g.placeholder("x"));
        x.method("neg", ())
    });
    let leaky = graph(|g| {
        let a = relu(g, g.placeholder("a"));
        a.method("neg", ()) * &a
    });
    assert_eq!(found(&pattern, &leaky, MatchOptions::default()), [""; 0]);
    let returned = graph(|g| {
        let x = relu(g, g.placeholder("x"));
        (x.method("neg", ()), x)
    });
    assert_eq!(
        found(&returned, &leaky, MatchOptions::default()),
        ["neg=neg relu=relu x=a"]
    );
}

#[test]
fn of_overlapping_matches_the_first_is_kept() {
    let pattern = graph(|g| relu(g, relu(g, g.placeholder("x"))));
    let program = graph(|g| {
        let mut a = g.placeholder("a");
        for _ in 0..5 {
            a = relu(g, a);
        }
        a
    });
    assert_eq!(
        found(&pattern, &program, MatchOptions::default()),
        [
            "relu_1=relu_1 relu=relu x=a",
            "relu_1=relu_3 relu=relu_2 x=relu_1"
        ]
    );
    let all = MatchOptions {
        remove_overlapping_matches: false,
        ..MatchOptions::default()
    };
    assert_eq!(found(&pattern, &program, all).len(), 4);
}

#[test]
fn literals_count_unless_ignored() {
    let pattern = graph(|g| g.call_function("torch.clamp", (g.placeholder("x"), 0.0, [1, 2])));
    let program = graph(|g| {
        let a = g.placeholder("a");
        let calls = [
            g.call_function("torch.clamp", (&a, 0.0, (1, 2))),
            g.call_function("torch.clamp", (&a, 0, [1, 2])),
            g.call_function("torch.clamp", (&a, 0.0, [1])),
            g.call_function("torch.clamp", (&a, &a, [3, 4])),
        ];
        Vec::from(calls)
    });
    assert_eq!(
        found(&pattern, &program, MatchOptions::default()),
        ["clamp=clamp x=a"]
    );
    let ignoring = MatchOptions {
        ignore_literals: true,
        ..MatchOptions::default()
    };
    assert_eq!(
        found(&pattern, &program, ignoring),
        ["clamp=clamp x=a", "clamp=clamp_1 x=a", "clamp=clamp_3 x=a"]
    );
}

#[test]
fn keywords_match_in_order_and_by_name() {
    let call = |g: &Tracer, kwargs: [(&str, i64); 2]| {
        g.call_function_with("torch.sum", (g.placeholder("x"),), kwargs)
    };
    let pattern = graph(|g| call(g, [("dim", 1), ("keepdim", 0)]));
    let swapped = graph(|g| call(g, [("keepdim", 0), ("dim", 1)]));
    assert_eq!(found(&pattern, &pattern, MatchOptions::default()).len(), 1);
    assert_eq!(found(&pattern, &swapped, MatchOptions::default()).len(), 0);
}

#[test]
fn operators_with_a_schema_match_however_arguments_are_passed() {
    let name = "torch.ops.aten.sum.dim_IntList";
    let pattern =
        graph(|g| g.call_function_with(name, (g.placeholder("x"), [1]), [("keepdim", false)]));
    let program = graph(|g| g.call_function(name, (g.placeholder("a"), [1])));
    let other = graph(|g| g.call_function(name, (g.placeholder("a"), [1], true)));
    let parameter = |name: &str, keyword_only, default| Parameter {
        name: name.into(),
        keyword_only,
        default,
    };
    let parameters = vec![
        parameter("self", false, Arg::None),
        parameter("dim", false, Arg::None),
        parameter("keepdim", false, Arg::Bool(false)),
        parameter("dtype", true, Arg::None),
    ];
    let function = pattern.functions().next().unwrap().0;
    let schemas = [(function, Schema { parameters })];
    let matcher = SubgraphMatcher::new(&pattern, MatchOptions::default()).unwrap();
    let query = Query {
        schemas: &schemas,
        ..Query::default()
    };
    let matches = |graph| matcher.find_with(graph, &mut ByName, query).unwrap().len();
    assert_eq!((matches(&program), matches(&other)), (1, 0));
    assert_eq!(matcher.find(&program), Ok(vec![]));
}

#[test]
fn several_anchors_are_found_together() {
    let pattern = graph(|g| {
        let x = relu(g, g.placeholder("x"));
        (x.method("neg", ()), x.method("exp", ()))
    });
    let program = graph(|g| {
        let a = g.placeholder("a");
        let branches = (0..3).flat_map(|_| {
            let b = relu(g, &a);
            [b.method("neg", ()), b.method("exp", ())]
        });
        branches.collect::<Vec<_>>()
    });
    assert_eq!(
        found(&pattern, &program, MatchOptions::default()),
        [
            "neg=neg relu=relu x=a exp=exp",
            "neg=neg_1 relu=relu_1 x=a exp=exp_1",
            "neg=neg_2 relu=relu_2 x=a exp=exp_2",
        ]
    );
    // An anchor without candidates.
    let lacking = graph(|g| {
        let b = relu(g, g.placeholder("a"));
        b.method("neg", ())
    });
    assert_eq!(found(&pattern, &lacking, MatchOptions::default()), [""; 0]);
}

#[test]
fn anchors_without_a_common_input_are_all_combined() {
    let pattern = graph(|g| {
        let (x, y) = (g.placeholder("x"), g.placeholder("y"));
        (relu(g, &x), y.method("neg", ()))
    });
    let program = graph(|g| {
        let (a, b) = (g.placeholder("a"), g.placeholder("b"));
        Vec::from([
            relu(g, &a),
            relu(g, &b),
            a.method("neg", ()),
            b.method("neg", ()),
        ])
    });
    assert_eq!(
        found(&pattern, &program, MatchOptions::default()),
        ["relu=relu x=a neg=neg_1 y=b", "relu=relu_1 x=b neg=neg y=a"]
    );
    let all = MatchOptions {
        remove_overlapping_matches: false,
        ..MatchOptions::default()
    };
    assert_eq!(found(&pattern, &program, all).len(), 2);
}

#[test]
fn a_match_whose_fusion_makes_a_cycle_is_none() {
    let pattern = graph(|g| {
        let x = relu(g, g.placeholder("x"));
        (&x + g.placeholder("y"), x)
    });
    let cyclic = graph(|g| {
        let a = relu(g, g.placeholder("a"));
        let detour = a.method("exp", ()).method("neg", ());
        &a + detour
    });
    assert_eq!(found(&pattern, &cyclic, MatchOptions::default()), [""; 0]);
    let straight = graph(|g| {
        let a = relu(g, g.placeholder("a"));
        let b = g.placeholder("b").method("exp", ()).method("neg", ());
        (&a + b, a.method("exp", ()))
    });
    assert_eq!(
        found(&pattern, &straight, MatchOptions::default()),
        ["add=add relu=relu x=a y=neg"]
    );
}

#[test]
fn outputs_and_placeholders_match_when_asked() {
    let pattern = graph(|g| relu(g, g.placeholder("x")));
    let program = graph(|g| {
        let b = relu(g, g.placeholder("a"));
        relu(g, b)
    });
    let output = MatchOptions {
        match_output: true,
        ..MatchOptions::default()
    };
    assert_eq!(
        found(&pattern, &program, output),
        ["output=output relu=relu_1 x=relu"]
    );
    let placeholder = MatchOptions {
        match_placeholder: true,
        ..MatchOptions::default()
    };
    assert_eq!(found(&pattern, &program, placeholder), ["relu=relu x=a"]);
}

#[test]
fn anchors_can_be_found_by_name() {
    let pattern = graph(|g| relu(g, g.placeholder("x")));
    let program = graph(|g| {
        let a = g.placeholder("a").method("expand", ());
        let b = a.method("exp", ());
        b.method("neg", ())
    });
    let matcher = SubgraphMatcher::new(&pattern, MatchOptions::default()).unwrap();
    let query = Query {
        name: "exp",
        ..Query::default()
    };
    let matches = matcher.find_with(&program, &mut ByName, query).unwrap();
    assert_eq!(
        shown(&pattern, &program, &matches),
        ["relu=expand x=a", "relu=exp x=expand"]
    );
}

#[test]
fn patterns_that_cannot_be_searched_for_are_refused() {
    let refused = |pattern: &Graph| {
        SubgraphMatcher::new(pattern, MatchOptions::default())
            .map(|_| ())
            .unwrap_err()
    };
    assert_eq!(refused(&Graph::new()), MatchError::EmptyPattern);
    let dead = graph(|g| {
        let x = g.placeholder("x");
        relu(g, &x);
        x.method("neg", ())
    });
    assert_eq!(
        refused(&dead),
        MatchError::DeadCode {
            node: "relu".into()
        }
    );
    let unused = graph(|g| {
        g.placeholder("unused");
        relu(g, g.placeholder("x"))
    });
    let matcher = SubgraphMatcher::new(&unused, MatchOptions::default()).unwrap();
    let none = graph(|g| g.placeholder("a"));
    assert_eq!(matcher.find(&none), Ok(vec![]));
    assert_eq!(
        matcher.find(&unused),
        Err(MatchError::Unbound {
            node: "unused".into()
        })
    );
}

#[test]
fn a_deep_pattern_is_no_deep_recursion() {
    let deep = graph(|g| {
        let chain = (0..50_000).fold(g.placeholder("x"), |x, _| relu(g, x));
        chain.method("neg", ())
    });
    assert_eq!(found(&deep, &deep, MatchOptions::default()).len(), 1);
}
