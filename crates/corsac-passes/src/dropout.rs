//! Removes dropouts that are the identity.
//!
//! A dropout in evaluation returns its input; its users use the input instead, and it is removed:
//! modules (`nn.Dropout`, `nn.Dropout1d` to `3d`, `nn.AlphaDropout`, `nn.FeatureAlphaDropout`) and
//! functions with `training=False`. With [`Options::in_training`], modules in training mode are
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
use corsac_ops::{AliasClasses, Catalogue, Host, When};
use thiserror::Error;

use crate::budget::Budget;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report::{Report as Done, Site as Place};

/// Options of the removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether modules in training mode are removed too.
    pub in_training: bool,
}

/// A dropout, with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The node, erased where it was removed.
    pub node: NodeId,
    /// The target that it calls.
    pub target: String,
    /// Why it stays, if it does.
    pub refusal: Option<Refusal>,
}

/// Every dropout of the graph, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The sites.
    pub sites: Vec<Site>,
}

impl Report {
    /// Whether the graph has changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.removed() > 0
    }

    /// Number of dropouts removed.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.sites.iter().filter(|s| s.refusal.is_none()).count()
    }
}

/// The pass, with its options.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemoveDropout(pub Options);

impl Pass for RemoveDropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> Result<Done, PassError> {
        let nodes_before = graph.len();
        let report = remove(graph, context.host, self.0, &mut context.budget)?;
        let sites = report.sites.iter().map(|site| {
            let reason = site.refusal.as_ref().map(ToString::to_string);
            Place::new(graph, site.node, None, reason)
        });
        Ok(Done {
            pass: self.name().to_owned(),
            sites: sites.collect(),
            nodes_before,
            nodes_after: graph.len(),
        })
    }
}

/// Why a dropout stays.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It drops at random.
    #[error("it is in training mode")]
    Training,
    /// It has hooks, or declares side effects.
    #[error("it has hooks or declares side effects")]
    Hooks,
    /// It is called with other arguments than a tensor, a probability and modes.
    #[error("it is called with other arguments than a tensor, a probability and modes")]
    Arguments,
    /// It could be removed, but no more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
    /// It makes a copy in training mode, which is written to or whose source is.
    #[error("its input or its result is written to, and they would be one tensor")]
    Written,
}

/// Removes dropouts that are the identity.
///
/// # Errors
/// If the graph refuses a change, which it does not for a graph that is well formed.
pub fn remove(
    graph: &mut Graph,
    host: &dyn Host,
    options: Options,
    budget: &mut Budget,
) -> Result<Report, PassError> {
    let mut catalogue = Catalogue::new(host);
    let mut report = Report::default();
    let mut written: Option<Written> = None;
    for node in graph.nodes().collect::<Vec<_>>() {
        let view = graph.node(node);
        let decision = match view.op() {
            Op::CallModule => decide_module(view, host, options, || {
                let written =
                    written.get_or_insert_with(|| Written::of_graph(graph, &mut catalogue));
                written.touches(graph, node)
            }),
            Op::CallFunction if is_dropout_function(view.target_name()) => {
                Some(decide_function(graph, &mut catalogue, node))
            }
            _ => None,
        };
        let Some(decision) = decision else { continue };
        let mut site = Site {
            node,
            target: view.target_name().to_owned(),
            refusal: None,
        };
        match decision {
            Ok(_) if !budget.take() => site.refusal = Some(Refusal::Budget),
            Ok(input) => {
                graph.replace_all_uses(node, input)?;
                graph.erase(node)?;
            }
            Err(refusal) => site.refusal = Some(refusal),
        }
        report.sites.push(site);
    }
    Ok(report)
}

/// The input that a dropout module returns, or why it stays; `None` if it is no dropout.
fn decide_module(
    node: Node<'_>,
    host: &dyn Host,
    options: Options,
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
        _ if info.training && !options.in_training => Err(Refusal::Training),
        _ if info.hooks || info.impure == Some(true) => Err(Refusal::Hooks),
        None => Err(Refusal::Arguments),
        // In evaluation the result is the input itself, so that writes to one change the other
        // before the pass as after it.
        Some(_) if info.training && !info.inplace && is_written() => Err(Refusal::Written),
        Some(input) => Ok(input),
    })
}

fn is_dropout_function(name: &str) -> bool {
    let own = match name.strip_prefix("torch.ops.aten.") {
        Some(operator) => operator.split('.').next().unwrap_or(operator),
        None => match name.rsplit_once('.') {
            Some(("torch" | "torch.nn.functional" | "torch._VF", own)) => own,
            _ => return false,
        },
    };
    matches!(
        own,
        "dropout"
            | "dropout1d"
            | "dropout2d"
            | "dropout3d"
            | "alpha_dropout"
            | "feature_dropout"
            | "feature_alpha_dropout"
    )
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
        return Err(Refusal::Training);
    }
    let input = view.args().first().or_else(|| view.kwarg("input"));
    input.and_then(Arg::as_node).ok_or(Refusal::Arguments)
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
    use corsac_ops::{FunctionInfo, ModuleInfo};

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
        let report = remove(
            &mut graph,
            &Drop::new(false),
            Options::default(),
            &mut Budget::unlimited(),
        )
        .unwrap();
        assert_eq!(report.removed(), 1);
        assert_eq!(graph.inputs(relu).collect::<Vec<_>>(), [neg]);
    }

    #[test]
    fn a_module_in_training_stays_unless_asked_for_and_nothing_writes() {
        let training = Drop::new(true);
        let (mut graph, ..) = program("relu");
        let report = remove(
            &mut graph,
            &training,
            Options::default(),
            &mut Budget::unlimited(),
        )
        .unwrap();
        assert_eq!(report.sites[0].refusal, Some(Refusal::Training));

        let options = Options { in_training: true };
        assert_eq!(
            remove(&mut graph, &training, options, &mut Budget::unlimited())
                .unwrap()
                .removed(),
            1
        );

        let (mut graph, ..) = program("relu_");
        let report = remove(&mut graph, &training, options, &mut Budget::unlimited()).unwrap();
        assert_eq!(report.sites[0].refusal, Some(Refusal::Written));
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
        let report = remove(
            &mut graph,
            &corsac_ops::Unhosted,
            Options::default(),
            &mut Budget::unlimited(),
        )
        .unwrap();
        for (name, _, goes) in cases {
            let site = report.sites.iter().find(|s| s.target == name);
            assert_eq!(site.is_some_and(|s| s.refusal.is_none()), goes, "{name}");
        }
    }
}
