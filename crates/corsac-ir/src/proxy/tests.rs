use super::*;
use crate::arg::MAX_DEPTH;

/// `name = target(args)` for each node, nodes by name.
fn listing(graph: &Graph) -> Vec<String> {
    let show = |arg: &Arg| match arg {
        Arg::Node(id) => graph.node(*id).name().to_owned(),
        Arg::Str(text) => format!("{:?}", graph.text(*text)),
        other => format!("{other:?}"),
    };
    let line = |id| {
        let node = graph.node(id);
        let args: Vec<_> = node.args().iter().map(show).collect();
        format!(
            "{} = {}({})",
            node.name(),
            node.target_name(),
            args.join(", ")
        )
    };
    graph.nodes().map(line).collect()
}

#[test]
fn operators_are_recorded_with_both_operand_orders() {
    let graph = trace(|g| {
        let x = g.placeholder("x");
        let y = 2 - &x;
        let z = &y / 3.0 + &x;
        (-z % y).pow(2) & !x
    });
    assert_eq!(
        listing(&graph.unwrap()),
        [
            "x = x()",
            "sub = operator.sub(Int(2), x)",
            "truediv = operator.truediv(sub, Float(3.0))",
            "add = operator.add(truediv, x)",
            "neg = operator.neg(add)",
            "mod = operator.mod(neg, sub)",
            "pow_1 = operator.pow(mod, Int(2))",
            "invert = operator.invert(x)",
            "and_ = operator.and_(pow_1, invert)",
            "output = output(and_)",
        ]
    );
}

#[test]
fn calls_take_values_of_many_kinds() {
    let graph = trace(|g| {
        let x = g.placeholder_with_default("x", 1);
        let conv = g.call_module("features.0", [&x]);
        let kwargs = [("mode", Value::from("linear")), ("size", Value::NONE)];
        let y = conv.method_with("scale", (2.5, &x), kwargs);
        [y.attr("shape"), y.get(Value::slice(0, None::<i64>, true))]
    })
    .unwrap();
    let names: Vec<_> = graph.nodes().map(|id| graph.node(id).name()).collect();
    assert_eq!(
        names,
        ["x", "features_0", "scale", "getattr_1", "getitem", "output"]
    );
    let scale = graph.nodes().nth(2).unwrap();
    let Some(Arg::Str(mode)) = graph.node(scale).kwarg("mode") else {
        panic!("a string")
    };
    assert_eq!(graph.text(*mode), "linear");
    assert_eq!(graph.node(scale).kwarg("size"), Some(&Arg::None));
    let output = graph.output_node().unwrap();
    assert_eq!(graph.inputs(output).count(), 2);
}

#[test]
fn every_fault_is_reported_once_and_what_follows_from_it_is_not() {
    let mut other = None;
    trace(|g| other.insert(g.placeholder("x")).clone()).unwrap();
    let other = other.unwrap();
    let mut deep = Value::from(1);
    for _ in 0..=MAX_DEPTH {
        deep = Value::from([deep]);
    }
    let error = trace(|g| {
        let y = g.placeholder("y");
        let bad = &y + &other;
        let worse = bad.method("relu", ()) * &y;
        (worse, y.method("cat", (deep,)))
    });
    let foreign = TraceFault::Foreign {
        target: "operator.add".into(),
        proxy: "x".into(),
    };
    let error_of_graph = GraphError::NestingTooDeep { limit: MAX_DEPTH };
    let refused = TraceFault::Refused {
        target: "cat".into(),
        error: error_of_graph,
    };
    assert_eq!(error.unwrap_err().faults, [foreign, refused]);
}
