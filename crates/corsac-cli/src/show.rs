//! `corsac show`

use std::io::Write;

use corsac_codegen::{NamedHost, Options, python_code};
use corsac_engine::{InputSpec, ModelFile, OutputSpec, Size, TensorSpec};
use corsac_ir::{NoHost, Op};
use corsac_ops::shape::Dim;
use serde_json::{Value as Json, json};

use crate::arguments::{Format, ShowOptions};
use crate::failure::Failure;

/// Prints the graph.
pub(crate) fn run(options: &ShowOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let file = options.model.open()?;
    let graph = file.graph();
    let signature = file.signature();
    let values = match options.sizes.size.is_empty() {
        true => signature.least(),
        false => options.sizes.values(signature)?,
    };
    if options.json {
        writeln!(out, "{:#}", described(&file, &values, options)?)?;
        return Ok(());
    }
    let format = match options.lossless {
        true => Format::Lossless,
        false => options.format,
    };
    match format {
        Format::Graph => annotated(&file, &values, options, out)?,
        Format::Table => writeln!(out, "{}", graph.to_table(&NoHost))?,
        Format::Code => {
            let code = python_code(graph, &Options::default(), &NamedHost::new(graph));
            let code = code.map_err(|error| Failure::array(options.model.path(), error))?;
            writeln!(out, "{}", code.src.trim())?;
        }
        Format::Program => {
            let program = file.program_for(&values);
            write!(
                out,
                "{}",
                program.map_err(Failure::model(options.model.path()))?
            )?;
        }
        Format::Lossless => write!(out, "{}", graph.to_lossless())?,
    }
    Ok(())
}

fn annotated(
    file: &ModelFile,
    values: &[usize],
    options: &ShowOptions,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let graph = file.graph();
    let types = file.with_types(values, |types| {
        let nodes = graph.nodes();
        nodes
            .map(|node| types.value(node).to_string())
            .collect::<Vec<_>>()
    });
    let types = types.map_err(Failure::model(options.model.path()))?;
    let signature = file.signature();
    if signature.is_dynamic() {
        let symbols = signature.symbols().iter().zip(values);
        let symbols: Vec<String> = symbols
            .map(|(symbol, value)| format!("{symbol}, here {value}"))
            .collect();
        writeln!(
            out,
            "# {}; {}",
            listed(signature.inputs()),
            symbols.join("; ")
        )?;
    }
    for program in programs(file) {
        writeln!(out, "# {program}")?;
    }
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

/// The programs and the state of a file that has several or some, one line each.
fn programs(file: &ModelFile) -> Vec<String> {
    let state = file.state().inputs().iter();
    let state = state.map(|spec| format!("state {spec}"));
    let several = file.programs().len() > 1;
    let programs = file.programs().iter().filter(|_| several).map(|program| {
        let (inputs, outputs) = (program.signature().inputs(), program.dynamic_outputs());
        let shown = match std::ptr::eq(program, file.default_program()) {
            true => ", shown here",
            false => "",
        };
        format!(
            "program {}({}) -> {}{shown}",
            program.name(),
            listed(inputs),
            listed(&outputs)
        )
    });
    programs.chain(state).collect()
}

fn listed(specs: &[impl ToString]) -> String {
    let specs: Vec<String> = specs.iter().map(ToString::to_string).collect();
    specs.join(", ")
}

fn described(file: &ModelFile, values: &[usize], options: &ShowOptions) -> Result<Json, Failure> {
    let graph = file.graph();
    let spec = |spec: &TensorSpec| json!({"name": spec.name, "dtype": spec.dtype.name(), "shape": spec.shape});
    let input = |spec: &InputSpec| {
        json!({"name": spec.name, "dtype": spec.dtype.name(),
        "shape": spec.shape.iter().map(size).collect::<Vec<_>>()})
    };
    let output = |spec: &OutputSpec| {
        json!({"name": spec.name, "dtype": spec.dtype.name(),
        "shape": spec.shape.iter().map(output_size).collect::<Vec<_>>()})
    };
    let signature = file.signature();
    let nodes = file.with_types(values, |types| {
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
    let nodes = nodes.map_err(Failure::model(options.model.path()))?;
    let mut described = json!({
        "inputs": signature.inputs().iter().map(input).collect::<Vec<_>>(),
        "outputs": file.dynamic_outputs().iter().map(output).collect::<Vec<_>>(),
        "weights": file.weights().map(spec).collect::<Vec<_>>(),
        "nodes": nodes,
    });
    if !file.state().inputs().is_empty() {
        let written: Vec<&str> = file.default_program().written().collect();
        described["state"] = signature.state().iter().map(input).collect();
        described["written"] = json!(written);
    }
    if file.programs().len() > 1 {
        let names = file.programs().iter().map(|program| json!(program.name()));
        described["program"] = json!(file.default_program().name());
        described["programs"] = names.collect();
    }
    if signature.is_dynamic() {
        let symbols = signature.symbols().iter().zip(values);
        let symbols = symbols.map(|(symbol, value)| {
            json!({"name": symbol.name, "least": symbol.least, "most": symbol.most, "shown": value})
        });
        described["sizes"] = symbols.collect();
    }
    Ok(described)
}

/// A size in JSON: a number, or an expression of a symbol.
fn size(size: &Size) -> Json {
    match size {
        Size::Fixed(size) => json!(size),
        Size::Symbolic { .. } => json!(size.to_string()),
    }
}

/// The same for an output; null if it is not known.
fn output_size(dim: &Option<Dim>) -> Json {
    match dim {
        Some(Dim::Known(size)) => json!(size),
        dim => json!(dim.as_ref().map(Dim::to_string)),
    }
}
