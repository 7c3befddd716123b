//! The configuration of each node: by module, by regular expression, by type, or for all.
//!
//! Configurations are numbers, places in a list that the host has; a node for which none is chosen
//! stays as it is. A module's name decides before a regular expression, which decides before the
//! type, which decides before the configuration for all; the parents of a module count where the
//! module itself has none. The number of a call among those of its type in a module decides first.
//!
//! Reference: `torch.ao.quantization.QConfigMapping`.

use corsac_ir::{FunctionId, Graph, NodeId, Op, Target};
use corsac_ops::Host;
use rustc_hash::FxHashMap;

use crate::modules::parents;

/// A configuration; none for values that are not to be quantised.
pub type Choice = Option<usize>;

/// A type of calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Of modules of exactly this class, by its qualified name.
    Class(String),
    /// Of a function of the graph.
    Function(FunctionId),
    /// Of a method.
    Method(String),
}

/// Calls by their number: in a module, of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The path of the module that makes the calls.
    pub module: String,
    /// Their type.
    pub kind: Kind,
    /// The number of the call among them, from 0.
    pub index: usize,
    /// Its configuration.
    pub choice: Choice,
}

/// Configurations by what nodes are.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// For all nodes.
    pub global: Choice,
    /// By type.
    pub kinds: FxHashMap<Kind, Choice>,
    /// By regular expression, already matched: by the path of the module.
    pub matched: FxHashMap<String, Choice>,
    /// By the path of the module.
    pub modules: FxHashMap<String, Choice>,
    /// By the number of the call.
    pub ordered: Vec<Ordered>,
}

/// The module in whose `forward` a node was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Its path; empty for the whole program.
    pub path: String,
    /// The qualified name of its class, if it is known.
    pub class: Option<String>,
}

/// The configurations of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// That of each node; observers have no entry.
    pub nodes: Vec<(NodeId, Choice)>,
    /// The places of those [`Mapping::ordered`] that no call has.
    pub unused: Vec<usize>,
}

/// Chooses the configuration of each node. `scopes` has the modules of nodes, by the names of the
/// nodes; `observers` are the paths of modules that are left out.
#[must_use]
pub fn choose(
    graph: &Graph,
    host: &dyn Host,
    mapping: &Mapping,
    scopes: &FxHashMap<String, Scope>,
    observers: &dyn Fn(&str) -> bool,
) -> Chosen {
    let whole = Scope::default();
    let mut counts: FxHashMap<(&str, Kind), usize> = FxHashMap::default();
    let mut used = vec![false; mapping.ordered.len()];
    let mut chosen = Chosen::default();
    for node in graph.nodes() {
        let view = graph.node(node);
        let scope = scopes.get(view.name()).unwrap_or(&whole);
        let own = scope.class.clone().map(Kind::Class);
        let choice = match (view.op(), view.target()) {
            (Op::Placeholder | Op::Output, _) => None,
            (Op::GetAttr, _) => {
                let owner = view
                    .target_name()
                    .rsplit_once('.')
                    .map_or("", |(owner, _)| owner);
                let class = host.module(owner).map(|info| Kind::Class(info.class));
                mapping.of(class.as_ref(), owner, mapping.global)
            }
            (Op::CallFunction, Target::Function(function)) => {
                let kind = Kind::Function(function);
                let fallback = mapping.kinds.get(&kind).copied().unwrap_or(mapping.global);
                let choice = mapping.of(own.as_ref(), &scope.path, fallback);
                mapping.by_number(&scope.path, Some(kind), choice, &mut counts, &mut used)
            }
            (Op::CallModule, _) => {
                let path = view.target_name();
                if observers(path) {
                    continue;
                }
                let class = host.module(path).map(|info| Kind::Class(info.class));
                let choice = mapping.of(class.as_ref(), path, mapping.global);
                let owner = scope.path.rsplit_once('.').map_or("", |(owner, _)| owner);
                mapping.by_number(owner, own, choice, &mut counts, &mut used)
            }
            (Op::CallMethod | Op::CallFunction, _) => {
                let kind = Kind::Method(view.target_name().to_owned());
                let choice = mapping.of(Some(&kind), &scope.path, mapping.global);
                mapping.of(own.as_ref(), &scope.path, choice)
            }
        };
        chosen.nodes.push((node, choice));
    }
    let unused = used.iter().enumerate().filter(|&(_, used)| !used);
    chosen.unused = unused.map(|(at, _)| at).collect();
    chosen
}

impl Mapping {
    /// The choice for a call of this type in or of the module at `path`.
    fn of(&self, kind: Option<&Kind>, path: &str, fallback: Choice) -> Choice {
        let by_path = |path: &str| self.modules.get(path).copied();
        if !path.is_empty() {
            let named = by_path(path).or_else(|| parents(path).find_map(by_path));
            if let Some(choice) = named {
                return choice;
            }
        }
        let matched = self.matched.get(path).copied();
        let of_kind = || kind.and_then(|kind| self.kinds.get(kind).copied());
        matched.or_else(of_kind).unwrap_or(fallback)
    }

    /// The choice for the next call of this type in a module.
    fn by_number<'g>(
        &self,
        module: &'g str,
        kind: Option<Kind>,
        otherwise: Choice,
        counts: &mut FxHashMap<(&'g str, Kind), usize>,
        used: &mut [bool],
    ) -> Choice {
        let Some(kind) = kind.filter(|_| !self.ordered.is_empty()) else {
            return otherwise;
        };
        let count = counts.entry((module, kind.clone())).or_default();
        let index = std::mem::replace(count, *count + 1);
        let is_it = |one: &Ordered| one.module == module && one.kind == kind && one.index == index;
        match self.ordered.iter().position(is_it) {
            Some(at) => {
                used[at] = true;
                self.ordered[at].choice
            }
            None => otherwise,
        }
    }
}
