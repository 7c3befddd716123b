//! Rewrite rules, from text or from two traced functions, applied to graphs of Python.

use std::collections::HashMap;

use corsac_ir::{Arg, EntityId, FunctionId, Graph, NodeId, Op};
use corsac_ops::shape::{Dim, TypeHost as _, Value as Known};
use corsac_ops::{FunctionInfo, Host, ModuleInfo};
use corsac_passes::rules::{
    Answer, Condition, Item, Literal, MatchView, ModulePattern, NoRuleHost, Options, Pattern,
    Replacement, Rule, RuleHost, RuleSet, Session, from_graphs, parse, replacement_from_graph,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use rustc_hash::FxHashMap;

use crate::analysis::facts::{TypeFacts, has_attribute};
use crate::analysis::value::TypeReader;
use crate::budget::{PyBudget, within};
use crate::effects::{Facts, tensor_facts};
use crate::error::{pass_error, rewrite_error};
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::passes::{finish, raw_site};
use crate::resolve::resolve;

/// A site of a rule: name of the node, its target, its replacement, the reason if there is none,
/// the rule.
type RuleSite = (String, String, Option<String>, Option<String>, String);

/// One rewrite rule.
#[pyclass(name = "RewriteRule", module = "corsac._core", frozen)]
pub(crate) struct PyRewriteRule {
    rule: Rule,
    /// Callables by their names in the rule, where their own would not do.
    callables: Vec<(String, Py<PyAny>)>,
    condition: Option<Py<PyAny>>,
    build: Option<Build>,
}

/// Builds the replacement of each match.
struct Build {
    build: Py<PyAny>,
    /// Number of inputs of the pattern.
    inputs: usize,
}

#[pymethods]
impl PyRewriteRule {
    /// The rule's name.
    #[getter]
    fn name(&self) -> &str {
        &self.rule.name
    }

    /// The names of the rule's variables.
    #[getter]
    fn variables(&self) -> Vec<String> {
        self.rule.variables.clone()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.condition)?;
        visit.call(self.build.as_ref().map(|own| &own.build))?;
        let mut callables = self.callables.iter();
        callables.try_for_each(|(_, callable)| visit.call(callable))
    }
}

/// Reads rules from their text form, one on a line.
#[pyfunction]
pub(crate) fn parse_rules(text: &str) -> PyResult<Vec<PyRewriteRule>> {
    let rules = parse(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let rules = rules.into_iter().map(|rule| PyRewriteRule {
        rule,
        callables: Vec::new(),
        condition: None,
        build: None,
    });
    Ok(rules.collect())
}

/// The class of a module, and its settings by name.
type ModuleSettings<'py> = (String, Vec<(String, Bound<'py, PyAny>)>);

/// Patterns of the modules in a pattern; settings that are no literals do not count.
fn module_patterns(
    py: Python<'_>,
    modules: HashMap<String, ModuleSettings<'_>>,
) -> PyResult<FxHashMap<String, ModulePattern>> {
    let reader = TypeReader::new(py)?;
    let one = |(path, (class, settings)): (String, ModuleSettings<'_>)| {
        let mut pattern = ModulePattern {
            class,
            settings: Vec::new(),
        };
        for (name, value) in settings {
            if let Some(value) = literal_pattern(&reader.value(&value)?) {
                pattern.settings.push((name, value));
            }
        }
        Ok((path, pattern))
    };
    modules.into_iter().map(one).collect()
}

fn literal_pattern(value: &Known) -> Option<Pattern> {
    Some(Pattern::Literal(match value {
        Known::None => Literal::None,
        Known::Bool(flag) => Literal::Bool(*flag),
        Known::Int(Dim::Known(number)) => Literal::Int(*number),
        Known::Float(number) => Literal::Float(*number),
        Known::Str(text) => Literal::Str(text.to_string()),
        Known::Tuple(items) | Known::List(items) => {
            let items = items
                .iter()
                .map(|item| literal_pattern(item).map(Item::One));
            return items.collect::<Option<_>>().map(Pattern::Sequence);
        }
        _ => return None,
    }))
}

