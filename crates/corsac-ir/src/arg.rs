//! Arguments of nodes.

use num_bigint::BigInt;
use thin_vec::ThinVec;

use crate::dtype::{DType, Device, Layout, MemoryFormat};
use crate::entity::{ExternalId, NodeId, Symbol};
use crate::error::GraphError;

/// Maximum nesting depth of containers in an argument. Code that walks arguments may recurse, since
/// nothing deeper can be built.
pub const MAX_DEPTH: u16 = 256;

/// One argument of a node. Sixteen bytes.
///
/// Symbols, node ids and external ids in it belong to the graph that the node is in.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// `None`
    None,
    /// `...`
    Ellipsis,
    /// `True` or `False`
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer that does not.
    BigInt(Box<BigInt>),
    /// A floating-point number, NaN and infinities included.
    Float(f64),
    /// A complex number: real, imaginary.
    Complex(Box<(f64, f64)>),
    /// A string.
    Str(Symbol),
    /// A byte string.
    Bytes(Box<Vec<u8>>),
    /// An element type.
    DType(DType),
    /// A device.
    Device(Device),
    /// A layout.
    Layout(Layout),
    /// A memory format.
    MemoryFormat(MemoryFormat),
    /// The value of another node.
    Node(NodeId),
    /// A tuple.
    Tuple(Seq),
    /// A list.
    List(Seq),
    /// A dictionary, in insertion order; keys hold no nodes.
    Dict(Dict),
    /// `slice(start, stop, step)`: three items.
    Slice(Seq),
    /// `range(start, stop, step)`: three integer items.
    Range(Seq),
    /// An instance of a named tuple class: the class, the items.
    NamedTuple(Box<(ExternalId, Seq)>),
    /// A value that only the host understands.
    Opaque(ExternalId),
}

/// The items of a container, with their nesting depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Seq(Box<Nested<Arg>>);

/// Boxed, so that an [`Arg`] stays small: most arguments are no containers.
#[derive(Clone, Debug, PartialEq)]
struct Nested<T> {
    depth: u16,
    items: ThinVec<T>,
}

impl Seq {
    /// A container's items.
    ///
    /// # Errors
    /// [`GraphError::NestingTooDeep`] if containers would nest deeper than [`MAX_DEPTH`].
    pub fn new(items: impl Into<ThinVec<Arg>>) -> Result<Self, GraphError> {
        let items = items.into();
        Ok(Self(Box::new(Nested {
            depth: depth_over(items.iter())?,
            items,
        })))
    }
}

impl std::ops::Deref for Seq {
    type Target = [Arg];

    fn deref(&self) -> &[Arg] {
        &self.0.items
    }
}

/// The entries of a dictionary argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Dict(Box<Nested<(Arg, Arg)>>);

impl Dict {
    /// A dictionary's entries, in order.
    ///
    /// # Errors
    /// [`GraphError::NestingTooDeep`] as for [`Seq::new`]; [`GraphError::NodeInDictKey`] if a key
    /// holds a node.
    pub fn new(entries: impl Into<ThinVec<(Arg, Arg)>>) -> Result<Self, GraphError> {
        let entries = entries.into();
        for (key, _) in &entries {
            let mut node = None;
            key.for_each_node(&mut |n| node = Some(n));
            if let Some(node) = node {
                return Err(GraphError::NodeInDictKey { node });
            }
        }
        let depth = depth_over(entries.iter().flat_map(|(k, v)| [k, v]))?;
        Ok(Self(Box::new(Nested {
            depth,
            items: entries,
        })))
    }
}

impl std::ops::Deref for Dict {
    type Target = [(Arg, Arg)];

    fn deref(&self) -> &[(Arg, Arg)] {
        &self.0.items
    }
}

fn depth_over<'a>(items: impl Iterator<Item = &'a Arg>) -> Result<u16, GraphError> {
    let depth = items.map(Arg::depth).max().unwrap_or(0) + 1;
    if depth > MAX_DEPTH {
        Err(GraphError::NestingTooDeep { limit: MAX_DEPTH })
    } else {
        Ok(depth)
    }
}

