//! The in-place form of a call.

use corsac_ir::{Arg, Graph, Node, NodeId, Op, Symbol, ThinVec};
use corsac_ops::schema::Schema;
use corsac_ops::{Host, InPlaceForm, Operator, OperatorId};

use super::{ARGUMENTS, SETTINGS, first_argument};
use crate::report::Refusal;

/// The in-place form of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A method.
    Method(String),
    /// A function, by qualified name.
    Function(String),
    /// None: the second argument is copied into a view of the first, and the first takes the place
    /// of the result.
    IntoView {
        /// The function that makes the view.
        view: String,
    },
}

impl Form {
    /// The name of the method or function that is called instead.
    pub(super) fn callee(&self) -> &str {
        match self {
            Self::Method(name) => name,
            Self::Function(name) => name,
            Self::IntoView { .. } => COPY,
        }
    }
}

/// The function that copies into a view.
pub(super) const COPY: &str = "torch.ops.aten.copy_.default";

/// Arguments that replace those of the call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rewritten {
    pub(super) args: ThinVec<Arg>,
    pub(super) kwargs: Vec<(String, Arg)>,
}

impl Eq for Rewritten {}

impl Rewritten {
    /// The arguments with keywords as symbols of `graph`.
    pub(super) fn interned(&self, graph: &mut Graph) -> (ThinVec<Arg>, ThinVec<(Symbol, Arg)>) {
        let kwargs = self.kwargs.iter();
        let kwargs = kwargs.map(|(key, value)| (graph.intern(key), value.clone()));
        (self.args.clone(), kwargs.collect())
    }
}

/// The change of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The value to overwrite.
    pub(super) input: NodeId,
    /// The in-place form to call.
    pub(super) form: Form,
    /// The new arguments, if they change.
    pub(super) arguments: Option<Rewritten>,
    /// See [`InPlaceForm::keeps_type`].
    pub(super) keeps_type: bool,
    /// See [`InPlaceForm::is_elementwise`].
    pub(super) elementwise: bool,
    /// See `commutes` of [`Operator`].
    commutes: bool,
    /// Whether the second argument is overwritten, and swapped with the first.
    pub(super) swapped: bool,
}

impl Change {
    /// The same with the second of two arguments overwritten, if the result is the same.
    pub(super) fn of_second(&self, node: Node<'_>) -> Option<Self> {
        let ([first @ Arg::Node(a), second @ Arg::Node(b)], []) = (node.args(), node.kwargs())
        else {
            return None;
        };
        (self.commutes && a != b).then(|| Self {
            input: *b,
            arguments: Some(Rewritten {
                args: [second.clone(), first.clone()].into_iter().collect(),
                kwargs: Vec::new(),
            }),
            swapped: true,
            // The types decide which of the two is a number, or is broadcast.
            keeps_type: false,
            ..self.clone()
        })
    }
}

/// The name of the target of `node`, if it is PyTorch's or an operator: `view` of a method or of
/// `torch.ops.aten.view.default`, `operator.add`.
fn called(node: Node<'_>) -> Option<&str> {
    let name = node.target_name();
    match node.op() {
        Op::CallMethod => Some(name),
        Op::CallFunction => {
            if let Some(operator) = name.strip_prefix("torch.ops.aten.") {
                return operator.split('.').next();
            }
            let (module, own) = name.rsplit_once('.')?;
            match module {
                "torch" | "torch.Tensor" | "torch._C.TensorBase" | "torch.nn.functional" => {
                    Some(own)
                }
                "operator" | "_operator" => Some(name),
                _ => None,
            }
        }
        Op::CallModule | Op::GetAttr | Op::Placeholder | Op::Output => None,
    }
}

/// The in-place form of `node`; `None` if its target has none.
pub(super) fn form_of(
    graph: &Graph,
    host: &dyn Host,
    id: NodeId,
) -> Option<Result<Change, Refusal>> {
    let node = graph.node(id);
    if node.op() == Op::CallModule {
        return of_module(node, host);
    }
    let name = called(node)?;
    let function = node.target_name();
    let own = name
        .strip_prefix("operator.")
        .or(name.strip_prefix("_operator."));
    if let Some(own) = own {
        let operator = OperatorId::of(node.op(), function)?.row();
        return Some(of_operator(node, operator, augmented(own)?));
    }
    let operator = OperatorId::named(name)?.row();
    if let Some(own) = function.strip_prefix("torch.nn.functional.")
        && node.op() == Op::CallFunction
        && let Some(position) = operator.inplace_parameter
    {
        return Some(of_activation(graph, node, own, position));
    }
    if let Some(view) = operator.writes_view
        && function.starts_with("torch.ops.aten.")
    {
        return Some(into_view(graph, node, view));
    }
    let form = operator.in_place?;
    Some(of_call(graph, node, operator, form, format!("{name}_")))
}

/// An operator that replaces a part of a copy of its first argument.
fn into_view(graph: &Graph, node: Node<'_>, view: &str) -> Result<Change, Refusal> {
    let ([Arg::Node(input), Arg::Node(_), rest @ ..], kwargs) = (node.args(), node.kwargs()) else {
        return Err(ARGUMENTS);
    };
    let args = std::iter::once(Arg::Node(*input)).chain(rest.iter().cloned());
    let kwargs = kwargs
        .iter()
        .map(|(key, value)| (graph.text(*key).to_owned(), value.clone()));
    Ok(Change {
        input: *input,
        form: Form::IntoView {
            view: format!("torch.ops.aten.{view}"),
        },
        arguments: Some(Rewritten {
            args: args.collect(),
            kwargs: kwargs.collect(),
        }),
        keeps_type: true,
        elementwise: false,
        commutes: false,
        swapped: false,
    })
}