/// Facts from Python about modules, with their settings.
struct RuleFacts {
    facts: Facts,
    types: TypeFacts,
}

impl RuleFacts {
    /// Adds the facts about modules that the graph does not call yet.
    fn learn<'p>(
        &mut self,
        graph: &Bound<'_, PyGraph>,
        paths: impl Iterator<Item = &'p str>,
    ) -> PyResult<()> {
        let paths: Vec<String> = paths.map(str::to_owned).collect();
        self.facts.learn(graph, &paths)?;
        self.types.learn(graph, &paths)
    }
}

impl Host for RuleFacts {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        self.facts.module(path)
    }

    fn module_settings(&self, path: &str) -> Vec<(String, Known)> {
        let Some(facts) = self.types.module(path) else {
            return Vec::new();
        };
        let training = ("training".to_owned(), Known::Bool(facts.training));
        let own = facts.attributes.iter();
        let own = own.filter(|(name, _)| &**name != "training");
        let own = own.map(|(name, value)| (name.to_string(), value.clone()));
        own.chain([training]).collect()
    }

    fn is_tensor(&self, path: &str) -> bool {
        self.facts.is_tensor(path)
    }

    fn function(&self, graph: &Graph, function: FunctionId) -> FunctionInfo {
        self.facts.function(graph, function)
    }
}

/// The rule that replaces the computation of the graph `pattern` by that of `replacement`.
/// `condition(match)` decides at each match whether it may. Without `replacement`, `build(match)`
/// returns the graph that replaces a match, or None, or a string with the reason why none does.
/// `modules` has, for the modules that the pattern calls, the class of `torch.nn` and the settings
/// that count.
#[pyfunction]
#[pyo3(signature = (name, pattern, replacement, condition = None, build = None, modules = None))]
pub(crate) fn rule_from_graphs(
    name: &str,
    pattern: &Bound<'_, PyGraph>,
    replacement: Option<&Bound<'_, PyGraph>>,
    condition: Option<Py<PyAny>>,
    build: Option<Py<PyAny>>,
    modules: Option<HashMap<String, ModuleSettings<'_>>>,
) -> PyResult<PyRewriteRule> {
    let py = pattern.py();
    let modules = module_patterns(py, modules.unwrap_or_default())?;
    if replacement.is_none() == build.is_none() {
        let message = "a rule has a replacement, or something that builds one";
        return Err(PyValueError::new_err(message));
    }
    let from = pattern.try_borrow()?;
    let to = replacement.map(|graph| graph.try_borrow()).transpose()?;
    let number = (condition.is_some() || build.is_some()).then_some(0);
    let names = |graph: &Graph, id: FunctionId| {
        let owner = match &to {
            Some(to) if std::ptr::eq(graph, to.ir()) => to,
            _ => &from,
        };
        rule_name(owner, id)
    };
    let rule = from_graphs(
        name,
        from.ir(),
        to.as_ref().map(|to| to.ir()),
        &names,
        &modules,
        number,
    );
    let rule = rule.map_err(|error| PyValueError::new_err(format!("rule {name}: {error}")))?;
    let mut callables = Vec::new();
    for graph in [Some(&from), to.as_ref()].into_iter().flatten() {
        for (id, _) in graph.ir().functions() {
            if let Some(object) = graph.host().function_object(id) {
                callables.push((rule_name(graph, id), object.clone_ref(py)));
            }
        }
    }
    let inputs = from.ir().find_nodes(Op::Placeholder, None).len();
    let build = build.map(|build| Build { build, inputs });
    Ok(PyRewriteRule {
        rule,
        callables,
        condition,
        build,
    })
}

/// Name of a function in rules: the qualified one for those of PyTorch and Python; for others with
/// the address of the object, since names may be shared.
fn rule_name(graph: &PyGraph, id: FunctionId) -> String {
    let name = graph.ir().function_name(id);
    let known = ["torch.", "operator.", "_operator.", "builtins.", "math."];
    match graph.host().function_object(id) {
        Some(object) if !known.iter().any(|module| name.starts_with(module)) => {
            format!("{name}#{:x}", object.as_ptr() as usize)
        }
        Some(_) | None => name.to_owned(),
    }
}

