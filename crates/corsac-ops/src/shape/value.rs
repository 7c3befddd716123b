//! Values of nodes as far as they are known without running the program.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use corsac_ir::{DType, Device, Layout, MemoryFormat};

use super::dim::Dim;
use super::promotion::Kind;
use super::tensor_type::TensorType;

/// Memory that tensors lie in. Tensors with the same one share their elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Storage(u32);

impl Storage {
    /// Memory allocated by the present call. [`Propagator`](super::Propagator) gives it a number of
    /// its own.
    pub const NEW: Self = Self(u32::MAX);

    /// Number `index`.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX - 1))
    }

    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A tensor: its type, and the memory it lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its type.
    pub ty: Arc<TensorType>,
    /// Its storage.
    pub storage: Storage,
}

impl Tensor {
    /// A tensor of this type in memory of its own.
    #[must_use]
    pub fn new(ty: TensorType) -> Self {
        Self {
            ty: Arc::new(ty),
            storage: Storage::NEW,
        }
    }

    /// A tensor of another type in the same memory: a view.
    #[must_use]
    pub fn view(&self, ty: TensorType) -> Self {
        Self {
            ty: Arc::new(ty),
            storage: self.storage,
        }
    }
}

impl Deref for Tensor {
    type Target = TensorType;

    fn deref(&self) -> &TensorType {
        &self.ty
    }
}

