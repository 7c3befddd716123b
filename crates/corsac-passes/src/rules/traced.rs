//! Rules made of two traced functions: the computation of one is the pattern, that of the other its
//! replacement.

use corsac_ir::{Arg, FunctionId, Graph, NodeId, Op, Target};
use corsac_ops::signature::Signature;
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::call::{Arguments, Given};
use super::rule::{
    Call, Callee, Condition, Item, Key, Literal, Pattern, Place, Replacement, Rule, Value, Var,
};

/// Why two graphs make no rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TracedRuleError {
    /// A node that rules cannot express.
    #[error("{node}: a rule cannot have a {op} node")]
    Op {
        /// Its name.
        node: String,
        /// Its opcode.
        op: Op,
    },
    /// An argument that rules cannot express.
    #[error("{node}: a rule cannot have {what} as an argument")]
    Argument {
        /// The name of the node.
        node: String,
        /// The kind of the argument.
        what: &'static str,
    },
    /// A call with arguments that its operator does not take.
    #[error("{node}: {operator} does not take these arguments")]
    Call {
        /// The name of the node.
        node: String,
        /// The operator that it calls.
        operator: String,
    },
    /// The pattern returns an input or a literal.
    #[error("the pattern must return what calls compute: one value, or a tuple of them")]
    Roots,
    /// Pattern and replacement return different numbers of values.
    #[error("the pattern returns {expected} values, the replacement {got}")]
    Values {
        /// Values of the pattern.
        expected: usize,
        /// Values of the replacement.
        got: usize,
    },
    /// The inputs of the replacement are not those of the pattern.
    #[error("the replacement has the inputs ({got}), the pattern ({expected})")]
    Inputs {
        /// Inputs of the pattern.
        expected: String,
        /// Inputs of the replacement.
        got: String,
    },
    /// The two do not return anything.
    #[error("the {0} returns nothing")]
    NoOutput(&'static str),
}

/// The pattern for a call of a module: a call of any module of its class that has these settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModulePattern {
    /// The class, as `torch.nn` has it: `Dropout`.
    pub class: String,
    /// The settings that have to be the same, by name: numbers, strings, flags, tuples of such.
    pub settings: Vec<(String, Pattern)>,
}

/// The names in rules of the functions of a graph.
pub type FunctionNames<'a> = &'a dyn Fn(&Graph, FunctionId) -> String;

/// The rule that replaces the computation of `pattern` by that of `replacement`; without one, the
/// host makes it for each match ([`replacement_from_graph`]). Inputs of the two are paired by name,
/// or else by position. `modules` has the patterns for calls of modules, by path. With `condition`,
/// the host decides.
///
/// # Errors
/// [`TracedRuleError`] with the part that rules cannot express.
pub fn from_graphs(
    name: &str,
    pattern: &Graph,
    replacement: Option<&Graph>,
    names: FunctionNames<'_>,
    modules: &FxHashMap<String, ModulePattern>,
    condition: Option<usize>,
) -> Result<Rule, TracedRuleError> {
    let mut reader = PatternReader {
        graph: pattern,
        names,
        modules,
        variables: Vec::new(),
        by_node: FxHashMap::default(),
    };
    let mut inputs = Vec::new();
    for node in pattern.find_nodes(Op::Placeholder, None) {
        let var = reader.variable(pattern.node(node).target_name());
        reader.by_node.insert(node, var);
        inputs.push(pattern.node(node).target_name());
    }
    let returned = output(pattern).ok_or(TracedRuleError::NoOutput("pattern"))?;
    let roots = match returned {
        Arg::Node(node) => vec![*node],
        other => {
            let items = other.as_items().ok_or(TracedRuleError::Roots)?;
            let nodes: Option<Vec<_>> = items.iter().map(Arg::as_node).collect();
            nodes
                .filter(|n| !n.is_empty())
                .ok_or(TracedRuleError::Roots)?
        }
    };
    let is_call = |&node: &NodeId| {
        let op = pattern.node(node).op();
        matches!(op, Op::CallFunction | Op::CallMethod | Op::CallModule)
    };
    if !roots.iter().all(is_call) {
        return Err(TracedRuleError::Roots);
    }
    let patterns: Vec<_> = roots
        .iter()
        .map(|&root| reader.call(root))
        .collect::<Result<_, _>>()?;
    let replacement = match replacement {
        Some(graph) => read_replacement(graph, names, &inputs, &reader.variables, roots.len())?,
        None => Replacement::default(),
    };
    Ok(Rule {
        name: name.to_owned(),
        variables: reader.variables,
        roots: patterns,
        conditions: condition.map(Condition::Host).into_iter().collect(),
        replacement,
        reverse: None,
    })
}

