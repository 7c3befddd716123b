//! TOML and JSON as one tree, with the place of everything in it.

use std::ops::Range;

use jsonc_parser::ast;
use toml_edit::{DocumentMut, InlineTable, Item, Table};

use crate::config::Format;
use crate::error::{ConfigError, Position};
use crate::token::Source;

/// A value, and its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) kind: ValueKind,
    pub(crate) span: Range<usize>,
}

/// The kind of a value, with its content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueKind {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Array(Vec<Value>),
    Table(Vec<Entry>),
}

/// An entry of a table, with the place of its key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) value: Value,
}

impl ValueKind {
    /// Its description in errors.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Str(_) => "a string",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

impl From<ValueKind> for Value {
    /// A value to be written, which has no place in a text.
    fn from(kind: ValueKind) -> Self {
        Self { kind, span: 0..0 }
    }
}

impl Entry {
    /// An entry to be written.
    pub(crate) fn new(key: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            key: key.into(),
            key_span: 0..0,
            value: value.into(),
        }
    }
}

/// Reads a whole file, which is a table.
pub(crate) fn parse(source: &Source<'_>, format: Format) -> Result<Vec<Entry>, ConfigError> {
    let value = match format {
        Format::Json => parse_json(source)?,
        Format::Graph | Format::Toml => parse_toml(source)?,
    };
    match value.kind {
        ValueKind::Table(entries) => Ok(entries),
        kind => Err(ConfigError::expected(
            source.position(value.span.start),
            "an object",
            kind.describe(),
        )),
    }
}

fn parse_toml(source: &Source<'_>) -> Result<Value, ConfigError> {
    let document = toml_edit::Document::parse(source.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        ConfigError::new(source.position(at), error.message().to_owned())
    })?;
    of_toml(document.as_item(), source)
}

fn of_toml(item: &Item, source: &Source<'_>) -> Result<Value, ConfigError> {
    let span = item.span().unwrap_or(0..0);
    let table = |table: &dyn toml_edit::TableLike| -> Result<ValueKind, ConfigError> {
        let mut entries = Vec::new();
        for (name, item) in table.iter() {
            let key_span = table.key(name).and_then(toml_edit::Key::span);
            entries.push(Entry {
                key: name.to_owned(),
                key_span: key_span.unwrap_or_else(|| item.span().unwrap_or(0..0)),
                value: of_toml(item, source)?,
            });
        }
        Ok(ValueKind::Table(entries))
    };
    let kind = match item {
        Item::None => ValueKind::Null,
        Item::Table(found) => table(found)?,
        Item::ArrayOfTables(tables) => {
            let mut items = Vec::new();
            for found in tables {
                let span = found.span().unwrap_or(0..0);
                items.push(Value {
                    kind: table(found)?,
                    span,
                });
            }
            ValueKind::Array(items)
        }
        Item::Value(value) => match value {
            toml_edit::Value::String(text) => ValueKind::Str(text.value().clone()),
            toml_edit::Value::Integer(value) => ValueKind::Int(*value.value()),
            toml_edit::Value::Float(value) => ValueKind::Float(*value.value()),
            toml_edit::Value::Boolean(value) => ValueKind::Bool(*value.value()),
            toml_edit::Value::InlineTable(found) => table(found)?,
            toml_edit::Value::Array(values) => {
                let items: Result<_, _> = (values.iter())
                    .map(|value| of_toml(&Item::Value(value.clone()), source))
                    .collect();
                ValueKind::Array(items?)
            }
            toml_edit::Value::Datetime(_) => {
                return Err(ConfigError::expected(
                    source.position(span.start),
                    "a value",
                    "a date",
                ));
            }
        },
    };
    Ok(Value { kind, span })
}

fn parse_json(source: &Source<'_>) -> Result<Value, ConfigError> {
    let options = jsonc_parser::ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: true,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: true,
        allow_extended_string_escapes: false,
    };
    let parsed = jsonc_parser::parse_to_ast(source.text, &Default::default(), &options);
    let parsed = parsed.map_err(|error| {
        let position = source.position(error.range().start);
        ConfigError::new(position, error.kind().to_string())
    })?;
    match parsed.value {
        Some(value) => of_json(&value, source),
        None => Err(ConfigError::expected(
            source.start,
            "an object",
            "an empty file",
        )),
    }
}

