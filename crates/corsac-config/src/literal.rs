//! Values that a module is constructed with.

use corsac_ir::DType;
use corsac_ir::literal::{bool_repr, write_float, write_str};

/// A value that a module is constructed with, or an input's default.
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
    /// Writes the value as the text notation has it, which is how Python's `repr` does.
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
