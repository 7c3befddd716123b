//! Arguments of a call by the parameters of its rule, without their types.

use corsac_ir::{Arg, Graph, Node, Op};
use smallvec::SmallVec;

use super::module;
use super::propagate::{ModuleFacts, Propagator};
use super::rule::{Signature, for_function, for_method};
use super::value::Value;
use crate::operators::OperatorId;

/// Arguments in the order of parameters.
#[derive(Debug)]
pub(super) struct Bound<T> {
    pub(super) args: SmallVec<[Option<T>; 8]>,
    /// Arguments of a parameter that takes all further positional arguments.
    pub(super) rest: Vec<T>,
    /// The argument that the result is written to, where one is given.
    pub(super) out: Option<T>,
}

impl Signature {
    /// Matches arguments with parameters. The error names an argument without a parameter.
    pub(super) fn bind<'k, T>(
        &self,
        args: impl Iterator<Item = T>,
        kwargs: impl Iterator<Item = (&'k str, T)>,
    ) -> Result<Bound<T>, String> {
        let mut bound = Bound {
            args: self.params.iter().map(|_| None).collect(),
            rest: Vec::new(),
            out: None,
        };
        let variadic = self.params.iter().position(|param| param.variadic);
        for (at, arg) in args.enumerate() {
            match self.params.get(at) {
                _ if variadic.is_some_and(|first| at >= first) => bound.rest.push(arg),
                Some(param) if !param.keyword_only => bound.args[at] = Some(arg),
                _ => return Err(format!("the rule has no parameter for argument {}", at + 1)),
            }
        }
        for (name, value) in kwargs {
            let Some(at) = self.position(name) else {
                if name == "out" {
                    bound.out = Some(value);
                    continue;
                }
                return Err(format!("the rule has no parameter {name}"));
            };
            if self.params[at].variadic {
                bound.rest.push(value);
            } else {
                bound.args[at] = Some(value);
            }
        }
        Ok(bound)
    }
}

/// Arguments of a call by name.
#[derive(Debug)]
pub struct Named<T> {
    /// The arguments that are given, each with its parameter.
    pub given: Vec<(&'static str, T)>,
    /// All arguments from one parameter on: sizes, which may also be given as one list.
    pub rest: Option<(&'static str, Vec<T>)>,
    /// The argument that the result is written to.
    pub out: Option<T>,
}

/// The arguments of a call of `target` by the parameters of its rule; `None` where there is no rule
/// and for functions of Python, whose arguments have no names.
///
/// ```
/// use corsac_ir::Op;
/// use corsac_ops::shape::named_arguments;
///
/// let named = |target, count| {
///     let named = named_arguments(Op::CallFunction, target, 0..count, [("eps", 9)].into_iter());
///     named.map(|named| named.unwrap().given)
/// };
/// let given = [("input", 0), ("weight", 1), ("bias", 2), ("eps", 9)];
/// assert_eq!(named("torch.batch_norm", 3).unwrap(), given);
/// let given = [("input", 0), ("running_mean", 1), ("eps", 9)];
/// assert_eq!(named("torch.nn.functional.batch_norm", 2).unwrap(), given);
/// assert!(named("operator.add", 2).is_none());
/// ```
///
/// # Errors
/// The argument that the rule has no parameter for, in words.
pub fn named_arguments<'k, T>(
    op: Op,
    target: &str,
    args: impl Iterator<Item = T>,
    kwargs: impl Iterator<Item = (&'k str, T)>,
) -> Option<Result<Named<T>, String>> {
    let found = match op {
        Op::CallFunction => for_function(target)?,
        Op::CallMethod => for_method(target)?,
        Op::CallModule | Op::Placeholder | Op::GetAttr | Op::Output => return None,
    };
    if ["operator.", "builtins."]
        .iter()
        .any(|space| found.name.starts_with(space))
    {
        return None;
    }
    let params = &found.entry.signature.params;
    let named = found.entry.signature.bind(args, kwargs).map(|bound| {
        let given = params.iter().zip(bound.args);
        let given = given.filter_map(|(param, arg)| Some((param.name, arg?)));
        let variadic = params.iter().find(|param| param.variadic);
        Named {
            given: given.collect(),
            rest: variadic.map(|param| (param.name, bound.rest)),
            out: bound.out,
        }
    });
    Some(named)
}

/// The argument of a call for a parameter.
#[derive(Clone, Debug)]
pub enum Given<'g> {
    /// An argument.
    Arg(&'g Arg),
    /// All arguments from here on: sizes, which may also be given as one list.
    Rest(Vec<&'g Arg>),
    /// An attribute of the module that is called.
    Attribute(Value),
}

/// A call of an operator that has a rule, with its arguments by the parameters of the rule.
#[derive(Debug)]
pub struct Binding<'g> {
    /// The operator.
    pub operator: OperatorId,
    /// Whether the result is written to the first argument.
    pub in_place: bool,
    /// The tensor, or the tuple of tensors, that the result is written to, where one is given.
    pub out: Option<&'g Arg>,
    /// Whether it is an operator of `torch.ops`, whose signature may be another one.
    pub exact: bool,
    /// The module that is called.
    pub module: Option<&'g ModuleFacts>,
    /// The argument for each parameter.
    pub given: Vec<(&'static str, Given<'g>)>,
}

impl<'h> Propagator<'h> {
    /// The call of `node`, with its arguments by the parameters of the operator's rule: the same
    /// for functions, methods, operators of `torch.ops` and modules.
    ///
    /// # Errors
    /// The reason why nothing is known of the call, in words.
    pub fn binding<'g>(&self, graph: &'g Graph, node: Node<'g>) -> Result<Binding<'g>, String>
    where
        'h: 'g,
    {
        let target = node.target_name();
        let found = match node.op() {
            Op::CallFunction => for_function(target).map(|found| (found, None)),
            Op::CallMethod => for_method(target).map(|found| (found, None)),
            Op::CallModule => {
                let facts = self.module(node).ok_or("the module is not known")?;
                let (found, module) = module::find(facts).map_err(|why| why.to_string())?;
                Some((found, Some((facts, module))))
            }
            Op::Placeholder | Op::GetAttr | Op::Output => None,
        };
        let (found, module) = found.ok_or_else(|| format!("there is no rule for {target}"))?;
        let signature = &found.entry.signature;
        let kwargs = node.kwargs().iter();
        let kwargs = kwargs.map(|(key, arg)| (graph.text(*key), arg));
        let mut bound = signature.bind(node.args().iter(), kwargs)?;
        let mut given = Vec::with_capacity(signature.params.len());
        for (param, arg) in signature.params.iter().zip(bound.args) {
            let value = match (arg, &module) {
                _ if param.variadic => Given::Rest(std::mem::take(&mut bound.rest)),
                (Some(arg), _) => Given::Arg(arg),
                (None, Some((facts, operator))) => {
                    match module::attribute(*operator, facts, param.name) {
                        Some(value) => Given::Attribute(value),
                        None => continue,
                    }
                }
                (None, None) => continue,
            };
            given.push((param.name, value));
        }
        Ok(Binding {
            operator: found.operator,
            in_place: found.in_place,
            out: bound.out.filter(|out| !matches!(out, Arg::None)),
            exact: found.exact,
            module: module.map(|(facts, _)| facts),
            given,
        })
    }
}
