//! The parameters of operators, in the order of their Python signatures, with defaults: calls that
//! pass the same arguments in different ways are recognised as the same.

mod python;

use std::sync::LazyLock;

use corsac_ir::Op;
use rustc_hash::FxHashMap;

use crate::operators::OperatorId;
use crate::schema::Schema;

/// A default value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Default {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Str(&'static str),
}

/// A parameter of an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name; the first tensor is `input`, also where a schema calls it `self`.
    pub name: &'static str,
    /// The default value, if the parameter may be left out.
    pub default: Option<Default>,
    /// Whether it takes all positional arguments from here on: sizes, which may also be given as
    /// one list.
    pub variadic: bool,
}

/// The parameters of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// In the order in which they are given by position.
    pub parameters: Vec<Parameter>,
}

impl Signature {
    /// The signature of the operator `name`, as [`crate::operator_name`] has it; `None` for those
    /// that are not in the table, which are called by position only.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        let operator = OperatorId::named(name)?;
        SIGNATURES.get(&operator)
    }

    /// The signature by which the call of `target` passes arguments by position, where that is
    /// not the one of the operator.
    #[must_use]
    pub fn of_spelling(target: &str) -> Option<&'static Self> {
        SPELLINGS.get(target)
    }

    /// The place of the parameter called `name`. Some have two names in PyTorch.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        let name = match name {
            "self" => "input",
            "axis" => "dim",
            "keepdims" => "keepdim",
            "size" if !self.has("size") => "shape",
            name => name,
        };
        self.parameters.iter().position(|p| p.name == name)
    }

    fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|p| p.name == name)
    }

    fn parse(text: &'static str) -> Self {
        let parameters = text.split_ascii_whitespace().map(|word| {
            let (name, default) = match word.split_once('=') {
                Some((name, default)) => (name, Some(literal(default))),
                None => (word, None),
            };
            Parameter {
                name: name.trim_end_matches("..."),
                default,
                variadic: name.ends_with("..."),
            }
        });
        Self {
            parameters: parameters.collect(),
        }
    }
}

fn literal(text: &'static str) -> Default {
    match text {
        "None" => Default::None,
        "True" => Default::Bool(true),
        "False" => Default::Bool(false),
        number => match (number.parse(), number.parse()) {
            (Ok(int), _) => Default::Int(int),
            (_, Ok(float)) => Default::Float(float),
            _ => Default::Str(text),
        },
    }
}

/// The names of the first `count` parameters of the function `target`, by which they can be given
/// as well: `input`, `other` for two of `torch.add`. `None` where that is not known, where
/// overloads with as many parameters name them differently, and for functions that take no names.
///
/// Source: the schemas of operators, where the parameter `self` takes the name `input`; the
/// signatures of functions that are written in Python.
///
/// ```
/// use corsac_ops::signature::parameter_names;
///
/// assert_eq!(parameter_names("torch.add", 2).unwrap(), ["input", "other"]);
/// assert_eq!(parameter_names("torch.ops.aten.add.Tensor", 1).unwrap(), ["self"]);
/// assert_eq!(parameter_names("operator.add", 2), None);
/// ```
#[must_use]
pub fn parameter_names(target: &str, count: usize) -> Option<Vec<String>> {
    let (module, own) = target.rsplit_once('.')?;
    let in_python = match module {
        "torch" => python_signature(&format!("torch.functional.{own}")),
        _ => python_signature(target),
    };
    if let Some(names) = in_python {
        let names: Vec<String> = names.split(' ').take(count).map(str::to_owned).collect();
        return (names.len() == count).then_some(names);
    }
    if let Some(operator) = target.strip_prefix("torch.ops.aten.") {
        return match operator.split_once('.') {
            Some((packet, "default")) => common_names(Schema::overload(packet).into_iter(), count),
            Some(_) => common_names(Schema::overload(operator).into_iter(), count),
            None => common_names(Schema::overloads(operator), count),
        };
    }
    // Functions of these modules that are not written in Python are builtin ones.
    let builtin = matches!(module, "torch" | "torch._C._nn" | "torch.nn.functional");
    let names = common_names(Schema::overloads(own).filter(|_| builtin), count)?;
    // Other functions take sizes one by one, which have no name each.
    let tensors = ["self", "input", "tensors", "query", "condition"];
    let of_tensor = names
        .first()
        .is_none_or(|first| tensors.contains(&first.as_str()));
    let renamed = names.into_iter().map(|name| match name.as_str() {
        "self" => "input".to_owned(),
        _ => name,
    });
    of_tensor.then(|| renamed.collect())
}