/// The replacement, made from `graph`, of a match of `rule`, whose pattern has `inputs` inputs.
///
/// # Errors
/// [`TracedRuleError`] with the part that rules cannot express.
pub fn replacement_from_graph(
    rule: &Rule,
    inputs: usize,
    graph: &Graph,
    names: FunctionNames<'_>,
) -> Result<Replacement, TracedRuleError> {
    let inputs = rule.variables.iter().take(inputs);
    let inputs: Vec<&str> = inputs.map(String::as_str).collect();
    read_replacement(graph, names, &inputs, &rule.variables, rule.roots.len())
}

/// The argument of the output node of a graph.
fn output(graph: &Graph) -> Option<&Arg> {
    graph.node(graph.output_node()?).args().first()
}

/// Prefix of the names of variables that stand for modules; their path follows.
const MODULE: &str = "self.";

struct PatternReader<'a> {
    graph: &'a Graph,
    names: FunctionNames<'a>,
    modules: &'a FxHashMap<String, ModulePattern>,
    variables: Vec<String>,
    /// Nodes with variables: inputs, and calls whose value is used more than once.
    by_node: FxHashMap<NodeId, Var>,
}

impl PatternReader<'_> {
    fn variable(&mut self, name: &str) -> Var {
        self.variables.push(name.to_owned());
        Var((self.variables.len() - 1) as u16)
    }

    fn argument(&self, node: NodeId, what: &'static str) -> TracedRuleError {
        let node = self.graph.node(node).name().to_owned();
        TracedRuleError::Argument { node, what }
    }

    fn call(&mut self, id: NodeId) -> Result<Pattern, TracedRuleError> {
        if let Some(&var) = self.by_node.get(&id) {
            return Ok(Pattern::Variable(var));
        }
        let graph = self.graph;
        let node = graph.node(id);
        let (operator, spelling) = match (node.op(), node.target()) {
            (Op::CallFunction, Target::Function(function)) => {
                let name = (self.names)(graph, function);
                let operator = corsac_ops::operator_name(Op::CallFunction, &name);
                let spelling = Signature::of_spelling(&name);
                (operator.unwrap_or(&name).to_owned(), spelling)
            }
            (Op::CallMethod, _) => {
                let name = node.target_name();
                let operator = corsac_ops::operator_name(Op::CallMethod, name);
                (operator.unwrap_or(name).to_owned(), None)
            }
            (op, _) => {
                let module = self.modules.get(node.target_name());
                match module.filter(|_| op == Op::CallModule && node.kwargs().is_empty()) {
                    Some(module) => (format!("nn.{}", module.class), None),
                    None => {
                        let node = node.name().to_owned();
                        return Err(TracedRuleError::Op { node, op });
                    }
                }
            }
        };
        let given = Arguments::of(node, Signature::of(&operator), spelling);
        let Some(given) = given else {
            let node = node.name().to_owned();
            return Err(TracedRuleError::Call { node, operator });
        };
        // The variable is made before its operands are read: they cannot mention it.
        let is_shared = node.num_users() > 1;
        let mut arguments = Vec::new();
        for (place, value) in given.by_position.iter().enumerate() {
            match value {
                None | Some(Given::Default(_)) => {}
                // A list as an index has another meaning than a tuple.
                Some(Given::One(Arg::Tuple(items))) if operator == "getitem" => {
                    let items = items.iter().map(|item| self.given(id, Given::One(item)));
                    let items = items.map(|item| Ok(Item::One(item?)));
                    let items = Pattern::Tuple(items.collect::<Result<_, _>>()?);
                    arguments.push((Key::Position(place), items));
                }
                Some(Given::One(Arg::List(_))) if operator == "getitem" => {
                    return Err(self.argument(id, "a list of indices"));
                }
                Some(value) => arguments.push((Key::Position(place), self.given(id, *value)?)),
            }
        }
        for (key, value) in &given.keywords {
            let pattern = self.given(id, *value)?;
            arguments.push((Key::Keyword((*key).to_owned()), pattern));
        }
        if node.op() == Op::CallModule
            && let Some(module) = self.modules.get(node.target_name())
        {
            let settings = module.settings.iter().cloned();
            arguments.extend(settings.map(|(name, value)| (Key::Keyword(name), value)));
        }
        let mut call = Pattern::Call {
            operators: vec![operator],
            arguments,
        };
        if node.op() == Op::CallModule {
            let name = format!("{MODULE}{}", node.target_name());
            let known = self.variables.iter().position(|own| *own == name);
            let var = known.map_or_else(|| self.variable(&name), |index| Var(index as u16));
            call = Pattern::OfModule(var, Box::new(call));
        }
        if !is_shared {
            return Ok(call);
        }
        let var = self.variable(node.name());
        self.by_node.insert(id, var);
        Ok(Pattern::Named(var, Box::new(call)))
    }

    fn given(&mut self, node: NodeId, given: Given<'_>) -> Result<Pattern, TracedRuleError> {
        if let Some(operand) = given.node() {
            return self.call(operand);
        }
        if let Some(items) = given.items() {
            let items = items.iter();
            let items = items.map(|item| Ok(Item::One(self.given(node, Given::One(item))?)));
            return Ok(Pattern::Sequence(items.collect::<Result<_, _>>()?));
        }
        if let Given::One(Arg::Slice(parts)) = given
            && let [start, stop, step] = &parts[..]
        {
            let mut part = |part| self.given(node, Given::One(part));
            let parts = [part(start)?, part(stop)?, part(step)?];
            return Ok(Pattern::Slice(Box::new(parts)));
        }
        match given.literal(self.graph) {
            Some(literal) => Ok(Pattern::Literal(literal)),
            None => Err(self.argument(
                node,
                "anything but nodes, numbers, strings, lists, slices and types",
            )),
        }
    }
}

