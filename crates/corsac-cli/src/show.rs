//! `corsac show`

use std::io::Write;

use corsac_codegen::{NamedHost, Options, python_code};
use corsac_engine::{ModelFile, TensorSpec};
use corsac_ir::{NoHost, Op};
use serde_json::{Value as Json, json};

use crate::arguments::{Format, ShowOptions};
use crate::failure::Failure;

/// Prints the graph.
pub(crate) fn run(options: &ShowOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let file = options.model.open()?;
    let graph = file.graph();
    if options.json {
        writeln!(out, "{:#}", described(&file, options)?)?;
        return Ok(());
    }
    let format = match options.lossless {
        true => Format::Lossless,
        false => options.format,
    };
    match format {
        Format::Graph => annotated(&file, options, out)?,
        Format::Table => writeln!(out, "{}", graph.to_table(&NoHost))?,
        Format::Code => {
            let code = python_code(graph, &Options::default(), &NamedHost::new(graph));
            let code = code.map_err(|error| Failure::array(&options.model.path, error))?;
            writeln!(out, "{}", code.src.trim())?;
        }
        Format::Program => write!(out, "{}", file.program())?,
        Format::Lossless => write!(out, "{}", graph.to_lossless())?,
    }
    Ok(())
}

fn annotated(file: &ModelFile, options: &ShowOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let graph = file.graph();
    let types = file.with_types(|types| {
        let nodes = graph.nodes();
        nodes
            .map(|node| types.value(node).to_string())
            .collect::<Vec<_>>()
    });
    let types = types.map_err(Failure::model(&options.model.path))?;
    writeln!(out, "graph():")?;
    for (node, ty) in graph.nodes().zip(types) {
        let line = graph.format_node(node, &NoHost);
        match graph.node(node).op() {
            Op::Output => writeln!(out, "    {line}")?,
            _ => writeln!(out, "    {line}  # {ty}")?,
        }
    }
    Ok(())
}

fn described(file: &ModelFile, options: &ShowOptions) -> Result<Json, Failure> {
    let graph = file.graph();
    let spec = |spec: &TensorSpec| json!({"name": spec.name, "dtype": spec.dtype.name(), "shape": spec.shape});
    let nodes = file.with_types(|types| {
        let node = |id| {
            let node = graph.node(id);
            json!({
                "name": node.name(),
                "op": node.op().name(),
                "target": node.target_name(),
                "inputs": node.inputs().map(|input| graph.node(input).name()).collect::<Vec<_>>(),
                "type": types.value(id).to_string(),
            })
        };
        graph.nodes().map(node).collect::<Vec<Json>>()
    });
    let nodes = nodes.map_err(Failure::model(&options.model.path))?;
    Ok(json!({
        "inputs": file.inputs().iter().map(spec).collect::<Vec<_>>(),
        "outputs": file.outputs().iter().map(spec).collect::<Vec<_>>(),
        "weights": file.weights().map(spec).collect::<Vec<_>>(),
        "nodes": nodes,
    }))
}
