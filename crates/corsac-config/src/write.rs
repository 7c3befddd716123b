//! Writes a configuration.

use crate::config::{Config, Format, Initial, Input, ModuleSpec, TensorSpec};
use crate::document::{self, Entry, Value, ValueKind};
use crate::error::WriteError;
use crate::literal::Literal;
use crate::read_document::is_identifier;
use crate::read_graph::is_path;
use crate::write_program::lines;

pub(crate) fn write(config: &Config, format: Format) -> Result<String, WriteError> {
    check_names(config)?;
    let lines = lines(config)?;
    Ok(match format {
        Format::Graph => graph_text(config, &lines),
        Format::Toml | Format::Json => document::print(&entries(config, &lines, format), format),
    })
}

fn check_names(config: &Config) -> Result<(), WriteError> {
    let wrong = |what, name: &str, expected| {
        Err(WriteError::Name {
            what,
            name: name.to_owned(),
            expected,
        })
    };
    if let Some(name) = config.name.as_deref().filter(|name| !is_identifier(name)) {
        return wrong("the model's name", name, "an identifier");
    }
    let modules = config.modules.iter().map(|m| ("the module", &m.path));
    let classes = config.modules.iter().map(|m| ("the class", &m.class));
    let tensors = config.tensors.iter().map(|t| ("the tensor", &t.path));
    for (what, name) in modules.chain(classes).chain(tensors) {
        if !is_path(name) {
            return wrong(what, name, "letters, digits and _, with dots between");
        }
    }
    let keywords = config.modules.iter().flat_map(|m| &m.kwargs);
    if let Some((keyword, _)) = keywords
        .into_iter()
        .find(|(keyword, _)| !is_identifier(keyword))
    {
        return wrong("the keyword", keyword, "an identifier");
    }
    for input in &config.inputs {
        if !is_identifier(input.name.trim_start_matches('*')) {
            return wrong("the input", &input.name, "an identifier");
        }
    }
    Ok(())
}

// ---- the text notation ----

fn graph_text(config: &Config, lines: &[String]) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    if let Some(name) = &config.name {
        line(&format!("model {name}"));
    }
    config
        .modules
        .iter()
        .for_each(|module| line(&module_line(module)));
    config
        .tensors
        .iter()
        .for_each(|tensor| line(&tensor_line(tensor)));
    config
        .inputs
        .iter()
        .for_each(|input| line(&input_line(input)));
    line("graph:");
    lines.iter().for_each(|text| line(&format!("    {text}")));
    out
}

fn module_line(module: &ModuleSpec) -> String {
    let mut out = format!("module {} = {}(", module.path, module.class);
    let mut separator = "";
    for value in &module.args {
        out.push_str(separator);
        value.write(&mut out);
        separator = ", ";
    }
    for (keyword, value) in &module.kwargs {
        out.push_str(separator);
        out.push_str(keyword);
        out.push('=');
        value.write(&mut out);
        separator = ", ";
    }
    out.push(')');
    out
}

fn tensor_line(tensor: &TensorSpec) -> String {
    let word = if tensor.parameter {
        "parameter"
    } else {
        "buffer"
    };
    let sizes: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
    let (path, dtype, sizes) = (&tensor.path, tensor.dtype.name(), sizes.join(", "));
    let mut out = format!("{word} {path} = {dtype}[{sizes}] ");
    match &tensor.initial {
        Initial::Elements(elements) => Literal::List(elements.clone()).write(&mut out),
        named => out.push_str(named.word().unwrap_or_default()),
    }
    out
}

fn input_line(input: &Input) -> String {
    let mut out = format!("input {}", input.name);
    if let Some(default) = &input.default {
        out.push_str(" = ");
        default.write(&mut out);
    } else if let Some((dtype, shape)) = &input.example {
        let size = |size: &Option<u64>| size.map_or("_".to_owned(), |size| size.to_string());
        let sizes: Vec<String> = shape.iter().map(size).collect();
        out.push_str(&format!(" = {}[{}]", dtype.name(), sizes.join(", ")));
    }
    out
}