/// Rules that are searched for together.
#[pyclass(name = "RuleSet", module = "corsac._core", frozen)]
pub(crate) struct PyRuleSet {
    pub(crate) set: RuleSet,
    pub(crate) callables: FxHashMap<String, Py<PyAny>>,
    conditions: Vec<Question>,
}

/// Callbacks of a rule for its matches.
struct Question {
    condition: Option<Py<PyAny>>,
    build: Option<Build>,
}

#[pymethods]
impl PyRuleSet {
    #[new]
    fn new(py: Python<'_>, rules: Vec<PyRef<'_, PyRewriteRule>>) -> Self {
        let (mut callables, mut conditions) = (FxHashMap::default(), Vec::new());
        let rules = rules.iter().map(|own| {
            let mut rule = own.rule.clone();
            if own.condition.is_some() || own.build.is_some() {
                for known in &mut rule.conditions {
                    if let Condition::Host(number) = known {
                        *number = conditions.len();
                    }
                }
                let build = own.build.as_ref().map(|own| Build {
                    build: own.build.clone_ref(py),
                    inputs: own.inputs,
                });
                let condition = own.condition.as_ref().map(|own| own.clone_ref(py));
                conditions.push(Question { condition, build });
            }
            for (name, callable) in &own.callables {
                callables.insert(name.clone(), callable.clone_ref(py));
            }
            rule
        });
        Self {
            set: RuleSet::new(rules.collect()),
            callables,
            conditions,
        }
    }

    /// Applies the rules to `graph` until none matches any more, or `limit` rewrites were made.
    /// `make_match(values, roots)` makes the argument of conditions. Returns every place where a
    /// pattern matched.
    #[pyo3(signature = (graph, make_match, limit = None, budget = None))]
    fn apply(
        &self,
        graph: &Bound<'_, PyGraph>,
        make_match: &Bound<'_, PyAny>,
        limit: Option<usize>,
        budget: Option<&Bound<'_, PyBudget>>,
    ) -> PyResult<Vec<RuleSite>> {
        let mut host = Conditions {
            graph,
            make_match,
            conditions: &self.conditions,
            failure: None,
            pending: None,
            built: None,
        };
        let mut facts = RuleFacts {
            facts: Facts::of_graph(graph)?,
            types: match self.set.mentions_modules() {
                true => TypeFacts::of_graph(graph)?,
                false => TypeFacts::default(),
            },
        };
        facts.learn(
            graph,
            self.set
                .rules()
                .iter()
                .flat_map(|rule| rule.replacement.modules()),
        )?;
        let tensors = tensor_facts(graph)?;
        let functions = result_functions(graph, &self.set, &self.callables)?;
        let names = names_of(graph, &self.callables)?;
        let left = within(budget, |budget| Ok(Options::within(budget).limit))?;
        let options = Options {
            limit: limit.into_iter().chain(left).min(),
        };
        let mut session = PyGraph::edit(graph, |ir| {
            Session::new(&self.set, ir, &facts, tensors, &functions, &names, options)
                .map_err(pass_error)
        })?;
        let outcome = if host.conditions.is_empty() {
            PyGraph::edit(graph, |ir| {
                session.run(ir, &mut NoRuleHost).map_err(rewrite_error)
            })
        } else {
            run_with_conditions(graph, &mut session, &mut facts, &mut host)
        };
        within(budget, |budget| Ok(budget.take_up_to(session.made())))?;
        finish(graph, session.added(), session.erased())?;
        outcome?;
        let borrowed = graph.try_borrow()?;
        let sites = session.sites(borrowed.ir()).into_iter();
        let sites = sites.map(|(rule, site)| {
            let (name, target, other, reason) = raw_site(site);
            (
                name,
                target,
                other,
                reason,
                self.set.rules()[rule].name.clone(),
            )
        });
        Ok(sites.collect())
    }

