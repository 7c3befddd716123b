//! `corsac run`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use corsac_engine::{Elements, Model, Tensor, TensorSpec};
use serde_json::json;

use crate::arguments::RunOptions;
use crate::failure::Failure;
use crate::npy;

/// Runs the model on the given arrays.
pub(crate) fn run(options: &RunOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let model = options.model.load(options.precision, options.threads)?;
    let inputs = inputs(&model, &options.input)?;
    let wanted = placed("result", model.outputs(), &options.output)?;
    for path in wanted.iter().flatten() {
        if path.extension().is_none_or(|suffix| suffix != "npy") {
            let path = path.display();
            return Err(Failure::Usage(format!(
                "--output {path}: results are written as *.npy"
            )));
        }
    }
    let start = Instant::now();
    let results = model
        .run(&inputs)
        .map_err(Failure::model(&options.model.path))?;
    let seconds = start.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    for ((spec, tensor), path) in model.outputs().iter().zip(&results).zip(wanted) {
        if let Some(path) = &path {
            npy::write(path, tensor)?;
        }
        if options.json {
            let file = path.as_ref().map(|path| path.display().to_string());
            rows.push(json!({"name": spec.name, "shape": spec.shape, "file": file,
                "elements": file.is_none().then(|| all(tensor.elements()))}));
            continue;
        }
        match path {
            Some(path) => writeln!(out, "{spec} -> {}", path.display())?,
            None => writeln!(out, "{spec} = {}", beginning(tensor.elements()))?,
        }
    }
    if options.json {
        let report = json!({"outputs": rows, "seconds": seconds});
        writeln!(out, "{report:#}")?;
    }
    Ok(())
}

/// Elements as JSON values; NaN and infinities become null.
fn all(elements: &Elements) -> Vec<serde_json::Value> {
    match elements {
        Elements::F32(elements) => elements.iter().map(|&x| json!(x)).collect(),
        Elements::F64(elements) => elements.iter().map(|&x| json!(x)).collect(),
        Elements::I64(elements) => elements.iter().map(|&x| json!(x)).collect(),
        Elements::Bool(elements) => elements.iter().map(|&x| json!(x != 0)).collect(),
    }
}

fn beginning(elements: &Elements) -> String {
    const SHOWN: usize = 8;
    let text = match elements {
        Elements::F32(elements) => listed(elements.iter().take(SHOWN)),
        Elements::F64(elements) => listed(elements.iter().take(SHOWN)),
        Elements::I64(elements) => listed(elements.iter().take(SHOWN)),
        Elements::Bool(elements) => listed(elements.iter().take(SHOWN).map(|&x| x != 0)),
    };
    match elements.len() > SHOWN {
        true => format!("[{text}, ...]"),
        false => format!("[{text}]"),
    }
}

fn listed(elements: impl Iterator<Item = impl ToString>) -> String {
    let elements = elements.map(|element| element.to_string());
    elements.collect::<Vec<_>>().join(", ")
}

/// Reads the inputs of `model` from files.
pub(crate) fn inputs(model: &Model, given: &[String]) -> Result<Vec<Tensor>, Failure> {
    let paths = placed("input", model.inputs(), given)?;
    let all = model.inputs().iter().zip(paths);
    all.map(|(spec, path)| match path {
        Some(path) => npy::read(&path, spec),
        None => Err(Failure::Usage(format!(
            "the input {spec} is missing (--input {}=FILE)",
            spec.name
        ))),
    })
    .collect()
}

/// The file that belongs to each tensor: `name=file`, or in order.
fn placed(
    what: &str,
    specs: &[TensorSpec],
    given: &[String],
) -> Result<Vec<Option<PathBuf>>, Failure> {
    let mut placed = vec![None; specs.len()];
    for text in given {
        let named = text.split_once('=').and_then(|(name, path)| {
            let at = specs.iter().position(|spec| spec.name == name)?;
            Some((at, path))
        });
        if named.is_none()
            && let Some((name, _)) = text.split_once('=')
            && !name.contains(std::path::is_separator)
            && !Path::new(text).exists()
        {
            return Err(Failure::Usage(format!(
                "the model has no {what} {name}: its {what}s are {}",
                listed(specs.iter())
            )));
        }
        let free = placed.iter().position(Option::is_none);
        let (at, path) = match (named, free) {
            (Some(named), _) => named,
            (None, Some(free)) => (free, text.as_str()),
            (None, None) => {
                return Err(Failure::Usage(format!(
                    "{text} is one {what} too many: the model has {}",
                    listed(specs.iter())
                )));
            }
        };
        if placed[at].replace(PathBuf::from(path)).is_some() {
            let name = &specs[at].name;
            return Err(Failure::Usage(format!("the {what} {name} is given twice")));
        }
    }
    Ok(placed)
}
