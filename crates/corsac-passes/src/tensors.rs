//! What is known of the tensors of a graph: shapes and element types, where somebody found them.

use corsac_ir::{DType, NodeId, SecondaryMap};

/// What is known of one tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorFact {
    /// Its sizes, in elements.
    pub shape: Option<Vec<i64>>,
    /// Its element type.
    pub dtype: Option<DType>,
    /// Its strides, in elements.
    pub strides: Option<Vec<i64>>,
}

/// What is known of the tensors of one graph, by node.
#[derive(Clone, Debug, Default)]
pub struct TensorFacts {
    by_node: SecondaryMap<NodeId, Option<Box<TensorFact>>>,
}

impl TensorFacts {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says what the value of `node` is.
    pub fn set(&mut self, node: NodeId, fact: TensorFact) {
        self.by_node.set(node, Some(Box::new(fact)));
    }

    /// What is known of the value of `node`.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&TensorFact> {
        self.by_node.get(node).as_deref()
    }

    /// Says that `new` is what `old` was, where nothing is known of it yet.
    pub fn inherit(&mut self, new: NodeId, old: NodeId) {
        if self.get(new).is_none()
            && let Some(fact) = self.get(old).cloned()
        {
            self.set(new, fact);
        }
    }

    /// The sizes of the value of `node`.
    #[must_use]
    pub fn shape(&self, node: NodeId) -> Option<&[i64]> {
        self.by_node.get(node).as_ref()?.shape.as_deref()
    }

    /// The strides of the value of `node`.
    #[must_use]
    pub fn strides(&self, node: NodeId) -> Option<&[i64]> {
        self.by_node.get(node).as_ref()?.strides.as_deref()
    }

    /// How many dimensions the value of `node` has.
    #[must_use]
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        Some(self.shape(node)?.len())
    }

    /// The element type of the value of `node`.
    #[must_use]
    pub fn dtype(&self, node: NodeId) -> Option<DType> {
        self.by_node.get(node).as_ref()?.dtype
    }
}
