//! Removes dropouts that are the identity.
//!
//! A dropout in evaluation returns its input; its users use the input instead, and it is removed:
//! modules (`nn.Dropout`, `nn.Dropout1d` to `3d`, `nn.AlphaDropout`, `nn.FeatureAlphaDropout`) and
//! functions with `training=False`. With [`RemoveDropout::in_training`], modules in training mode are
//! removed too, as by torch.fx's `remove_dropout`; the program then computes the results of
//! evaluation.
//!
//! Needs: nothing.
//!
//! Preserves: order, names and metadata of the nodes that stay.
//!
//! ```text
//! linear = self.linear(x)
//! drop = self.drop(linear)      →   linear = self.linear(x)
//! relu = self.relu(drop)            relu = self.relu(linear)
//! ```
//!
//! Reference: N. Srivastava et al., "Dropout: a simple way to prevent neural networks from
//! overfitting", JMLR 2014.

use corsac_ir::{Arg, Graph, Node, NodeId, Op};
use corsac_ops::{AliasClasses, Catalogue, Family, Host, OperatorId, When, is_operator};
use rustc_hash::FxHashMap;

use crate::error::PassError;
use crate::pass::{Changes, Context, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};

/// It drops at random.
const TRAINING: Refusal = Refusal::because("it is in training mode");
const HOOKS: Refusal = Refusal::because("it has hooks or declares side effects");
const ARGUMENTS: Refusal =
    Refusal::because("it is called with other arguments than a tensor, a probability and modes");
/// It makes a copy in training mode, which is written to or whose source is.
const WRITTEN: Refusal =
    Refusal::because("its input or its result is written to, and they would be one tensor");

/// The pass, with its options.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveDropout {
    /// Whether modules in training mode are removed too.
    pub in_training: bool,
}

impl Pass for RemoveDropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        option == "in_training" && setting.put_flag(&mut self.in_training)
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let mut catalogue = Catalogue::new(context.host);
        let mut written: Option<Written> = None;
        let mut sites = Vec::new();
        // Dropouts to remove, with the values that are left in their places.
        let mut replaced: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        let mut pairs = Vec::new();
        for node in graph.nodes() {
            let view = graph.node(node);
            let decision = match view.op() {
                Op::CallModule => decide_module(view, context.host, self.in_training, || {
                    let written =
                        written.get_or_insert_with(|| Written::of_graph(graph, &mut catalogue));
                    written.touches(graph, node)
                }),
                Op::CallFunction if calls_dropout(view) => {
                    Some(decide_function(graph, &mut catalogue, node))
                }
                _ => None,
            };
            let Some(decision) = decision else { continue };
            let granted = decision.and_then(|input| context.budget.grant(input));
            if let Ok(input) = granted {
                let kept = replaced.get(&input).copied().unwrap_or(input);
                replaced.insert(node, kept);
                pairs.push((node, kept));
            }
            sites.push(Site::new(graph, node, granted.err()));
        }
        Ok(Plan {
            sites,
            changes: Changes::Replace(pairs),
            ..Plan::default()
        })
    }
}

/// The input that a dropout module returns, or why it stays; `None` if it is no dropout.
fn decide_module(
    node: Node<'_>,
    host: &dyn Host,
    in_training: bool,
    is_written: impl FnOnce() -> bool,
) -> Option<Result<NodeId, Refusal>> {
    let info = host.module(node.target_name())?;
    if !info.is_dropout() {
        return None;
    }
    let input = match (node.args(), node.kwargs()) {
        ([arg], []) => arg.as_node(),
        ([], [(_, arg)]) => node.kwarg("input").and(arg.as_node()),
        _ => None,
    };
    Some(match input {
        _ if info.training && !in_training => Err(TRAINING),
        _ if info.hooks || info.impure == Some(true) => Err(HOOKS),
        None => Err(ARGUMENTS),
        // In evaluation the result is the input itself, so that writes to one change the other
        // before the pass as after it.
        Some(_) if info.training && !info.inplace && is_written() => Err(WRITTEN),
        Some(input) => Ok(input),
    })
}

/// Whether `node` calls a function that returns its input where nothing is dropped.
fn calls_dropout(node: Node<'_>) -> bool {
    OperatorId::of(node.op(), node.target_name()).is_some_and(|operator| {
        operator.family() == Family::Dropout
            && !is_operator!(operator, "native_dropout" | "stochastic_depth")
    })
}

/// The input that a dropout function returns where its training flag is known to be false.
fn decide_function(
    graph: &Graph,
    catalogue: &mut Catalogue<'_>,
    node: NodeId,
) -> Result<NodeId, Refusal> {
    let view = graph.node(node);
    let flag = ["training", "train"];
    let flag = flag.iter().find_map(|name| view.kwarg(name));
    let evaluation = match view.args().get(2).or(flag) {
        Some(Arg::Bool(training)) => !training,
        Some(_) => false,
        // Without a flag, the default decides; for an operator it is required.
        None => {
            let by_default = catalogue.behaviour(graph, node).map(|b| b.random.clone());
            matches!(by_default, Some(When::If(_, false)))
        }
    };
    if !evaluation {
        return Err(TRAINING);
    }
    let input = view.args().first().or_else(|| view.kwarg("input"));
    input.and_then(Arg::as_node).ok_or(ARGUMENTS)
}

