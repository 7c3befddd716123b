//! The arguments of a call, by parameter.

use corsac_ir::{Arg, Graph, Node, NodeId, Symbol};
use corsac_ops::signature::{Default as DefaultValue, Parameter, Signature};
use corsac_ops::{Behaviour, Param, Role, When};
use smallvec::SmallVec;

use super::rule::Literal;

/// An argument as it is passed in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'g> {
    /// One argument.
    One(&'g Arg),
    /// Several arguments where one list could stand.
    Many(&'g [Arg]),
    /// The default value of a parameter, where no argument is given.
    Default(DefaultValue),
    /// The value of a node.
    Node(NodeId),
    /// The module that a node calls.
    Module(NodeId),
}

impl<'g> Given<'g> {
    /// The node, if it is one.
    pub(crate) fn node(self) -> Option<NodeId> {
        match self {
            Self::One(arg) => arg.as_node(),
            Self::Node(node) => Some(node),
            Self::Many(_) | Self::Default(_) | Self::Module(_) => None,
        }
    }

    /// The node that calls it, if it is a module.
    pub(crate) fn module(self) -> Option<NodeId> {
        match self {
            Self::Module(node) => Some(node),
            Self::One(_) | Self::Many(_) | Self::Default(_) | Self::Node(_) => None,
        }
    }

    /// The items, if it is a list or tuple.
    pub(crate) fn items(self) -> Option<&'g [Arg]> {
        match self {
            Self::One(arg) => arg.as_items(),
            Self::Many(items) => Some(items),
            Self::Default(_) | Self::Node(_) | Self::Module(_) => None,
        }
    }

    /// The literal, if it is one that rules have.
    pub(crate) fn literal(self, graph: &Graph) -> Option<Literal> {
        Some(match self {
            Self::One(Arg::None) => Literal::None,
            Self::One(Arg::Ellipsis) => Literal::Ellipsis,
            Self::One(Arg::Bool(value)) => Literal::Bool(*value),
            Self::One(Arg::Int(value)) => Literal::Int(*value),
            Self::One(Arg::Float(value)) => Literal::Float(*value),
            Self::One(Arg::Str(value)) => Literal::Str(graph.text(*value).to_owned()),
            Self::One(Arg::DType(value)) => Literal::DType(*value),
            Self::Default(value) => value.into(),
            Self::One(_) | Self::Many(_) | Self::Node(_) | Self::Module(_) => return None,
        })
    }

    /// Whether it is this literal; numbers by value.
    pub(crate) fn is_literal(self, graph: &Graph, wanted: &Literal) -> bool {
        match (self, wanted) {
            (Self::One(Arg::Int(value)), _) => wanted.is_number(*value as f64),
            (Self::One(Arg::Float(value)), _) => wanted.is_number(*value),
            (Self::One(Arg::Str(text)), Literal::Str(wanted)) => graph.text(*text) == wanted,
            (Self::One(Arg::Str(_)), _) => false,
            _ => self.literal(graph).is_some_and(|own| match own.number() {
                Some(number) => wanted.is_number(number),
                None => own == *wanted,
            }),
        }
    }

    /// Whether both are the same value.
    pub(crate) fn same(self, graph: &Graph, other: Self) -> bool {
        if let (Some(a), Some(b)) = (self.node(), other.node()) {
            return a == b;
        }
        if let (Some(a), Some(b)) = (self.module(), other.module()) {
            return graph.node(a).target() == graph.node(b).target();
        }
        match (self, other) {
            (Self::One(a), Self::One(b)) => super::rule::same_value(a, b),
            (a, b) => match (a.items(), b.items()) {
                (Some(a), Some(b)) => {
                    let mut pairs = a.iter().zip(b);
                    a.len() == b.len() && pairs.all(|(a, b)| super::rule::same_value(a, b))
                }
                _ => {
                    let literal = a.literal(graph);
                    literal.is_some() && literal == b.literal(graph)
                }
            },
        }
    }
}

