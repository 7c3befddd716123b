//! Models without their weights.

use std::sync::Arc;

use corsac_ir::Graph;

use super::called_graphs::CalledGraphs;
use super::compile::{Checked, Compiler};
use super::error::ModelError;
use super::limits::Limits;
use super::signature::Signature;
use super::tensor::TensorSpec;

/// A model without the elements of its weights: to find the sizes that it takes.
#[derive(Debug)]
pub struct ModelDraft(Compiler);

impl ModelDraft {
    /// A model with this graph, signature and weights, and graphs that it calls, by name.
    ///
    /// # Errors
    /// If a condition of the signature is no node of the graph, or graphs call themselves.
    pub fn new(
        graph: Graph,
        signature: Signature,
        weights: &[TensorSpec],
        graphs: Vec<(String, Graph)>,
    ) -> Result<Self, ModelError> {
        let (graphs, limits) = (CalledGraphs::new(graphs)?, Limits::default());
        graphs.check(std::iter::once(&graph), &limits)?;
        Compiler::new(graph, signature, weights.iter(), &Arc::new(graphs), &limits).map(Self)
    }

    /// Floating-point operations of a call where symbols have [these values](Signature::values), as far as they
    /// are known.
    ///
    /// # Errors
    /// If the model does not take such sizes, or the engine cannot run it for them.
    pub fn check(&self, values: &[usize]) -> Result<i64, ModelError> {
        self.0.at(values, || {
            let flops = self.0.flops(values)?;
            self.0.program(values)?;
            Ok(flops)
        })
    }

    /// The signature.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        self.0.signature()
    }

    /// Checks types and conditions where symbols have these values.
    ///
    /// # Errors
    /// If the graph is not the model for them.
    pub fn check_types(&self, values: &[usize]) -> Result<(), ModelError> {
        self.0
            .at(values, || self.0.types(values, Checked::Yes).map(drop))
    }
}
