//! The names in generated code: of values, and of the globals that the code refers to.
//!
//! All of them come from one name space, so that a global never hides a value. torch.fx names
//! things in the order in which it writes them. Nearly always every value keeps the name it has in
//! the graph and every global the name in its hint, and then order is of no consequence: that is
//! tried first, without a name space. At the first clash ([`Clash`]) the analysis starts over with
//! one and names everything in torch.fx's order.

use corsac_ir::namespace::{Namespace, identifier, is_reserved, reserved_names};
use corsac_ir::{EntityId, Graph, Interner, Node, NodeId, SecondaryMap, Symbol};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attribute::is_identifier;
use crate::host::{Global, GlobalValue};

/// The error that not every name can be kept.
#[derive(Debug)]
pub(crate) struct Clash;

/// Hands out names.
pub(crate) struct Namer<'g> {
    graph: &'g Graph,
    order: Order,
    globals: Vec<(String, GlobalValue)>,
    by_value: FxHashMap<GlobalValue, usize>,
    fresh: FxHashSet<Box<str>>,
}

enum Order {
    /// Everything keeps its name: the symbols that name values.
    Any(Vec<u64>),
    /// Names are given out one after the other.
    Written(Box<Written>),
}

struct Written {
    strings: Interner,
    space: Namespace,
    named: SecondaryMap<NodeId, bool>,
    renamed: FxHashMap<NodeId, Box<str>>,
}

/// The names of the finished analysis.
pub(crate) struct Names {
    /// Values whose name differs from that in the graph.
    pub(crate) renamed: FxHashMap<NodeId, Box<str>>,
    /// Globals in the order of their first mention.
    pub(crate) globals: Vec<(String, GlobalValue)>,
}

impl<'g> Namer<'g> {
    /// Names for a graph in which every value keeps its own, as long as nothing clashes.
    pub(crate) fn keeping(graph: &'g Graph) -> Self {
        Self::with(graph, Order::Any(Vec::new()))
    }

    /// Names given out in the order of the requests.
    pub(crate) fn in_order(graph: &'g Graph, own: &[&str]) -> Self {
        let mut strings = Interner::new();
        let mut space = Namespace::new();
        for name in own {
            space.mark_used(strings.intern(name));
        }
        Self::with(
            graph,
            Order::Written(Box::new(Written {
                strings,
                space,
                named: SecondaryMap::with_capacity(graph.id_bound()),
                renamed: FxHashMap::default(),
            })),
        )
    }

    fn with(graph: &'g Graph, order: Order) -> Self {
        Self {
            graph,
            order,
            globals: Vec::new(),
            by_value: FxHashMap::default(),
            fresh: FxHashSet::default(),
        }
    }

    /// Records a node of the graph, before or after its value is mentioned.
    #[inline]
    pub(crate) fn declare(&mut self, node: Node<'_>) -> Result<(), Clash> {
        let Order::Any(taken) = &mut self.order else {
            return Ok(());
        };
        let index = node.name_symbol().index();
        if index / 64 >= taken.len() {
            taken.resize(index / 64 + 1, 0u64);
        }
        let (word, bit) = (&mut taken[index / 64], 1 << (index % 64));
        // Keywords are among the reserved names.
        if *word & bit != 0 || !is_identifier(node.name()) {
            return Err(Clash);
        }
        *word |= bit;
        Ok(())
    }

    /// Checks the names that were kept against those that no value may have, `own` among them.
    /// To be called after the last node was declared.
    pub(crate) fn check(&self, own: &[&str]) -> Result<(), Clash> {
        let Order::Any(taken) = &self.order else {
            return Ok(());
        };
        let given = self.fresh.iter().map(|name| &**name);
        let mut forbidden = reserved_names().iter().chain(own).copied().chain(given);
        let is_taken = |name| self.graph.lookup(name).is_some_and(|s| contains(taken, s));
        if forbidden.any(is_taken) || own.iter().any(|name| self.fresh.contains(*name)) {
            return Err(Clash);
        }
        Ok(())
    }

    /// Names a value, where that was not done before.
    #[inline]
    pub(crate) fn value(&mut self, id: NodeId) -> Result<(), Clash> {
        let written = match &mut self.order {
            // The name of an erased node may be another node's by now.
            Order::Any(_) if self.graph.node(id).is_erased() => return Err(Clash),
            Order::Any(_) => return Ok(()),
            Order::Written(written) => written,
        };
        if !written.named[id] {
            written.named.set(id, true);
            let own = self.graph.node(id).name();
            let name = written.space.create(&mut written.strings, own, false);
            let name = written.strings.resolve(name);
            if name != own {
                written.renamed.insert(id, name.into());
            }
        }
        Ok(())
    }

    /// The name of a global, which is added if it is new.
    pub(crate) fn global(&mut self, global: &Global) -> Result<&str, Clash> {
        if let Some(&index) = self.by_value.get(&global.value) {
            return Ok(&self.globals[index].0);
        }
        let name = self.name(&global.hint, global.is_builtin)?;
        let index = self.globals.len();
        self.globals.push((name, global.value.clone()));
        self.by_value.insert(global.value.clone(), index);
        Ok(&self.globals[index].0)
    }

    /// A name that nothing else has.
    pub(crate) fn name(&mut self, hint: &str, is_builtin: bool) -> Result<String, Clash> {
        if let Order::Written(written) = &mut self.order {
            let name = written.space.create(&mut written.strings, hint, is_builtin);
            return Ok(written.strings.resolve(name).to_owned());
        }
        let name = identifier(hint);
        if (is_reserved(&name) && !is_builtin) || !self.fresh.insert(name.as_str().into()) {
            return Err(Clash);
        }
        Ok(name)
    }

    /// Whether a value of the graph is called `name` in the graph. Known after the last node was
    /// declared.
    pub(crate) fn names_value(&self, name: &str) -> bool {
        self.graph
            .lookup(name)
            .is_some_and(|symbol| match &self.order {
                Order::Any(taken) => contains(taken, symbol),
                Order::Written(_) => self
                    .graph
                    .nodes()
                    .any(|id| self.graph.node(id).name_symbol() == symbol),
            })
    }

    /// Whether a global is called `name`.
    pub(crate) fn is_global(&self, name: &str) -> bool {
        self.globals.iter().any(|(global, _)| global == name)
    }

    /// The names given out.
    pub(crate) fn finish(self) -> Names {
        Names {
            renamed: match self.order {
                Order::Any(_) => FxHashMap::default(),
                Order::Written(written) => written.renamed,
            },
            globals: self.globals,
        }
    }
}

fn contains(taken: &[u64], symbol: Symbol) -> bool {
    let index = symbol.index();
    taken
        .get(index / 64)
        .is_some_and(|word| word >> (index % 64) & 1 == 1)
}