/// The arguments of one call, by place in the operator's signature.
#[derive(Debug, Default)]
pub(crate) struct Arguments<'g> {
    pub(crate) by_position: SmallVec<[Option<Given<'g>>; 6]>,
    /// Keyword arguments of an operator without signature.
    pub(crate) keywords: SmallVec<[(&'g str, Given<'g>); 2]>,
    pub(crate) signature: Option<&'static Signature>,
}

impl<'g> Arguments<'g> {
    /// The arguments of `node`, which calls an operator with this signature; `None` where the call
    /// does not fit the signature.
    pub(crate) fn of(
        node: Node<'g>,
        signature: Option<&'static Signature>,
        spelling: Option<&'static Signature>,
    ) -> Option<Self> {
        let (args, kwargs) = (node.args(), node.kwargs());
        Self::of_call(node.graph(), args, kwargs, signature, spelling)
    }

    /// The same for a call that need not be in the graph, but whose strings are.
    pub(crate) fn of_call(
        graph: &'g Graph,
        args: &'g [Arg],
        kwargs: &'g [(Symbol, Arg)],
        signature: Option<&'static Signature>,
        spelling: Option<&'static Signature>,
    ) -> Option<Self> {
        let Some(signature) = signature else {
            let keywords = kwargs.iter();
            return Some(Self {
                by_position: args.iter().map(|a| Some(Given::One(a))).collect(),
                keywords: keywords
                    .map(|(key, arg)| (graph.text(*key), Given::One(arg)))
                    .collect(),
                signature: None,
            });
        };
        let parameters = &signature.parameters;
        let mut arguments = Self {
            by_position: SmallVec::from_elem(None, parameters.len()),
            keywords: SmallVec::new(),
            signature: Some(signature),
        };
        let positional = spelling.unwrap_or(signature);
        for (at, arg) in args.iter().enumerate() {
            let parameter: &Parameter = positional.parameters.get(at)?;
            // A parameter that only this spelling has does not change the result.
            if let Some(place) = signature.position(parameter.name) {
                let is_list = args.len() == at + 1 && !matches!(arg, Arg::Int(_) | Arg::Node(_));
                if parameter.variadic && !is_list {
                    arguments.by_position[place] = Some(Given::Many(&args[at..]));
                    break;
                }
                arguments.by_position[place] = Some(Given::One(arg));
            }
        }
        for (key, arg) in kwargs {
            let name = graph.text(*key);
            let Some(place) = signature.position(name) else {
                positional.position(name)?;
                continue;
            };
            let slot = &mut arguments.by_position[place];
            if slot.is_some() {
                return None;
            }
            *slot = Some(Given::One(arg));
        }
        for (slot, parameter) in arguments.by_position.iter_mut().zip(parameters) {
            if slot.is_none() {
                *slot = parameter.default.map(Given::Default);
            }
        }
        Some(arguments)
    }

    /// Whether the argument at `place` is left out, or equals the default.
    pub(crate) fn is_default(&self, graph: &Graph, place: usize) -> bool {
        let Some(given) = self.by_position.get(place).copied().flatten() else {
            return true;
        };
        let Some(signature) = self.signature else {
            return false;
        };
        let default = signature.parameters.get(place).and_then(|p| p.default);
        default.is_some_and(|default| given.is_literal(graph, &default.into()))
    }
}

/// Whether the value of a call with this many positional arguments, and with keywords for which
/// `has_keyword` holds, may share storage with an argument.
pub(crate) fn shares(
    behaviour: &Behaviour,
    positional: usize,
    has_keyword: &dyn Fn(&str) -> bool,
) -> bool {
    let given = |param: &Param| {
        let by_position = param
            .position
            .is_some_and(|at| usize::from(at) < positional);
        by_position || has_keyword(&param.name)
    };
    let aliased = |role: &Role| match &role.aliased {
        When::Never => false,
        When::Always => role.param.position.is_some() || given(&role.param),
        When::If(param, default) => *default || given(param),
    };
    behaviour.aliases_all || behaviour.roles.iter().any(aliased)
}
