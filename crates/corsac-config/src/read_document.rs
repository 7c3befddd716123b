//! Reads a configuration from TOML or JSON.
//!
//! ```toml
//! name = "Net"
//! graph = """
//! h = torch.relu(conv(x)) * scale
//! return h.mean((2, 3))
//! """
//! [modules]
//! conv = { class = "Conv2d", args = [3, 16, 3], padding = 1 }
//! [parameters]
//! scale = { shape = [16, 1, 1], init = "ones" }
//! [inputs]
//! x = { dtype = "float32", shape = [1, 3, 32, 32] }
//! ```

use corsac_ir::DType;

use crate::config::{Config, Format, Initial, Input, ModuleSpec, TensorSpec};
use crate::document::{self, Entry, Value, ValueKind};
use crate::error::{ConfigError, Position};
use crate::literal::Literal;
use crate::policy::Policy;
use crate::read_graph::{assemble, check_class, check_elements};
use crate::token::Source;

type Result<T> = std::result::Result<T, ConfigError>;

pub(crate) fn read(text: &str, format: Format, policy: &Policy) -> Result<Config> {
    let source = Source::file(text);
    let reader = Reader {
        source: &source,
        policy,
    };
    let mut config = Config::default();
    let mut lines: Vec<(String, Position)> = Vec::new();
    for entry in document::parse(&source, format)? {
        match entry.key.as_str() {
            "name" => config.name = Some(reader.string(&entry.value)?.to_owned()),
            "graph" => lines = reader.lines(&entry.value)?,
            "modules" => reader.modules("", reader.table(&entry.value)?, &mut config)?,
            "parameters" => reader.tensors(true, reader.table(&entry.value)?, &mut config)?,
            "buffers" => reader.tensors(false, reader.table(&entry.value)?, &mut config)?,
            "inputs" => reader.inputs(reader.table(&entry.value)?, &mut config)?,
            _ => {
                let expected = "`name`, `modules`, `parameters`, `buffers`, `inputs` or `graph`";
                let found = format_args!("{:?}", entry.key);
                return Err(ConfigError::expected(reader.key(&entry), expected, found));
            }
        }
    }
    if let Some(name) = config.name.as_deref().filter(|name| !is_identifier(name)) {
        return Err(ConfigError::expected(
            source.start,
            "a name for the model",
            name,
        ));
    }
    let sources: Vec<Source<'_>> = (lines.iter())
        .map(|(text, start)| Source::new(text, *start))
        .collect();
    assemble(config, policy, &sources, source.position(text.len()))
}

/// Whether `name` can be the name of a class or variable.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

struct Reader<'t> {
    source: &'t Source<'t>,
    policy: &'t Policy,
}

