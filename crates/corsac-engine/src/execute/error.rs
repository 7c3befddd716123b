//! What is wrong with a call of a program.

/// What is wrong with a call of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Another number of tensors than the program takes.
    #[error("the program takes {expected} inputs, not {got}")]
    InputCount {
        /// How many it takes.
        expected: usize,
        /// How many were given.
        got: usize,
    },
    /// Another number of places for results than the program makes.
    #[error("the program makes {expected} results, not {got}")]
    OutputCount {
        /// How many it makes.
        expected: usize,
        /// How many places were given.
        got: usize,
    },
    /// A tensor of another size.
    #[error("{what} {number} has {expected} elements, not {got}")]
    Length {
        /// What it is.
        what: &'static str,
        /// Its number.
        number: usize,
        /// How many elements it should have.
        expected: usize,
        /// How many it has.
        got: usize,
    },
    /// A tensor of another type of elements.
    #[error("{what} {number} is of {expected}, not {got}")]
    Element {
        /// What it is.
        what: &'static str,
        /// Its number.
        number: usize,
        /// What it should be made of.
        expected: &'static str,
        /// What it is made of.
        got: &'static str,
    },
    /// An index that is out of range.
    #[error("index {index} is out of range for a dimension of size {size}")]
    Index {
        /// The index.
        index: i64,
        /// How many elements the dimension has.
        size: usize,
    },
    /// Integers divided by zero.
    #[error("integer division by zero")]
    DivisionByZero,
    /// There is not as much memory as the values of a run take.
    #[error("there is no memory for {size_bytes} bytes")]
    OutOfMemory {
        /// How many bytes were asked for.
        size_bytes: usize,
    },
    /// A step whose operands are not of the types that it computes with: a fault of this engine.
    #[error("the operands of a {step} are not of the types that it computes with")]
    Mismatch {
        /// What it does.
        step: &'static str,
    },
    /// Time steps of packed sequences with more rows than those before, or with other rows than there are.
    #[error("batch sizes that are none of these rows")]
    BatchSizes,
    /// A step has failed after others had written to inputs.
    #[error("{error}")]
    AfterWrites {
        /// What it does.
        step: &'static str,
        /// Why.
        error: Box<RunError>,
    },
    /// A weight that the program needs is not there.
    #[error("weight {number} is missing")]
    MissingWeight {
        /// Its number.
        number: usize,
    },
}
