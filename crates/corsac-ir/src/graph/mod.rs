//! The graph itself: construction, order and queries. Changes to existing nodes are in [`edit`],
//! uses in [`uses`], the target index in [`index`], copying between graphs in [`copy`].

mod copy;
mod edit;
mod index;
mod list;
mod order;
mod origin;
mod uses;
mod view;

#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;
use thin_vec::ThinVec;

use crate::arg::Arg;
use crate::entity::{EntityId, ExternalId, FunctionId, NodeId, Symbol};
use crate::error::GraphError;
use crate::interner::Interner;
use crate::namespace::{Namespace, snake_case};
use crate::op::{Function, Op, Target, own_name};

pub use copy::Translation;
pub use origin::{Origin, Scope, Source};
pub use view::{Node, Nodes};

use index::TargetIndex;
use list::List;
use origin::Origins;
use uses::{Edges, UseList};

/// A node in the arena.
#[derive(Clone, Debug)]
pub(crate) struct NodeData {
    pub(crate) op: Op,
    /// Whether it is in [`Graph::retargeted`].
    retargeted: bool,
    pub(crate) name: Symbol,
    pub(crate) target: Target,
    pub(crate) args: ThinVec<Arg>,
    pub(crate) kwargs: ThinVec<(Symbol, Arg)>,
    /// Type annotation, held by the host.
    pub(crate) ty: Option<ExternalId>,
    uses: UseList,
    index: index::IndexLinks,
}

impl NodeData {
    #[inline]
    pub(crate) fn num_users(&self) -> usize {
        self.uses.num_users()
    }
}

/// The place of new nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertPoint {
    /// Before the node, in the order of their creation. Before [`NodeId::ROOT`] is the end.
    Before(NodeId),
    /// Right after the node, so that the last one created comes first, as torch.fx does it. After
    /// [`NodeId::ROOT`] is the beginning.
    After(NodeId),
}

/// Everything that makes a node.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Opcode.
    pub op: Op,
    /// Target.
    pub target: Target,
    /// Positional arguments.
    pub args: ThinVec<Arg>,
    /// Keyword arguments, in order.
    pub kwargs: ThinVec<(Symbol, Arg)>,
    /// Type annotation, held by the host.
    pub ty: Option<ExternalId>,
}

/// A straight-line program: nodes in order, each with its inputs and users.
///
/// Fields are private and one mutator ([`Graph::set_arguments`]) keeps arguments and uses in step.
#[derive(Clone, Debug)]
pub struct Graph {
    nodes: Vec<NodeData>,
    list: List,
    edges: Edges,
    len: usize,
    insert_point: InsertPoint,
    index: TargetIndex,
    strings: Interner,
    names: Namespace,
    functions: Vec<Function>,
    /// Functions without a host object, by name.
    functions_by_name: FxHashMap<Symbol, FunctionId>,
    externals: Vec<Option<Symbol>>,
    origins: Origins,
    output_symbol: Symbol,
    /// Nodes whose opcode or target changed since [`Graph::take_retargeted`], each once.
    retargeted: Vec<NodeId>,
}

