//! Decomposes calls: each call that has a rule is replaced by the nodes that the rule records.
//!
//! Retraces the program; a call of a function, a method or a module of a class that has a rule is
//! recorded by the rule, with proxies. Rules are not applied to nodes that rules record.
//!
//! Needs: rules that compute the same as the calls. A rule may decline.
//!
//! Preserves: origins: nodes that a rule records have the origin of the call, and the value has the
//! call's name. Each call is one change of the budget.
//!
//! ```text
//! relu = relu(x)      →      gt = x > 0
//!                            relu = gt * x
//! ```
//!
//! ```
//! use corsac_ir::proxy::trace;
//! use corsac_ops::Unhosted;
//! use corsac_passes::Budget;
//! use corsac_passes::decompose::{Decomposition, decompose};
//!
//! let graph = trace(|g| {
//!     let x = g.placeholder("x");
//!     g.call_function("torch.relu", [x])
//! })?;
//! let rules = Decomposition::new().function("torch.relu", |_, call| {
//!     let x = call.proxy(0);
//!     Some((x.clone().gt(0) * x).into())
//! });
//! let decomposed = decompose(&graph, &Unhosted, &rules, &mut Budget::unlimited())?;
//! assert_eq!(decomposed.graph.len(), 4);
//! assert_eq!(decomposed.report.applied().count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reference: FX's documentation, "Proxy/Retracing"; `torch/_decomp`.

use std::cell::Cell;
use std::rc::Rc;

use corsac_ir::proxy::{TraceError, Tracer, Value};
use corsac_ir::rewrite::{Call, Retraced, Rules, retrace_where};
use corsac_ir::{Arg, Graph, NodeId, Op};
use corsac_ops::Host;
use rustc_hash::FxHashMap;

use crate::budget::Budget;
use crate::edits::Added;
use crate::report::{Report, Site};

type Rule<'r> = Rc<dyn Fn(&Tracer, &Call<'_>) -> Option<Value> + 'r>;

/// Rules for decomposing calls. A rule returns the value, or `None` to leave the call as it is.
#[derive(Clone, Default)]
pub struct Decomposition<'r> {
    calls: Vec<(Op, String, Rule<'r>)>,
    classes: FxHashMap<String, Rule<'r>>,
}

impl<'r> Decomposition<'r> {
    /// No rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule for calls of the function with this qualified name.
    #[must_use]
    pub fn function(
        mut self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> Option<Value> + 'r,
    ) -> Self {
        let rule: Rule<'r> = Rc::new(rule);
        self.calls.push((Op::CallFunction, name.to_owned(), rule));
        self
    }

    /// Adds a rule for calls of the method called `name`; the object is the first argument.
    #[must_use]
    pub fn method(
        mut self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> Option<Value> + 'r,
    ) -> Self {
        let rule: Rule<'r> = Rc::new(rule);
        self.calls.push((Op::CallMethod, name.to_owned(), rule));
        self
    }

    /// Adds a rule for calls of modules of this class, by qualified name
    /// (`torch.nn.modules.linear.Linear`); their path is [`Call::target`].
    #[must_use]
    pub fn class(
        mut self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> Option<Value> + 'r,
    ) -> Self {
        self.classes.insert(name.to_owned(), Rc::new(rule));
        self
    }

    /// The rules for the calls of one graph; `made` counts the calls that they replace.
    fn of_graph(&self, graph: &Graph, host: &dyn Host, made: &Rc<Cell<u64>>) -> Rules<'r> {
        let counted = |rule: &Rule<'r>| {
            let (rule, made) = (Rc::clone(rule), Rc::clone(made));
            move |tracer: &Tracer, call: &Call<'_>| {
                let value = rule(tracer, call)?;
                made.set(made.get() + 1);
                Some(value)
            }
        };
        let mut rules = Rules::new();
        for (op, name, rule) in &self.calls {
            rules = rules.declining(*op, name, counted(rule));
        }
        for id in graph.find_nodes(Op::CallModule, None) {
            let path = graph.node(id).target_name();
            if rules.has(Op::CallModule, path) {
                continue;
            }
            let info = host.module(path).filter(|info| !info.hooks);
            if let Some(rule) = info.and_then(|info| self.classes.get(&info.class)) {
                rules = rules.declining(Op::CallModule, path, counted(rule));
            }
        }
        rules
    }
}

/// A program with decomposed calls.
#[derive(Debug)]
pub struct Decomposed {
    /// The program.
    pub graph: Graph,
    /// Its nodes, each with the node of the original that it comes from.
    pub added: Vec<Added>,
    /// Every call for which there is a rule.
    pub report: Report,
}

