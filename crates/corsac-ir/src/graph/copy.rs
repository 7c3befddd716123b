//! Copies of nodes between graphs.
//!
//! Symbols, functions, host values and places are numbered per graph. A [`Translation`] maps the
//! ids of the source graph to those of the destination, and adds what is missing there.

use thin_vec::ThinVec;

use super::{Graph, NodeSpec, Origin, PREDEFINED_STRINGS, Scope, Source};
use crate::arg::{Arg, Dict, Seq};
use crate::entity::{
    EntityId, ExternalId, FunctionId, NodeId, ScopeId, SecondaryMap, SourceId, Symbol,
};
use crate::error::GraphError;
use crate::interner::Interner;
use crate::op::{Function, Op, Target};

/// A map from the ids of a source graph to those of a destination graph.
///
/// One translation serves any number of copies between the same two graphs, in this direction.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Symbols below this number are the same in both graphs.
    shared_symbols: usize,
    symbols: SecondaryMap<Symbol, Option<Symbol>>,
    functions: SecondaryMap<FunctionId, Option<FunctionId>>,
    externals: SecondaryMap<ExternalId, Option<ExternalId>>,
    sources: SecondaryMap<SourceId, Option<SourceId>>,
    scopes: SecondaryMap<ScopeId, Option<ScopeId>>,
    new_externals: Vec<(ExternalId, ExternalId)>,
    new_functions: Vec<(FunctionId, FunctionId)>,
    learned: Learned,
}

/// The entries that a translation made itself, which [`Translation::forget`] removes.
#[derive(Clone, Debug, Default)]
struct Learned {
    symbols: Vec<Symbol>,
    functions: Vec<FunctionId>,
    externals: Vec<ExternalId>,
    sources: Vec<SourceId>,
    scopes: Vec<ScopeId>,
}

impl Translation {
    /// An empty translation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters the destination's id of a host value of the source, where the host has it.
    pub fn know_external(&mut self, from: ExternalId, to: ExternalId) {
        self.externals.set(from, Some(to));
    }

    /// Enters the destination's id of a function of the source, where the host has it.
    pub fn know_function(&mut self, from: FunctionId, to: FunctionId) {
        self.functions.set(from, Some(to));
    }

    /// Host values that had to be added to the destination since the last call: source id,
    /// destination id. The host attaches its objects to them.
    pub fn take_new_externals(&mut self) -> Vec<(ExternalId, ExternalId)> {
        std::mem::take(&mut self.new_externals)
    }

    /// Functions that had to be looked up or added in the destination since the last call: source
    /// id, destination id.
    pub fn take_new_functions(&mut self) -> Vec<(FunctionId, FunctionId)> {
        std::mem::take(&mut self.new_functions)
    }

    /// Removes the entries made while copying, so that the translation serves another destination.
    /// Takes time in proportion to their number, however large the source is; entries made with
    /// [`Translation::know_external`] and [`Translation::know_function`] stay.
    pub fn forget(&mut self) {
        let learned = std::mem::take(&mut self.learned);
        learned
            .symbols
            .into_iter()
            .for_each(|id| self.symbols.set(id, None));
        learned
            .functions
            .into_iter()
            .for_each(|id| self.functions.set(id, None));
        learned
            .externals
            .into_iter()
            .for_each(|id| self.externals.set(id, None));
        learned
            .sources
            .into_iter()
            .for_each(|id| self.sources.set(id, None));
        learned
            .scopes
            .into_iter()
            .for_each(|id| self.scopes.set(id, None));
        self.shared_symbols = 0;
        self.new_externals.clear();
        self.new_functions.clear();
    }

    /// The symbol in `to` for `symbol` of `from`, added if it is missing.
    pub fn symbol(&mut self, from: &Graph, to: &mut Graph, symbol: Symbol) -> Symbol {
        if symbol.index() < self.shared_symbols {
            return symbol;
        }
        if let Some(known) = self.symbols[symbol] {
            return known;
        }
        let new = to.intern(from.text(symbol));
        self.symbols.set(symbol, Some(new));
        self.learned.symbols.push(symbol);
        new
    }

