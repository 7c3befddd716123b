//! Errors of runs.

/// An error of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Another number of tensors than the program takes.
    #[error("the program takes {expected} inputs, not {got}")]
    InputCount {
        /// The number that it takes.
        expected: usize,
        /// The number that was given.
        got: usize,
    },
    /// Another number of buffers for results than the program returns.
    #[error("the program makes {expected} results, not {got}")]
    OutputCount {
        /// The number that it returns.
        expected: usize,
        /// The number that was given.
        got: usize,
    },
    /// A tensor of another size.
    #[error("{what} {number} has {expected} elements, not {got}")]
    Length {
        /// Kind of the tensor: input or result.
        what: &'static str,
        /// Its number.
        number: usize,
        /// Number of elements that it should have.
        expected: usize,
        /// Number of elements that it has.
        got: usize,
    },
    /// A tensor of another type of elements.
    #[error("{what} {number} is of {expected}, not {got}")]
    Element {
        /// Kind of the tensor: input or result.
        what: &'static str,
        /// Its number.
        number: usize,
        /// The element type that it should have.
        expected: &'static str,
        /// The element type that it has.
        got: &'static str,
    },
    /// An index that is out of range.
    #[error("index {index} is out of range for a dimension of size {size}")]
    Index {
        /// The index.
        index: i64,
        /// The size of the dimension.
        size: usize,
    },
    /// Integers divided by zero.
    #[error("integer division by zero")]
    DivisionByZero,
    /// The memory for the values of a run cannot be allocated.
    #[error("there is no memory for {size_bytes} bytes")]
    OutOfMemory {
        /// Bytes that were requested.
        size_bytes: usize,
    },
    /// Operands of types that a step does not support: a bug of this engine.
    #[error("the operands of a {step} are not of the types that it computes with")]
    Mismatch {
        /// The operator.
        step: &'static str,
    },
    /// A value without elements of the type that a step reads: a bug of this engine.
    #[error("value {value} has no elements of {element} when it is read")]
    MissingValue {
        /// Number of the value.
        value: usize,
        /// The element type.
        element: &'static str,
    },
    /// Time steps of packed sequences with more rows than those before, or with another sum than
    /// the number of rows; or lengths of padded sequences that are not sorted or out of range.
    #[error("batch sizes that are none of these rows")]
    BatchSizes,
    /// Loops that run for longer than allowed.
    #[error("the loops of a call have more than {most} iterations")]
    Iterations {
        /// The largest number of iterations of all loops of a call.
        most: u64,
    },
    /// A step failed after others had written to inputs.
    #[error("{error}")]
    AfterWrites {
        /// The operator.
        step: &'static str,
        /// The error of the step.
        error: Box<RunError>,
    },
    /// A weight of the program is missing.
    #[error("weight {number} is missing")]
    MissingWeight {
        /// Its number.
        number: usize,
    },
}
