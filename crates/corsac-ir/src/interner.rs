//! Strings, each stored once, named by a [`Symbol`].

use std::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use crate::entity::{EntityId, Symbol};

/// The strings of one graph: one buffer, one table of spans, one hash table of symbols.
///
/// A node's name costs its bytes plus about 16 bytes, and comparing names is comparing integers.
/// Strings are never removed: a graph's names are not handed out again either.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    bytes: String,
    ends: Vec<u32>,
    /// Each with its hash: growing the table reads no strings.
    table: HashTable<(Symbol, u32)>,
    hasher: BuildHasherDefault<FxHasher>,
}

impl Interner {
    /// An empty interner.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The symbol of `text`, added if it is new.
    ///
    /// # Panics
    /// When the strings of one graph exceed four gigabytes together.
    pub fn intern(&mut self, text: &str) -> Symbol {
        let hash = self.hash(text);
        let (bytes, ends) = (&self.bytes, &self.ends);
        let same = |&(s, h): &(Symbol, u32)| h == hash && text_of(bytes, ends, s) == text;
        if let Some(&(found, _)) = self.table.find(spread(hash), same) {
            return found;
        }
        let symbol = Symbol::from_index(self.ends.len());
        self.bytes.push_str(text);
        self.ends
            .push(u32::try_from(self.bytes.len()).expect("under 4 GiB of names"));
        self.table
            .insert_unique(spread(hash), (symbol, hash), |&(_, h)| spread(h));
        symbol
    }

    /// The symbol of `text`, if it was ever interned.
    #[must_use]
    pub fn lookup(&self, text: &str) -> Option<Symbol> {
        let hash = self.hash(text);
        let same = |&(s, h): &(Symbol, u32)| h == hash && self.resolve(s) == text;
        self.table
            .find(spread(hash), same)
            .map(|&(symbol, _)| symbol)
    }

    /// The hash of a string. Strings that differ in their last byte only, as `relu_120` to
    /// `relu_129` do, have hashes that differ in the last four bits only, so that they are
    /// neighbours in the table: names come in such rows, and most find their place in the cache.
    fn hash(&self, text: &str) -> u32 {
        let Some((last, rest)) = text.as_bytes().split_last() else {
            return 0;
        };
        let hash = self.hasher.hash_one(rest);
        (hash ^ (hash >> 32)) as u32 & !ROW | u32::from(*last) & ROW
    }

    /// The text of `symbol`.
    ///
    /// # Panics
    /// If `symbol` is another interner's.
    #[inline]
    #[must_use]
    pub fn resolve(&self, symbol: Symbol) -> &str {
        text_of(&self.bytes, &self.ends, symbol)
    }

    /// Makes room for as many strings as `other` holds.
    pub(crate) fn reserve_for(&mut self, other: &Self) {
        self.bytes.reserve(other.bytes.len());
        self.reserve(other.len());
    }

    /// Makes room for `strings` more strings.
    pub(crate) fn reserve(&mut self, strings: usize) {
        self.ends.reserve(strings);
        self.table.reserve(strings, |&(_, hash)| spread(hash));
    }

    /// Number of distinct strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing was interned yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// The bits of a hash in which neighbours differ.
const ROW: u32 = 15;

/// A hash in the form that the table uses: it finds a place by the low bits, which are kept, and
/// tells strings apart by the top ones, which are mixed.
#[inline]
fn spread(hash: u32) -> u64 {
    let mixed = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed & !u64::from(u32::MAX) | u64::from(hash)
}

#[inline]
fn text_of<'a>(bytes: &'a str, ends: &[u32], symbol: Symbol) -> &'a str {
    let index = symbol.index();
    let start = if index == 0 {
        0
    } else {
        ends[index - 1] as usize
    };
    &bytes[start..ends[index] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_a_symbol() {
        let mut strings = Interner::new();
        let (a, empty, b) = (
            strings.intern("relu"),
            strings.intern(""),
            strings.intern("relu_1"),
        );
        assert_eq!(strings.intern("relu"), a);
        assert_ne!(a, b);
        assert_eq!(strings.resolve(a), "relu");
        assert_eq!(strings.resolve(empty), "");
        assert_eq!(strings.resolve(b), "relu_1");
        assert_eq!(strings.lookup("relu_1"), Some(b));
        assert_eq!(strings.lookup("nothing"), None);
        assert_eq!(strings.len(), 3);
    }
}
