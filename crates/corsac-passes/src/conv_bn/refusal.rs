//! Why a batch norm is not folded.

use thiserror::Error;

use crate::budget::Budget;
use crate::weights::WeightsError;

/// Why a batch norm was not folded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its input is not the result of a layer that it can be folded into.
    #[error("its input {input} is not the result of {expected}")]
    NotAfterLayer {
        /// The name of the node it normalises.
        input: String,
        /// The layers that it could be folded into.
        expected: &'static str,
    },
    /// It is called with other arguments than one tensor.
    #[error("{path} is called with other arguments than one tensor")]
    Arguments {
        /// The module.
        path: String,
    },
    /// Others use the result of the layer, before normalisation.
    #[error("{} nodes use the result of {layer}: {}", .users.len(), .users.join(", "))]
    LayerIsUsed {
        /// The layer.
        layer: String,
        /// The names of the nodes.
        users: Vec<String>,
    },
    /// The layer is called several times, and the other calls need its weights as they are.
    #[error("{layer} is called {calls} times")]
    LayerIsShared {
        /// The layer.
        layer: String,
        /// Number of calls.
        calls: usize,
    },
    /// A module in training mode.
    #[error("{path} is in training mode")]
    Training {
        /// The module.
        path: String,
    },
    /// The batch norm has no running statistics: it computes them from each batch.
    #[error("{norm} normalises with the statistics of each batch: it keeps no running ones")]
    BatchStatistics {
        /// The batch norm.
        norm: String,
    },
    /// A module with hooks, or that declares side effects.
    #[error("{path} has hooks or declares side effects")]
    Hooks {
        /// The module.
        path: String,
    },
    /// The graph uses an attribute of one of the two by itself.
    #[error("the graph uses {attribute} by itself")]
    AttributeIsUsed {
        /// The qualified name of the attribute.
        attribute: String,
    },
    /// The layer is part of a module that is called as a whole.
    #[error("{layer} is part of {parent}, which is called as a whole")]
    PartOfCalled {
        /// The layer.
        layer: String,
        /// The module that it is part of.
        parent: String,
    },
    /// A weight of a function is no attribute of the program.
    #[error("its {parameter} is no attribute")]
    NotAttribute {
        /// The name of the parameter.
        parameter: String,
    },
    /// A layer after it pads its input with zeros, which would be normalised too.
    #[error("{layer} comes after it and pads its input with zeros")]
    Padded {
        /// The layer.
        layer: String,
    },
    /// A transposed convolution after it, whose border sees fewer terms.
    #[error("{layer} comes after it and is a transposed convolution")]
    Transposed {
        /// The layer.
        layer: String,
    },
    /// Without a batch dimension, it normalises another dimension than the channels.
    #[error(
        "its input has {rank} dimensions, so that it does not normalise the channels of {layer}"
    )]
    Rank {
        /// The layer.
        layer: String,
        /// Number of dimensions of its input.
        rank: usize,
    },
    /// Weights, inputs or values in between are written to.
    #[error("the program writes to what {layer} reads")]
    Written {
        /// The layer.
        layer: String,
    },
    /// It could be folded, but no more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
    /// The weights could not be changed.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}
