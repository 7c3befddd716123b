//! Matching of a rule at a node: backtracking over the orders of commutative operands and the
//! lengths of spliced sequences.

use corsac_ir::{
    Arg, FunctionId, Graph, GraphError, NodeId, Op, SecondaryMap, Symbol, Target, ThinVec,
};
use corsac_ops::shape::{Dim, Value};
use corsac_ops::signature::Signature;
use corsac_ops::{Catalogue, Host};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::call::{Arguments, Given, shares};
use super::compiled::{Compiled, Matcher, MatcherItem, Operator};
use super::index::{OPERANDS, Shape};
use super::rule::{Key, Var};
use super::rule_set::RuleSet;

/// Maximum number of users among which candidates for a further root are searched.
const USERS: usize = 64;

/// Operators of the targets of a graph's calls, for one set of rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    functions: SecondaryMap<FunctionId, Option<Operator>>,
    methods: SecondaryMap<Symbol, Option<Operator>>,
    /// Modules by path.
    modules: FxHashMap<Symbol, Module>,
}

/// A module whose class some rule mentions.
#[derive(Clone, Debug)]
struct Module {
    operator: Operator,
    /// Its settings, as arguments by keyword.
    settings: Vec<(Symbol, Arg)>,
    /// Whether its value may share storage with an argument.
    shares: bool,
}

impl Targets {
    /// Finds the operators of all functions and methods that `graph` calls now. Functions in
    /// `names` have another name in rules than their qualified one.
    pub(crate) fn of(graph: &Graph, set: &RuleSet, names: &FxHashMap<FunctionId, String>) -> Self {
        let mut targets = Self::default();
        for (id, _) in graph.functions() {
            let name = names
                .get(&id)
                .map_or(graph.function_name(id), String::as_str);
            targets
                .functions
                .set(id, operator(set, Op::CallFunction, name));
        }
        let mut seen = rustc_hash::FxHashSet::default();
        for node in graph.nodes() {
            targets.add_method(graph, set, node, &mut seen);
        }
        targets
    }

    /// Adds the modules that `graph` calls, or that results may call, of classes that rules
    /// mention: `nn.Dropout`.
    pub(crate) fn add_modules(
        &mut self,
        graph: &mut Graph,
        set: &RuleSet,
        host: &dyn Host,
    ) -> Result<(), GraphError> {
        let called = graph.find_nodes(Op::CallModule, None).into_iter();
        let called = called.filter_map(|node| match graph.node(node).target() {
            Target::Name(path) => Some(path),
            Target::Function(_) => None,
        });
        let mut paths: Vec<Symbol> = called.collect();
        let rules = set.rules().iter();
        let named = rules.flat_map(|rule| rule.replacement.modules());
        paths.extend(named.map(|path| graph.intern(path)));
        self.add_modules_at(graph, set, host, &paths)
    }

    /// Adds the modules with these paths.
    pub(crate) fn add_modules_at(
        &mut self,
        graph: &mut Graph,
        set: &RuleSet,
        host: &dyn Host,
        paths: &[Symbol],
    ) -> Result<(), GraphError> {
        if !set.mentions_modules() {
            return Ok(());
        }
        let mut catalogue = Catalogue::new(host);
        for &path in paths {
            if self.modules.contains_key(&path) {
                continue;
            }
            let info = host.module(graph.text(path)).filter(|info| !info.hooks);
            let class = info.as_ref().and_then(|info| info.torch_class());
            let id = class.and_then(|class| set.operators.get(&format!("nn.{class}")));
            let Some(&id) = id else { continue };
            let mut settings = Vec::new();
            for (name, value) in host.module_settings(graph.text(path)) {
                if let Some(value) = literal_arg(graph, &value)? {
                    settings.push((graph.intern(&name), value));
                }
            }
            let operator = Operator {
                id,
                signature: None,
                spelling: None,
                is_module: true,
            };
            let behaviour = catalogue.behaviour_of(graph, Op::CallModule, Target::Name(path));
            let shares = behaviour.is_none_or(|behaviour| shares(behaviour, 1, &|_| false));
            let module = Module {
                operator,
                settings,
                shares,
            };
            self.modules.insert(path, module);
        }
        Ok(())
    }

