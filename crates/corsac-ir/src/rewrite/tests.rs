use super::*;
use crate::error::GraphError;
use crate::graph::{Origin, Source};
use crate::proxy::{Proxy, Tracer, Value, trace};

fn graph<R: Into<Value>>(program: impl FnOnce(&Tracer) -> R) -> Graph {
    trace(program).unwrap()
}

fn call(g: &Tracer, name: &str, x: impl Into<Value>) -> Proxy {
    g.call_function(name, (x,))
}

/// `name = target(args)` for each node.
fn listing(graph: &Graph) -> Vec<String> {
    fn show(graph: &Graph, arg: &Arg) -> String {
        match (arg, arg.as_items()) {
            (Arg::Node(id), _) => graph.node(*id).name().to_owned(),
            (_, Some(items)) => {
                let items: Vec<_> = items.iter().map(|item| show(graph, item)).collect();
                format!("[{}]", items.join(", "))
            }
            (other, None) => format!("{other:?}"),
        }
    }
    let line = |id| {
        let node = graph.node(id);
        let args: Vec<_> = node.args().iter().map(|arg| show(graph, arg)).collect();
        format!(
            "{} = {}({})",
            node.name(),
            node.target_name(),
            args.join(", ")
        )
    };
    graph.nodes().map(line).collect()
}

/// Asserts that every node comes after its inputs.
fn assert_in_order(graph: &Graph) {
    for id in graph.nodes() {
        for input in graph.inputs(id) {
            assert!(graph.is_before(input, id), "{:?}", listing(graph));
        }
    }
}

#[test]
fn adjacent_matches_are_chained() {
    let mut program = graph(|g| {
        let mut x = g.placeholder("x");
        for _ in 0..3 {
            x = call(g, "torch.relu", x);
        }
        x
    });
    let pattern = graph(|g| call(g, "torch.relu", g.placeholder("x")));
    let replacement = graph(|g| {
        let y = call(g, "torch.neg", g.placeholder("y"));
        call(g, "torch.exp", y)
    });
    let replaced = replace_pattern(&mut program, &pattern, &replacement).unwrap();
    assert_eq!(
        listing(&program),
        [
            "x = x()",
            "neg = torch.neg(x)",
            "exp = torch.exp(neg)",
            "neg_1 = torch.neg(exp)",
            "exp_1 = torch.exp(neg_1)",
            "neg_2 = torch.neg(exp_1)",
            "exp_2 = torch.exp(neg_2)",
            "output = output(exp_2)",
        ]
    );
    let second = &replaced[1];
    let added: Vec<_> = second
        .added()
        .map(|id| program.node(id).name().to_owned())
        .collect();
    assert_eq!(added, ["neg_1", "exp_1"]);
    // Placeholders stand for the present inputs.
    let input = second
        .matched
        .placeholders()
        .next()
        .and_then(Arg::as_node)
        .unwrap();
    assert_eq!(program.node(input).name(), "exp");
}

#[test]
fn a_match_can_become_its_input() {
    let mut program = graph(|g| {
        let x = call(g, "torch.relu", g.placeholder("x"));
        call(g, "torch.relu", x) + 1
    });
    let pattern = graph(|g| call(g, "torch.relu", g.placeholder("x")));
    let replacement = graph(|g| g.placeholder("x"));
    assert_eq!(
        replace_pattern(&mut program, &pattern, &replacement)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        listing(&program),
        [
            "x = x()",
            "add = operator.add(x, Int(1))",
            "output = output(add)"
        ]
    );
}

