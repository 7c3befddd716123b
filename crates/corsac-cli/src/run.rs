//! `corsac run`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use corsac_engine::{Elements, Model, Tensor, TensorSpec};
use serde_json::json;

use crate::arguments::{RunOptions, named};
use crate::failure::Failure;
use crate::npy;

/// Runs the model on the given arrays.
pub(crate) fn run(options: &RunOptions, out: &mut dyn Write) -> Result<(), Failure> {
    let model = Arc::new(options.model.load(options.precision, options.threads)?);
    let inputs = inputs(&model, &options.input)?;
    let outputs = model.dynamic_outputs();
    let names: Vec<&str> = outputs.iter().map(|spec| &*spec.name).collect();
    let shown = || listed(outputs.iter());
    let wanted = placed("result", &names, shown, &options.output)?;
    for path in wanted.iter().flatten() {
        if path.extension().is_none_or(|suffix| suffix != "npy") {
            let path = path.display();
            return Err(Failure::Usage(format!(
                "--output {path}: results are written as *.npy"
            )));
        }
    }
    let failed = Failure::model(options.model.path());
    let mut session = model
        .session(&named(&options.sizes.size))
        .map_err(&failed)?;
    let start = Instant::now();
    let results = session.run(None, &inputs).map_err(&failed)?;
    let seconds = start.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    for ((name, tensor), path) in names.iter().zip(&results).zip(wanted) {
        let spec = TensorSpec {
            name: (*name).to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
        };
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
    let inputs = model.signature().inputs();
    let names: Vec<&str> = inputs.iter().map(|spec| &*spec.name).collect();
    let paths = placed("input", &names, || listed(inputs.iter()), given)?;
    let all = inputs.iter().zip(paths);
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
    names: &[&str],
    shown: impl Fn() -> String,
    given: &[String],
) -> Result<Vec<Option<PathBuf>>, Failure> {
    let mut placed = vec![None; names.len()];
    for text in given {
        let named = text.split_once('=').and_then(|(name, path)| {
            let at = names.iter().position(|own| *own == name)?;
            Some((at, path))
        });
        if named.is_none()
            && let Some((name, _)) = text.split_once('=')
            && !name.contains(std::path::is_separator)
            && !Path::new(text).exists()
        {
            return Err(Failure::Usage(format!(
                "the model has no {what} {name}: its {what}s are {}",
                shown()
            )));
        }
        let free = placed.iter().position(Option::is_none);
        let (at, path) = match (named, free) {
            (Some(named), _) => named,
            (None, Some(free)) => (free, text.as_str()),
            (None, None) => {
                return Err(Failure::Usage(format!(
                    "{text} is one {what} too many: the model has {}",
                    shown()
                )));
            }
        };
        if placed[at].replace(PathBuf::from(path)).is_some() {
            let name = names[at];
            return Err(Failure::Usage(format!("the {what} {name} is given twice")));
        }
    }
    Ok(placed)
}
