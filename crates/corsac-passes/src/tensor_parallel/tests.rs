use corsac_ir::{Arg, DType, Graph, GraphError, NodeId, Op};
use corsac_ops::shape::{Dim, NoModules, Propagator, Settings, ShardedCall, TensorType, Value};
use rustc_hash::FxHashMap;

use super::*;

/// A graph whose placeholders called `w…` are weights.
struct Program {
    graph: Graph,
    values: FxHashMap<NodeId, Value>,
    calls: FxHashMap<NodeId, ShardedCall>,
}

impl Program {
    /// The types of a graph whose attributes and inputs have these sizes, by name.
    fn new(graph: Graph, sizes: &[(&str, &[i64])]) -> Self {
        let mut types = Propagator::new(&NoModules, Settings::default());
        for node in graph.nodes() {
            let view = graph.node(node);
            if matches!(view.op(), Op::Placeholder | Op::GetAttr) {
                let (_, own) = sizes
                    .iter()
                    .find(|(name, _)| *name == view.target_name())
                    .unwrap();
                let ints = view.target_name() == "ids";
                let dtype = if ints { DType::Int64 } else { DType::Float32 };
                let own = own.iter().map(|&size| Dim::Known(size));
                types.set(node, Value::tensor(TensorType::new(dtype, own)));
            } else {
                types.step(&graph, node).unwrap();
            }
        }
        let values = graph
            .nodes()
            .map(|node| (node, types.value(node).clone()))
            .collect();
        let calls = graph
            .nodes()
            .filter_map(|node| Some((node, types.sharded(&graph, node)?)));
        let calls = calls.collect();
        Self {
            graph,
            values,
            calls,
        }
    }

    fn plan(&self, ranks: i64) -> Plan {
        self.plan_with(ranks, 0.0)
    }

    /// The plan where a byte of an activation costs that.
    fn plan_with(&self, ranks: i64, activations: f64) -> Plan {
        let names: Vec<&str> = (self.graph.nodes())
            .filter(|&node| self.graph.node(node).op() == Op::GetAttr)
            .map(|node| self.graph.node(node).target_name())
            .collect();
        let weights = vec![
            WeightFacts {
                shards: true,
                trained: true,
                along: None,
                fixed: false,
            };
            names.len()
        ];
        let problem = Problem {
            value: &|node| &self.values[&node],
            call: &|node| self.calls.get(&node),
            work: &|_| 1000.0,
            weight: &|node| {
                let name = self.graph.node(node).target_name();
                (self.graph.node(node).op() == Op::GetAttr)
                    .then(|| names.iter().position(|own| *own == name).unwrap())
            },
            whole: &|_| false,
            view: &|node| self.calls.get(&node).is_some_and(|call| call.keeps_order),
            weights: &weights,
            ranks,
            training: true,
            kept: 16.0,
            activations,
        };
        plan(&self.graph, &problem).unwrap()
    }

    /// What the node with this name makes.
    fn output(&self, plan: &Plan, name: &str) -> String {
        let of = |planned: &&Planned| self.graph.node(planned.node).name() == name;
        let planned = plan.nodes.iter().find(of).unwrap();
        planned
            .output
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn call<const N: usize>(
    graph: &mut Graph,
    function: &str,
    args: [Arg; N],
) -> Result<NodeId, GraphError> {
    let function = graph.function(function);
    graph.call_function(function, args)
}

fn linear(graph: &mut Graph, x: NodeId, name: &str) -> Result<NodeId, GraphError> {
    let weight = graph.get_attr(name)?;
    call(
        graph,
        "torch.nn.functional.linear",
        [x.into(), weight.into()],
    )
}

#[test]
fn a_pair_of_linear_layers_is_cut_by_columns_and_rows() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x")?;
    let up = linear(&mut graph, x, "up")?;
    let gelu = call(&mut graph, "torch.nn.functional.gelu", [up.into()])?;
    let down = linear(&mut graph, gelu, "down")?;
    let sum = call(&mut graph, "operator.add", [x.into(), down.into()])?;
    graph.output(sum)?;
    let program = Program::new(
        graph,
        &[("x", &[2, 6, 8]), ("up", &[32, 8]), ("down", &[8, 32])],
    );
    let plan = program.plan(4);
    assert_eq!(program.output(&plan, "up"), "shard 0");
    assert_eq!(program.output(&plan, "gelu"), "shard 2");
    assert_eq!(program.output(&plan, "down"), "shard 1");
    let summed = plan
        .nodes
        .iter()
        .filter(|own| own.output[..] == [Placement::Partial]);
    assert_eq!(summed.map(|own| own.replicated).collect::<Vec<_>>(), [true]);
    Ok(())
}

#[test]
fn sums_become_parts_of_sequences_where_activations_cost_something() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let mut x = graph.placeholder("x")?;
    for layer in ["a", "b"] {
        let up = linear(&mut graph, x, &format!("{layer}_up"))?;
        let gelu = call(&mut graph, "torch.nn.functional.gelu", [up.into()])?;
        let down = linear(&mut graph, gelu, &format!("{layer}_down"))?;
        let sum = call(&mut graph, "operator.add", [x.into(), down.into()])?;
        let tanh = call(&mut graph, "torch.tanh", [sum.into()])?;
        x = call(&mut graph, "torch.nn.functional.gelu", [tanh.into()])?;
    }
    graph.output(x)?;
    let sizes: [(&str, &[i64]); 5] = [
        ("x", &[2, 6, 64]),
        ("a_up", &[256, 64]),
        ("a_down", &[64, 256]),
        ("b_up", &[256, 64]),
        ("b_down", &[64, 256]),
    ];
    let program = Program::new(graph, &sizes);
    for (name, whole, part) in [
        ("linear_1", "sum", "sum"),
        ("tanh", "replicated", "shard 1"),
        ("tanh_1", "replicated", "shard 1"),
        ("linear_2", "shard 2", "shard 2"),
    ] {
        assert_eq!(program.output(&program.plan(2), name), whole, "{name}");
        assert_eq!(
            program.output(&program.plan_with(2, 1.0), name),
            part,
            "{name}"
        );
    }
    Ok(())
}