    fn add_method(
        &mut self,
        graph: &Graph,
        set: &RuleSet,
        node: NodeId,
        seen: &mut rustc_hash::FxHashSet<Symbol>,
    ) {
        let node = graph.node(node);
        if node.op() == Op::CallMethod
            && let Target::Name(name) = node.target()
            && seen.insert(name)
        {
            self.set_method(graph, set, name);
        }
    }

    /// Adds a function that new nodes may call.
    pub(crate) fn set_function(&mut self, graph: &Graph, set: &RuleSet, id: FunctionId) {
        let found = operator(set, Op::CallFunction, graph.function_name(id));
        if self.functions.get(id).is_none() {
            self.functions.set(id, found);
        }
    }

    /// Adds a method that new nodes may call.
    pub(crate) fn set_method(&mut self, graph: &Graph, set: &RuleSet, name: Symbol) {
        let found = operator(set, Op::CallMethod, graph.text(name));
        self.methods.set(name, found);
    }

    /// The operator that `node` calls, if a rule mentions it.
    pub(crate) fn operator(&self, graph: &Graph, node: NodeId) -> Option<&Operator> {
        let node = graph.node(node);
        self.operator_of(node.op(), node.target())
    }

    /// Whether the value of a module, whose class a rule mentions, may share storage with an
    /// argument.
    pub(crate) fn module_shares(&self, path: Symbol) -> bool {
        self.modules.get(&path).is_none_or(|module| module.shares)
    }

    /// Whether a module, whose class a rule mentions, is known to have None as the setting `name`.
    pub(crate) fn module_lacks(&self, graph: &Graph, path: Symbol, name: &str) -> bool {
        let settings = self.modules.get(&path).map(|module| &module.settings);
        let mut settings = settings.into_iter().flatten();
        settings.any(|(key, value)| graph.text(*key) == name && *value == Arg::None)
    }

    /// The operator of a call of `target`, if a rule mentions it.
    pub(crate) fn operator_of(&self, op: Op, target: Target) -> Option<&Operator> {
        match (op, target) {
            (Op::CallFunction, Target::Function(id)) => self.functions.get(id).as_ref(),
            (Op::CallMethod, Target::Name(name)) => self.methods.get(name).as_ref(),
            (Op::CallModule, Target::Name(path)) => {
                self.modules.get(&path).map(|module| &module.operator)
            }
            _ => None,
        }
    }
}

/// A setting as an argument; `None` if it is no literal.
fn literal_arg(graph: &mut Graph, value: &Value) -> Result<Option<Arg>, GraphError> {
    Ok(Some(match value {
        Value::None => Arg::None,
        Value::Bool(flag) => Arg::Bool(*flag),
        Value::Int(Dim::Known(number)) => Arg::Int(*number),
        Value::Float(number) => Arg::Float(*number),
        Value::Str(text) => Arg::Str(graph.intern(text)),
        Value::Tuple(items) | Value::List(items) => {
            let items = items.iter().map(|item| literal_arg(graph, item));
            match items.collect::<Result<Option<ThinVec<Arg>>, GraphError>>()? {
                Some(items) => Arg::tuple(items)?,
                None => return Ok(None),
            }
        }
        _ => return Ok(None),
    }))
}

fn operator(set: &RuleSet, op: Op, target: &str) -> Option<Operator> {
    // A function that is no operator matches by its qualified name.
    let is_function = op == Op::CallFunction;
    let name = corsac_ops::operator_name(op, target).or(is_function.then_some(target))?;
    let &id = set.operators.get(name)?;
    Some(Operator {
        id,
        signature: Signature::of(name),
        spelling: Signature::of_spelling(target),
        is_module: false,
    })
}

/// A place where the pattern of a rule was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found<'g> {
    /// The values of the variables.
    pub(crate) bindings: SmallVec<[Option<Given<'g>>; 8]>,
    /// The nodes that the pattern's calls stand for, each once; the first root is the first.
    pub(crate) covered: SmallVec<[NodeId; 8]>,
    /// The roots.
    pub(crate) roots: SmallVec<[NodeId; 1]>,
}