    /// The function in `to` for `function` of `from`, added if it is missing.
    pub fn function(&mut self, from: &Graph, to: &mut Graph, function: FunctionId) -> FunctionId {
        if let Some(known) = self.functions[function] {
            return known;
        }
        let Function {
            name,
            base,
            external,
        } = *from.function_info(function);
        let new = match external {
            None => to.function(from.text(name)),
            Some(external) => {
                let external = self.external(from, to, external);
                let existing = to.functions().find(|(_, f)| f.external == Some(external));
                match existing {
                    Some((id, _)) => id,
                    None => to.external_function(from.text(name), from.text(base), external),
                }
            }
        };
        self.functions.set(function, Some(new));
        self.learned.functions.push(function);
        self.new_functions.push((function, new));
        new
    }

    /// The host value in `to` for `external` of `from`, added if it is missing.
    pub fn external(&mut self, from: &Graph, to: &mut Graph, external: ExternalId) -> ExternalId {
        if let Some(known) = self.externals[external] {
            return known;
        }
        let new = to.add_external(from.external_name(external));
        self.externals.set(external, Some(new));
        self.learned.externals.push(external);
        self.new_externals.push((external, new));
        new
    }

    /// The target in `to` for `target` of `from`.
    pub fn target(&mut self, from: &Graph, to: &mut Graph, target: Target) -> Target {
        match target {
            Target::Name(symbol) => Target::Name(self.symbol(from, to, symbol)),
            Target::Function(function) => Target::Function(self.function(from, to, function)),
        }
    }

    /// An argument of `from` as an argument of `to`, with each node in it replaced by the result of
    /// `node`.
    ///
    /// # Errors
    /// Those of `node`.
    pub fn arg<E: From<GraphError>>(
        &mut self,
        from: &Graph,
        to: &mut Graph,
        arg: &Arg,
        node: &mut dyn FnMut(NodeId) -> Result<Arg, E>,
    ) -> Result<Arg, E> {
        Ok(match arg {
            Arg::Node(id) => node(*id)?,
            Arg::Str(symbol) => Arg::Str(self.symbol(from, to, *symbol)),
            Arg::Opaque(external) => Arg::Opaque(self.external(from, to, *external)),
            Arg::Tuple(items) => Arg::Tuple(self.seq(from, to, items, node)?),
            Arg::List(items) => Arg::List(self.seq(from, to, items, node)?),
            Arg::Slice(items) => Arg::Slice(self.seq(from, to, items, node)?),
            Arg::Range(items) => Arg::Range(self.seq(from, to, items, node)?),
            Arg::NamedTuple(named) => {
                let class = self.external(from, to, named.0);
                Arg::NamedTuple(Box::new((class, self.seq(from, to, &named.1, node)?)))
            }
            Arg::Dict(dict) => {
                let entries = try_collect(dict.iter(), |(k, v)| {
                    Ok::<_, E>((self.arg(from, to, k, node)?, self.arg(from, to, v, node)?))
                })?;
                Arg::Dict(Dict::new(entries)?)
            }
            Arg::None
            | Arg::Ellipsis
            | Arg::Bool(_)
            | Arg::Int(_)
            | Arg::BigInt(_)
            | Arg::Float(_)
            | Arg::Complex(_)
            | Arg::Bytes(_)
            | Arg::DType(_)
            | Arg::Device(_)
            | Arg::Layout(_)
            | Arg::MemoryFormat(_) => arg.clone(),
        })
    }