fn read_replacement(
    graph: &Graph,
    names: FunctionNames<'_>,
    inputs: &[&str],
    variables: &[String],
    expected: usize,
) -> Result<Replacement, TracedRuleError> {
    let placeholders = graph.find_nodes(Op::Placeholder, None);
    let own: Vec<&str> = placeholders
        .iter()
        .map(|&n| graph.node(n).target_name())
        .collect();
    let by_name: Option<Vec<usize>> = own
        .iter()
        .map(|name| inputs.iter().position(|input| input == name))
        .collect();
    let positions = match by_name {
        Some(positions) => positions,
        None if own.len() == inputs.len() => (0..own.len()).collect(),
        None => {
            return Err(TracedRuleError::Inputs {
                expected: inputs.join(", "),
                got: own.join(", "),
            });
        }
    };
    let mut values: FxHashMap<NodeId, Value> = FxHashMap::default();
    for (&node, place) in placeholders.iter().zip(positions) {
        values.insert(node, Value::Variable(Var(place as u16)));
    }
    let mut calls = Vec::new();
    for id in graph.nodes() {
        let node = graph.node(id);
        let callee = match (node.op(), node.target()) {
            (Op::Placeholder | Op::Output, _) => continue,
            (Op::CallFunction, Target::Function(function)) => {
                Callee::Function(names(graph, function))
            }
            (Op::CallMethod, _) => Callee::Method(node.target_name().to_owned()),
            (Op::CallModule, _) => Callee::Module(place(variables, node.target_name())),
            (Op::GetAttr, _) => Callee::Attribute(place(variables, node.target_name())),
            (op, _) => {
                let node = node.name().to_owned();
                return Err(TracedRuleError::Op { node, op });
            }
        };
        let read = |arg: &Arg| value(graph, id, arg, &values);
        let args = node.args().iter().map(read).collect::<Result<_, _>>()?;
        let kwargs = node.kwargs().iter();
        let kwargs = kwargs
            .map(|(key, arg)| Ok((graph.text(*key).to_owned(), read(arg)?)))
            .collect::<Result<_, _>>()?;
        calls.push(Call {
            callee,
            args,
            kwargs,
        });
        values.insert(id, Value::New(calls.len() - 1));
    }
    let returned = output(graph).ok_or(TracedRuleError::NoOutput("replacement"))?;
    let end = graph.output_node().unwrap_or(NodeId::ROOT);
    let returned: Vec<Value> = match returned {
        Arg::Tuple(items) => items
            .iter()
            .map(|item| value(graph, end, item, &values))
            .collect::<Result<_, _>>()?,
        single => vec![value(graph, end, single, &values)?],
    };
    if returned.len() != expected {
        return Err(TracedRuleError::Values {
            expected,
            got: returned.len(),
        });
    }
    Ok(Replacement {
        calls,
        values: returned,
    })
}