impl Arg {
    /// Nesting depth of containers: 0 for a scalar, 1 for a flat list.
    #[must_use]
    pub fn depth(&self) -> u16 {
        match self {
            Self::Tuple(seq) | Self::List(seq) | Self::Slice(seq) | Self::Range(seq) => seq.0.depth,
            Self::NamedTuple(named) => named.1.0.depth,
            Self::Dict(dict) => dict.0.depth,
            Self::None
            | Self::Ellipsis
            | Self::Bool(_)
            | Self::Int(_)
            | Self::BigInt(_)
            | Self::Float(_)
            | Self::Complex(_)
            | Self::Str(_)
            | Self::Bytes(_)
            | Self::DType(_)
            | Self::Device(_)
            | Self::Layout(_)
            | Self::MemoryFormat(_)
            | Self::Node(_)
            | Self::Opaque(_) => 0,
        }
    }

    /// A tuple of `items`.
    ///
    /// # Errors
    /// As [`Seq::new`].
    pub fn tuple(items: impl Into<ThinVec<Arg>>) -> Result<Self, GraphError> {
        Seq::new(items).map(Self::Tuple)
    }

    /// A list of `items`.
    ///
    /// # Errors
    /// As [`Seq::new`].
    pub fn list(items: impl Into<ThinVec<Arg>>) -> Result<Self, GraphError> {
        Seq::new(items).map(Self::List)
    }

    /// `slice(start, stop, step)`.
    ///
    /// # Errors
    /// As [`Seq::new`].
    pub fn slice(start: Arg, stop: Arg, step: Arg) -> Result<Self, GraphError> {
        Seq::new([start, stop, step]).map(Self::Slice)
    }

    /// The node, if the argument is one itself.
    #[must_use]
    pub fn as_node(&self) -> Option<NodeId> {
        if let Self::Node(node) = self {
            Some(*node)
        } else {
            None
        }
    }

    /// The items, if the argument is a tuple or a list.
    #[must_use]
    pub fn as_items(&self) -> Option<&[Arg]> {
        match self {
            Self::Tuple(seq) | Self::List(seq) => Some(seq),
            _ => None,
        }
    }

    /// Calls `visit` for the argument's direct parts: items, and keys and values.
    pub fn for_each_part(&self, visit: &mut impl FnMut(&Arg)) {
        match self {
            Self::Tuple(seq) | Self::List(seq) | Self::Slice(seq) | Self::Range(seq) => {
                seq.iter().for_each(visit);
            }
            Self::NamedTuple(named) => named.1.iter().for_each(visit),
            Self::Dict(dict) => {
                for (key, value) in dict.iter() {
                    visit(key);
                    visit(value);
                }
            }
            Self::None
            | Self::Ellipsis
            | Self::Bool(_)
            | Self::Int(_)
            | Self::BigInt(_)
            | Self::Float(_)
            | Self::Complex(_)
            | Self::Str(_)
            | Self::Bytes(_)
            | Self::DType(_)
            | Self::Device(_)
            | Self::Layout(_)
            | Self::MemoryFormat(_)
            | Self::Node(_)
            | Self::Opaque(_) => {}
        }
    }

    /// Calls `visit` for each node in the argument, in order, as often as it appears.
    pub fn for_each_node(&self, visit: &mut impl FnMut(NodeId)) {
        match self {
            Self::Node(node) => visit(*node),
            scalar if scalar.depth() == 0 => {}
            // One closure type for every depth: recursion through `&mut dyn`.
            container => {
                let visit: &mut dyn FnMut(NodeId) = visit;
                container.for_each_part(&mut |part| part.for_each_node_dyn(visit));
            }
        }
    }

    fn for_each_node_dyn(&self, visit: &mut dyn FnMut(NodeId)) {
        if let Self::Node(node) = self {
            visit(*node);
        } else if self.depth() > 0 {
            self.for_each_part(&mut |part| part.for_each_node_dyn(visit));
        }
    }

