//! Why a pass refused a graph.

use corsac_ir::{Graph, GraphError, NodeId};
use thiserror::Error;

/// Why a pass refused a graph. The graph is then as it was before.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PassError {
    /// A node uses another one that comes after it, or is not in the graph any more.
    #[error("node {user} uses {used} before it is defined; sort the graph first")]
    UsedBeforeDefined {
        /// The name of the user.
        user: String,
        /// The name of the node that it uses.
        used: String,
    },
    /// The graph refused a change.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Checks that `user` comes after the nodes that it uses.
pub(crate) fn check_sorted(graph: &Graph, user: NodeId) -> Result<(), PassError> {
    for used in graph.inputs(user) {
        if !graph.contains(used) || !graph.is_before(used, user) {
            let name = |id| graph.node(id).name().to_owned();
            return Err(PassError::UsedBeforeDefined {
                user: name(user),
                used: name(used),
            });
        }
    }
    Ok(())
}
