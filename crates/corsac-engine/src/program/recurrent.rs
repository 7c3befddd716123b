//! Recurrent layers.

/// Function of a recurrent layer in a time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Long short-term memory.
    Lstm,
    /// Gated recurrent units.
    Gru,
    /// The hyperbolic tangent of the sum.
    Tanh,
    /// The sum, where it is positive.
    Relu,
}

impl Cell {
    /// Number of gates.
    #[must_use]
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Tanh | Self::Relu => 1,
        }
    }
}

/// A layer of a recurrent network in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// The function of a time step.
    pub cell: Cell,
    /// Rows of the state: those of the first time step.
    pub batch: usize,
    /// Numbers of a gate.
    pub hidden: usize,
    /// Numbers of a row of the state.
    pub width: usize,
    /// Whether time steps are computed in reverse order.
    pub reverse: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether the last input has the number of rows of each time step; otherwise all have as many.
    pub varies: bool,
    /// Whether the last input has the lengths of padded sequences, the longest first.
    pub padded: bool,
    /// Whether the last state and the last cell memory follow the rows of all time steps in the
    /// result.
    pub keeps: bool,
}