    /// Paths of the modules and attributes that results name, in the module with the graph, each
    /// after the name of its rule.
    fn places(&self) -> Vec<(String, String)> {
        let rules = self.set.rules().iter();
        let places = rules.flat_map(|rule| rule.places().map(move |place| (rule, place)));
        places
            .map(|(rule, place)| (rule.name.clone(), place.to_owned()))
            .collect()
    }

    fn __len__(&self) -> usize {
        self.set.rules().len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut callables = self.callables.values();
        callables.try_for_each(|callable| visit.call(callable))?;
        self.conditions.iter().try_for_each(|question| {
            visit.call(&question.condition)?;
            visit.call(question.build.as_ref().map(|own| &own.build))
        })
    }
}

/// The laws of algebra: those that hold to the last bit, or with `fast_math` also those that hold up
/// to rounding.
#[pyfunction]
pub(crate) fn simplification_laws(fast_math: bool) -> PyRuleSet {
    PyRuleSet {
        set: RuleSet::new(corsac_passes::simplify::laws(fast_math)),
        callables: FxHashMap::default(),
        conditions: Vec::new(),
    }
}

/// Runs a session: Python is called while the graph can be read, and the graph is changed in
/// between.
fn run_with_conditions(
    graph: &Bound<'_, PyGraph>,
    session: &mut Session<'_>,
    facts: &mut RuleFacts,
    host: &mut Conditions<'_, '_>,
) -> PyResult<()> {
    loop {
        let plan = {
            let borrowed = graph.try_borrow()?;
            session.next(borrowed.ir(), host)
        };
        if let Some(failure) = host.failure.take() {
            return Err(failure);
        }
        if let Some(pending) = host.pending.take() {
            let at = (pending.rule, pending.node);
            let replacement = pending.replacement;
            let mut functions = FxHashMap::default();
            for (name, callable) in &pending.callables {
                let id = PyGraph::function(graph, callable.bind(graph.py()))?;
                functions.insert(name.clone(), id);
            }
            facts.learn(graph, replacement.modules())?;
            PyGraph::edit(graph, |ir| {
                session
                    .set_replacement(ir, facts, at, replacement, &functions)
                    .map_err(pass_error)
            })?;
            host.built = Some((at, pending.values));
            continue;
        }
        let Some(plan) = plan else {
            return Ok(());
        };
        host.built = None;
        PyGraph::edit(graph, |ir| session.apply(ir, plan).map_err(rewrite_error))?;
    }
}

/// The functions of the graph that results call, added where they are new.
pub(crate) fn result_functions(
    graph: &Bound<'_, PyGraph>,
    set: &RuleSet,
    callables: &FxHashMap<String, Py<PyAny>>,
) -> PyResult<FxHashMap<String, FunctionId>> {
    let py = graph.py();
    let mut functions = FxHashMap::default();
    for name in set.rules().iter().flat_map(Rule::functions) {
        if functions.contains_key(name) {
            continue;
        }
        let callable = match callables.get(name) {
            Some(callable) => callable.bind(py).clone(),
            None => resolve(py, name, None)?
                .filter(|found| found.is_callable())
                .ok_or_else(|| {
                    PyValueError::new_err(format!(
                        "there is no function {name}, which a rule calls"
                    ))
                })?,
        };
        functions.insert(name.to_owned(), PyGraph::function(graph, &callable)?);
    }
    Ok(functions)
}

/// The functions of the graph that rules have a special name for.
pub(crate) fn names_of(
    graph: &Bound<'_, PyGraph>,
    callables: &FxHashMap<String, Py<PyAny>>,
) -> PyResult<FxHashMap<FunctionId, String>> {
    let borrowed = graph.try_borrow()?;
    let functions = (0..borrowed.ir().functions().len()).map(FunctionId::from_index);
    let named = functions.filter_map(|id| {
        let name = rule_name(&borrowed, id);
        callables.contains_key(&name).then_some((id, name))
    });
    Ok(named.collect())
}