#[test]
fn literals_go_where_placeholders_were() {
    let mut program = graph(|g| {
        let x = g.placeholder("x");
        (
            g.call_function("torch.add", (&x, 3)),
            call(g, "torch.neg", &x),
        )
    });
    let pattern = graph(|g| {
        let (x, c) = (g.placeholder("x"), g.placeholder("c"));
        (
            g.call_function("torch.add", (&x, c)),
            call(g, "torch.neg", &x),
        )
    });
    let replacement = graph(|g| {
        let (x, c) = (g.placeholder("x"), g.placeholder("c"));
        (c.clone(), g.call_function("torch.sub", (x, c)))
    });
    replace_pattern(&mut program, &pattern, &replacement).unwrap();
    assert_eq!(
        listing(&program),
        [
            "x = x()",
            "sub = torch.sub(x, Int(3))",
            "output = output([Int(3), sub])"
        ]
    );
}

#[test]
fn users_before_a_late_input_are_moved_down() {
    let mut program = graph(|g| {
        let (x, y) = (g.placeholder("x"), g.placeholder("y"));
        let a = call(g, "torch.relu", x);
        let early = call(g, "torch.exp", call(g, "torch.sigmoid", &a));
        let late = call(g, "torch.tanh", y);
        (early, &a + late)
    });
    let pattern = graph(|g| {
        let a = call(g, "torch.relu", g.placeholder("x"));
        (a.clone(), a + g.placeholder("y"))
    });
    let replacement = graph(|g| {
        let a = call(g, "torch.abs", g.placeholder("x"));
        (a.clone(), a * g.placeholder("y"))
    });
    replace_pattern(&mut program, &pattern, &replacement).unwrap();
    assert_in_order(&program);
    assert_eq!(
        listing(&program),
        [
            "x = x()",
            "y = y()",
            "tanh = torch.tanh(y)",
            "abs_1 = torch.abs(x)",
            "mul = operator.mul(abs_1, tanh)",
            "sigmoid = torch.sigmoid(abs_1)",
            "exp = torch.exp(sigmoid)",
            "output = output([exp, mul])",
        ]
    );
}

#[test]
fn new_nodes_go_on_using_a_returned_placeholder() {
    let mut program = graph(|g| {
        let x = call(g, "torch.exp", g.placeholder("x"));
        (call(g, "torch.relu", &x), call(g, "torch.tanh", &x))
    });
    let pattern = graph(|g| {
        let x = g.placeholder("x");
        (call(g, "torch.relu", &x), x)
    });
    let replacement = graph(|g| {
        let y = call(g, "torch.neg", g.placeholder("x"));
        (call(g, "torch.relu", &y), y)
    });
    replace_pattern(&mut program, &pattern, &replacement).unwrap();
    assert_in_order(&program);
    assert_eq!(
        listing(&program),
        [
            "x = x()",
            "exp = torch.exp(x)",
            "neg = torch.neg(exp)",
            "relu_1 = torch.relu(neg)",
            "tanh = torch.tanh(neg)",
            "output = output([relu_1, tanh])",
        ]
    );
}

#[test]
fn new_nodes_come_from_where_the_replaced_ones_came_from() {
    let mut program = graph(|g| call(g, "torch.relu", g.placeholder("x")));
    let (file, function) = (program.intern("model.py"), program.intern("forward"));
    let source = program.add_source(Source::Line {
        file,
        line: 4,
        function,
    });
    let origin = Origin {
        source: Some(source),
        scope: None,
    };
    let relu = program.find_calls("torch.relu")[0];
    program.set_origin(relu, origin);
    let pattern = graph(|g| call(g, "torch.relu", g.placeholder("x")));
    let replacement = graph(|g| {
        let x = g.placeholder("x");
        x.gt(0) * x
    });
    let replaced = replace_pattern(&mut program, &pattern, &replacement).unwrap();
    let origins: Vec<_> = replaced[0].added().map(|id| program.origin(id)).collect();
    assert_eq!(origins, [origin, origin]);
}

