//! The modules that a graph calls, and which of them may be changed.

use corsac_ir::{Graph, Op};
use corsac_ops::{Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use super::operand::{Layer, Norm};
use super::{batch_statistics, in_training};
use crate::report::Refusal;

/// The modules that a graph calls, and the attributes that it uses by itself.
pub(super) struct Modules {
    pub(super) by_path: FxHashMap<String, ModuleInfo>,
    /// Number of calls of each module, whatever its path.
    pub(super) calls: FxHashMap<u64, usize>,
    /// For each module, an attribute of it that the graph uses by itself.
    pub(super) attribute_of: FxHashMap<u64, String>,
    /// By path: the identity of every module on the way to a called one.
    pub(super) identities: FxHashMap<String, u64>,
}

impl Modules {
    pub(super) fn of_graph(graph: &Graph, host: &dyn Host) -> Self {
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

    /// Why the modules of a layer and a batch norm cannot be merged, if they cannot.
    pub(super) fn refusal(
        &self,
        layer: &Layer,
        of_layer: Option<&ModuleInfo>,
        norm: &Norm,
        of_norm: Option<&ModuleInfo>,
    ) -> Option<Refusal> {
        if let Some(info) = of_layer {
            let calls = self.calls.get(&info.identity).copied().unwrap_or(0);
            if calls > 1 {
                return Some(format!("{} is called {calls} times", layer.name).into());
            }
        }
        for (info, path) in [(of_norm, &norm.name), (of_layer, &layer.name)] {
            let Some(info) = info else { continue };
            if info.training {
                return Some(in_training(path));
            }
            if info.hooks || info.impure == Some(true) {
                return Some(format!("{path} has hooks or declares side effects").into());
            }
            if let Some(attribute) = self.attribute_of.get(&info.identity) {
                return Some(format!("the graph uses {attribute} by itself").into());
            }
        }
        if of_norm.is_some_and(|info| !info.tracks_statistics) {
            return Some(batch_statistics(&norm.name));
        }
        of_layer?;
        parents(&layer.name).find_map(|parent| {
            let identity = self.identities.get(parent)?;
            self.calls.contains_key(identity).then(|| {
                let layer = &layer.name;
                format!("{layer} is part of {parent}, which is called as a whole").into()
            })
        })
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

/// The parents of a path: `a.b` and `a` for `a.b.c`.
pub(super) fn parents(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.rsplit_once('.')?.0;
        Some(rest)
    })
}