/// Decomposes the calls of `graph` that have a rule.
///
/// # Errors
/// [`TraceError`] lists everything that the rules could not record.
pub fn decompose(
    graph: &Graph,
    host: &dyn Host,
    rules: &Decomposition<'_>,
    budget: &mut Budget,
) -> Result<Decomposed, TraceError> {
    let made = Rc::new(Cell::new(0));
    let rules = rules.of_graph(graph, host, &made);
    // A rule that declines costs nothing.
    let left = budget.left();
    let wanted = |_: NodeId| left.is_none_or(|left| made.get() < left);
    let mut retraced = retrace_where(graph, &rules, wanted)?;
    let origins: FxHashMap<NodeId, NodeId> = retraced.origins.iter().copied().collect();
    for (node, outcome) in &retraced.calls {
        // The value that a rule returns may be an existing node, which keeps its own name.
        if let Retraced::Replaced(Arg::Node(value)) = outcome
            && origins.get(value) == Some(node)
        {
            let renamed = retraced.graph.rename(*value, graph.node(*node).name());
            debug_assert!(renamed.is_ok(), "the node is of this graph");
        }
    }
    let mut values: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    budget.take_up_to(usize::try_from(made.get()).unwrap_or(usize::MAX));
    let sites = retraced.calls.iter().map(|(node, outcome)| {
        let reason = match outcome {
            Retraced::Replaced(value) => {
                if let Some(value) = value.as_node() {
                    values.insert(*node, value);
                }
                None
            }
            Retraced::Declined => Some("the rule leaves it as it is".to_owned()),
            Retraced::Kept => Some(Budget::EXHAUSTED.to_owned()),
        };
        Site::new(graph, *node, None, reason)
    });
    let report = Report {
        pass: "decomposition".to_owned(),
        sites: sites.collect(),
        nodes_before: graph.len(),
        nodes_after: retraced.graph.len(),
    };
    let added = retraced.origins.iter().map(|&(node, root)| Added {
        node,
        root,
        has_its_value: values.get(&root).is_none_or(|&value| value == node),
    });
    let added = added.collect();
    Ok(Decomposed {
        added,
        report,
        graph: retraced.graph,
    })
}

#[cfg(test)]
mod tests {
    use corsac_ir::FunctionId;
    use corsac_ir::proxy::trace;
    use corsac_ops::{FunctionInfo, ModuleInfo, Unhosted};

    use super::*;

    struct Gates;

    impl Host for Gates {
        fn module(&self, path: &str) -> Option<ModuleInfo> {
            Some(ModuleInfo {
                class: "torch.nn.modules.activation.SiLU".to_owned(),
                hooks: path == "hooked",
                ..ModuleInfo::default()
            })
        }

        fn function(&self, _: &Graph, _: FunctionId) -> FunctionInfo {
            FunctionInfo::ByName
        }
    }

    fn program() -> Graph {
        let traced = trace(|g| {
            let x = g.placeholder("x");
            let a = g.call_module("gate", [x]);
            let b = g.call_module("hooked", [a]);
            g.call_function("torch.relu", [b.method("square", ())])
        });
        traced.unwrap()
    }

    fn rules() -> Decomposition<'static> {
        Decomposition::new()
            .class("torch.nn.modules.activation.SiLU", |g, call| {
                assert_eq!(call.target(), "gate");
                let x = call.proxy(0);
                Some((g.call_function("torch.sigmoid", [x.clone()]) * x).into())
            })
            .method("square", |_, call| {
                let x = call.proxy(0);
                Some((x.clone() * x).into())
            })
            .function("torch.relu", |_, _| None)
    }

    #[test]
    fn classes_methods_and_functions_are_taken_apart() {
        let graph = program();
        let done = decompose(&graph, &Gates, &rules(), &mut Budget::unlimited()).unwrap();
        done.graph.verify().unwrap();
        let names = done.graph.nodes().map(|id| done.graph.node(id).name());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["x", "sigmoid", "gate", "hooked", "square", "relu", "output"]
        );
        let reasons = done.report.sites.iter().map(|site| site.reason.as_deref());
        let declined = Some("the rule leaves it as it is");
        assert_eq!(reasons.collect::<Vec<_>>(), [None, None, declined]);
        let (sigmoid, gate) = (done.added[1], done.added[2]);
        assert_eq!(graph.node(sigmoid.root).name(), "gate");
        assert!(!sigmoid.has_its_value && gate.has_its_value);
    }

    #[test]
    fn a_budget_is_used_in_order() {
        let graph = program();
        let mut budget = Budget::of(1);
        let done = decompose(&graph, &Gates, &rules(), &mut budget).unwrap();
        assert_eq!((budget.spent(), done.report.applied().count()), (1, 1));
        let reason = done.report.sites[1].reason.as_deref();
        assert_eq!(reason, Some(Budget::EXHAUSTED));
        let none = Decomposition::new();
        let same = decompose(&graph, &Unhosted, &none, &mut budget).unwrap();
        assert_eq!(same.graph.to_lossless(), graph.to_lossless());
    }
}