#[test]
fn nodes_of_a_replacement_know_what_they_are_for() {
    let replacement = graph(|g| {
        let x = g.placeholder("x");
        let shared = call(g, "torch.exp", x.clone());
        let second = call(g, "torch.neg", call(g, "torch.abs", shared.clone()));
        let first = call(g, "torch.sin", second.clone());
        call(g, "torch.print", x);
        (first, second, shared)
    });
    let replacement = Replacement::new(&replacement);
    let purposes: Vec<_> = replacement
        .purposes()
        .iter()
        .map(|purpose| (purpose.result, purpose.is_result))
        .collect();
    // exp, abs, neg, sin, and a node that no result uses.
    assert_eq!(
        purposes,
        [(2, true), (1, false), (1, true), (0, true), (0, false)]
    );
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let pattern = graph(|g| call(g, "torch.relu", g.placeholder("x")));
    let two_inputs = graph(|g| g.placeholder("x") + g.placeholder("y"));
    let two_values = graph(|g| {
        let x = g.placeholder("x");
        (x.clone(), x)
    });
    let none = graph(|g| {
        call(g, "torch.neg", g.placeholder("x"));
        Value::NONE
    });
    let mut no_output = Graph::new();
    no_output.placeholder("x").unwrap();
    let cases = [
        (
            &two_inputs,
            RewriteError::PlaceholderCount {
                expected: 1,
                got: 2,
            },
        ),
        (
            &two_values,
            RewriteError::ReturnCount {
                expected: 1,
                got: 2,
            },
        ),
        (&none, RewriteError::NothingReturned { got: "None" }),
        (&no_output, RewriteError::NothingReturned { got: "nothing" }),
    ];
    let mut program = pattern.clone();
    for (replacement, expected) in cases {
        let error = replace_pattern(&mut program, &pattern, replacement).unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(listing(&program), listing(&pattern));
    }
    // Nothing comes after the match.
    let output = program.output_node().unwrap();
    program.erase(output).unwrap();
    let error = replace_pattern(&mut program, &pattern, &pattern).unwrap_err();
    assert_eq!(error, RewriteError::NoInsertPoint);
}

#[test]
fn a_patch_is_checked_as_a_whole() {
    let mut program = graph(|g| call(g, "torch.relu", g.placeholder("x")));
    let ids: Vec<_> = program.nodes().collect();
    let before = listing(&program);
    let mut patch = Patch::new(&program, ids[2]);
    patch.drop_node(ids[0]);
    let users = vec!["relu".to_owned()];
    let still_used = GraphError::HasUsers {
        node: ids[0],
        name: "x".into(),
        users,
    };
    assert_eq!(patch.apply(&mut program), Err(still_used.into()));

    let mut patch = Patch::new(&program, ids[2]);
    patch.redirect(ids[1], NodeId::from_index(17).into());
    patch.drop_node(ids[1]);
    let unknown = GraphError::UnknownNode {
        node: NodeId::from_index(17),
    };
    assert_eq!(patch.apply(&mut program), Err(unknown.into()));

    let stale = Patch::new(&program, ids[2]);
    assert_eq!(listing(&program), before);
    program.placeholder("y").unwrap();
    let (expected, got) = (program.id_bound() - 1, program.id_bound());
    assert_eq!(
        stale.apply(&mut program),
        Err(RewriteError::StalePatch { expected, got })
    );
}

/// The cost is linear in the matches: otherwise this would take minutes. The benches measure the
/// time.
#[test]
fn a_hundred_thousand_matches_are_replaced() {
    let pattern = graph(|g| {
        let x = call(g, "torch.relu", g.placeholder("x"));
        call(g, "torch.neg", x)
    });
    let replacement = graph(|g| call(g, "torch.abs", g.placeholder("x")));
    let matches = 100_000;
    let mut program = graph(|g| {
        (0..matches).fold(g.placeholder("x"), |x, _| {
            call(g, "torch.neg", call(g, "torch.relu", x))
        })
    });
    let replaced = replace_pattern(&mut program, &pattern, &replacement).unwrap();
    assert_eq!((replaced.len(), program.len()), (matches, matches + 2));
    assert_eq!(program.find_calls("torch.abs").len(), matches);
    assert_eq!(program.find_calls("torch.relu"), []);
}