    fn seq<E: From<GraphError>>(
        &mut self,
        from: &Graph,
        to: &mut Graph,
        items: &Seq,
        node: &mut dyn FnMut(NodeId) -> Result<Arg, E>,
    ) -> Result<Seq, E> {
        let items = try_collect(items.iter(), |item| self.arg(from, to, item, node))?;
        Ok(Seq::new(items)?)
    }

    /// An origin of `from` with the ids of `to`.
    pub fn origin(&mut self, from: &Graph, to: &mut Graph, origin: Origin) -> Origin {
        Origin {
            source: origin.source.map(|id| self.source(from, to, id)),
            scope: origin.scope.map(|id| self.scope(from, to, id)),
        }
    }

    fn source(&mut self, from: &Graph, to: &mut Graph, id: SourceId) -> SourceId {
        if let Some(known) = self.sources[id] {
            return known;
        }
        let source = match from.source(id) {
            Source::Line {
                file,
                line,
                function,
            } => Source::Line {
                file: self.symbol(from, to, file),
                line,
                function: self.symbol(from, to, function),
            },
            Source::Host { code, offset } => Source::Host {
                code: self.external(from, to, code),
                offset,
            },
        };
        let new = to.add_source(source);
        self.sources.set(id, Some(new));
        self.learned.sources.push(id);
        new
    }

    fn scope(&mut self, from: &Graph, to: &mut Graph, id: ScopeId) -> ScopeId {
        // Outermost first; chains are as deep as modules nest, so they are walked, not recursed.
        let mut missing = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next
            && self.scopes[id].is_none()
        {
            missing.push(id);
            next = from.scope(id).parent;
        }
        for id in missing.into_iter().rev() {
            let Scope {
                parent,
                path,
                class,
                call,
            } = from.scope(id);
            let parent = parent.and_then(|parent| self.scopes[parent]);
            let path = self.symbol(from, to, path);
            let class = self.external(from, to, class);
            let new = to.add_scope(Scope {
                parent,
                path,
                class,
                call,
            });
            self.scopes.set(id, Some(new));
            self.learned.scopes.push(id);
        }
        self.scopes[id].expect("set in the loop or before")
    }

    /// The specification of node `id` of `from` with the ids of `to`. Each node in its arguments is
    /// replaced by the result of `node`.
    ///
    /// # Errors
    /// Those of `node`.
    pub fn spec<E: From<GraphError>>(
        &mut self,
        from: &Graph,
        to: &mut Graph,
        id: NodeId,
        node: &mut dyn FnMut(NodeId) -> Result<Arg, E>,
    ) -> Result<NodeSpec, E> {
        let data = from.data(id);
        let target = self.target(from, to, data.target);
        let args = try_collect(data.args.iter(), |arg| self.arg(from, to, arg, node))?;
        let kwargs = try_collect(data.kwargs.iter(), |(key, arg)| {
            let key = self.symbol(from, to, *key);
            Ok::<_, E>((key, self.arg(from, to, arg, node)?))
        })?;
        let ty = data.ty.map(|ty| self.external(from, to, ty));
        Ok(NodeSpec {
            op: data.op,
            target,
            args,
            kwargs,
            ty,
        })
    }
}

impl Graph {
    /// Copies one node of `from` to the insertion point, under the same name where it is free.
    /// Each node in its arguments is replaced by the result of `node`.
    ///
    /// # Errors
    /// Those of `node`.
    pub fn copy_node<E: From<GraphError>>(
        &mut self,
        from: &Graph,
        id: NodeId,
        translation: &mut Translation,
        node: &mut dyn FnMut(NodeId) -> Result<Arg, E>,
    ) -> Result<NodeId, E> {
        let spec = translation.spec(from, self, id, node)?;
        self.check_arguments(&spec.args, &spec.kwargs)?;
        let name = translation.symbol(from, self, from.data(id).name);
        let name = self.names.create_copy(&mut self.strings, name);
        let copy = self.insert(spec, name);
        let origin = translation.origin(from, self, from.origin(id));
        self.set_origin(copy, origin);
        Ok(copy)
    }

