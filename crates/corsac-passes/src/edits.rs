//! Nodes that a pass adds and erases, with their origins.

use corsac_ir::{
    Arg, EntityId, Graph, InsertPoint, NodeId, NodeSpec, Op, SecondaryMap, Symbol, Target, ThinVec,
};

use crate::error::PassError;

/// A node that a pass has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The node; it may have been removed again.
    pub node: NodeId,
    /// The node that it comes from, which may be erased by now: source line, scope and metadata are
    /// taken from it.
    pub root: NodeId,
    /// Whether it has the value of `root`, rather than an intermediate one.
    pub has_its_value: bool,
}

/// Added and erased nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The new nodes, in the order in which they were made.
    pub added: Vec<Added>,
    /// The nodes erased.
    pub erased: Vec<NodeId>,
    /// Nodes whose values have, or may have, other element types than before.
    pub stale: Vec<NodeId>,
}

/// The call that a new node makes.
pub(crate) struct Call {
    op: Op,
    target: Target,
    args: ThinVec<Arg>,
    kwargs: ThinVec<(Symbol, Arg)>,
}

impl Call {
    pub(crate) fn function(function: corsac_ir::FunctionId, args: impl Into<ThinVec<Arg>>) -> Self {
        Self::new(Op::CallFunction, Target::Function(function), args)
    }

    pub(crate) fn new(op: Op, target: Target, args: impl Into<ThinVec<Arg>>) -> Self {
        Self {
            op,
            target,
            args: args.into(),
            kwargs: ThinVec::new(),
        }
    }
}

impl Edits {
    /// The edits of a pass that only erases nodes.
    pub(crate) fn of_erased(erased: Vec<NodeId>) -> Self {
        Self {
            erased,
            ..Self::default()
        }
    }

    /// Adds a node for `call` before `place`, with `from` as its root.
    pub(crate) fn add_before(
        &mut self,
        graph: &mut Graph,
        place: NodeId,
        from: NodeId,
        call: Call,
    ) -> Result<NodeId, PassError> {
        let spec = NodeSpec {
            op: call.op,
            target: call.target,
            args: call.args,
            kwargs: call.kwargs,
            ty: None,
        };
        let outer = graph.set_insert_point(InsertPoint::Before(place))?;
        let node = graph.create(spec, None);
        graph.restore_insert_point(outer);
        let node = node?;
        graph.set_origin(node, graph.origin(from));
        self.added.push(Added {
            node,
            root: from,
            has_its_value: false,
        });
        Ok(node)
    }

    /// Makes the users of `old` use `new`, a node of this change with the same value; `new` gets
    /// the name and type, and `old` is erased.
    pub(crate) fn take_place(
        &mut self,
        graph: &mut Graph,
        new: NodeId,
        old: NodeId,
    ) -> Result<(), PassError> {
        let name = graph.node(old).name().to_owned();
        graph.replace_uses_if(old, new, |_, user| user != new)?;
        graph.set_ty(new, graph.node(old).ty())?;
        graph.erase(old)?;
        graph.set_name(new, &name)?;
        self.erased.push(old);
        for added in &mut self.added {
            if added.node == new {
                (added.root, added.has_its_value) = (old, true);
            }
        }
        graph.set_origin(new, graph.origin(old));
        Ok(())
    }
}

/// Makes the users of each first node use the second, which stays, and erases the first ones. Each
/// user is changed once.
pub(crate) fn replace(graph: &mut Graph, pairs: &[(NodeId, NodeId)]) -> Result<(), PassError> {
    let mut by: SecondaryMap<NodeId, Option<NodeId>> = SecondaryMap::default();
    for &(gone, kept) in pairs {
        by.set(gone, Some(kept));
    }
    let mut users: Vec<NodeId> = Vec::new();
    let mut seen = vec![false; graph.id_bound()];
    for &(gone, _) in pairs {
        for user in graph.users(gone) {
            if by[user].is_none() && !std::mem::replace(&mut seen[user.index()], true) {
                users.push(user);
            }
        }
    }
    for user in users {
        graph.map_inputs(user, |input| by[input].map(Arg::Node))?;
    }
    for &(gone, _) in pairs.iter().rev() {
        graph.erase(gone)?;
    }
    Ok(())
}