impl Reader<'_> {
    fn at(&self, value: &Value) -> Position {
        self.source.position(value.span.start)
    }

    fn key(&self, entry: &Entry) -> Position {
        self.source.position(entry.key_span.start)
    }

    fn wrong(&self, value: &Value, expected: &str) -> ConfigError {
        ConfigError::expected(self.at(value), expected, value.kind.describe())
    }

    fn string<'v>(&self, value: &'v Value) -> Result<&'v str> {
        match &value.kind {
            ValueKind::Str(text) => Ok(text),
            _ => Err(self.wrong(value, "a string")),
        }
    }

    fn array<'v>(&self, value: &'v Value) -> Result<&'v [Value]> {
        match &value.kind {
            ValueKind::Array(items) => Ok(items),
            _ => Err(self.wrong(value, "an array")),
        }
    }

    fn table<'v>(&self, value: &'v Value) -> Result<&'v [Entry]> {
        match &value.kind {
            ValueKind::Table(entries) => Ok(entries),
            _ => Err(self.wrong(value, "a table")),
        }
    }

    /// A text of lines, or a list of lines.
    fn lines(&self, value: &Value) -> Result<Vec<(String, Position)>> {
        let line = |value: &Value| {
            let text = self.string(value)?.to_owned();
            Ok((text, document::text_start(self.source, value)))
        };
        match &value.kind {
            ValueKind::Str(_) => Ok(vec![line(value)?]),
            ValueKind::Array(items) => items.iter().map(line).collect(),
            _ => Err(self.wrong(value, "a string or an array of strings")),
        }
    }

    /// Reads modules: tables with a `class` are modules, others hold modules whose names begin with
    /// theirs.
    fn modules(&self, prefix: &str, entries: &[Entry], config: &mut Config) -> Result<()> {
        for entry in entries {
            let path = format!("{prefix}{}", entry.key);
            let fields = self.table(&entry.value)?;
            let Some(class) = fields.iter().find(|field| field.key == "class") else {
                if fields.is_empty() || fields.iter().any(|f| !is_table(&f.value)) {
                    let message = format!("the module {path} has no `class`");
                    return Err(ConfigError::new(self.key(entry), message));
                }
                self.modules(&format!("{path}."), fields, config)?;
                continue;
            };
            let name = self.string(&class.value)?.to_owned();
            check_class(&name, self.policy, self.at(&class.value))?;
            let mut module = ModuleSpec {
                path,
                class: name,
                args: Vec::new(),
                kwargs: Vec::new(),
                position: self.key(entry),
            };
            for field in fields {
                match field.key.as_str() {
                    "class" => {}
                    "args" => module.args = self.literals(self.array(&field.value)?)?,
                    key => module
                        .kwargs
                        .push((key.to_owned(), self.literal(&field.value)?)),
                }
            }
            config.modules.push(module);
        }
        Ok(())
    }

    fn tensors(&self, parameter: bool, entries: &[Entry], config: &mut Config) -> Result<()> {
        for entry in entries {
            let (mut shape, mut dtype, mut initial) = (None, DType::Float32, None);
            for field in self.table(&entry.value)? {
                let value = &field.value;
                match field.key.as_str() {
                    "shape" => {
                        let sizes = self.array(value)?.iter().map(|v| self.size(v));
                        shape = Some(sizes.collect::<Result<Vec<u64>>>()?);
                    }
                    "dtype" => dtype = self.dtype(value)?,
                    "init" => {
                        initial = Some(match &value.kind {
                            ValueKind::Array(items) => Initial::Elements(self.literals(items)?),
                            ValueKind::Str(word) => Initial::named(word).ok_or_else(|| {
                                let expected = "`zeros`, `ones`, `normal` or an array";
                                ConfigError::expected(self.at(value), expected, word)
                            })?,
                            _ => return Err(self.wrong(value, "a string or an array")),
                        });
                    }
                    _ => return Err(self.field(field, "`shape`, `dtype` or `init`")),
                }
            }
            let position = self.key(entry);
            let (Some(shape), Some(initial)) = (shape, initial) else {
                let message = format!("the tensor {} needs `shape` and `init`", entry.key);
                return Err(ConfigError::new(position, message));
            };
            let spec = TensorSpec {
                path: entry.key.clone(),
                parameter,
                dtype,
                shape,
                initial,
                position,
            };
            check_elements(&spec)?;
            config.tensors.push(spec);
        }
        Ok(())
    }

    fn inputs(&self, entries: &[Entry], config: &mut Config) -> Result<()> {
        for entry in entries {
            let bare = entry.key.trim_start_matches('*');
            if !is_identifier(bare) || entry.key.len() > bare.len() + 2 {
                let found = format_args!("{:?}", entry.key);
                return Err(ConfigError::expected(self.key(entry), "a name", found));
            }
            let (mut dtype, mut shape, mut default) = (None, None, None);
            let fields = match &entry.value.kind {
                ValueKind::Array(sizes) => {
                    shape = Some(self.sizes(sizes)?);
                    &[]
                }
                _ => self.table(&entry.value)?,
            };
            for field in fields {
                match field.key.as_str() {
                    "dtype" => dtype = Some(self.dtype(&field.value)?),
                    "shape" => shape = Some(self.sizes(self.array(&field.value)?)?),
                    "default" => default = Some(self.literal(&field.value)?),
                    _ => return Err(self.field(field, "`dtype`, `shape` or `default`")),
                }
            }
            config.inputs.push(Input {
                name: entry.key.clone(),
                example: shape.map(|shape| (dtype.unwrap_or(DType::Float32), shape)),
                default,
                position: self.key(entry),
            });
        }
        Ok(())
    }

    fn field(&self, entry: &Entry, expected: &str) -> ConfigError {
        ConfigError::expected(self.key(entry), expected, format_args!("{:?}", entry.key))
    }

    fn size(&self, value: &Value) -> Result<u64> {
        match value.kind {
            ValueKind::Int(size) => u64::try_from(size).ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong(value, "a size"))
    }

    fn sizes(&self, values: &[Value]) -> Result<Vec<Option<u64>>> {
        let size = |value: &Value| match &value.kind {
            ValueKind::Str(any) if any == "_" => Ok(None),
            _ => self.size(value).map(Some),
        };
        values.iter().map(size).collect()
    }

    fn dtype(&self, value: &Value) -> Result<DType> {
        let text = self.string(value)?;
        text.parse()
            .map_err(|()| ConfigError::expected(self.at(value), "a dtype", text))
    }

    fn literals(&self, values: &[Value]) -> Result<Vec<Literal>> {
        values.iter().map(|value| self.literal(value)).collect()
    }

    /// Reads a literal. Arrays are tuples, as PyTorch's modules take them; the strings `None` and
    /// `torch.float32` stand for the objects that they name.
    fn literal(&self, value: &Value) -> Result<Literal> {
        Ok(match &value.kind {
            ValueKind::Null => Literal::None,
            ValueKind::Bool(value) => Literal::Bool(*value),
            ValueKind::Int(value) => Literal::Int(*value),
            ValueKind::Float(value) => Literal::Float(*value),
            ValueKind::Str(text) => match text.strip_prefix("torch.").map(str::parse) {
                Some(Ok(dtype)) => Literal::DType(dtype),
                _ if text == "None" => Literal::None,
                _ => Literal::Str(text.clone()),
            },
            ValueKind::Array(items) => Literal::Tuple(self.literals(items)?),
            ValueKind::Table(entries) => {
                let entries: Result<_> = (entries.iter())
                    .map(|entry| Ok((entry.key.clone(), self.literal(&entry.value)?)))
                    .collect();
                Literal::Dict(entries?)
            }
        })
    }
}

fn is_table(value: &Value) -> bool {
    matches!(value.kind, ValueKind::Table(_))
}
