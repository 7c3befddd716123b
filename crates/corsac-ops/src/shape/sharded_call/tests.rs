use corsac_ir::{DType, GraphError};

use super::*;
use crate::shape::Value;
use crate::shape::{Dim, NoModules, Run, Settings, Side, Sides, TensorType};

/// The relations of the call that `build` makes of tensors of these sizes, and the places of sizes.
fn relations(
    sizes: &[&[i64]],
    build: impl FnOnce(&mut Graph, &[NodeId]) -> Result<NodeId, GraphError>,
) -> ShardedCall {
    let mut graph = Graph::new();
    let inputs = (0..sizes.len()).map(|at| graph.placeholder(&format!("x{at}")).unwrap());
    let inputs: Vec<NodeId> = inputs.collect();
    let call = build(&mut graph, &inputs).unwrap();
    let mut types = Propagator::new(&NoModules, Settings::default());
    let values = sizes.iter().map(|sizes| {
        let sizes = sizes.iter().map(|&size| Dim::Known(size));
        Value::tensor(TensorType::new(DType::Float32, sizes))
    });
    types.run(&graph, &values.collect::<Vec<_>>()).unwrap();
    types.sharded(&graph, call).unwrap()
}

/// Relations of whole dimensions, as text: `0:1 -> 2` for dimension 1 of argument 0 and 2 of the result.
fn shown(call: &ShardedCall) -> Vec<String> {
    let side = |(at, side): (usize, &Side)| match side {
        Side::Whole => None,
        Side::Sum => Some(format!("{at}:sum")),
        Side::Dim(dim) => Some(format!("{at}:{dim}")),
    };
    let relations = call.relations.iter().map(|relation| match relation {
        Relation::Along {
            inputs, outputs, ..
        } => {
            let list = |sides: &Sides| {
                let sides = sides.iter().enumerate().filter_map(side);
                sides.collect::<Vec<_>>().join(" ")
            };
            format!("{} -> {}", list(inputs), list(outputs))
        }
        Relation::Regroup { inputs, outputs } => {
            let list = |runs: &[Run]| {
                let runs = runs.iter().map(|run| match run.tensor {
                    Some(tensor) => format!("{tensor}:{}{:?}", run.first, run.sizes),
                    None => format!("_{:?}", run.sizes),
                });
                runs.collect::<Vec<_>>().join(" ")
            };
            format!("{} => {}", list(inputs), list(outputs))
        }
    });
    relations.collect()
}

#[test]
fn a_linear_layer_is_cut_by_columns_rows_and_batches() {
    let call = relations(&[&[2, 3, 8], &[6, 8], &[6]], |graph, x| {
        let linear = graph.function("torch.nn.functional.linear");
        graph.call_function(linear, [x[0].into(), x[1].into(), x[2].into()])
    });
    let expected = [
        "0:2 1:1 2:sum -> 0:sum",
        "1:0 2:0 -> 0:2",
        "0:0 -> 0:0",
        "0:1 -> 0:1",
    ];
    assert_eq!(shown(&call), expected);
}

#[test]
fn views_split_and_merge_dimensions() {
    let call = relations(&[&[2, 3, 8]], |graph, x| {
        graph.call_method("view", [x[0].into(), 6.into(), 4.into(), 2.into()])
    });
    let expected = [
        "0:sum -> 0:sum",
        "0:0[2, 3] => 0:0[6]",
        "0:2[8] => 0:1[4, 2]",
    ];
    assert_eq!(shown(&call), expected);
    let of: Vec<_> = call.sizes.iter().map(|place| place.of.2).collect();
    assert_eq!(of, [0, 1, 2]);
}

#[test]
fn dimensions_of_size_one_are_never_cut() {
    let call = relations(&[&[4, 1, 6], &[1, 5, 6]], |graph, x| {
        let mul = graph.function("operator.mul");
        graph.call_function(mul, [x[0].into(), x[1].into()])
    });
    let expected = [
        "0:0 -> 0:0",
        "1:1 -> 0:1",
        "0:2 1:2 -> 0:2",
        "0:sum -> 0:sum",
        "1:sum -> 0:sum",
    ];
    assert_eq!(shown(&call), expected);
}

#[test]
fn ranges_leave_elements_out() -> Result<(), GraphError> {
    let range = Arg::slice(Arg::Int(-6), Arg::Int(6), Arg::None)?;
    let index = Arg::tuple(vec![Arg::Ellipsis, Arg::None, range])?;
    let call = relations(&[&[4, 8]], |graph, x| {
        let getitem = graph.function("operator.getitem");
        graph.call_function(getitem, [x[0].into(), index])
    });
    let expected = ["0:sum -> 0:sum", "0:0 -> 0:0", "0:1[8] => _[2] 0:2[4] _[2]"];
    assert_eq!(shown(&call), expected);
    let paths: Vec<_> = call
        .sizes
        .iter()
        .map(|place| place.items.to_vec())
        .collect();
    assert_eq!(paths, [[2, 0], [2, 1]]);
    Ok(())
}

#[test]
fn calls_that_write_have_none() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x").unwrap();
    let call = graph.call_method("add_", [x.into(), 1.into()]).unwrap();
    let mut types = Propagator::new(&NoModules, Settings::default());
    let value = Value::tensor(TensorType::new(DType::Float32, [Dim::Known(4)]));
    types.run(&graph, &[value]).unwrap();
    assert!(types.sharded(&graph, call).is_none());
    assert!(types.sharded(&graph, x).is_none());
    assert_eq!(graph.node(x).op(), Op::Placeholder);
}
