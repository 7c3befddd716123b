//! Recipes and edits from bytes: for fuzzers, which change bytes to reach new code.
//!
//! Every byte string gives something; when it is used up, the smallest choice is taken, so that
//! generation always ends.

use crate::edit::Edit;
use crate::recipe::{ArgRecipe, GraphRecipe, KeyRecipe, Leaf, NodeRecipe};

/// Maximum nesting of containers.
const MAX_DEPTH: usize = 6;

/// A source of choices, read from bytes.
pub struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    /// Choices read from `bytes`.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all bytes are used up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn integer(&mut self) -> i64 {
        match self.below(3) {
            0 => i64::from(self.byte()) - 8,
            1 => i64::from(self.short().cast_signed()),
            _ => self.long().cast_signed(),
        }
    }

    fn float(&mut self) -> f64 {
        match self.below(4) {
            0 => f64::from(self.byte()) / 8.0,
            1 => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0][usize::from(self.below(4))],
            _ => f64::from_bits(self.long()),
        }
    }

    fn blob(&mut self, longest: u8) -> Vec<u8> {
        let len = self.below(longest);
        (0..len).map(|_| self.byte()).collect()
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.blob(12)).into_owned()
    }

    fn list<T>(&mut self, longest: u8, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = self.below(longest);
        (0..len).map(|_| item(self)).collect()
    }

    fn leaf(&mut self) -> Leaf {
        match self.below(13) {
            0 => Leaf::None,
            1 => Leaf::Ellipsis,
            2 => Leaf::Bool(self.flag()),
            3 => Leaf::Int(self.integer()),
            4 => Leaf::Big(self.flag(), self.blob(40)),
            5 => Leaf::Float(self.float()),
            6 => Leaf::Complex(self.float(), self.float()),
            7 => Leaf::Bytes(self.blob(8)),
            8 => Leaf::Torch(self.byte()),
            9 => Leaf::Device(self.byte(), self.flag().then(|| self.short())),
            10 => Leaf::Range(self.integer(), self.integer(), self.integer()),
            11 => Leaf::Opaque(self.byte()),
            _ => Leaf::Str(self.text()),
        }
    }

    fn arg(&mut self, depth: usize) -> ArgRecipe {
        let choice = if depth < MAX_DEPTH {
            self.below(10)
        } else {
            self.below(4)
        };
        match choice {
            0 | 1 => ArgRecipe::Node(self.short()),
            2 | 3 => ArgRecipe::Leaf(self.leaf()),
            4 => ArgRecipe::Tuple(self.list(4, |b| b.arg(depth + 1))),
            5 => ArgRecipe::List(self.list(4, |b| b.arg(depth + 1))),
            6 => ArgRecipe::Dict(self.list(4, |b| (b.key(), b.arg(depth + 1)))),
            7 => ArgRecipe::Slice(Box::new(std::array::from_fn(|_| self.arg(depth + 1)))),
            _ => ArgRecipe::NamedTuple(self.byte(), self.list(4, |b| b.arg(depth + 1))),
        }
    }

    fn key(&mut self) -> KeyRecipe {
        if self.flag() {
            KeyRecipe::Tuple(self.list(3, Self::leaf))
        } else {
            KeyRecipe::Leaf(self.leaf())
        }
    }

    fn args(&mut self) -> Vec<ArgRecipe> {
        self.list(5, |b| b.arg(0))
    }

    fn choice(&mut self) -> Option<u8> {
        let byte = self.byte();
        (byte & 3 == 3).then_some(byte >> 2)
    }

    fn node(&mut self) -> NodeRecipe {
        NodeRecipe {
            op: self.byte(),
            target: self.byte(),
            args: self.args(),
            kwargs: self.list(3, |b| (b.byte(), b.arg(0))),
            ty: self.choice(),
            source: self.choice().map(|at| (at & 1 == 1, at)),
            scope: self.choice(),
        }
    }

    /// A graph of fewer than `len` nodes.
    pub fn graph(&mut self, len: u8) -> GraphRecipe {
        GraphRecipe {
            nodes: self.list(len, Self::node),
            output: self.flag().then(|| self.arg(0)),
        }
    }

    /// A change.
    pub fn edit(&mut self) -> Edit {
        match self.below(14) {
            0 => Edit::Insert(self.short(), self.flag(), self.node()),
            1 => Edit::Erase(self.short()),
            2 => Edit::MoveBefore(self.short(), self.short()),
            3 => Edit::MoveAfter(self.short(), self.short()),
            4 => Edit::ReplaceAllUses(self.short(), self.short()),
            5 => Edit::ReplaceInput(self.short(), self.short(), self.short()),
            6 => Edit::SetArgs(self.short(), self.args()),
            7 => Edit::SetKwarg(self.short(), self.byte(), self.arg(0)),
            8 => Edit::SetTarget(self.short(), self.node()),
            9 => Edit::Rename(self.short(), self.text()),
            10 => Edit::SetName(self.short(), self.text()),
            11 => Edit::SetType(self.short(), self.choice()),
            12 => Edit::Sort,
            _ => Edit::Compact,
        }
    }
}
