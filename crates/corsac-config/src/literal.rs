//! Arguments of the construction of modules.

use corsac_ir::literal::{bool_repr, write_float, write_str};
use corsac_ir::{Arg, DType, Graph};

/// An argument of the construction of a module, or an input's default.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Literal {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Str(String),
    /// An element type, such as `torch.float16`.
    DType(DType),
    /// A list.
    List(Vec<Literal>),
    /// A tuple.
    Tuple(Vec<Literal>),
    /// A dictionary with strings for keys, in order.
    Dict(Vec<(String, Literal)>),
}

impl Literal {
    /// An argument of a graph as a literal, if a configuration can express it.
    #[must_use]
    pub fn of(graph: &Graph, value: &Arg) -> Option<Self> {
        let items = |items: &[Arg]| -> Option<Vec<Self>> {
            items.iter().map(|item| Self::of(graph, item)).collect()
        };
        match value {
            Arg::None => Some(Self::None),
            Arg::Bool(value) => Some(Self::Bool(*value)),
            Arg::Int(value) => Some(Self::Int(*value)),
            Arg::Float(value) => Some(Self::Float(*value)),
            Arg::Str(text) => Some(Self::Str(graph.text(*text).to_owned())),
            Arg::DType(dtype) => Some(Self::DType(*dtype)),
            Arg::Tuple(parts) => items(parts).map(Self::Tuple),
            Arg::List(parts) => items(parts).map(Self::List),
            Arg::Dict(entries) => {
                let entry = |(key, value): &(Arg, Arg)| match key {
                    Arg::Str(key) => Some((graph.text(*key).to_owned(), Self::of(graph, value)?)),
                    _ => None,
                };
                entries
                    .iter()
                    .map(entry)
                    .collect::<Option<_>>()
                    .map(Self::Dict)
            }
            Arg::Ellipsis
            | Arg::BigInt(_)
            | Arg::Complex(_)
            | Arg::Bytes(_)
            | Arg::Device(_)
            | Arg::Layout(_)
            | Arg::MemoryFormat(_)
            | Arg::Node(_)
            | Arg::Slice(_)
            | Arg::Range(_)
            | Arg::NamedTuple(_)
            | Arg::Opaque(_) => None,
        }
    }

    /// Writes the value in the text notation, as Python's `repr` does.
    pub(crate) fn write(&self, out: &mut String) {
        // Writing to a `String` cannot fail.
        match self {
            Self::None => out.push_str("None"),
            Self::Bool(value) => out.push_str(bool_repr(*value)),
            Self::Int(value) => out.push_str(&value.to_string()),
            Self::Float(value) => {
                let _ = write_float(out, *value);
            }
            Self::Str(value) => {
                let _ = write_str(out, value);
            }
            Self::DType(value) => out.push_str(&value.to_string()),
            Self::List(items) => write_items(out, "[", items, "]"),
            Self::Tuple(items) if items.len() == 1 => write_items(out, "(", items, ",)"),
            Self::Tuple(items) => write_items(out, "(", items, ")"),
            Self::Dict(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    let _ = write_str(out, key);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_items(out: &mut String, open: &str, items: &[Literal], close: &str) {
    out.push_str(open);
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        item.write(out);
    }
    out.push_str(close);
}