/// A value, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing, with the reason.
    Unknown(Arc<str>),
    /// `None`
    None,
    /// `...`
    Ellipsis,
    /// `True` or `False`
    Bool(bool),
    /// An integer, or a size that depends on symbols.
    Int(Dim),
    /// A floating-point number.
    Float(f64),
    /// A complex number: real, imaginary.
    Complex(f64, f64),
    /// A number of this kind, known only when the program runs.
    Number(Kind),
    /// A string.
    Str(Arc<str>),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A layout.
    Layout(Layout),
    /// A memory format.
    MemoryFormat(MemoryFormat),
    /// A tensor.
    Tensor(Tensor),
    /// A tuple.
    Tuple(Arc<[Value]>),
    /// A list.
    List(Arc<[Value]>),
    /// A tuple with names for its items.
    Named(Arc<[(&'static str, Value)]>),
    /// A dictionary; keys are strings or numbers.
    Dict(Arc<[(Value, Value)]>),
    /// `slice(start, stop, step)`
    Slice(Arc<[Value; 3]>),
    /// A graph of the host, by its name there.
    Graph(Arc<str>),
    /// Something that has no meaning here.
    Object,
}

impl Value {
    /// An integer.
    #[must_use]
    pub fn int(value: i64) -> Self {
        Self::Int(Dim::Known(value))
    }

    /// A tensor of this type in memory of its own.
    #[must_use]
    pub fn tensor(ty: TensorType) -> Self {
        Self::Tensor(Tensor::new(ty))
    }

    /// A tuple of tensors in memory of their own.
    #[must_use]
    pub fn tensors(types: impl IntoIterator<Item = TensorType>) -> Self {
        Self::Tuple(types.into_iter().map(Self::tensor).collect())
    }

    /// A tuple of sizes.
    #[must_use]
    pub fn sizes(sizes: &[Dim]) -> Self {
        Self::Tuple(sizes.iter().cloned().map(Self::Int).collect())
    }

    /// Nothing is known, for this reason.
    #[must_use]
    pub fn unknown(reason: &str) -> Self {
        Self::Unknown(reason.into())
    }

    /// The tensor, if it is one.
    #[must_use]
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The items, if it is a tuple or a list without names.
    #[must_use]
    pub fn as_items(&self) -> Option<&[Value]> {
        match self {
            Self::Tuple(items) | Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Calls `visit` for each tensor in it, in order.
    pub fn for_each_tensor<'a>(&'a self, visit: &mut dyn FnMut(&'a Tensor)) {
        match self {
            Self::Tensor(tensor) => visit(tensor),
            Self::Tuple(items) | Self::List(items) => {
                items.iter().for_each(|item| item.for_each_tensor(visit));
            }
            Self::Named(items) => items
                .iter()
                .for_each(|(_, item)| item.for_each_tensor(visit)),
            Self::Dict(entries) => entries.iter().for_each(|(_, v)| v.for_each_tensor(visit)),
            _ => {}
        }
    }

    /// The same value with each tensor replaced by the result of `f`.
    #[must_use]
    pub fn map_tensors(self, f: &mut dyn FnMut(Tensor) -> Tensor) -> Self {
        let all = |items: &[Value], f: &mut dyn FnMut(Tensor) -> Tensor| -> Arc<[Value]> {
            items
                .iter()
                .map(|item| item.clone().map_tensors(f))
                .collect()
        };
        match self {
            Self::Tensor(tensor) => Self::Tensor(f(tensor)),
            Self::Tuple(items) => Self::Tuple(all(&items, f)),
            Self::List(items) => Self::List(all(&items, f)),
            Self::Named(items) => Self::Named(
                items
                    .iter()
                    .map(|(name, item)| (*name, item.clone().map_tensors(f)))
                    .collect(),
            ),
            Self::Dict(entries) => Self::Dict(
                entries
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone().map_tensors(f)))
                    .collect(),
            ),
            leaf => leaf,
        }
    }

    /// The reason why nothing is known of it, or of something in it.
    #[must_use]
    pub fn unknown_reason(&self) -> Option<&str> {
        match self {
            Self::Unknown(reason) => Some(reason),
            Self::Tuple(items) | Self::List(items) => items.iter().find_map(Self::unknown_reason),
            Self::Named(items) => items.iter().find_map(|(_, item)| item.unknown_reason()),
            Self::Dict(entries) => entries.iter().find_map(|(_, value)| value.unknown_reason()),
            _ => None,
        }
    }
}

impl From<TensorType> for Value {
    fn from(ty: TensorType) -> Self {
        Self::tensor(ty)
    }
}

impl fmt::Display for Value {
    /// As error messages show it: tensors by type and shape, containers by their items.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(reason) => write!(f, "an unknown value ({reason})"),
            Self::None => f.write_str("None"),
            Self::Ellipsis => f.write_str("..."),
            Self::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Self::Int(dim) => dim.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Complex(re, im) => write!(f, "({re}{im:+}j)"),
            Self::Number(kind) => match kind {
                Kind::Bool => f.write_str("a truth value"),
                Kind::Int => f.write_str("an integer"),
                Kind::Float => f.write_str("a floating-point number"),
                Kind::Complex => f.write_str("a complex number"),
            },
            Self::Str(text) => write!(f, "{text:?}"),
            Self::DType(dtype) => dtype.fmt(f),
            Self::Device(device) => device.fmt(f),
            Self::Layout(layout) => layout.fmt(f),
            Self::MemoryFormat(format) => format.fmt(f),
            Self::Tensor(tensor) => tensor.ty.fmt(f),
            Self::Tuple(items) => sequence(f, "(", items.iter(), ")"),
            Self::List(items) => sequence(f, "[", items.iter(), "]"),
            Self::Named(items) => sequence(f, "(", items.iter().map(|(_, item)| item), ")"),
            Self::Dict(entries) => sequence(f, "{", entries.iter().map(|(_, v)| v), "}"),
            Self::Slice(parts) => sequence(f, "slice(", parts.iter(), ")"),
            Self::Graph(name) => write!(f, "the graph {name}"),
            Self::Object => f.write_str("an object"),
        }
    }
}

fn sequence<'a>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    items: impl Iterator<Item = &'a Value>,
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (i, item) in items.enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        // The rest of a long list adds little to its beginning.
        if i == 16 {
            f.write_str("...")?;
            break;
        }
        fmt::Display::fmt(item, f)?;
    }
    f.write_str(close)
}
