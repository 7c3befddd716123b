//! Builds a graph from the lines of a text.

use thin_vec::ThinVec;

use super::cursor::Cursor;
use super::parse_error::ParseError;
use crate::arg::Arg;
use crate::entity::{ExternalId, NodeId, Symbol};
use crate::error::GraphError;
use crate::graph::{Graph, NodeSpec, Origin};
use crate::op::{Op, Target};

/// A node as given by one line.
pub(super) struct NodeLine {
    pub(super) op: Op,
    pub(super) target: Target,
    pub(super) args: ThinVec<Arg>,
    pub(super) kwargs: ThinVec<(Symbol, Arg)>,
    pub(super) ty: Option<ExternalId>,
    pub(super) origin: Origin,
    pub(super) users: Option<UsersClaim>,
}

/// The users of a node as given by its line, with the place in the text.
pub(super) enum UsersClaim {
    /// Their number.
    Count(u32, usize),
    /// The nodes, in order.
    Order(Vec<NodeId>, usize),
}

/// The arguments of a node that are not entered yet.
struct Waiting {
    id: NodeId,
    args: ThinVec<Arg>,
    kwargs: ThinVec<(Symbol, Arg)>,
}

/// Nodes added so far.
#[derive(Default)]
pub(super) struct Builder {
    /// Nodes that use later ones, whose arguments wait until all nodes are there.
    waiting: Vec<Waiting>,
    claims: Vec<(NodeId, UsersClaim)>,
}

impl Builder {
    /// Adds the node of a line. Its arguments mention nodes by the ids that they will have.
    pub(super) fn add(
        &mut self,
        graph: &mut Graph,
        cursor: &Cursor<'_>,
        at: usize,
        name: &str,
        line: NodeLine,
    ) -> Result<(), ParseError> {
        let NodeLine {
            op,
            target,
            args,
            kwargs,
            ty,
            origin,
            users,
        } = line;
        let bound = graph.id_bound();
        let mut uses_later = false;
        let mut visit = |node: NodeId| uses_later |= crate::EntityId::index(node) >= bound;
        args.iter().for_each(|arg| arg.for_each_node(&mut visit));
        kwargs
            .iter()
            .for_each(|(_, arg)| arg.for_each_node(&mut visit));

        let refused = |error: GraphError| {
            let found = format!("one of which the graph says: {error}");
            cursor.error_found(at, "a node", found)
        };
        let (now, later) = if uses_later {
            ((ThinVec::new(), ThinVec::new()), Some((args, kwargs)))
        } else {
            ((args, kwargs), None)
        };
        let spec = NodeSpec {
            op,
            target,
            args: now.0,
            kwargs: now.1,
            ty,
        };
        let id = graph.create(spec, Some(name)).map_err(refused)?;
        // Names that tracing would not give, such as keywords.
        if graph.node(id).name() != name {
            graph.set_name(id, name).map_err(refused)?;
        }
        graph.set_origin(id, origin);
        if let Some((args, kwargs)) = later {
            self.waiting.push(Waiting { id, args, kwargs });
        }
        if let Some(claim) = users {
            self.claims.push((id, claim));
        }
        Ok(())
    }

    /// Enters the arguments that waited, and checks the users given by the lines.
    pub(super) fn finish(self, graph: &mut Graph, cursor: &Cursor<'_>) -> Result<(), ParseError> {
        let mut used_early = Vec::new();
        for Waiting { id, args, kwargs } in self.waiting {
            graph
                .set_arguments(id, args, kwargs)
                .map_err(|error| cursor.error(format!("arguments, but {error}")))?;
            used_early.extend(graph.inputs(id));
        }
        used_early.sort_unstable();
        used_early.dedup();
        for id in used_early {
            let mut users: Vec<_> = graph.users(id).collect();
            users.sort_unstable();
            graph.reorder_users(id, &users);
        }
        for (id, claim) in self.claims {
            let found = graph.node(id).num_users();
            match claim {
                UsersClaim::Count(claimed, _) if claimed as usize == found => {}
                UsersClaim::Count(claimed, at) => {
                    let name = graph.node(id).name();
                    let expected = format!("{found}, the number of nodes here that use {name}");
                    return Err(cursor.error_found(at, expected, claimed.to_string()));
                }
                UsersClaim::Order(users, at) => {
                    if !graph.reorder_users(id, &users) {
                        let expected = "the users of this node, each once";
                        return Err(cursor.error_found(at, expected, "other nodes".into()));
                    }
                }
            }
        }
        Ok(())
    }
}