/// A call that a value may come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'g> {
    pub(crate) operator: Operator,
    pub(crate) args: &'g [Arg],
    pub(crate) kwargs: &'g [(Symbol, Arg)],
}

/// The program that is searched: sources and users of values.
pub(crate) trait Program<'g> {
    /// The graph in which strings are interned.
    fn graph(&self) -> &'g Graph;

    /// Call number `index` of those that compute the value of `node`; `None` after the last one.
    fn candidate(&self, node: NodeId, index: usize) -> Option<Candidate<'g>>;

    /// Nodes that use the value of `node`.
    fn users(&self, node: NodeId) -> impl Iterator<Item = NodeId>;
}

/// A search for one rule at one node.
pub(crate) struct Search<'g, 'r> {
    pub(crate) graph: &'g Graph,
    pub(crate) targets: &'r Targets,
}

impl<'g, 'r: 'g> Program<'g> for Search<'g, 'r> {
    fn graph(&self) -> &'g Graph {
        self.graph
    }

    fn candidate(&self, node: NodeId, index: usize) -> Option<Candidate<'g>> {
        if index > 0 {
            return None;
        }
        let operator = *self.targets.operator(self.graph, node)?;
        let targets = self.targets;
        let node = self.graph.node(node);
        let kwargs = match node.target() {
            // A module's settings match as keyword arguments of a function.
            Target::Name(path) if operator.is_module => {
                if !node.kwargs().is_empty() {
                    return None;
                }
                targets.modules.get(&path)?.settings.as_slice()
            }
            _ => node.kwargs(),
        };
        Some(Candidate {
            operator,
            args: node.args(),
            kwargs,
        })
    }

    fn users(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.graph.users(node)
    }
}

enum Goal<'g, 'r> {
    Value(&'r Matcher, Given<'g>),
    Items(&'r [MatcherItem], &'g [Arg]),
    Root(usize),
}

/// Goals that are left to be found, innermost first.
struct Goals<'g, 'r, 'a> {
    goal: Goal<'g, 'r>,
    next: Option<&'a Goals<'g, 'r, 'a>>,
}

impl<'g> Search<'g, '_> {
    /// The kinds of the operands of `node`, as far as the index distinguishes.
    pub(crate) fn operands(&self, node: NodeId, operator: &Operator) -> Option<[Shape; OPERANDS]> {
        let view = self.graph.node(node);
        let arguments = Arguments::of(view, operator.signature, operator.spelling)?;
        let mut shapes = [Shape::Literal; OPERANDS];
        for (shape, given) in shapes.iter_mut().zip(&arguments.by_position) {
            if let Some(operand) = given.and_then(Given::node) {
                let known = self.targets.operator(self.graph, operand);
                *shape = known.map_or(Shape::Node, |known| Shape::Operator(known.id));
            }
        }
        Some(shapes)
    }
}

/// Finds a match of `rule` at `node` that `accept` accepts; returns whether there is one.
pub(crate) fn find<'g, 'r, P: Program<'g>>(
    program: &P,
    rule: &'r Compiled,
    variables: usize,
    node: NodeId,
    accept: &mut dyn FnMut(&Found<'g>) -> bool,
) -> bool {
    let found = Found {
        bindings: SmallVec::from_elem(None, variables),
        covered: SmallVec::new(),
        roots: SmallVec::from_slice(&[node]),
    };
    let mut attempt = Attempt {
        program,
        rule,
        found,
        accept,
    };
    let others = Goals {
        goal: Goal::Root(1),
        next: None,
    };
    attempt.solve(Some(&Goals {
        goal: Goal::Value(&rule.roots[0], Given::Node(node)),
        next: Some(&others),
    }))
}

struct Attempt<'g, 'r, 's, P> {
    program: &'s P,
    rule: &'r Compiled,
    found: Found<'g>,
    accept: &'s mut dyn FnMut(&Found<'g>) -> bool,
}

