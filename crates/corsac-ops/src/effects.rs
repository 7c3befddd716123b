//! What one node does.

use corsac_ir::NodeId;
use smallvec::SmallVec;

/// What one node does besides computing its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Values that it writes to.
    pub mutates: SmallVec<[NodeId; 2]>,
    /// Values that its own may be, or share storage with.
    pub aliases: SmallVec<[NodeId; 2]>,
    /// Whether it depends on how these lie in memory if its own shares storage with them.
    pub by_layout: bool,
    /// Whether what it writes to may have other sizes after it.
    pub reshapes: bool,
    /// Whether it draws random numbers.
    pub random: bool,
    /// Whether it is an operator tagged as doing so, `torch.ops.…`.
    pub seeded_operator: bool,
    /// Whether it does something that is not seen in any value: asserts, prints, switches a mode.
    pub side_effect: bool,
    /// Whether nodes after it may compute something else than nodes before, from the same values.
    pub barrier: bool,
    /// Whether a second call with the same arguments may give something else, though it writes to
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
    /// Whether its value holds what its arguments hold, where those are containers.
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

    /// Whether all it does is to compute a value that shares nothing with any other.
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