/// The place of the module or attribute that a replacement has at `path`: inside a module of the
/// pattern, or else from the module that has the graph.
fn place(variables: &[String], path: &str) -> Place {
    let inside = |name: &String| {
        let rest = path.strip_prefix(name.strip_prefix(MODULE)?)?;
        let inner = rest.strip_prefix('.');
        (rest.is_empty() || inner.is_some()).then(|| inner.unwrap_or_default().to_owned())
    };
    let mut known = variables.iter().zip(0..);
    let found = known.find_map(|(name, index)| Some((Var(index), inside(name)?)));
    match found {
        Some((var, path)) => Place {
            of: Some(var),
            path,
        },
        None => Place {
            of: None,
            path: path.to_owned(),
        },
    }
}

fn value(
    graph: &Graph,
    node: NodeId,
    arg: &Arg,
    values: &FxHashMap<NodeId, Value>,
) -> Result<Value, TracedRuleError> {
    if let Some(used) = arg.as_node() {
        return values
            .get(&used)
            .cloned()
            .ok_or_else(|| TracedRuleError::Argument {
                node: graph.node(node).name().to_owned(),
                what: "a value that is not computed yet",
            });
    }
    if let Some(items) = arg.as_items() {
        let items = items.iter().map(|item| value(graph, node, item, values));
        let items = items.collect::<Result<_, _>>()?;
        let is_tuple = matches!(arg, Arg::Tuple(_));
        return Ok(if is_tuple {
            Value::Tuple(items)
        } else {
            Value::List(items)
        });
    }
    if let Arg::Slice(parts) = arg
        && let [start, stop, step] = &parts[..]
    {
        let part = |part| value(graph, node, part, values);
        return Ok(Value::Slice(Box::new([
            part(start)?,
            part(stop)?,
            part(step)?,
        ])));
    }
    let literal: Option<Literal> = Given::One(arg).literal(graph);
    literal
        .map(Value::Literal)
        .ok_or_else(|| TracedRuleError::Argument {
            node: graph.node(node).name().to_owned(),
            what: "anything but nodes, numbers, strings, lists, slices and types",
        })
}