/// Whether a function or method of PyTorch takes this many arguments by position, the tensor among
/// them, and these keywords, by the schemas of operators; true for a name without a schema.
///
/// ```
/// use corsac_ir::Op;
/// use corsac_ops::signature::takes;
///
/// // The overload that has `stable` takes `dim` by name only.
/// assert!(takes(Op::CallMethod, "sort", 2, ["descending"]));
/// assert!(!takes(Op::CallMethod, "sort", 2, ["stable"]));
/// ```
#[must_use]
pub fn takes<'a>(
    op: Op,
    target: &str,
    positional: usize,
    keywords: impl IntoIterator<Item = &'a str>,
) -> bool {
    let own = match (op, target.rsplit_once('.')) {
        (Op::CallMethod, _) => target,
        (Op::CallFunction, Some(("torch", own))) => match python_signature(target) {
            None if python_signature(&format!("torch.functional.{own}")).is_none() => own,
            _ => return true,
        },
        (Op::CallFunction, _) => match target.strip_prefix("torch.ops.aten.") {
            Some(own) => own.strip_suffix(".default").unwrap_or(own),
            None => return true,
        },
        _ => return true,
    };
    let keywords = keywords.into_iter().map(|keyword| match keyword {
        "input" => "self",
        "axis" => "dim",
        "keepdims" => "keepdim",
        keyword => keyword,
    });
    // Keywords of functions that make tensors which are not passed to an operator.
    let keywords: Vec<&str> = keywords
        .filter(|keyword| !matches!(*keyword, "requires_grad" | "out"))
        .collect();
    let mut overloads = Schema::overloads(own).peekable();
    overloads.peek().is_none()
        || overloads.any(|schema| {
            let given = keywords.iter().copied();
            // Sizes may be given one by one.
            let sizes = schema.params.get(1).is_some_and(|param| {
                let of_sizes = ["size", "shape", "dims", "repeats", "sizes"];
                !param.keyword_only && of_sizes.contains(&param.name.as_str())
            });
            let alone = schema.params.first().is_some_and(|own| own.name == "size");
            schema.takes(
                if sizes { positional.min(2) } else { positional },
                given.clone(),
            ) || (alone && schema.takes(positional.min(1), given))
        })
}

fn python_signature(name: &str) -> Option<&'static str> {
    let table = python::TABLE;
    let at = table.binary_search_by(|(own, _)| own.cmp(&name)).ok()?;
    Some(table[at].1)
}

/// The names on which all overloads with this many positional parameters agree.
fn common_names(overloads: impl Iterator<Item = Schema>, count: usize) -> Option<Vec<String>> {
    let named = overloads.filter_map(|schema| {
        let positional = schema.params.iter().filter(|param| !param.keyword_only);
        let names: Vec<String> = positional.take(count).map(|p| p.name.clone()).collect();
        (names.len() == count).then_some(names)
    });
    let mut named = named.collect::<Vec<_>>();
    named.dedup();
    match named.len() {
        1 => named.pop(),
        _ => None,
    }
}

static SIGNATURES: LazyLock<FxHashMap<OperatorId, Signature>> = LazyLock::new(|| {
    let signatures = OperatorId::all().filter_map(|operator| {
        let text = operator.row().signature?;
        Some((operator, Signature::parse(text)))
    });
    signatures.collect()
});

static SPELLINGS: LazyLock<FxHashMap<&str, Signature>> = LazyLock::new(|| {
    let signature = |&(name, text): &(&'static str, _)| (name, Signature::parse(text));
    OTHER_SPELLINGS.iter().map(signature).collect()
});

/// Functions that take the same parameters in another order.
const OTHER_SPELLINGS: &[(&str, &str)] = &[
    (
        "torch.nn.functional.softmax",
        "input dim=None _stacklevel=3 dtype=None",
    ),
    (
        "torch.nn.functional.log_softmax",
        "input dim=None _stacklevel=3 dtype=None",
    ),
];

/// The function of Python's `operator` that computes the same as a function of `torch` called with
/// two operands and nothing else: `operator.add` for `torch.add`. Source:
/// `torch/fx/experimental/normalize.py`.
#[must_use]
pub fn python_operator(target: &str) -> Option<&'static str> {
    Some(match target.strip_prefix("torch.")? {
        "add" => "operator.add",
        "mul" => "operator.mul",
        "sub" => "operator.sub",
        "div" => "operator.truediv",
        "floor_divide" => "operator.floordiv",
        "remainder" => "operator.mod",
        "eq" => "operator.eq",
        "ne" => "operator.ne",
        "lt" => "operator.lt",
        "le" => "operator.le",
        "gt" => "operator.gt",
        "ge" => "operator.ge",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_function_that_is_called() {
        let names = |target, count| parameter_names(target, count).map(|names| names.join(" "));
        let cases = [
            ("torch.nn.functional.relu", 2, Some("input inplace")),
            ("torch.relu", 1, Some("input")),
            ("torch.relu", 2, None),
            ("torch._C._nn.linear", 3, Some("input weight bias")),
            (
                "torch.functional.split",
                2,
                Some("tensor split_size_or_sections"),
            ),
            ("torch.split", 1, Some("tensor")),
            ("torch.ops.aten.addmm.default", 3, Some("self mat1 mat2")),
            // Tensors, or dimensions.
            ("torch.max", 2, None),
            ("torch.max", 1, Some("input")),
            ("torch.zeros", 1, None),
            ("torch.Tensor.add", 2, None),
            ("mine.relu", 1, None),
        ];
        for (target, count, expected) in cases {
            assert_eq!(names(target, count).as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn a_signature_is_read_from_its_line() {
        let add = Signature::of("add").unwrap();
        assert_eq!(add.parameters[2].default, Some(Default::Int(1)));
        assert_eq!(add.position("self"), Some(0));
        assert!(Signature::of("permute").unwrap().parameters[1].variadic);
        let gelu = Signature::of("gelu").unwrap();
        assert_eq!(gelu.parameters[1].default, Some(Default::Str("none")));
        let norm = Signature::of("layer_norm").unwrap();
        assert_eq!(norm.parameters[4].default, Some(Default::Float(1e-5)));
        assert_eq!(Signature::of("no_such_operator"), None);
        let softmax = Signature::of_spelling("torch.nn.functional.softmax").unwrap();
        assert_eq!(softmax.position("dtype"), Some(3));
    }
}
