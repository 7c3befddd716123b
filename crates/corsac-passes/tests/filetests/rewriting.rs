//! The filetests of rewrite rules and equality saturation. Rules and types are in comments of the
//! input:
//!
//! ```text
//! # rule double_negation: neg(neg(?x)) => ?x
//! # type x = float32[2, 3]
//! # budget 1
//! ```

use corsac_ir::Graph;
use corsac_ops::Host;
use corsac_passes::rules::{Rule, RuleSet, parse, rewrite};
use corsac_passes::saturate::{Directions, Options, Roofline, saturate};
use corsac_passes::{Budget, TensorFact, TensorFacts};
use corsac_testkit::filetest::{on_graph, run};

use crate::{Declared, outcome};

/// The settings in the comments of an input.
#[derive(Default)]
pub(crate) struct Setting {
    rules: String,
    pub(crate) types: Vec<(String, TensorFact)>,
    pub(crate) budget: Budget,
}

impl Setting {
    pub(crate) fn in_comments_of(input: &str) -> Self {
        let mut setting = Self::default();
        for line in input.lines() {
            if let Some(rule) = line.strip_prefix("# rule ") {
                setting.rules += rule;
                setting.rules.push('\n');
            } else if let Some(known) = line.strip_prefix("# type ") {
                setting.types.push(read_type(known));
            } else if let Some(limit) = line.strip_prefix("# budget ") {
                setting.budget = Budget::of(limit.parse().unwrap_or_default());
            }
        }
        setting
    }

    fn rules(&self) -> Vec<Rule> {
        parse(&self.rules).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn facts(&self, graph: &Graph) -> TensorFacts {
        let mut facts = TensorFacts::new();
        for node in graph.nodes() {
            let own = graph.node(node).name();
            if let Some((_, fact)) = self.types.iter().find(|(name, _)| name == own) {
                facts.set(node, fact.clone());
            }
        }
        facts
    }
}

/// `x = float32[2, 3]`
fn read_type(text: &str) -> (String, TensorFact) {
    let read = || {
        let (name, ty) = text.split_once(" = ")?;
        let (dtype, shape) = ty.strip_suffix(']')?.split_once('[')?;
        let sizes = shape.split(", ").filter(|size| !size.is_empty());
        let fact = TensorFact {
            shape: Some(sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?),
            dtype: Some(dtype.parse().ok()?),
            strides: None,
        };
        Some((name.to_owned(), fact))
    };
    read().unwrap_or_else(|| panic!("`NAME = DTYPE[SIZE, ...]`, not {text}"))
}

fn run_with(folder: &str, pass: impl Fn(&mut Graph, &dyn Host, Setting) -> String) {
    run(folder, |input| {
        let host = Declared::in_comments_of(input);
        let pass = |graph: &mut Graph| pass(graph, &host, Setting::in_comments_of(input));
        on_graph(pass)(input)
    });
}

#[test]
fn rules() {
    run_with("rules", |graph, host, mut setting| {
        let set = RuleSet::new(setting.rules());
        let facts = setting.facts(graph);
        let sites = match rewrite(graph, &set, host, facts, &mut setting.budget) {
            Ok(sites) => sites,
            Err(error) => return error.to_string(),
        };
        let mut text = String::new();
        for (rule, site) in &sites {
            let rule = &set.rules()[*rule].name;
            let made = site.other.as_ref();
            let made = made.map_or(String::new(), |other| format!(", {other} in its place"));
            let line = format!("{}{made}", site.name);
            outcome(&mut text, &line, rule, site.refusal.as_ref());
        }
        text
    });
}

#[test]
fn saturation() {
    run_with("saturate", |graph, host, mut setting| {
        let rules = Directions::of(&setting.rules());
        let facts = setting.facts(graph);
        let options = Options {
            max_time: None,
            ..Options::default()
        };
        let (cost, budget) = (&mut Roofline::default(), &mut setting.budget);
        let found = saturate(graph, &rules, host, &facts, cost, options, budget);
        let (report, _) = match found {
            Ok(found) => found,
            Err(error) => return error.to_string(),
        };
        let mut text = format!(
            "{}: cost {:.1} -> {:.1}\n",
            report.stop, report.cost_before, report.cost_after
        );
        for site in &report.sites {
            let made = site.other.as_ref();
            let made = made.map_or(String::new(), |other| format!(", {other} in its place"));
            let line = format!("{}{made}", site.name);
            outcome(&mut text, &line, "replaced", site.refusal.as_ref());
        }
        text
    });
}
