//! Types of the columns of the operator table.

use corsac_ir::DType;

/// The form of an operator that writes its result into its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceForm {
    /// The result always has the type of the first argument, elementwise.
    SameType,
    /// Elementwise; the result may be of another type: of promoted elements, or of the broadcast
    /// shape of all arguments.
    Promoted,
    /// The result is a copy of the first argument with some elements changed.
    Update,
}

impl InPlaceForm {
    /// Whether the result has the shape and element type of the first argument whatever they are,
    /// so that the form exists for every call.
    #[must_use]
    pub fn keeps_type(self) -> bool {
        self != Self::Promoted
    }

    /// Whether each element is computed from those at its place, so that the first argument may be
    /// given a second time.
    #[must_use]
    pub fn is_elementwise(self) -> bool {
        self != Self::Update
    }
}

/// The inverse of a binary operator: computes one operand from its result and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryInverse {
    /// The function of the result and the other operand.
    OfResult(&'static str),
    /// The function of the other operand and the result: `c - x` and `c / x` are their own
    /// inverses.
    OfOther(&'static str),
}

/// The precision of an operator under autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// The requested lower precision: bfloat16 or float16.
    Lower,
    /// The same in the products of matrices that it consists of: sums and outer products are computed as they are.
    LowerProducts,
    /// float32.
    Single,
    /// The widest type among its tensors.
    Widest,
}

/// A condition on a module under which calling the function is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing.
    None,
    /// It pads with zeros, where it pads (`padding_mode`).
    ZeroPadding,
    /// It is in evaluation and has running statistics.
    Statistics,
    /// It has the dimension that it works on (`dim`).
    Dimension,
}

/// The cost of recomputing a result, where it is not that of an elementwise function or of a long
/// computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// None: views, and operators that split a value into views.
    Free,
    /// That of reading and writing: fills, copies, indexing, reductions and simple arithmetic.
    Copied,
}

/// The memory of arguments that a result depends on, besides their elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Their strides, or the storage that they have.
    Strides,
    /// The places of elements in that storage, also of those that no argument shows.
    Places,
}

/// The element type of a conversion's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// This one.
    To(DType),
    /// That of an argument.
    Given,
}

/// The property of a tensor that an operator returns as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Its rank, sizes, or strides.
    Sizes,
    /// Its elements.
    Elements,
}