/// Whether `node` calls a dropout that drops something, and not in place.
fn makes_a_copy(node: Node<'_>, host: &dyn Host) -> bool {
    node.op() == Op::CallModule
        && host.module(node.target_name()).is_some_and(|info| {
            let drops = info.training && !info.inplace && info.dropout != 0.0;
            info.is_dropout() && drops && !info.hooks && info.impure.is_none()
        })
}

/// The values that are written to.
struct Written {
    classes: AliasClasses,
    by_class: Vec<bool>,
}

impl Written {
    fn of_graph(graph: &Graph, catalogue: &mut Catalogue<'_>) -> Self {
        let mut classes = AliasClasses::new(graph);
        for node in graph.nodes() {
            let mut effects = catalogue.effects(graph, node);
            // Only the dropout of an empty tensor is that tensor, with nothing to write to.
            if makes_a_copy(graph.node(node), catalogue.host()) {
                effects.aliases.clear();
            }
            classes.add(graph, catalogue, node, &effects);
        }
        classes.finish();
        let mut by_class = vec![false; graph.id_bound()];
        for node in graph.nodes() {
            let effects = catalogue.effects(graph, node);
            for &written in &effects.mutates {
                by_class[classes.class(written).index()] = true;
            }
        }
        Self { classes, by_class }
    }

    /// Whether the value of `node` or one of its inputs is written to.
    fn touches(&self, graph: &Graph, node: NodeId) -> bool {
        let written = |n| self.by_class[self.classes.class(n).index()];
        written(node) || graph.inputs(node).any(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Report;
    use crate::pass::testing::run_on;
    use corsac_ops::{FunctionInfo, ModuleInfo};

    fn remove(graph: &mut Graph, host: &dyn Host, in_training: bool) -> Report {
        run_on(&RemoveDropout { in_training }, graph, host)
    }

    /// One dropout, `drop`.
    struct Drop(ModuleInfo);

    impl Drop {
        fn new(training: bool) -> Self {
            Self(ModuleInfo {
                class: "torch.nn.modules.dropout.Dropout".to_owned(),
                training,
                ..ModuleInfo::default()
            })
        }
    }

    impl Host for Drop {
        fn module(&self, path: &str) -> Option<ModuleInfo> {
            (path == "drop").then(|| self.0.clone())
        }

        fn function(&self, _: &Graph, _: corsac_ir::FunctionId) -> FunctionInfo {
            FunctionInfo::ByName
        }
    }

    /// `y = neg(x); drop(y); relu_ or relu of it`.
    fn program(then: &str) -> (Graph, NodeId, NodeId) {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let neg = graph.call_method("neg", [x.into()]).unwrap();
        let drop = graph.call_module("drop", [neg.into()]).unwrap();
        let relu = graph.call_method(then, [drop.into()]).unwrap();
        graph
            .output(Arg::tuple([neg.into(), relu.into()]).unwrap())
            .unwrap();
        (graph, neg, relu)
    }

    #[test]
    fn a_module_in_evaluation_goes() {
        let (mut graph, neg, relu) = program("relu_");
        let report = remove(&mut graph, &Drop::new(false), false);
        assert_eq!(report.edits.erased.len(), 1);
        assert_eq!(graph.inputs(relu).collect::<Vec<_>>(), [neg]);
    }

    #[test]
    fn a_module_in_training_stays_unless_asked_for_and_nothing_writes() {
        let training = Drop::new(true);
        let (mut graph, ..) = program("relu");
        let report = remove(&mut graph, &training, false);
        assert_eq!(report.sites[0].refusal, Some(TRAINING));

        assert_eq!(remove(&mut graph, &training, true).edits.erased.len(), 1);

        let (mut graph, ..) = program("relu_");
        let report = remove(&mut graph, &training, true);
        assert_eq!(report.sites[0].refusal, Some(WRITTEN));
    }

    #[test]
    fn functions_go_where_they_are_known_not_to_train() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let cases: [(&str, &[Arg], bool); 6] = [
            ("torch.nn.functional.dropout", &[], false),
            ("torch.nn.functional.alpha_dropout", &[], true),
            (
                "torch.nn.functional.dropout2d",
                &[Arg::Float(0.5), Arg::Bool(false)],
                true,
            ),
            ("torch.dropout", &[Arg::Float(0.5), Arg::Bool(true)], false),
            (
                "torch.ops.aten.dropout.default",
                &[Arg::Float(0.5), Arg::Bool(false)],
                true,
            ),
            ("mine.dropout", &[Arg::Float(0.5), Arg::Bool(false)], false),
        ];
        for (name, rest, _) in cases {
            let function = graph.function(name);
            let args: corsac_ir::ThinVec<Arg> = std::iter::once(x.into())
                .chain(rest.iter().cloned())
                .collect();
            graph.call_function(function, args).unwrap();
        }
        let report = remove(&mut graph, &corsac_ops::Unhosted, false);
        for (name, _, goes) in cases {
            let site = report.sites.iter().find(|s| s.target == name);
            assert_eq!(site.is_some_and(|s| s.refusal.is_none()), goes, "{name}");
        }
    }
}