fn of_json(value: &ast::Value<'_>, source: &Source<'_>) -> Result<Value, ConfigError> {
    let range = |range: &jsonc_parser::common::Range| range.start..range.end;
    let (kind, span) = match value {
        ast::Value::NullKeyword(found) => (ValueKind::Null, range(&found.range)),
        ast::Value::BooleanLit(found) => (ValueKind::Bool(found.value), range(&found.range)),
        ast::Value::StringLit(found) => {
            (ValueKind::Str(found.value.to_string()), range(&found.range))
        }
        ast::Value::NumberLit(found) => {
            let span = range(&found.range);
            let number = match (found.value.parse(), found.value) {
                (Ok(value), _) => Some(ValueKind::Int(value)),
                (Err(_), "Infinity") => Some(ValueKind::Float(f64::INFINITY)),
                (Err(_), "-Infinity") => Some(ValueKind::Float(f64::NEG_INFINITY)),
                (Err(_), text) => text.parse().ok().map(ValueKind::Float),
            };
            let number = number.ok_or_else(|| {
                ConfigError::expected(source.position(span.start), "a number", found.value)
            });
            (number?, span)
        }
        ast::Value::Array(found) => {
            let items: Result<_, _> = (found.elements.iter())
                .map(|value| of_json(value, source))
                .collect();
            (ValueKind::Array(items?), range(&found.range))
        }
        ast::Value::Object(found) => {
            let mut entries: Vec<Entry> = Vec::new();
            for property in &found.properties {
                let (key, key_span) = match &property.name {
                    ast::ObjectPropName::String(name) => (name.value.to_string(), &name.range),
                    ast::ObjectPropName::Word(name) => (name.value.to_owned(), &name.range),
                };
                if entries.iter().any(|entry| entry.key == key) {
                    let position = source.position(key_span.start);
                    return Err(ConfigError::new(position, format!("{key:?} stands twice")));
                }
                entries.push(Entry {
                    key,
                    key_span: range(key_span),
                    value: of_json(&property.value, source)?,
                });
            }
            (ValueKind::Table(entries), range(&found.range))
        }
    };
    Ok(Value { kind, span })
}

/// The place where the characters of a string value begin, so that places in it are places in the
/// file.
pub(crate) fn text_start(source: &Source<'_>, value: &Value) -> Position {
    let written = &source.text[value.span.clone()];
    let quotes = if written.starts_with("\"\"\"") || written.starts_with("'''") {
        // A line break right behind the quotes is not part of the string.
        let body = &written[3..];
        let skipped = body.len() - body.strip_prefix('\r').unwrap_or(body).len();
        3 + skipped + usize::from(body[skipped..].starts_with('\n'))
    } else {
        1
    };
    source.position(value.span.start + quotes.min(written.len()))
}

/// The table as a file.
pub(crate) fn print(entries: &[Entry], format: Format) -> String {
    match format {
        Format::Json => {
            let mut out = String::new();
            print_json(&mut out, &ValueKind::Table(entries.to_vec()), 0);
            out.push('\n');
            out
        }
        Format::Graph | Format::Toml => print_toml(entries),
    }
}

/// Writes tables two deep on lines of their own, deeper values on one line.
fn print_json(out: &mut String, value: &ValueKind, depth: usize) {
    const LINES: usize = 2;
    let spread = depth < LINES;
    let separate = |out: &mut String, first: bool, depth: usize| {
        out.push_str(if first { "" } else { "," });
        if spread {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str("  "));
        } else if !first {
            out.push(' ');
        }
    };
    match value {
        ValueKind::Null => out.push_str("null"),
        ValueKind::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        ValueKind::Int(value) => out.push_str(&value.to_string()),
        ValueKind::Float(value) if value.is_nan() => out.push_str("NaN"),
        ValueKind::Float(value) if value.is_infinite() => {
            out.push_str(if *value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            });
        }
        ValueKind::Float(value) => out.push_str(&format!("{value:?}")),
        ValueKind::Str(text) => print_json_string(out, text),
        ValueKind::Array(items) if items.is_empty() => out.push_str("[]"),
        ValueKind::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index == 0, depth + 1);
                print_json(out, &item.kind, depth + 1);
            }
            if spread {
                out.push('\n');
                (0..depth).for_each(|_| out.push_str("  "));
            }
            out.push(']');
        }
        ValueKind::Table(entries) if entries.is_empty() => out.push_str("{}"),
        ValueKind::Table(entries) => {
            out.push('{');
            for (index, entry) in entries.iter().enumerate() {
                separate(out, index == 0, depth + 1);
                print_json_string(out, &entry.key);
                out.push_str(": ");
                print_json(out, &entry.value.kind, depth + 1);
            }
            if spread {
                out.push('\n');
                (0..depth).for_each(|_| out.push_str("  "));
            }
            out.push('}');
        }
    }
}

fn print_json_string(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

fn print_toml(entries: &[Entry]) -> String {
    let mut document = DocumentMut::new();
    for entry in entries {
        let item = match &entry.value.kind {
            ValueKind::Table(inner) => {
                let mut table = Table::new();
                for entry in inner {
                    table.insert(&entry.key, Item::Value(to_toml(&entry.value)));
                }
                Item::Table(table)
            }
            _ => Item::Value(to_toml(&entry.value)),
        };
        document.insert(&entry.key, item);
    }
    document.to_string()
}

/// A value of TOML. TOML has no null: the word `None` stands for it, here as when reading.
fn to_toml(value: &Value) -> toml_edit::Value {
    match &value.kind {
        ValueKind::Null => "None".into(),
        ValueKind::Bool(value) => (*value).into(),
        ValueKind::Int(value) => (*value).into(),
        ValueKind::Float(value) => (*value).into(),
        ValueKind::Str(text) => text.as_str().into(),
        ValueKind::Array(items) => toml_edit::Value::Array(items.iter().map(to_toml).collect()),
        ValueKind::Table(entries) => {
            let mut table = InlineTable::new();
            for entry in entries {
                table.insert(&entry.key, to_toml(&entry.value));
            }
            toml_edit::Value::InlineTable(table)
        }
    }
}