    /// Copies the nodes of `from` that come before its first output node to the insertion point.
    ///
    /// `map` holds the counterparts of nodes of `from` that are already in this graph, and
    /// afterwards those of all copied ones. Returns the output node of `from` reached, if any, and
    /// its value in this graph.
    ///
    /// # Errors
    /// [`GraphError::UnknownNode`] if `from` uses a node before it is defined; nothing is copied
    /// then.
    pub fn copy_graph(
        &mut self,
        from: &Graph,
        map: &mut SecondaryMap<NodeId, Option<NodeId>>,
        translation: &mut Translation,
    ) -> Result<Option<(NodeId, Arg)>, GraphError> {
        let before_output = || {
            from.nodes()
                .take_while(|&id| from.data(id).op != Op::Output)
        };
        for id in before_output().filter(|&id| map[id].is_none()) {
            for input in from.inputs(id) {
                if map[input].is_none() && !from.is_before(input, id) {
                    return Err(GraphError::UnknownNode { node: input });
                }
            }
        }
        self.reserve_nodes(from.len(), from.edges.len());
        if self.strings.len() == PREDEFINED_STRINGS && from.strings.len() <= 2 * from.len() {
            // Nearly all of them will be wanted, and none has to be looked up.
            self.strings = from.strings.clone();
            translation.shared_symbols = from.strings.len();
        } else {
            self.strings.reserve_for(&from.strings);
        }
        for id in from.nodes() {
            if map[id].is_some() {
                continue;
            }
            let data = from.data(id);
            if data.op == Op::Output {
                let value = data.args.first().cloned().unwrap_or(Arg::None);
                let value = translation.arg(from, self, &value, &mut |n| mapped(map, n))?;
                return Ok(Some((id, value)));
            }
            let copy = self.copy_node(from, id, translation, &mut |n| mapped(map, n))?;
            map.set(id, Some(copy));
        }
        Ok(None)
    }

    /// Makes room for `nodes` more nodes and for the strings of `strings`: growing by doubling
    /// would touch the memory twice.
    pub(crate) fn reserve(&mut self, nodes: usize, strings: &Interner) {
        self.reserve_nodes(nodes, nodes);
        self.strings.reserve_for(strings);
    }

    fn reserve_nodes(&mut self, nodes: usize, edges: usize) {
        self.nodes.reserve(nodes);
        self.list.reserve(nodes);
        self.edges.reserve(edges);
    }

    /// A graph with the same nodes under the same names and nothing else: erased nodes and names
    /// that are no longer used are left out. `map` afterwards holds the copy of each node.
    ///
    /// # Errors
    /// As [`Graph::copy_graph`].
    pub fn compact_copy(
        &self,
        map: &mut SecondaryMap<NodeId, Option<NodeId>>,
        translation: &mut Translation,
    ) -> Result<Self, GraphError> {
        let mut copy = Self::new();
        if let Some((output, _)) = copy.copy_graph(self, map, translation)? {
            let new = copy.copy_node(self, output, translation, &mut |n| mapped(map, n))?;
            map.set(output, Some(new));
        }
        Ok(copy)
    }
}

/// `items` as `copy` makes them, in as much memory as they need: most nodes have one argument or
/// two, and growing starts with four.
fn try_collect<T, U, E>(
    items: impl ExactSizeIterator<Item = T>,
    mut copy: impl FnMut(T) -> Result<U, E>,
) -> Result<ThinVec<U>, E> {
    let mut copied = ThinVec::with_capacity(items.len());
    for item in items {
        copied.push(copy(item)?);
    }
    Ok(copied)
}

fn mapped(map: &SecondaryMap<NodeId, Option<NodeId>>, node: NodeId) -> Result<Arg, GraphError> {
    map[node]
        .map(Arg::Node)
        .ok_or(GraphError::UnknownNode { node })
}