/// Evaluates conditions in Python.
struct Conditions<'a, 'py> {
    graph: &'a Bound<'py, PyGraph>,
    make_match: &'a Bound<'py, PyAny>,
    conditions: &'a [Question],
    /// Exception raised by a condition.
    failure: Option<PyErr>,
    /// Replacement of a match that the session does not have yet.
    pending: Option<Pending>,
    /// The match whose replacement the session has.
    built: Option<((usize, NodeId), String)>,
}

/// Replacement of one match.
struct Pending {
    rule: usize,
    node: NodeId,
    /// Values of the variables, as text.
    values: String,
    replacement: Replacement,
    /// Callables by their names in the replacement.
    callables: Vec<(String, Py<PyAny>)>,
}

impl Conditions<'_, '_> {
    fn ask(&mut self, condition: usize, matched: &MatchView<'_, '_>) -> PyResult<Answer> {
        let py = self.graph.py();
        let questions = self.conditions;
        let question = questions.get(condition).ok_or_else(|| {
            PyRuntimeError::new_err("a rule asks for a condition that its set does not have")
        })?;
        let at = (matched.rule_number(), matched.roots()[0]);
        // As text, in which a NaN equals itself.
        let shown = format!("{:?}", matched.values().collect::<Vec<_>>());
        if self
            .built
            .as_ref()
            .is_some_and(|own| own.0 == at && own.1 == shown)
        {
            // The condition was checked when the replacement was built.
            return Ok(Answer::Yes);
        }
        let borrowed = self.graph.try_borrow()?;
        let values = PyDict::new(py);
        for (name, value) in matched.values() {
            let value = match &value {
                Some(Arg::Node(node)) => {
                    PyNode::handle(self.graph, borrowed.host(), *node)?.into_any()
                }
                Some(value) => borrowed.writer(self.graph).arg(value)?.unbind(),
                None => continue,
            };
            values.set_item(name, value)?;
        }
        let roots = PyList::new(py, PyNode::all(self.graph, matched.roots())?)?;
        let matched_object = self.make_match.call1((values, roots))?;
        if let Some(condition) = &question.condition {
            let answer = condition.bind(py).call1((&matched_object,))?;
            if let Ok(reason) = answer.cast::<PyString>() {
                return Ok(Answer::No(reason.to_str()?.to_owned()));
            }
            if !answer.is_truthy()? {
                let reason = "the condition of the rule does not hold";
                return Ok(Answer::No(reason.to_owned()));
            }
        }
        let Some(build) = &question.build else {
            return Ok(Answer::Yes);
        };
        let answer = build.build.bind(py).call1((&matched_object,))?;
        if let Ok(reason) = answer.cast::<PyString>() {
            return Ok(Answer::No(reason.to_str()?.to_owned()));
        }
        if answer.is_none() {
            return Ok(Answer::No("no replacement was built for it".to_owned()));
        }
        let made = answer.cast::<PyGraph>()?.try_borrow()?;
        let names = |_: &Graph, id: FunctionId| rule_name(&made, id);
        let rule = matched.rule();
        let replacement = replacement_from_graph(rule, build.inputs, made.ir(), &names);
        let replacement = replacement.map_err(|error| {
            PyValueError::new_err(format!("what rule {} built: {error}", rule.name))
        })?;
        for path in replacement.places() {
            if !has_attribute(self.graph, path)? {
                return Err(PyValueError::new_err(format!(
                    "what rule {} built: there is no {path} in what is rewritten",
                    rule.name
                )));
            }
        }
        let functions = made.ir().functions().filter_map(|(id, _)| {
            let object = made.host().function_object(id)?;
            Some((rule_name(&made, id), object.clone_ref(py)))
        });
        self.pending = Some(Pending {
            rule: at.0,
            node: at.1,
            values: shown,
            replacement,
            callables: functions.collect(),
        });
        Ok(Answer::Stop)
    }
}

impl RuleHost for Conditions<'_, '_> {
    fn holds(&mut self, condition: usize, matched: &MatchView<'_, '_>) -> Answer {
        match self.ask(condition, matched) {
            Ok(answer) => answer,
            Err(failure) => {
                self.failure = Some(failure);
                Answer::Stop
            }
        }
    }
}