/// Number of strings that every graph has from the start, under the same symbols.
const PREDEFINED_STRINGS: usize = 2;

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// An empty graph.
    #[must_use]
    pub fn new() -> Self {
        let mut strings = Interner::new();
        let empty = strings.intern("");
        let output_symbol = strings.intern("output");
        debug_assert_eq!(strings.len(), PREDEFINED_STRINGS);
        let root = NodeData {
            op: Op::Output,
            retargeted: false,
            name: empty,
            target: Target::Name(empty),
            args: ThinVec::new(),
            kwargs: ThinVec::new(),
            ty: None,
            uses: UseList::default(),
            index: index::IndexLinks::default(),
        };
        Self {
            nodes: vec![root],
            list: List::new(),
            edges: Edges::default(),
            len: 0,
            insert_point: InsertPoint::Before(NodeId::ROOT),
            index: TargetIndex::default(),
            strings,
            names: Namespace::new(),
            functions: Vec::new(),
            functions_by_name: FxHashMap::default(),
            externals: Vec::new(),
            origins: Origins::default(),
            output_symbol,
            retargeted: Vec::new(),
        }
    }

    // ---- strings, functions, externals ----

    /// The symbol of `text` in this graph.
    pub fn intern(&mut self, text: &str) -> Symbol {
        self.strings.intern(text)
    }

    /// The symbol of `text`, if the graph has it.
    #[must_use]
    pub fn lookup(&self, text: &str) -> Option<Symbol> {
        self.strings.lookup(text)
    }

    /// The text of a symbol of this graph.
    #[inline]
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> &str {
        self.strings.resolve(symbol)
    }

    /// The function called `name` without a host object, added if it is new.
    pub fn function(&mut self, name: &str) -> FunctionId {
        let symbol = self.strings.intern(name);
        if let Some(&id) = self.functions_by_name.get(&symbol) {
            return id;
        }
        let id = self.add_function(symbol, own_name(name), None);
        self.functions_by_name.insert(symbol, id);
        id
    }

    /// Adds a function with a host object: `name` is the name that `print(graph)` shows, `own` its
    /// `__name__`. The host calls this once per object.
    pub fn external_function(&mut self, name: &str, own: &str, external: ExternalId) -> FunctionId {
        let symbol = self.strings.intern(name);
        self.add_function(symbol, own, Some(external))
    }

    fn add_function(
        &mut self,
        name: Symbol,
        own: &str,
        external: Option<ExternalId>,
    ) -> FunctionId {
        let base = self.strings.intern(&snake_case(own));
        self.functions.push(Function {
            name,
            base,
            external,
        });
        FunctionId::from_index(self.functions.len() - 1)
    }

    /// A function with this base name, or the one derived from its name. For the text form, which
    /// keeps both; without a host object, there is one function per name.
    pub(crate) fn function_with_base(
        &mut self,
        name: &str,
        base: Option<&str>,
        external: Option<ExternalId>,
    ) -> FunctionId {
        let name = self.strings.intern(name);
        if external.is_none()
            && let Some(&id) = self.functions_by_name.get(&name)
        {
            return id;
        }
        let base = match base {
            Some(base) => self.strings.intern(base),
            None => {
                let base = Self::default_base(self.text(name));
                self.strings.intern(&base)
            }
        };
        self.functions.push(Function {
            name,
            base,
            external,
        });
        let id = FunctionId::from_index(self.functions.len() - 1);
        if external.is_none() {
            self.functions_by_name.insert(name, id);
        }
        id
    }

    /// Sets the host object of a function that had none.
    ///
    /// # Panics
    /// If `id` is another graph's.
    pub fn set_function_external(&mut self, id: FunctionId, external: ExternalId) {
        let function = &mut self.functions[id.index()];
        function.external = Some(external);
        if self.functions_by_name.get(&function.name) == Some(&id) {
            self.functions_by_name.remove(&function.name);
        }
    }

    /// The base name of nodes that call the function with this qualified name, unless the host
    /// gives another.
    pub(crate) fn default_base(name: &str) -> String {
        snake_case(own_name(name))
    }

    /// The entry of a function.
    ///
    /// # Panics
    /// If `id` is another graph's.
    #[must_use]
    pub fn function_info(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// The qualified name of a function, as printed.
    #[must_use]
    pub fn function_name(&self, id: FunctionId) -> &str {
        self.text(self.functions[id.index()].name)
    }

    /// All functions ever named in this graph.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = (FunctionId, &Function)> {
        self.functions
            .iter()
            .enumerate()
            .map(|(i, f)| (FunctionId::from_index(i), f))
    }

    /// A new host value. `name` is its qualified name, where it has one.
    pub fn add_external(&mut self, name: Option<&str>) -> ExternalId {
        let name = name.map(|n| self.strings.intern(n));
        self.externals.push(name);
        ExternalId::from_index(self.externals.len() - 1)
    }

    /// The qualified name of a host value, where it has one.
    #[must_use]
    pub fn external_name(&self, id: ExternalId) -> Option<&str> {
        self.externals
            .get(id.index())
            .copied()
            .flatten()
            .map(|s| self.text(s))
    }

    /// Number of host values.
    #[must_use]
    pub fn external_count(&self) -> usize {
        self.externals.len()
    }

    // ---- creation ----

    /// Creates a node at the insertion point.
    ///
    /// `name` is a candidate: the node gets the first free name after it ([`crate::namespace`]), or
    /// after its target where none is given.
    ///
    /// # Errors
    /// If the target does not fit the opcode, or an argument is no node of this graph. A node may
    /// be used before it is defined, or after it was erased; [`Graph`]'s verifier reports that.
    pub fn create(&mut self, spec: NodeSpec, name: Option<&str>) -> Result<NodeId, GraphError> {
        self.check_target(&spec, name)?;
        self.check_arguments(&spec.args, &spec.kwargs)?;

        let name = match (name, spec.target) {
            (Some(name), _) => self.names.create(&mut self.strings, name, false),
            (None, target) => self.name_after(target),
        };
        Ok(self.insert(spec, name))
    }

    /// Enters a checked node at the insertion point, under a name already reserved for it.
    fn insert(&mut self, spec: NodeSpec, name: Symbol) -> NodeId {
        let id = self.list.push();
        self.nodes.push(NodeData {
            op: spec.op,
            retargeted: false,
            name,
            target: spec.target,
            args: spec.args,
            kwargs: spec.kwargs,
            ty: spec.ty,
            uses: UseList::default(),
            index: index::IndexLinks::default(),
        });
        self.len += 1;
        self.link_uses(id);
        self.link_index(id);
        self.list.link(id, self.insert_point);
        id
    }

    /// A node of any opcode with the given target text, without keyword arguments.
    fn create_simple(
        &mut self,
        op: Op,
        target: &str,
        args: impl Into<ThinVec<Arg>>,
    ) -> Result<NodeId, GraphError> {
        let target = Target::Name(self.strings.intern(target));
        let spec = NodeSpec {
            op,
            target,
            args: args.into(),
            kwargs: ThinVec::new(),
            ty: None,
        };
        self.create(spec, None)
    }

    /// An input called `target`.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn placeholder(&mut self, target: &str) -> Result<NodeId, GraphError> {
        self.create_simple(Op::Placeholder, target, [])
    }

    /// An input called `target` with a default value.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn placeholder_with_default(
        &mut self,
        target: &str,
        default: Arg,
    ) -> Result<NodeId, GraphError> {
        self.create_simple(Op::Placeholder, target, [default])
    }

    /// The attribute with the qualified name `target`.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn get_attr(&mut self, target: &str) -> Result<NodeId, GraphError> {
        self.create_simple(Op::GetAttr, target, [])
    }

    /// A call of a function.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn call_function(
        &mut self,
        function: FunctionId,
        args: impl Into<ThinVec<Arg>>,
    ) -> Result<NodeId, GraphError> {
        let spec = NodeSpec {
            op: Op::CallFunction,
            target: Target::Function(function),
            args: args.into(),
            kwargs: ThinVec::new(),
            ty: None,
        };
        self.create(spec, None)
    }

    /// A call of the method `target` on the first argument.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn call_method(
        &mut self,
        target: &str,
        args: impl Into<ThinVec<Arg>>,
    ) -> Result<NodeId, GraphError> {
        self.create_simple(Op::CallMethod, target, args)
    }

    /// A call of the submodule with the qualified name `target`.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn call_module(
        &mut self,
        target: &str,
        args: impl Into<ThinVec<Arg>>,
    ) -> Result<NodeId, GraphError> {
        self.create_simple(Op::CallModule, target, args)
    }

    /// The result of the program.
    ///
    /// # Errors
    /// As [`Graph::create`].
    pub fn output(&mut self, value: impl Into<Arg>) -> Result<NodeId, GraphError> {
        let spec = NodeSpec {
            op: Op::Output,
            target: Target::Name(self.output_symbol),
            args: [value.into()].into(),
            kwargs: ThinVec::new(),
            ty: None,
        };
        self.create(spec, None)
    }

    /// A name that no value of this graph has, after `candidate`; taken from now on.
    pub fn fresh_name(&mut self, candidate: &str) -> Symbol {
        self.names.create(&mut self.strings, candidate, false)
    }

    fn name_after(&mut self, target: Target) -> Symbol {
        match target {
            Target::Function(id) => {
                let base = self.functions[id.index()].base;
                self.names.create_after(&mut self.strings, base)
            }
            Target::Name(symbol) => {
                let candidate = snake_case(strip_magic(self.text(symbol)));
                self.names.create(&mut self.strings, &candidate, false)
            }
        }
    }

    /// Checks that the target of a new node fits its opcode.
    pub(crate) fn check_target(
        &self,
        spec: &NodeSpec,
        name: Option<&str>,
    ) -> Result<(), GraphError> {
        match (spec.op, spec.target) {
            (Op::CallFunction, Target::Name(_)) => Err(self.wrong_target(spec, name, "a function")),
            (Op::CallFunction, Target::Function(_)) | (_, Target::Name(_)) => Ok(()),
            (_, Target::Function(_)) => Err(self.wrong_target(spec, name, "a name")),
        }
    }

    fn wrong_target(
        &self,
        spec: &NodeSpec,
        name: Option<&str>,
        expected: &'static str,
    ) -> GraphError {
        let name = name.map_or_else(
            || match spec.target {
                Target::Name(symbol) => self.text(symbol).to_owned(),
                Target::Function(id) => self.function_name(id).to_owned(),
            },
            str::to_owned,
        );
        GraphError::WrongTarget {
            op: spec.op,
            name,
            expected,
        }
    }

    fn check_arguments(&self, args: &[Arg], kwargs: &[(Symbol, Arg)]) -> Result<(), GraphError> {
        let mut unknown = None;
        let mut check = |node: NodeId| {
            if node.is_root() || node.index() >= self.nodes.len() {
                unknown = Some(node);
            }
        };
        for arg in args.iter().chain(kwargs.iter().map(|(_, arg)| arg)) {
            arg.for_each_node(&mut check);
        }
        unknown.map_or(Ok(()), |node| Err(GraphError::UnknownNode { node }))
    }

    // ---- order ----

    /// The place of new nodes.
    #[must_use]
    pub fn insert_point(&self) -> InsertPoint {
        self.insert_point
    }

    /// Sets the place where new nodes go, and returns the previous one.
    ///
    /// # Errors
    /// If the node named is not in the graph.
    pub fn set_insert_point(&mut self, point: InsertPoint) -> Result<InsertPoint, GraphError> {
        let (InsertPoint::Before(node) | InsertPoint::After(node)) = point;
        if !node.is_root() {
            self.check_live(node)?;
        }
        Ok(std::mem::replace(&mut self.insert_point, point))
    }

    /// Puts the insertion point back where it was; to the end if that place is gone.
    pub fn restore_insert_point(&mut self, point: InsertPoint) {
        let (InsertPoint::Before(node) | InsertPoint::After(node)) = point;
        let exists = node.is_root() || self.contains(node);
        self.insert_point = if exists {
            point
        } else {
            InsertPoint::Before(NodeId::ROOT)
        };
    }

    /// Whether `a` comes before `b`.
    #[inline]
    #[must_use]
    pub fn is_before(&self, a: NodeId, b: NodeId) -> bool {
        self.order(a) < self.order(b)
    }

    /// The node after `id`; [`NodeId::ROOT`] after the last, the first after the root. From an
    /// erased node, the one that came after it.
    #[must_use]
    #[inline]
    pub fn next(&self, id: NodeId) -> NodeId {
        self.list.next(id)
    }

    /// The node before `id`, likewise.
    #[must_use]
    #[inline]
    pub fn prev(&self, id: NodeId) -> NodeId {
        self.list.prev(id)
    }

    // ---- queries ----

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of nodes in the list, counted no further than one more than there should be.
    pub(crate) fn list_length(&self) -> usize {
        self.list.length(self.len)
    }

    /// Number of strings in the graph: one more than the largest index of a symbol.
    pub(crate) fn symbol_count(&self) -> usize {
        self.strings.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more than the largest index of a node id: the length of a dense table over all nodes,
    /// erased ones included.
    #[must_use]
    pub fn id_bound(&self) -> usize {
        self.nodes.len()
    }

    /// Whether `id` is a node of this graph and was not erased.
    #[must_use]
    pub fn contains(&self, id: NodeId) -> bool {
        !id.is_root() && id.index() < self.nodes.len() && !self.is_erased(id)
    }

    /// The nodes in order.
    #[must_use]
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes::new(self)
    }

    /// A view of a node, which may be an erased one.
    ///
    /// # Panics
    /// If the id was never handed out by this graph.
    #[inline]
    #[must_use]
    pub fn node(&self, id: NodeId) -> Node<'_> {
        Node::new(self, id)
    }

    /// The output node that comes last, if there is one.
    #[must_use]
    pub fn output_node(&self) -> Option<NodeId> {
        self.nodes()
            .rev()
            .find(|&id| self.data(id).op == Op::Output)
    }

    #[inline]
    pub(crate) fn data(&self, id: NodeId) -> &NodeData {
        &self.nodes[id.index()]
    }

    /// Its sequence number in the list; the root's is 0.
    #[inline]
    pub(crate) fn order(&self, id: NodeId) -> u64 {
        self.list.place(id).order
    }

    #[inline]
    pub(crate) fn is_erased(&self, id: NodeId) -> bool {
        self.list.place(id).erased
    }

    /// Checks that `id` is a node of this graph and was not erased.
    ///
    /// # Errors
    /// [`GraphError::UnknownNode`] or [`GraphError::Erased`].
    pub fn check_live(&self, id: NodeId) -> Result<(), GraphError> {
        match self.nodes.get(id.index()) {
            Some(_) if id.is_root() => Err(GraphError::UnknownNode { node: id }),
            None => Err(GraphError::UnknownNode { node: id }),
            Some(data) if self.is_erased(id) => Err(GraphError::Erased {
                node: id,
                name: self.text(data.name).to_owned(),
            }),
            Some(_) => Ok(()),
        }
    }
}

/// `__add__` without its underscores; an empty name for `__`.
fn strip_magic(name: &str) -> &str {
    if name.starts_with("__") && name.ends_with("__") {
        name.get(2..name.len() - 2).unwrap_or_default()
    } else {
        name
    }
}