#[test]
fn queries_keys_and_values_of_one_weight_are_cut_apart() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x")?;
    let all = linear(&mut graph, x, "qkv")?;
    let parts = graph.call_method("split", [all.into(), 8.into(), 2.into()])?;
    let mut heads = Vec::new();
    for at in 0..3_i64 {
        let part = call(&mut graph, "operator.getitem", [parts.into(), at.into()])?;
        let sizes = [part.into(), 2.into(), 6.into(), 4.into(), 2.into()];
        let part = graph.call_method("view", sizes)?;
        heads.push(graph.call_method("transpose", [part.into(), 1.into(), 2.into()])?);
    }
    let heads = [heads[0].into(), heads[1].into(), heads[2].into()];
    let scores = call(
        &mut graph,
        "torch.nn.functional.scaled_dot_product_attention",
        heads,
    )?;
    let back = graph.call_method("transpose", [scores.into(), 1.into(), 2.into()])?;
    let sizes = [back.into(), 2.into(), 6.into(), 8.into()];
    let merged = graph.call_method("reshape", sizes)?;
    let out = linear(&mut graph, merged, "out")?;
    graph.output(out)?;
    let program = Program::new(
        graph,
        &[("x", &[2, 6, 8]), ("qkv", &[24, 8]), ("out", &[8, 8])],
    );
    let plan = program.plan(2);
    assert_eq!(program.output(&plan, "qkv"), "shard 0 of [8, 8, 8]");
    assert_eq!(program.output(&plan, "view"), "shard 2");
    assert_eq!(
        program.output(&plan, "scaled_dot_product_attention"),
        "shard 1"
    );
    assert_eq!(program.output(&plan, "out"), "shard 1");
    let sizes = &program.calls[&parts].sizes;
    assert_eq!(sizes.len(), 1, "the length of the pieces: {sizes:?}");
    // Four heads are not for eight ranks.
    let plan = program.plan(8);
    assert_eq!(plan.uneven.first().map(|own| own.size), Some(4));
    Ok(())
}

#[test]
fn pieces_of_a_dimension_are_found_through_a_view_of_three() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x")?;
    let all = linear(&mut graph, x, "qkv")?;
    let sizes = [all.into(), 5.into(), 3.into(), 4.into(), 2.into()];
    let parts = graph.call_method("view", sizes)?;
    let one = graph.call_method("select", [parts.into(), 1.into(), 0.into()])?;
    graph.output(one)?;
    let program = Program::new(graph, &[("x", &[5, 8]), ("qkv", &[24, 8])]);
    let plan = program.plan(2);
    assert_eq!(program.output(&plan, "qkv"), "shard 0 of [8, 8, 8]");
    assert_eq!(program.output(&plan, "view"), "shard 2");
    assert_eq!(program.output(&plan, "select"), "shard 1");
    Ok(())
}

#[test]
fn a_weight_that_two_calls_read_lies_in_one_way() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let ids = graph.placeholder("ids")?;
    let table = graph.get_attr("table")?;
    let rows = call(
        &mut graph,
        "torch.nn.functional.embedding",
        [ids.into(), table.into()],
    )?;
    let logits = linear(&mut graph, rows, "table")?;
    graph.output(logits)?;
    let program = Program::new(graph, &[("ids", &[2, 3]), ("table", &[64, 8])]);
    let plan = program.plan(2);
    assert_eq!(program.output(&plan, "table"), "shard 0");
    assert_eq!(program.output(&plan, "embedding"), "sum");
    assert_eq!(program.output(&plan, "linear"), "shard 2");
    Ok(())
}

#[test]
fn what_the_ranks_do_not_divide_stays_whole() -> Result<(), GraphError> {
    let mut graph = Graph::new();
    let x = graph.placeholder("x")?;
    let out = linear(&mut graph, x, "w")?;
    graph.output(out)?;
    let program = Program::new(graph, &[("x", &[2, 9]), ("w", &[5, 9])]);
    let plan = program.plan(2);
    assert_eq!(program.output(&plan, "w"), "replicated");
    assert!(plan.nodes.iter().all(|own| !own.split));
    Ok(())
}
