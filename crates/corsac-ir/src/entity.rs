//! Ids and the tables they index.
//!
//! Every kind of thing in a graph is named by its own 32-bit id, so that a node id cannot be
//! mistaken for a string and `Option<NodeId>` stays four bytes. The primary table of a kind hands
//! its ids out, densely and once; everything else known about a thing lives in side tables keyed
//! by the same id ([`SecondaryMap`]), owned by the code that needs it. After the entity crates of
//! Cranelift.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// An id: a dense index with a niche.
pub trait EntityId: Copy + Eq + fmt::Debug {
    /// The id of the `index`-th thing of its kind.
    ///
    /// # Panics
    /// If `index` does not fit the id's 32 bits: a table never grows that far.
    fn from_index(index: usize) -> Self;
    /// The position of this thing in its primary table.
    fn index(self) -> usize;
}

macro_rules! entity_id {
    ($(#[$doc:meta])* $vis:vis $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $name(NonZeroU32);

        impl EntityId for $name {
            #[inline]
            fn from_index(index: usize) -> Self {
                let raw = u32::try_from(index + 1).expect("fewer than 2^32 - 1 entities");
                Self(NonZeroU32::new(raw).expect("index + 1 is not zero"))
            }

            #[inline]
            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.index())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

entity_id! {
    /// A node of one graph. Ids are never handed out again after an erasure.
    pub NodeId, "n"
}
entity_id! {
    /// An interned string of one graph: a name, a target, a keyword or a string literal.
    pub Symbol, "s"
}
entity_id! {
    /// A function that call_function nodes of one graph name as their target.
    pub FunctionId, "fn"
}
entity_id! {
    /// A value that only the host understands (a tensor, a Python object), by identity.
    pub ExternalId, "x"
}
entity_id! {
    /// A place in the user's program.
    pub SourceId, "src"
}
entity_id! {
    /// A call of a module during capture: the chain of calls a node was recorded under.
    pub ScopeId, "scope"
}
entity_id! {
    /// A part of a graph that is being split.
    pub PartId, "part"
}
entity_id! {
    /// A use: one definition, one user.
    pub(crate) EdgeId, "e"
}

impl NodeId {
    /// The sentinel that closes the node list in both directions; it is no node of the program.
    pub const ROOT: NodeId = NodeId(NonZeroU32::MIN);

    /// Whether this is the sentinel.
    #[inline]
    #[must_use]
    pub fn is_root(self) -> bool {
        self == Self::ROOT
    }
}

/// A side table: a value for every id, `V::default()` until it is set.
#[derive(Clone, Debug)]
pub struct SecondaryMap<K, V> {
    values: Vec<V>,
    default: V,
    key: PhantomData<fn(K)>,
}

impl<K: EntityId, V: Clone + Default> Default for SecondaryMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: EntityId, V: Clone + Default> SecondaryMap<K, V> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            values: Vec::new(),
            default: V::default(),
            key: PhantomData,
        }
    }

    /// A table with room for `len` ids, so that filling it does not reallocate.
    #[must_use]
    pub fn with_capacity(len: usize) -> Self {
        Self {
            values: Vec::with_capacity(len),
            default: V::default(),
            key: PhantomData,
        }
    }

    /// Makes room for `len` ids in all.
    pub fn reserve(&mut self, len: usize) {
        self.values.reserve(len.saturating_sub(self.values.len()));
    }

    /// The value of `key`, the default if it was never set.
    #[inline]
    #[must_use]
    pub fn get(&self, key: K) -> &V {
        self.values.get(key.index()).unwrap_or(&self.default)
    }

    /// Sets the value of `key`.
    #[inline]
    pub fn set(&mut self, key: K, value: V) {
        *self.get_mut(key) = value;
    }

    /// The slot of `key`, growing the table up to it.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> &mut V {
        let index = key.index();
        if index >= self.values.len() {
            self.values.resize(index + 1, self.default.clone());
        }
        &mut self.values[index]
    }

    /// The values set so far, in the order of their ids, with defaults in between.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter()
    }

    /// Removes every value.
    pub fn clear(&mut self) {
        self.values.clear();
    }
}

impl<K: EntityId, V: Clone + Default> Index<K> for SecondaryMap<K, V> {
    type Output = V;

    #[inline]
    fn index(&self, key: K) -> &V {
        self.get(key)
    }
}

impl<K: EntityId, V: Clone + Default> IndexMut<K> for SecondaryMap<K, V> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut V {
        self.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optional_id_is_four_bytes() {
        assert_eq!(size_of::<Option<NodeId>>(), 4);
        assert_eq!(NodeId::from_index(12).to_string(), "n12");
        assert_eq!(NodeId::ROOT.index(), 0);
    }

    #[test]
    fn a_side_table_answers_the_default_until_set() {
        let mut map: SecondaryMap<NodeId, u32> = SecondaryMap::new();
        assert_eq!(map[NodeId::from_index(7)], 0);
        map[NodeId::from_index(7)] = 3;
        assert_eq!(map[NodeId::from_index(7)], 3);
        assert_eq!(map[NodeId::from_index(6)], 0);
    }
}