impl<'g, 'r, P: Program<'g>> Attempt<'g, 'r, '_, P> {
    fn solve(&mut self, goals: Option<&Goals<'g, 'r, '_>>) -> bool {
        let Some(Goals { goal, next }) = goals else {
            return (self.accept)(&self.found);
        };
        match *goal {
            Goal::Value(matcher, given) => self.value(matcher, given, *next),
            Goal::Items(items, args) => self.items(items, args, *next),
            Goal::Root(number) => self.root(number, *next),
        }
    }

    fn value(
        &mut self,
        matcher: &'r Matcher,
        given: Given<'g>,
        next: Option<&Goals<'g, 'r, '_>>,
    ) -> bool {
        match matcher {
            Matcher::Variable(var) => self.bind(*var, given, next),
            Matcher::Literal(literal) => {
                given.is_literal(self.program.graph(), literal) && self.solve(next)
            }
            Matcher::Named(var, inner) => {
                let rest = Goals {
                    goal: Goal::Value(inner, given),
                    next,
                };
                self.bind(*var, given, Some(&rest))
            }
            Matcher::OfModule(var, inner) => {
                let Some(node) = given.node() else {
                    return false;
                };
                let rest = Goals {
                    goal: Goal::Value(inner, given),
                    next,
                };
                self.bind(*var, Given::Module(node), Some(&rest))
            }
            Matcher::Sequence(items) => match given.items() {
                Some(args) => self.items(items, args, next),
                None => false,
            },
            Matcher::Tuple(items) => match given {
                Given::One(Arg::Tuple(args)) => self.items(items, args, next),
                _ => false,
            },
            Matcher::Slice(items) => match given {
                Given::One(Arg::Slice(args)) => self.items(items, args, next),
                _ => false,
            },
            Matcher::Call {
                operators,
                arguments,
                commutative,
            } => {
                let Some(node) = given.node() else {
                    return false;
                };
                let is_new = !self.found.covered.contains(&node);
                if is_new {
                    self.found.covered.push(node);
                }
                let mut done = false;
                for index in 0.. {
                    let Some(candidate) = self.program.candidate(node, index) else {
                        break;
                    };
                    if operators.contains(&candidate.operator.id) {
                        done = self.call(arguments, *commutative, candidate, next);
                    }
                    if done {
                        break;
                    }
                }
                if is_new && !done {
                    self.found.covered.pop();
                }
                done
            }
        }
    }

    fn call(
        &mut self,
        arguments: &'r [(Key, Matcher)],
        commutative: bool,
        candidate: Candidate<'g>,
        next: Option<&Goals<'g, 'r, '_>>,
    ) -> bool {
        let graph = self.program.graph();
        let Candidate {
            operator,
            args,
            kwargs,
        } = candidate;
        let given = Arguments::of_call(graph, args, kwargs, operator.signature, operator.spelling);
        let complete =
            |given: &Arguments<'_>| mentions_all(graph, arguments, given, operator.is_module);
        let Some(given) = given.filter(complete) else {
            return false;
        };
        self.operands(arguments, &given, false, next)
            || commutative && self.operands(arguments, &given, true, next)
    }

    /// Pushes operands as goals from the last to the first, so that they are matched from left to
    /// right.
    fn operands(
        &mut self,
        arguments: &'r [(Key, Matcher)],
        given: &Arguments<'g>,
        swapped: bool,
        next: Option<&Goals<'g, 'r, '_>>,
    ) -> bool {
        let Some(((key, matcher), rest)) = arguments.split_last() else {
            return self.solve(next);
        };
        let value = match key {
            Key::Position(place) => {
                let place = if swapped { 1 - place } else { *place };
                given.by_position.get(place).copied().flatten()
            }
            Key::Keyword(name) => {
                let found = given.keywords.iter().find(|(key, _)| key == name);
                found.map(|(_, value)| *value)
            }
        };
        let Some(value) = value else {
            return false;
        };
        let goals = Goals {
            goal: Goal::Value(matcher, value),
            next,
        };
        self.operands(rest, given, swapped, Some(&goals))
    }