    /// Whether `node` appears in the argument.
    #[must_use]
    pub fn mentions(&self, node: NodeId) -> bool {
        let mut found = false;
        self.for_each_node(&mut |n| found |= n == node);
        found
    }

    /// The same argument with every leaf (everything that is not a container) replaced by the
    /// result of `f` for it. Dictionary keys stay as they are.
    ///
    /// # Errors
    /// Those of `f`, or [`GraphError::NestingTooDeep`] if the result nests too deep.
    pub fn map_leaves<E: From<GraphError>>(
        &self,
        f: &mut dyn FnMut(&Arg) -> Result<Arg, E>,
    ) -> Result<Arg, E> {
        let seq = |seq: &Seq, f: &mut dyn FnMut(&Arg) -> Result<Arg, E>| -> Result<Seq, E> {
            let items = seq
                .iter()
                .map(|a| a.map_leaves(f))
                .collect::<Result<ThinVec<_>, E>>()?;
            Ok(Seq::new(items)?)
        };
        Ok(match self {
            Self::Tuple(items) => Self::Tuple(seq(items, f)?),
            Self::List(items) => Self::List(seq(items, f)?),
            Self::Slice(items) => Self::Slice(seq(items, f)?),
            Self::Range(items) => Self::Range(seq(items, f)?),
            Self::NamedTuple(named) => Self::NamedTuple(Box::new((named.0, seq(&named.1, f)?))),
            Self::Dict(dict) => Self::Dict(Dict::new(
                dict.iter()
                    .map(|(k, v)| Ok((k.clone(), v.map_leaves(f)?)))
                    .collect::<Result<ThinVec<_>, E>>()?,
            )?),
            leaf => f(leaf)?,
        })
    }

    /// Replaces every appearance of the node `old` by `new`, in place.
    pub(crate) fn replace_node(&mut self, old: NodeId, new: NodeId) {
        match self {
            Self::Node(node) if *node == old => *node = new,
            Self::Tuple(seq) | Self::List(seq) | Self::Slice(seq) | Self::Range(seq) => {
                seq.0
                    .items
                    .iter_mut()
                    .for_each(|a| a.replace_node(old, new));
            }
            Self::NamedTuple(named) => {
                named
                    .1
                    .0
                    .items
                    .iter_mut()
                    .for_each(|a| a.replace_node(old, new));
            }
            Self::Dict(dict) => {
                dict.0
                    .items
                    .iter_mut()
                    .for_each(|(_, a)| a.replace_node(old, new));
            }
            Self::None
            | Self::Ellipsis
            | Self::Bool(_)
            | Self::Int(_)
            | Self::BigInt(_)
            | Self::Float(_)
            | Self::Complex(_)
            | Self::Str(_)
            | Self::Bytes(_)
            | Self::DType(_)
            | Self::Device(_)
            | Self::Layout(_)
            | Self::MemoryFormat(_)
            | Self::Node(_)
            | Self::Opaque(_) => {}
        }
    }
}

impl From<NodeId> for Arg {
    fn from(node: NodeId) -> Self {
        Self::Node(node)
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::EntityId;

    #[test]
    fn an_argument_is_sixteen_bytes() {
        assert_eq!(size_of::<Arg>(), 16);
    }

    #[test]
    fn nesting_is_bounded() {
        let mut arg = Arg::Int(1);
        for _ in 0..MAX_DEPTH {
            arg = Arg::list([arg]).unwrap();
        }
        assert_eq!(
            Arg::list([arg]),
            Err(GraphError::NestingTooDeep { limit: MAX_DEPTH })
        );
    }

    #[test]
    fn nodes_are_found_in_containers_but_not_in_keys() {
        let node = NodeId::from_index(3);
        let dict = Dict::new([(Arg::Int(1), Arg::tuple([node.into(), node.into()]).unwrap())]);
        let mut seen = Vec::new();
        Arg::Dict(dict.unwrap()).for_each_node(&mut |n| seen.push(n));
        assert_eq!(seen, [node, node]);
        assert_eq!(
            Dict::new([(Arg::Node(node), Arg::None)]),
            Err(GraphError::NodeInDictKey { node })
        );
    }
}
