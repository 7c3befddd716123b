//! Effects of one node.

use corsac_ir::NodeId;
use smallvec::SmallVec;

/// Effects of one node besides computing its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Values that it writes to.
    pub mutates: SmallVec<[NodeId; 2]>,
    /// Values that its own may be, or share storage with.
    pub aliases: SmallVec<[NodeId; 2]>,
    /// Whether it depends on the strides of these if its own value shares storage with them.
    pub by_layout: bool,
    /// Whether it may change the sizes of the values that it writes to.
    pub reshapes: bool,
    /// Whether it uses random numbers.
    pub random: bool,
    /// Whether it is an operator tagged as doing so, `torch.ops.…`.
    pub seeded_operator: bool,
    /// Whether it has an effect that is in no value: asserts, prints, switches a mode.
    pub side_effect: bool,
    /// Whether nodes after it may compute something else than nodes before, from the same values.
    pub barrier: bool,
    /// Whether a second call with the same arguments may return something else, though it writes to
    /// nothing: all that is known of it is that it is declared free of side effects.
    pub unrepeatable: bool,
    /// Whether it reads state that is no argument.
    pub reads_state: bool,
    /// Whether it writes to such state: a batch norm in training does.
    pub writes_state: bool,
    /// Whether its value comes from outside the program, or belongs to it: an input, an attribute.
    pub outside: bool,
    /// Whether nothing is known of it.
    pub opaque: bool,
    /// Whether its value holds the items of its arguments, where those are containers.
    pub concatenates: bool,
    /// Whether its value is one tensor or number, nothing that could hold other values.
    pub single: bool,
}

impl Effects {
    /// Whether it only computes a new value.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.mutates.is_empty()
            && !self.random
            && !self.side_effect
            && !self.writes_state
            && !self.opaque
    }

    /// Whether it only computes a value that shares nothing with any other.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_pure()
            && self.aliases.is_empty()
            && !self.barrier
            && !self.unrepeatable
            && !self.reads_state
            && !self.outside
            && !self.concatenates
    }

    /// Whether it writes to something.
    #[must_use]
    pub fn writes(&self) -> bool {
        !self.mutates.is_empty() || self.writes_state || self.opaque
    }
}
