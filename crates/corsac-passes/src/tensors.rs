//! Facts about the tensors of a graph: shapes, element types and strides, as far as they are known.

use corsac_ir::{DType, Graph, Node, NodeId, Op, SecondaryMap};
use corsac_ops::Host;
use corsac_ops::schema::Schema;

use crate::analysis::Analysis;
use crate::error::PassError;

/// Facts about one tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorFact {
    /// Its sizes, in elements.
    pub shape: Option<Vec<i64>>,
    /// Its element type.
    pub dtype: Option<DType>,
    /// Its strides, in elements.
    pub strides: Option<Vec<i64>>,
}

/// Facts about the tensors of one graph, by node.
#[derive(Clone, Debug, Default)]
pub struct TensorFacts {
    by_node: SecondaryMap<NodeId, Option<Box<TensorFact>>>,
}

impl TensorFacts {
    /// No facts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the facts about the value of `node`.
    pub fn set(&mut self, node: NodeId, fact: TensorFact) {
        self.by_node.set(node, Some(Box::new(fact)));
    }

    /// The facts about the value of `node`.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&TensorFact> {
        self.by_node.get(node).as_deref()
    }

    /// Forgets sizes and strides of tensors whose shape may change after they are computed: those
    /// on which `unsqueeze_` or the like is called, and those that share storage with them. Element
    /// types stay.
    ///
    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    pub fn forget_reshaped(&mut self, graph: &Graph, host: &dyn Host) -> Result<(), PassError> {
        if !Self::may_be_reshaped(graph) {
            return Ok(());
        }
        let analysis = Analysis::of_graph(graph, host)?;
        let mut reshaped = vec![false; graph.id_bound()];
        for (place, effects) in analysis.special() {
            let node = analysis.nodes[place as usize];
            if changes_shape(graph.node(node)) {
                for &value in &effects.mutates {
                    reshaped[analysis.classes.class(value).index()] = true;
                }
            }
        }
        for &node in &analysis.nodes {
            if reshaped[analysis.classes.class(node).index()]
                && let Some(fact) = self.get(node)
            {
                let dtype = fact.dtype;
                let (shape, strides) = (None, None);
                self.set(
                    node,
                    TensorFact {
                        shape,
                        dtype,
                        strides,
                    },
                );
            }
        }
        Ok(())
    }

    /// Whether a graph calls something that changes the shape of a tensor in place.
    #[must_use]
    pub fn may_be_reshaped(graph: &Graph) -> bool {
        graph.nodes().any(|node| changes_shape(graph.node(node)))
    }

    /// Gives `new` the facts about `old`, if it has none yet.
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

    /// Number of dimensions of the value of `node`.
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

/// Whether a node changes the shape, strides or storage of a tensor in place.
pub(crate) fn changes_shape(node: Node<'_>) -> bool {
    let name = node.target_name();
    let own = match node.op() {
        Op::CallMethod => name,
        Op::CallFunction => match name.strip_prefix("torch.ops.aten.") {
            Some(operator) => operator.split('.').next().unwrap_or(operator),
            None => name.rsplit_once('.').map_or(name, |(_, own)| own),
        },
        Op::CallModule | Op::GetAttr | Op::Placeholder | Op::Output => return false,
    };
    own == "setattr"
        || own == "requires_grad_"
        || (own.ends_with('_') && Schema::overloads(own).any(|schema| schema.reshapes))
}

#[cfg(test)]
mod tests {
    use corsac_ops::Unhosted;

    use super::*;

    #[test]
    fn what_is_reshaped_in_place_has_no_shape() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let [y, other] = [(), ()].map(|()| graph.call_method("neg", [x.into()]).unwrap());
        let again = graph.call_method("relu_", [y.into()]).unwrap();
        graph
            .call_method("unsqueeze_", [again.into(), 0.into()])
            .unwrap();
        let mut facts = TensorFacts::new();
        let fact = TensorFact {
            shape: Some(vec![2]),
            dtype: Some(DType::Float32),
            strides: Some(vec![1]),
        };
        for node in [y, other] {
            facts.set(node, fact.clone());
        }
        facts.forget_reshaped(&graph, &Unhosted).unwrap();
        assert_eq!(facts.get(other), Some(&fact));
        assert_eq!(facts.shape(y), None);
        assert_eq!(facts.strides(y), None);
        assert_eq!(facts.dtype(y), Some(DType::Float32));
    }
}
