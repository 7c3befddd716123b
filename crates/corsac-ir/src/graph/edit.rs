//! Changes to existing nodes. Each is checked first and then made as a whole.

use thin_vec::ThinVec;

use super::{Graph, InsertPoint};
use crate::arg::Arg;
use crate::entity::{EntityId, ExternalId, NodeId, Symbol};
use crate::error::GraphError;
use crate::op::{Op, Target};

impl Graph {
    /// Replaces the arguments of a node. The node leaves the users of all it used before and joins
    /// the end of the users of all it uses now, as in torch.fx.
    ///
    /// # Errors
    /// If the node was never in this graph, or an argument is no node of it.
    pub fn set_arguments(
        &mut self,
        id: NodeId,
        args: ThinVec<Arg>,
        kwargs: ThinVec<(Symbol, Arg)>,
    ) -> Result<(), GraphError> {
        self.check_known(id)?;
        self.check_arguments(&args, &kwargs)?;
        self.unlink_uses(id);
        let data = &mut self.nodes[id.index()];
        (data.args, data.kwargs) = (args, kwargs);
        self.link_uses(id);
        Ok(())
    }

    /// Replaces the positional arguments of a node.
    ///
    /// # Errors
    /// As [`Graph::set_arguments`].
    pub fn set_args(
        &mut self,
        id: NodeId,
        args: impl Into<ThinVec<Arg>>,
    ) -> Result<(), GraphError> {
        self.check_known(id)?;
        let kwargs = self.nodes[id.index()].kwargs.clone();
        self.set_arguments(id, args.into(), kwargs)
    }

    /// Replaces the keyword arguments of a node.
    ///
    /// # Errors
    /// As [`Graph::set_arguments`].
    pub fn set_kwargs(
        &mut self,
        id: NodeId,
        kwargs: impl Into<ThinVec<(Symbol, Arg)>>,
    ) -> Result<(), GraphError> {
        self.check_known(id)?;
        let args = self.nodes[id.index()].args.clone();
        self.set_arguments(id, args, kwargs.into())
    }

    /// Nodes whose opcode or target changed since the last call, each once, in the order of their
    /// first change: for a host that keeps copies of those.
    pub fn take_retargeted(&mut self) -> Vec<NodeId> {
        let taken = std::mem::take(&mut self.retargeted);
        for &id in &taken {
            self.nodes[id.index()].retargeted = false;
        }
        taken
    }

    /// Replaces the target of a node. The opcode stays.
    ///
    /// # Errors
    /// If the target does not fit the opcode.
    pub fn set_target(&mut self, id: NodeId, target: Target) -> Result<(), GraphError> {
        let op = self
            .nodes
            .get(id.index())
            .ok_or(GraphError::UnknownNode { node: id })?
            .op;
        self.set_op_and_target(id, op, target)
    }

    /// Replaces the opcode and the target of a node.
    ///
    /// # Errors
    /// If the target does not fit the opcode.
    pub fn set_op_and_target(
        &mut self,
        id: NodeId,
        op: Op,
        target: Target,
    ) -> Result<(), GraphError> {
        self.check_known(id)?;
        let name = || self.text(self.data(id).name).to_owned();
        match (op, target) {
            (Op::CallFunction, Target::Name(_)) => {
                return Err(GraphError::WrongTarget {
                    op,
                    name: name(),
                    expected: "a function",
                });
            }
            (Op::CallFunction, Target::Function(_)) | (_, Target::Name(_)) => {}
            (_, Target::Function(_)) => {
                return Err(GraphError::WrongTarget {
                    op,
                    name: name(),
                    expected: "a name",
                });
            }
        }
        let erased = self.is_erased(id);
        if !erased {
            self.unlink_index(id);
        }
        let data = &mut self.nodes[id.index()];
        (data.op, data.target) = (op, target);
        if !std::mem::replace(&mut data.retargeted, true) {
            self.retargeted.push(id);
        }
        if !erased {
            self.link_index(id);
        }
        Ok(())
    }

    /// Sets or removes the type annotation.
    ///
    /// # Errors
    /// If the node was never in this graph.
    pub fn set_ty(&mut self, id: NodeId, ty: Option<ExternalId>) -> Result<(), GraphError> {
        self.check_known(id)?;
        self.nodes[id.index()].ty = ty;
        Ok(())
    }

    /// Renames a value to the first free name after `candidate`.
    ///
    /// # Errors
    /// If the node was never in this graph.
    pub fn rename(&mut self, id: NodeId, candidate: &str) -> Result<Symbol, GraphError> {
        self.check_known(id)?;
        if self.text(self.data(id).name) != candidate {
            self.nodes[id.index()].name = self.fresh_name(candidate);
        }
        Ok(self.data(id).name)
    }

    /// Gives a value exactly this name, taken or not; torch.fx allows `node.name = "x"`, and the
    /// verifier reports two values with one name.
    ///
    /// # Errors
    /// If the node was never in this graph.
    pub fn set_name(&mut self, id: NodeId, name: &str) -> Result<(), GraphError> {
        self.check_known(id)?;
        let symbol = self.strings.intern(name);
        self.names.mark_used(symbol);
        self.nodes[id.index()].name = symbol;
        Ok(())
    }