/// The augmented assignment of a function of Python's `operator`.
fn augmented(own: &str) -> Option<&'static str> {
    Some(match own {
        "add" => "operator.iadd",
        "sub" => "operator.isub",
        "mul" => "operator.imul",
        "truediv" => "operator.itruediv",
        "pow" => "operator.ipow",
        "mod" => "operator.imod",
        "and_" => "operator.iand",
        "or_" => "operator.ior",
        "xor" => "operator.ixor",
        _ => return None,
    })
}

fn of_operator(node: Node<'_>, operator: &Operator, augmented: &str) -> Result<Change, Refusal> {
    // The type of the first operand decides whether it is a tensor at all.
    let input = first_argument(node.args(), None).ok_or(ARGUMENTS)?;
    Ok(Change {
        input,
        form: Form::Function(augmented.to_owned()),
        arguments: None,
        keeps_type: false,
        elementwise: operator.in_place.is_some_and(InPlaceForm::is_elementwise),
        commutes: operator.commutes,
        swapped: false,
    })
}

fn of_module(node: Node<'_>, host: &dyn Host) -> Option<Result<Change, Refusal>> {
    let info = host.module(node.target_name())?;
    let class = info.torch_class()?;
    let operator = OperatorId::of_module(class)?;
    // There are settings between the input and `inplace`.
    if operator.row().inplace_parameter? > 1 {
        return Some(Err(SETTINGS));
    }
    let function = operator.name();
    let ([Arg::Node(input)], []) = (node.args(), node.kwargs()) else {
        return Some(Err(ARGUMENTS));
    };
    Some(Ok(Change {
        input: *input,
        form: Form::Function(format!("torch.nn.functional.{function}")),
        arguments: Some(Rewritten {
            args: node.args().iter().cloned().collect(),
            kwargs: vec![("inplace".to_owned(), Arg::Bool(true))],
        }),
        keeps_type: true,
        elementwise: true,
        commutes: false,
        swapped: false,
    }))
}

fn of_activation(
    graph: &Graph,
    node: Node<'_>,
    own: &str,
    position: u16,
) -> Result<Change, Refusal> {
    let input = first_argument(node.args(), node.kwarg("input")).ok_or(ARGUMENTS)?;
    let mut args: ThinVec<Arg> = node.args().iter().cloned().collect();
    let mut kwargs: Vec<_> = named(graph, node)
        .filter(|(key, _)| key != "inplace")
        .collect();
    match args.get_mut(usize::from(position)) {
        Some(flag) => *flag = Arg::Bool(true),
        None => kwargs.push(("inplace".to_owned(), Arg::Bool(true))),
    }
    Ok(Change {
        input,
        form: Form::Function(format!("torch.nn.functional.{own}")),
        arguments: Some(Rewritten { args, kwargs }),
        keeps_type: true,
        elementwise: true,
        commutes: false,
        swapped: false,
    })
}

/// A function of `torch`, an operator or a method, which becomes `method`.
fn of_call(
    graph: &Graph,
    node: Node<'_>,
    operator: &Operator,
    form: InPlaceForm,
    method: String,
) -> Result<Change, Refusal> {
    let keyword = node.kwarg("input").or_else(|| node.kwarg("self"));
    let input = first_argument(node.args(), keyword).ok_or(ARGUMENTS)?;
    let change = |form_: Form, arguments| Change {
        input,
        form: form_,
        arguments,
        keeps_type: form.keeps_type(),
        elementwise: form.is_elementwise(),
        commutes: operator.commutes,
        swapped: false,
    };
    if let Some(operator) = node.target_name().strip_prefix("torch.ops.aten.")
        && node.op() == Op::CallFunction
    {
        let (packet, overload) = operator
            .split_once('.')
            .map_or((operator, None), |(packet, overload)| {
                (packet, Some(overload))
            });
        let exists = match overload {
            None => Schema::overloads(&method).next().is_some(),
            Some("default") => Schema::overload(&method).is_some(),
            Some(overload) => Schema::overload(&format!("{method}.{overload}")).is_some(),
        };
        if !exists {
            return Err(ARGUMENTS);
        }
        let overload = overload.map_or_else(String::new, |overload| format!(".{overload}"));
        let name = format!("torch.ops.aten.{packet}_{overload}");
        return Ok(change(Form::Function(name), None));
    }
    let mut args: ThinVec<Arg> = node.args().iter().cloned().collect();
    let mut kwargs: Vec<_> = named(graph, node).collect();
    if args.is_empty() {
        args.push(Arg::Node(input));
        kwargs.retain(|(key, _)| key != "input" && key != "self");
    }
    let keywords = kwargs.iter().map(|(key, _)| key.as_str());
    if !Schema::overloads(&method).any(|schema| schema.takes(args.len(), keywords.clone())) {
        return Err(ARGUMENTS);
    }
    let rewritten = Rewritten { args, kwargs };
    Ok(change(Form::Method(method), Some(rewritten)))
}

fn named<'g>(graph: &'g Graph, node: Node<'g>) -> impl Iterator<Item = (String, Arg)> + 'g {
    let kwargs = node.kwargs().iter();
    kwargs.map(|(key, value)| (graph.text(*key).to_owned(), value.clone()))
}
