//! `corsac ops`

use std::io::Write;

use corsac_engine::TensorSpec;
use corsac_ir::{NodeId, Op};
use corsac_ops::shape::{Counted, Dim, NodeCost, element_bytes, node_cost, peak};
use serde_json::json;

use crate::arguments::OpsOptions;
use crate::failure::Failure;
use crate::table::{self, grouped};

/// Cost of a node; unknown numbers are `None`.
struct Row {
    node: NodeId,
    ty: String,
    flops: Option<i64>,
    bytes_read: Option<i64>,
    bytes_written: Option<i64>,
}

impl Row {
    fn of(node: NodeId, ty: String, cost: &NodeCost) -> Self {
        let number = |count: &Counted<Dim>| count.as_ref().ok().and_then(Dim::known);
        Self {
            node,
            ty,
            flops: cost.work.as_ref().ok().and_then(|work| work.flops.known()),
            bytes_read: number(&cost.bytes_read),
            bytes_written: number(&cost.bytes_written),
        }
    }
}

/// Prints the cost of each call, and the sums.
pub(crate) fn run(options: &OpsOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let file = options.model.open()?;
    let graph = file.graph();
    let values = options.sizes.values(file.signature())?;
    let counted = file.with_types(&values, |types| {
        let calls = graph.nodes().filter(|&node| {
            let op = graph.node(node).op();
            matches!(op, Op::CallFunction | Op::CallMethod | Op::CallModule)
        });
        let rows: Vec<Row> = calls
            .map(|node| {
                let cost = node_cost(types, graph, node);
                Row::of(node, types.value(node).to_string(), &cost)
            })
            .collect();
        (rows, peak(types, graph).bytes)
    });
    let (rows, peak_bytes) = counted.map_err(Failure::model(options.model.path()))?;
    let sum = |of: fn(&Row) -> Option<i64>| {
        let known = rows.iter().filter_map(of);
        known.fold(0_i64, i64::saturating_add)
    };
    let (flops, read, written) = (
        sum(|row| row.flops),
        sum(|row| row.bytes_read),
        sum(|row| row.bytes_written),
    );
    let numel = |spec: &TensorSpec| spec.shape.iter().product::<usize>() as i64;
    let parameters: i64 = file.weights().map(numel).sum();
    let weight_bytes: i64 = file
        .weights()
        .map(|spec| numel(spec).saturating_mul(element_bytes(spec.dtype)))
        .sum();
    if options.json {
        let nodes = rows.iter().map(|row| {
            let node = graph.node(row.node);
            json!({
                "name": node.name(), "target": node.target_name(), "type": row.ty,
                "flops": row.flops, "bytes_read": row.bytes_read, "bytes_written": row.bytes_written,
            })
        });
        let report = json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "flops": flops, "bytes_read": read, "bytes_written": written,
            "parameters": parameters, "weight_bytes": weight_bytes, "peak_bytes": peak_bytes,
        });
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    let number = |value: Option<i64>| value.map_or_else(|| "?".to_owned(), grouped);
    let heading = [
        "name",
        "target",
        "result",
        "FLOPs",
        "bytes read",
        "bytes written",
    ];
    let mut cells = vec![heading.map(str::to_owned).to_vec()];
    for row in &rows {
        let node = graph.node(row.node);
        cells.push(vec![
            node.name().to_owned(),
            node.target_name().to_owned(),
            row.ty.clone(),
            number(row.flops),
            number(row.bytes_read),
            number(row.bytes_written),
        ]);
    }
    let total = [
        String::new(),
        String::new(),
        grouped(flops),
        grouped(read),
        grouped(written),
    ];
    cells.push(std::iter::once("total".to_owned()).chain(total).collect());
    table::write(&cells, 3, out)?;
    writeln!(
        out,
        "{} parameters, {} bytes; {} bytes of values at once, operator by operator",
        grouped(parameters),
        grouped(weight_bytes),
        grouped(peak_bytes)
    )?;
    Ok(())
}
