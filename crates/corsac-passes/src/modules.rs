//! The modules that a graph calls, for passes that change them.

use corsac_ir::{Graph, Op};
use corsac_ops::{Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::Refusal;

/// The modules that a graph calls, and the attributes that it uses by itself.
pub(crate) struct Modules {
    /// The modules that are called, by path.
    pub(crate) by_path: FxHashMap<String, ModuleInfo>,
    /// Number of calls of each module, whatever its path.
    pub(crate) calls: FxHashMap<u64, usize>,
    /// For each module, an attribute of it that the graph uses by itself.
    pub(crate) attribute_of: FxHashMap<u64, String>,
    /// By path: the identity of every module on the way to a called one.
    pub(crate) identities: FxHashMap<String, u64>,
}

impl Modules {
    pub(crate) fn of_graph(graph: &Graph, host: &dyn Host) -> Self {
        let mut modules = Self {
            by_path: FxHashMap::default(),
            calls: FxHashMap::default(),
            attribute_of: FxHashMap::default(),
            identities: FxHashMap::default(),
        };
        let mut seen = FxHashSet::default();
        for node in graph.find_nodes(Op::CallModule, None) {
            let path = graph.node(node).target_name();
            if seen.insert(path)
                && let Some(info) = host.module(path)
            {
                modules.identities.insert(path.to_owned(), info.identity);
                modules.by_path.insert(path.to_owned(), info);
            }
            if let Some(info) = modules.by_path.get(path) {
                *modules.calls.entry(info.identity).or_default() += 1;
            }
        }
        let called: Vec<String> = modules.by_path.keys().cloned().collect();
        for path in called {
            for parent in parents(&path) {
                modules.identify(parent, host);
            }
        }
        for node in graph.find_nodes(Op::GetAttr, None) {
            let attribute = graph.node(node).target_name();
            for parent in parents(attribute) {
                if let Some(identity) = modules.identify(parent, host) {
                    modules
                        .attribute_of
                        .entry(identity)
                        .or_insert_with(|| attribute.to_owned());
                }
            }
        }
        modules
    }

    /// The refusal of a module that is called more than once.
    pub(crate) fn called_again(&self, path: &str, info: &ModuleInfo) -> Option<Refusal> {
        let calls = self.calls.get(&info.identity).copied().unwrap_or(0);
        (calls > 1).then(|| format!("{path} is called {calls} times").into())
    }

    fn identify(&mut self, path: &str, host: &dyn Host) -> Option<u64> {
        if let Some(&identity) = self.identities.get(path) {
            return Some(identity);
        }
        let identity = host.module(path)?.identity;
        self.identities.insert(path.to_owned(), identity);
        Some(identity)
    }
}

/// The refusal of a module that does more than its class.
pub(crate) fn hooked(path: &str, info: &ModuleInfo) -> Option<Refusal> {
    let hooked = info.hooks || info.impure == Some(true);
    hooked.then(|| format!("{path} has hooks or declares side effects").into())
}

/// The parents of a path: `a.b` and `a` for `a.b.c`.
pub(crate) fn parents(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.rsplit_once('.')?.0;
        Some(rest)
    })
}
