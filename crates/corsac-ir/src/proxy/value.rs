//! Arguments of recorded calls.

use thin_vec::ThinVec;

use super::{Proxy, TraceFault};
use crate::arg::{Arg, Seq};
use crate::dtype::{DType, Device, Layout, MemoryFormat};
use crate::entity::NodeId;
use crate::error::GraphError;
use crate::graph::Graph;

/// An argument of a recorded call.
#[derive(Clone, Debug)]
pub enum Value {
    /// The value of another node.
    Proxy(Proxy),
    /// A string.
    Str(String),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// `slice(start, stop, step)`.
    Slice(Box<[Value; 3]>),
    /// Anything else. Symbols and ids in it belong to the graph that is recorded.
    Arg(Arg),
}

/// The reason why a value cannot be an argument.
pub(super) enum Unusable {
    /// A proxy in it cannot be used; `None` if that is reported already.
    Proxy(Option<TraceFault>),
    /// The graph refuses it.
    Refused(GraphError),
}

impl Value {
    /// `None`.
    pub const NONE: Self = Self::Arg(Arg::None);

    /// `slice(start, stop, step)`.
    #[must_use]
    pub fn slice(start: impl Into<Value>, stop: impl Into<Value>, step: impl Into<Value>) -> Self {
        Self::Slice(Box::new([start.into(), stop.into(), step.into()]))
    }

    /// The argument in `graph`, where `node` gives the nodes of proxies.
    pub(super) fn into_arg(
        self,
        graph: &mut Graph,
        node: &dyn Fn(&Proxy) -> Result<NodeId, Option<TraceFault>>,
    ) -> Result<Arg, Unusable> {
        let mut items = |values: Vec<Value>| -> Result<Seq, Unusable> {
            let items = values.into_iter().map(|value| value.into_arg(graph, node));
            Seq::new(items.collect::<Result<ThinVec<_>, _>>()?).map_err(Unusable::Refused)
        };
        Ok(match self {
            Self::Proxy(proxy) => Arg::Node(node(&proxy).map_err(Unusable::Proxy)?),
            Self::Str(text) => Arg::Str(graph.intern(&text)),
            Self::List(values) => Arg::List(items(values)?),
            Self::Tuple(values) => Arg::Tuple(items(values)?),
            Self::Slice(bounds) => Arg::Slice(items((*bounds).into())?),
            Self::Arg(arg) => arg,
        })
    }
}

macro_rules! from_plain {
    ($($plain:ty => |$value:ident| $arg:expr,)*) => {$(
        impl From<$plain> for Value {
            fn from($value: $plain) -> Self {
                Self::Arg($arg)
            }
        }
    )*};
}

from_plain! {
    bool => |value| Arg::Bool(value),
    i32 => |value| Arg::Int(value.into()),
    i64 => |value| Arg::Int(value),
    f32 => |value| Arg::Float(value.into()),
    f64 => |value| Arg::Float(value),
    DType => |value| Arg::DType(value),
    Device => |value| Arg::Device(value),
    Layout => |value| Arg::Layout(value),
    MemoryFormat => |value| Arg::MemoryFormat(value),
    Arg => |value| value,
}

impl From<Proxy> for Value {
    fn from(proxy: Proxy) -> Self {
        Self::Proxy(proxy)
    }
}

impl From<&Proxy> for Value {
    fn from(proxy: &Proxy) -> Self {
        Self::Proxy(proxy.clone())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::NONE, Into::into)
    }
}

impl<V: Into<Value>> From<Vec<V>> for Value {
    /// A list.
    fn from(values: Vec<V>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl<V: Into<Value>, const N: usize> From<[V; N]> for Value {
    /// A list.
    fn from(values: [V; N]) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// The positional arguments of a recorded call: a tuple, an array or a vector of values.
pub trait Arguments {
    /// The values, in order.
    fn into_values(self) -> Vec<Value>;
}

impl<V: Into<Value>> Arguments for Vec<V> {
    fn into_values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<V: Into<Value>, const N: usize> Arguments for [V; N] {
    fn into_values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl Arguments for () {
    fn into_values(self) -> Vec<Value> {
        Vec::new()
    }
}

macro_rules! for_tuples {
    ($(($($name:ident),+))*) => {$(
        impl<$($name: Into<Value>),+> Arguments for ($($name,)+) {
            fn into_values(self) -> Vec<Value> {
                #[expect(non_snake_case, reason = "one name for the type and the item")]
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }

        impl<$($name: Into<Value>),+> From<($($name,)+)> for Value {
            /// A tuple.
            fn from(items: ($($name,)+)) -> Self {
                Self::Tuple(items.into_values())
            }
        }
    )*};
}

for_tuples! {
    (A)
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}
