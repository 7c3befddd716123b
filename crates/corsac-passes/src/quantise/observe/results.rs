//! Results of custom modules that are tuples: each value gets a stub, where it becomes a float.
//!
//! ```text
//! lstm = self.lstm(x)     →   lstm = self.lstm(x)
//! getitem = lstm[0]           getitem_1 = lstm[0]
//!                             dequant_stub_0 = self.dequant_stub_0(getitem_1)
//!                             …
//!                             tuple_1 = tuple([dequant_stub_0, …])
//!                             getitem = tuple_1[0], whose users read dequant_stub_0
//! ```

use corsac_ir::{Arg, FunctionId, Graph, InsertPoint, NodeId, Op, Target, ThinVec};
use rustc_hash::FxHashSet;

use crate::error::PassError;

/// The prefix of the names of stubs.
const PREFIX: &str = "dequant_stub_";

/// The structure of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// One value.
    Value,
    /// A tuple.
    Tuple(&'static [Structure]),
}

impl Structure {
    /// The result and the last states of a recurrent layer, of which there are two.
    pub const RECURRENT: Self =
        Self::Tuple(&[Self::Value, Self::Tuple(&[Self::Value, Self::Value])]);
    /// Two values, as attention returns.
    pub const PAIR: Self = Self::Tuple(&[Self::Value, Self::Value]);
}

/// The functions that new nodes call.
#[derive(Clone, Copy, Debug)]
pub struct TupleFunctions {
    /// `operator.getitem`
    pub getitem: FunctionId,
    /// `tuple`
    pub tuple: FunctionId,
}

/// The nodes that take the place of a result.
#[derive(Debug, Default)]
pub(crate) struct Split {
    /// The names of the modules of stubs.
    pub(crate) stubs: Vec<String>,
    /// Stubs, and tuples of them.
    pub(crate) floats: Vec<NodeId>,
    created: FxHashSet<NodeId>,
}

/// Puts stubs on the values of a result, for all its users.
pub(crate) fn split(
    graph: &mut Graph,
    node: NodeId,
    structure: Structure,
    functions: TupleFunctions,
    free: &mut dyn FnMut(&str) -> String,
) -> Result<Split, PassError> {
    let mut split = Split::default();
    let Structure::Tuple(items) = structure else {
        return Ok(split);
    };
    let outer = graph.set_insert_point(InsertPoint::After(node))?;
    let whole = split.tuple(graph, node, items, functions, free);
    graph.restore_insert_point(outer);
    let whole = whole?;
    graph.replace_uses_if(node, whole, |_, user| !split.created.contains(&user))?;
    read_items(graph, whole, functions)?;
    Ok(split)
}

impl Split {
    fn tuple(
        &mut self,
        graph: &mut Graph,
        node: NodeId,
        items: &'static [Structure],
        functions: TupleFunctions,
        free: &mut dyn FnMut(&str) -> String,
    ) -> Result<NodeId, PassError> {
        let mut values = ThinVec::new();
        for (number, item) in (0..).zip(items) {
            let args = [node.into(), Arg::Int(number)];
            let value = self.add(graph, node, |graph| {
                graph.call_function(functions.getitem, args)
            })?;
            let float = match item {
                Structure::Tuple(items) => self.tuple(graph, value, items, functions, free)?,
                Structure::Value => {
                    let name = free(PREFIX);
                    let stub = self.add(graph, node, |graph| {
                        graph.call_module(&name, [value.into()])
                    })?;
                    self.stubs.push(name);
                    self.floats.push(stub);
                    stub
                }
            };
            values.push(Arg::Node(float));
        }
        let list = Arg::list(values)?;
        let whole = self.add(graph, node, |graph| {
            graph.call_function(functions.tuple, [list])
        })?;
        self.floats.push(whole);
        Ok(whole)
    }

    fn add(
        &mut self,
        graph: &mut Graph,
        origin: NodeId,
        make: impl FnOnce(&mut Graph) -> Result<NodeId, corsac_ir::GraphError>,
    ) -> Result<NodeId, PassError> {
        let node = make(graph)?;
        // New nodes are put right after a node: the next one goes after this one.
        let _ = graph.set_insert_point(InsertPoint::After(node))?;
        graph.set_origin(node, graph.origin(origin));
        self.created.insert(node);
        Ok(node)
    }
}

/// Gives users of items of a tuple the items.
fn read_items(
    graph: &mut Graph,
    tuple: NodeId,
    functions: TupleFunctions,
) -> Result<(), PassError> {
    let list = graph.node(tuple).args().first().and_then(Arg::as_items);
    let items: Vec<NodeId> = list
        .into_iter()
        .flatten()
        .filter_map(Arg::as_node)
        .collect();
    let readers: Vec<NodeId> = graph.users(tuple).collect();
    for reader in readers {
        let view = graph.node(reader);
        let is_getitem =
            view.op() == Op::CallFunction && view.target() == Target::Function(functions.getitem);
        let number = match view.args().get(1) {
            Some(Arg::Int(number)) if is_getitem => usize::try_from(*number).ok(),
            _ => None,
        };
        if let Some(&item) = number.and_then(|number| items.get(number)) {
            graph.replace_all_uses(reader, item)?;
        }
    }
    for item in items {
        let view = graph.node(item);
        if view.op() == Op::CallFunction && view.target() == Target::Function(functions.tuple) {
            read_items(graph, item, functions)?;
        }
    }
    Ok(())
}