// ---- TOML and JSON ----

fn entries(config: &Config, lines: &[String], format: Format) -> Vec<Entry> {
    let mut entries = Vec::new();
    if let Some(name) = &config.name {
        entries.push(Entry::new("name", ValueKind::Str(name.clone())));
    }
    let graph = if format == Format::Json {
        let lines = lines.iter().map(|line| ValueKind::Str(line.clone()).into());
        ValueKind::Array(lines.collect())
    } else {
        ValueKind::Str(lines.iter().map(|line| format!("{line}\n")).collect())
    };
    entries.push(Entry::new("graph", graph));
    let mut table = |key: &str, inner: Vec<Entry>| {
        if !inner.is_empty() {
            entries.push(Entry::new(key, ValueKind::Table(inner)));
        }
    };
    table("modules", config.modules.iter().map(module_entry).collect());
    for (key, parameter) in [("parameters", true), ("buffers", false)] {
        let tensors = config.tensors.iter().filter(|t| t.parameter == parameter);
        table(key, tensors.map(tensor_entry).collect());
    }
    table("inputs", config.inputs.iter().map(input_entry).collect());
    entries
}

fn module_entry(module: &ModuleSpec) -> Entry {
    let mut fields = vec![Entry::new("class", ValueKind::Str(module.class.clone()))];
    if !module.args.is_empty() {
        fields.push(Entry::new("args", array(&module.args)));
    }
    let kwargs = module.kwargs.iter();
    fields.extend(kwargs.map(|(keyword, value)| Entry::new(keyword, to_value(value))));
    Entry::new(&module.path, ValueKind::Table(fields))
}

fn tensor_entry(tensor: &TensorSpec) -> Entry {
    let initial = match &tensor.initial {
        Initial::Elements(elements) => array(elements),
        named => ValueKind::Str(named.word().unwrap_or_default().to_owned()),
    };
    let shape = tensor.shape.iter().map(|&size| Some(size));
    let fields = vec![
        Entry::new("shape", sizes(shape)),
        Entry::new("dtype", ValueKind::Str(tensor.dtype.name().to_owned())),
        Entry::new("init", initial),
    ];
    Entry::new(&tensor.path, ValueKind::Table(fields))
}

fn input_entry(input: &Input) -> Entry {
    let mut fields = Vec::new();
    if let Some((dtype, shape)) = &input.example {
        fields.push(Entry::new("dtype", ValueKind::Str(dtype.name().to_owned())));
        fields.push(Entry::new("shape", sizes(shape.iter().copied())));
    }
    if let Some(default) = &input.default {
        fields.push(Entry::new("default", to_value(default)));
    }
    Entry::new(&input.name, ValueKind::Table(fields))
}

fn sizes(sizes: impl Iterator<Item = Option<u64>>) -> ValueKind {
    let size = |size: Option<u64>| match size.map(i64::try_from) {
        Some(Ok(size)) => ValueKind::Int(size).into(),
        _ => ValueKind::Str("_".to_owned()).into(),
    };
    ValueKind::Array(sizes.map(size).collect())
}

fn array(items: &[Literal]) -> ValueKind {
    ValueKind::Array(items.iter().map(to_value).collect())
}

fn to_value(literal: &Literal) -> Value {
    match literal {
        Literal::None => ValueKind::Null,
        Literal::Bool(value) => ValueKind::Bool(*value),
        Literal::Int(value) => ValueKind::Int(*value),
        Literal::Float(value) => ValueKind::Float(*value),
        Literal::Str(text) => ValueKind::Str(text.clone()),
        Literal::DType(dtype) => ValueKind::Str(dtype.to_string()),
        Literal::List(items) | Literal::Tuple(items) => array(items),
        Literal::Dict(entries) => {
            let entries = entries.iter();
            ValueKind::Table(
                entries
                    .map(|(key, value)| Entry::new(key, to_value(value)))
                    .collect(),
            )
        }
    }
    .into()
}