    /// Takes a node without users out of the graph. Its id is not handed out again; its opcode,
    /// name and target can still be read, and so can the nodes around the place where it was.
    ///
    /// # Errors
    /// If the node is not in the graph, or others use it.
    pub fn erase(&mut self, id: NodeId) -> Result<(), GraphError> {
        self.check_live(id)?;
        if self.data(id).uses.num_users() > 0 {
            return Err(GraphError::HasUsers {
                node: id,
                name: self.text(self.data(id).name).to_owned(),
                users: self
                    .users(id)
                    .map(|u| self.node(u).name().to_owned())
                    .collect(),
            });
        }
        self.unlink_uses(id);
        self.unlink_index(id);
        self.list.erase(id);
        let data = &mut self.nodes[id.index()];
        // torch.fx leaves None where the nodes were.
        data.args = data.args.iter().map(|_| Arg::None).collect();
        data.kwargs.iter_mut().for_each(|(_, arg)| *arg = Arg::None);
        self.len -= 1;
        match self.insert_point {
            InsertPoint::Before(at) if at == id => {
                self.insert_point = InsertPoint::Before(self.next(id));
            }
            InsertPoint::After(at) if at == id => {
                self.insert_point = InsertPoint::After(self.prev(id));
            }
            InsertPoint::Before(_) | InsertPoint::After(_) => {}
        }
        Ok(())
    }

    /// Moves a node to just before another one; to the end for [`NodeId::ROOT`].
    ///
    /// # Errors
    /// If one is not in the graph, or both are the same.
    pub fn move_before(&mut self, id: NodeId, before: NodeId) -> Result<(), GraphError> {
        self.move_to(id, before, InsertPoint::Before(before))
    }

    /// Moves a node to just after another one; to the beginning for [`NodeId::ROOT`].
    ///
    /// # Errors
    /// If one is not in the graph, or both are the same.
    pub fn move_after(&mut self, id: NodeId, after: NodeId) -> Result<(), GraphError> {
        self.move_to(id, after, InsertPoint::After(after))
    }

    fn move_to(&mut self, id: NodeId, to: NodeId, point: InsertPoint) -> Result<(), GraphError> {
        self.check_live(id)?;
        if id == to {
            let name = self.text(self.data(id).name).to_owned();
            return Err(GraphError::MovedToItself { node: id, name });
        }
        if !to.is_root() {
            self.check_live(to)?;
        }
        self.list.unlink(id);
        self.list.link(id, point);
        Ok(())
    }

    /// Makes `user` use `new` wherever it uses `old`.
    ///
    /// # Errors
    /// If one of them was never in this graph.
    pub fn replace_input(
        &mut self,
        user: NodeId,
        old: NodeId,
        new: NodeId,
    ) -> Result<(), GraphError> {
        self.check_known(user)?;
        self.check_known(old)?;
        self.check_known(new)?;
        self.replace_input_unchecked(user, old, new);
        Ok(())
    }

    /// Puts any argument in the place of `old` wherever `user` uses it.
    ///
    /// # Errors
    /// As [`Graph::set_arguments`], or [`GraphError::NestingTooDeep`].
    pub fn replace_input_by(
        &mut self,
        user: NodeId,
        old: NodeId,
        new: &Arg,
    ) -> Result<(), GraphError> {
        self.map_inputs(user, |used| (used == old).then(|| new.clone()))
    }

    /// Puts other arguments in the place of nodes that `user` uses, all at once: those that `by`
    /// returns.
    ///
    /// # Errors
    /// As [`Graph::set_arguments`], or [`GraphError::NestingTooDeep`].
    pub fn map_inputs(
        &mut self,
        user: NodeId,
        by: impl Fn(NodeId) -> Option<Arg>,
    ) -> Result<(), GraphError> {
        self.check_known(user)?;
        let mut replace = |leaf: &Arg| -> Result<Arg, GraphError> {
            Ok(leaf.as_node().and_then(&by).unwrap_or_else(|| leaf.clone()))
        };
        let data = self.data(user);
        let args = data.args.iter().map(|arg| arg.map_leaves(&mut replace));
        let args = args.collect::<Result<_, _>>()?;
        let kwargs = data.kwargs.iter();
        let kwargs = kwargs.map(|(key, arg)| Ok((*key, arg.map_leaves(&mut replace)?)));
        let kwargs = kwargs.collect::<Result<_, GraphError>>()?;
        self.set_arguments(user, args, kwargs)
    }

    fn replace_input_unchecked(&mut self, user: NodeId, old: NodeId, new: NodeId) {
        self.unlink_uses(user);
        let data = &mut self.nodes[user.index()];
        data.args.iter_mut().for_each(|a| a.replace_node(old, new));
        data.kwargs
            .iter_mut()
            .for_each(|(_, a)| a.replace_node(old, new));
        self.link_uses(user);
    }

    /// Makes all users of `old` use `new` instead, and returns them.
    ///
    /// # Errors
    /// If one of the two was never in this graph.
    pub fn replace_all_uses(
        &mut self,
        old: NodeId,
        new: NodeId,
    ) -> Result<Vec<NodeId>, GraphError> {
        self.replace_uses_if(old, new, |_, _| true)
    }

    /// Makes those users of `old` use `new` for which `wanted(graph, user)` holds, and returns
    /// them.
    ///
    /// # Errors
    /// If one of the two was never in this graph.
    pub fn replace_uses_if(
        &mut self,
        old: NodeId,
        new: NodeId,
        mut wanted: impl FnMut(&Self, NodeId) -> bool,
    ) -> Result<Vec<NodeId>, GraphError> {
        self.check_known(old)?;
        self.check_known(new)?;
        let users: Vec<_> = self.users(old).filter(|&user| wanted(self, user)).collect();
        for &user in &users {
            self.replace_input_unchecked(user, old, new);
        }
        Ok(users)
    }

    /// Checks that `id` was handed out by this graph, erased or not.
    fn check_known(&self, id: NodeId) -> Result<(), GraphError> {
        if id.is_root() || id.index() >= self.nodes.len() {
            return Err(GraphError::UnknownNode { node: id });
        }
        Ok(())
    }
}
