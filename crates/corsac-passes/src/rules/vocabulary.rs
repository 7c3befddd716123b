//! The functions, methods, keywords and strings that results of rules use, entered into a graph.

use corsac_ir::{FunctionId, Graph, Op, Symbol, Target};
use rustc_hash::FxHashMap;

use super::rule::{Callee, Literal, Place, Replacement, Value};
use super::rule_set::RuleSet;
use super::search::Targets;

/// The names that the results of a set of rules use, entered into one graph.
pub(crate) struct Vocabulary {
    functions: FxHashMap<String, FunctionId>,
    /// Names of methods and keywords.
    symbols: FxHashMap<String, Symbol>,
}

impl Vocabulary {
    /// Enters all names into `graph`. `functions` maps names to functions of the graph; other
    /// functions are called by name only.
    pub(crate) fn enter(
        set: &RuleSet,
        graph: &mut Graph,
        functions: &FxHashMap<String, FunctionId>,
    ) -> Self {
        let mut own = Self {
            functions: FxHashMap::default(),
            symbols: FxHashMap::default(),
        };
        for rule in set.rules() {
            own.add(&rule.replacement, graph, functions);
        }
        own
    }

    /// Enters the names that one replacement uses.
    pub(crate) fn add(
        &mut self,
        replacement: &Replacement,
        graph: &mut Graph,
        functions: &FxHashMap<String, FunctionId>,
    ) {
        for call in &replacement.calls {
            match &call.callee {
                Callee::Function(name) => {
                    let id = functions.get(name).copied();
                    let id = id.unwrap_or_else(|| graph.function(name));
                    self.functions.insert(name.clone(), id);
                }
                Callee::Method(name) => {
                    self.symbols.insert(name.clone(), graph.intern(name));
                }
                Callee::Module(place) | Callee::Attribute(place) => enter_place(graph, place),
            }
            for (key, value) in &call.kwargs {
                self.symbols.insert(key.clone(), graph.intern(key));
                intern(graph, value);
            }
            call.args.iter().for_each(|value| intern(graph, value));
        }
        replacement.values.iter().for_each(|v| intern(graph, v));
    }

    /// The symbol of a keyword.
    pub(crate) fn symbol(&self, keyword: &str) -> Symbol {
        self.symbols[keyword]
    }

    /// The opcode and target of a new node, if they are the same for all matches.
    pub(crate) fn target(&self, graph: &Graph, callee: &Callee) -> Option<(Op, Target)> {
        let own = |place: &Place| match place.of {
            None => Some(Target::Name(graph.lookup(&place.path)?)),
            Some(_) => None,
        };
        Some(match callee {
            Callee::Function(name) => (Op::CallFunction, Target::Function(self.functions[name])),
            Callee::Method(name) => (Op::CallMethod, Target::Name(self.symbols[name])),
            Callee::Module(place) => (Op::CallModule, own(place)?),
            Callee::Attribute(place) => (Op::GetAttr, own(place)?),
        })
    }

    /// Adds the methods that new nodes call to `targets`.
    pub(crate) fn add_methods_to(&self, targets: &mut Targets, graph: &Graph, set: &RuleSet) {
        for callee in set.callees() {
            if let Callee::Method(name) = callee {
                targets.set_method(graph, set, self.symbols[name]);
            }
        }
    }
}

/// Enters all paths that a place may stand for.
fn enter_place(graph: &mut Graph, place: &Place) {
    if place.of.is_none() {
        graph.intern(&place.path);
        return;
    }
    let calls = graph.find_nodes(Op::CallModule, None).into_iter();
    let paths: Vec<String> = calls
        .map(|node| place.from(graph.node(node).target_name()))
        .collect();
    for path in paths {
        graph.intern(&path);
    }
}

/// Enters the strings in a value.
fn intern(graph: &mut Graph, value: &Value) {
    match value {
        Value::Literal(Literal::Str(text)) => {
            graph.intern(text);
        }
        Value::Computed(_, items) | Value::List(items) | Value::Tuple(items) => {
            items.iter().for_each(|item| intern(graph, item));
        }
        Value::Slice(parts) => parts.iter().for_each(|part| intern(graph, part)),
        Value::Literal(_) | Value::Variable(_) | Value::New(_) | Value::Splice(_) => {}
    }
}