    fn bind(&mut self, var: Var, given: Given<'g>, next: Option<&Goals<'g, 'r, '_>>) -> bool {
        if let Some(bound) = self.found.bindings[var.index()] {
            return bound.same(self.program.graph(), given) && self.solve(next);
        }
        self.found.bindings[var.index()] = Some(given);
        let done = self.solve(next);
        if !done {
            self.found.bindings[var.index()] = None;
        }
        done
    }

    fn items(
        &mut self,
        items: &'r [MatcherItem],
        args: &'g [Arg],
        next: Option<&Goals<'g, 'r, '_>>,
    ) -> bool {
        let Some((first, rest)) = items.split_first() else {
            return args.is_empty() && self.solve(next);
        };
        match first {
            MatcherItem::One(matcher) => {
                let Some((arg, args)) = args.split_first() else {
                    return false;
                };
                let later = Goals {
                    goal: Goal::Items(rest, args),
                    next,
                };
                self.value(matcher, Given::One(arg), Some(&later))
            }
            MatcherItem::Many(var) => (0..=args.len()).any(|len| {
                let (taken, left) = args.split_at(len);
                let later = Goals {
                    goal: Goal::Items(rest, left),
                    next,
                };
                self.bind(*var, Given::Many(taken), Some(&later))
            }),
        }
    }

    /// Searches for a further root among the users of the values that are bound so far.
    fn root(&mut self, number: usize, next: Option<&Goals<'g, 'r, '_>>) -> bool {
        let Some(matcher) = self.rule.roots.get(number) else {
            return self.solve(next);
        };
        let Some((anchor, distance)) = self.anchor(matcher) else {
            return false;
        };
        let mut candidates: SmallVec<[NodeId; 8]> = SmallVec::from_slice(&[anchor]);
        for _ in 0..distance {
            let below = candidates.iter().flat_map(|&node| self.program.users(node));
            candidates = below.take(USERS).collect();
        }
        for node in candidates {
            if self.found.roots.contains(&node) {
                continue;
            }
            self.found.roots.push(node);
            let later = Goals {
                goal: Goal::Root(number + 1),
                next,
            };
            if self.value(matcher, Given::Node(node), Some(&later)) {
                return true;
            }
            self.found.roots.pop();
        }
        false
    }

    /// A node that a variable in `matcher` is bound to so far, and the number of calls above it.
    fn anchor(&self, matcher: &Matcher) -> Option<(NodeId, usize)> {
        match matcher {
            Matcher::Variable(var) => {
                let bound = self.found.bindings[var.index()]?;
                Some((bound.node()?, 0))
            }
            Matcher::Named(var, inner) => {
                let bound = self.found.bindings[var.index()].and_then(Given::node);
                bound.map(|node| (node, 0)).or_else(|| self.anchor(inner))
            }
            Matcher::Literal(_) | Matcher::Sequence(_) | Matcher::Tuple(_) | Matcher::Slice(_) => {
                None
            }
            Matcher::OfModule(_, inner) => self.anchor(inner),
            Matcher::Call { arguments, .. } => {
                let below = arguments.iter().filter_map(|(_, m)| self.anchor(m));
                below
                    .min_by_key(|&(_, distance)| distance)
                    .map(|(node, distance)| (node, distance + 1))
            }
        }
    }
}

/// Whether all arguments that a pattern does not mention have their default values. Settings of a
/// module need not be mentioned.
fn mentions_all(
    graph: &Graph,
    arguments: &[(Key, Matcher)],
    given: &Arguments<'_>,
    is_module: bool,
) -> bool {
    let mentioned = |place: usize| {
        let mut keys = arguments.iter();
        keys.any(|(key, _)| matches!(key, Key::Position(p) if *p == place))
    };
    let positional = (0..given.by_position.len())
        .all(|place| mentioned(place) || given.is_default(graph, place));
    let named = |name: &str| {
        let mut keys = arguments.iter();
        keys.any(|(key, _)| matches!(key, Key::Keyword(k) if k == name))
    };
    positional && (is_module || given.keywords.iter().all(|(name, _)| named(name)))
}
