//! Rules: the result type of an operator from the types of its arguments, and its cost.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::call::Call;
use super::dim::Dim;
use super::error::Failure;
use super::sharding::{Shard, Sizes};
use super::value::Value;
use super::{
    attention, control, convolution, creation, elementwise, embedding, index, join, libraries,
    loss, matmul, module, normalisation, pooling, quantisation, recurrent, reduction, resample,
    scalar, softmax, sorting, spectral, view,
};
use crate::operators::OperatorId;
use crate::operators::spelling;

/// The function of a rule that computes the result type.
pub(super) type Infer = fn(&Call<'_>) -> Result<Value, Failure>;

/// The arithmetic of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Multiplications that are added to a sum: those of products of matrices and convolutions.
    pub macs: Dim,
    /// Floating-point operations, two for each of `macs`, and all others.
    pub flops: Dim,
}

/// Count of the arithmetic of a call. An elementwise operator counts one operation for each element
/// of its result, whatever it computes; a reduction one for each element of its input.
#[derive(Clone, Copy)]
pub enum Cost {
    /// Nothing is computed and nothing is moved: views, and values known before the program runs.
    Free,
    /// Elements are moved, nothing is computed.
    Move,
    /// As many elements are read as are written, wherever they are.
    Gather,
    /// This many operations for each element of the result.
    PerOutput(u32),
    /// This many operations for each element of the first argument.
    PerInput(u32),
    /// Two operations for each of these multiplications.
    Macs(fn(&Call<'_>, &Value) -> Option<Dim>),
    /// Counted by the rule.
    By(fn(&Call<'_>, &Value) -> Option<Work>),
    /// Not known.
    Unknown,
}

/// In-place form of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InPlace {
    /// The result is written to the first argument, whose type stays.
    Writes,
    /// There is none, or it changes the type of its argument.
    No,
}

/// A rule, as a row of the tables of the families.
pub(super) struct Rule {
    /// The callables it is for, separated by blanks: `conv2d` in any namespace, `F.softmax`,
    /// `Tensor.view`, `aten._softmax`, `operator.add` in one, or a whole qualified name.
    pub(super) names: &'static str,
    /// Its parameters: `input weight bias *dtype`; `*` starts those given by keyword only, `...`
    /// ends the name of one that takes all further positional arguments.
    pub(super) params: &'static str,
    pub(super) infer: Infer,
    pub(super) cost: Cost,
    pub(super) in_place: InPlace,
    /// Whether autograd differentiates it.
    pub(super) differentiable: bool,
    /// The ways in which it is called on parts of tensors; `None` where only on whole ones.
    pub(super) shard: Option<Shard>,
    /// Its arguments that depend on the size of a dimension.
    pub(super) sizes: Sizes,
}

/// A rule for a differentiable operator.
pub(super) const fn rule(
    names: &'static str,
    params: &'static str,
    infer: Infer,
    cost: Cost,
) -> Rule {
    Rule {
        names,
        params,
        infer,
        cost,
        in_place: InPlace::No,
        differentiable: true,
        shard: None,
        sizes: Sizes::None,
    }
}

impl Rule {
    /// The same, for in-place forms too.
    pub(super) const fn writes(mut self) -> Self {
        self.in_place = InPlace::Writes;
        self
    }

    /// The same, for an operator that is called on parts of tensors in these ways.
    pub(super) const fn shards(mut self, shard: Shard) -> Self {
        self.shard = Some(shard);
        self
    }

    /// The same, for an operator with arguments that depend on the size of a dimension.
    pub(super) const fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// The same, for an operator that autograd does not differentiate.
    pub(super) const fn detached(mut self) -> Self {
        self.differentiable = false;
        self
    }
}

/// A parameter of a rule.
#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) keyword_only: bool,
    pub(super) variadic: bool,
}

/// The parameters of a rule.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) params: Vec<Param>,
}

impl Signature {
    fn parse(text: &'static str) -> Self {
        let mut keyword_only = false;
        let params = text.split_ascii_whitespace().map(|word| {
            keyword_only |= word.starts_with('*');
            let name = word.trim_start_matches('*');
            Param {
                name: name.trim_end_matches("..."),
                keyword_only,
                variadic: name.ends_with("..."),
            }
        });
        Self {
            params: params.collect(),
        }
    }

    /// The place of the parameter. Names that PyTorch takes as synonyms count as one.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        let find = |name: &str| self.params.iter().position(|p| p.name == name);
        find(name).or_else(|| match name {
            "self" => find("input"),
            "axis" => find("dim"),
            "keepdims" => find("keepdim"),
            "split_sizes" | "split_size_or_sections" => find("split_size"),
            "sections" | "indices" => find("indices_or_sections").or_else(|| find("input")),
            "train" => find("training"),
            _ => None,
        })
    }
}

/// A rule, ready for use.
pub(super) struct Entry {
    pub(super) rule: &'static Rule,
    pub(super) signature: Signature,
    pub(super) family: &'static str,
}

/// The families, with their tables.
const FAMILIES: &[(&str, &[Rule])] = &[
    ("elementwise", elementwise::RULES),
    ("reductions", reduction::RULES),
    ("matrix products", matmul::RULES),
    ("convolutions", convolution::RULES),
    ("pooling", pooling::RULES),
    ("normalisation", normalisation::RULES),
    ("softmax", softmax::RULES),
    ("views and reshapes", view::RULES),
    ("indexing", index::RULES),
    ("joining and splitting", join::RULES),
    ("embedding", embedding::RULES),
    ("attention", attention::RULES),
    ("creation and conversion", creation::RULES),
    ("sorting and selection", sorting::RULES),
    ("resampling and padding", resample::RULES),
    ("losses", loss::RULES),
    ("recurrent layers", recurrent::RULES),
    ("fourier transforms", spectral::RULES),
    ("numbers and containers", scalar::RULES),
    ("quantisation", quantisation::RULES),
    ("control flow", control::RULES),
    ("functions of model libraries", libraries::RULES),
];

struct Table {
    entries: Vec<Entry>,
    by_name: FxHashMap<&'static str, (usize, OperatorId)>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table {
        entries: Vec::new(),
        by_name: FxHashMap::default(),
    };
    for &(family, rules) in FAMILIES {
        for rule in rules {
            for name in rule.names.split_ascii_whitespace() {
                let operator = operator_of_rule(name);
                let operator = operator.unwrap_or_else(|| panic!("no row for {name}"));
                let named = (table.entries.len(), operator);
                let replaced = table.by_name.insert(name, named);
                debug_assert!(replaced.is_none(), "one rule for {name}");
            }
            table.entries.push(Entry {
                rule,
                signature: Signature::parse(rule.params),
                family,
            });
        }
    }
    table
});

/// The operator that a rule with this name is for.
fn operator_of_rule(name: &str) -> Option<OperatorId> {
    let own = match name.rsplit_once('.') {
        Some(("operator", own)) => spelling::of_python(own.trim_matches('_')).unwrap_or(own),
        Some(("corsac" | "higher_order" | "quantized_decomposed", _)) => name,
        Some(("linalg", own)) => return OperatorId::named(&format!("linalg_{own}")),
        // `nn.MultiheadAttention.forward` is named by the class.
        Some((class, "forward")) => class.rsplit_once('.').map_or(class, |(_, own)| own),
        Some((_, own)) => own,
        None => name,
    };
    OperatorId::named(own)
}

/// The rule with exactly this name in the tables.
pub(super) fn named(name: &str) -> Option<Found> {
    let (&name, &(at, operator)) = TABLE.by_name.get_key_value(name)?;
    Some(Found {
        entry: &TABLE.entries[at],
        operator,
        name,
        in_place: false,
        exact: false,
    })
}

/// The rule for a callable, and whether this is its in-place form.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) entry: &'static Entry,
    pub(super) operator: OperatorId,
    /// The name under which it was found.
    pub(super) name: &'static str,
    pub(super) in_place: bool,
    /// Whether it is an operator of `torch.ops`.
    pub(super) exact: bool,
}

/// The rule for `own` in a namespace.
pub(super) fn in_namespace(space: &str, own: &str) -> Option<Found> {
    let shared = matches!(space, "torch" | "F" | "Tensor" | "aten");
    let exact = space == "aten";
    let find = |own: &str| {
        named(&format!("{space}.{own}")).or_else(|| shared.then(|| named(own)).flatten())
    };
    if let Some(found) = find(own) {
        return Some(Found {
            in_place: shared && writes_by_name(found.name),
            exact,
            ..found
        });
    }
    if !shared {
        return None;
    }
    let plain = own
        .strip_suffix('_')
        .filter(|plain| !plain.ends_with('_'))?;
    Some(Found {
        in_place: true,
        exact,
        ..find(plain)?
    })
}

/// Whether a rule is for an operator that has no other form than the one in place: `uniform_`.
pub(super) fn writes_by_name(name: &str) -> bool {
    let own = name.rsplit('.').next().unwrap_or(name);
    own.ends_with('_') && !own.ends_with("__")
}

/// The rule for a tensor method.
pub(super) fn for_method(name: &str) -> Option<Found> {
    match dunder(name) {
        Some(operator) => in_namespace("operator", operator),
        None => in_namespace("Tensor", name),
    }
}

/// The name in Python's `operator` of a method such as `__add__`.
fn dunder(name: &str) -> Option<&str> {
    let inner = name.strip_prefix("__")?.strip_suffix("__")?;
    Some(match inner {
        "and" => "and_",
        "or" => "or_",
        inner => inner,
    })
}

/// The rule for a function, by its qualified name.
pub(super) fn for_function(name: &str) -> Option<Found> {
    if let Some(operator) = name.strip_prefix("torch.ops.") {
        let mut parts = operator.splitn(3, '.');
        let (Some(space), Some(packet)) = (parts.next(), parts.next()) else {
            return None;
        };
        return in_namespace(space, packet);
    }
    let (module, own) = name.rsplit_once('.').unwrap_or(("builtins", name));
    match module {
        "torch"
        | "torch.functional"
        | "torch._VF"
        | "torch._C._VariableFunctions"
        | "torch._C._VariableFunctionsClass" => in_namespace("torch", own),
        "torch.nn.functional" | "torch._C._nn" => in_namespace("F", own),
        "torch.Tensor" | "torch._tensor.Tensor" | "torch._C.TensorBase" => for_method(own),
        "torch.special" | "torch._C._special" => {
            let own = own.strip_prefix("special_").unwrap_or(own);
            in_namespace("special", own).or_else(|| in_namespace("torch", own))
        }
        "torch.linalg" | "torch._C._linalg" => {
            in_namespace("linalg", own.strip_prefix("linalg_").unwrap_or(own))
        }
        "torch.fft" | "torch._C._fft" => {
            in_namespace("fft", own.strip_prefix("fft_").unwrap_or(own))
        }
        "operator" | "_operator" => operator(own),
        "builtins" | "math" => in_namespace(module, own),
        _ => named(name),
    }
}

/// The rule for a function of `operator`; `iadd` is `add` in place.
fn operator(own: &str) -> Option<Found> {
    if let Some(found) = in_namespace("operator", own) {
        return Some(found);
    }
    let plain = own.strip_prefix('i')?;
    let found = in_namespace("operator", plain)
        .or_else(|| in_namespace("operator", &format!("{plain}_")))?;
    Some(Found {
        in_place: true,
        ..found
    })
}

/// Whether there is a rule for the function with this qualified name.
#[must_use]
pub fn has_rule(function: &str) -> bool {
    for_function(function).is_some()
}

/// A row of the list of rules, for the documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// The family it belongs to.
    pub family: &'static str,
    /// The callables it is for.
    pub names: Vec<String>,
    /// The count of its arithmetic, in words.
    pub cost: &'static str,
}

/// All rules, in the order of the families.
#[must_use]
pub fn rules() -> Vec<RuleInfo> {
    let functions = TABLE.entries.iter().map(|entry| RuleInfo {
        family: entry.family,
        names: entry
            .rule
            .names
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect(),
        cost: entry.rule.cost.in_words(),
    });
    let modules = OperatorId::all().filter_map(|operator| {
        let mut classes = operator.row().module_classes().peekable();
        let entry = module::rule_of(classes.peek()?, operator)?.entry;
        Some(RuleInfo {
            family: "modules of torch.nn",
            names: classes.map(|class| format!("nn.{class}")).collect(),
            cost: entry.rule.cost.in_words(),
        })
    });
    functions.chain(modules).collect()
}

impl Cost {
    fn in_words(self) -> &'static str {
        match self {
            Self::Free => "none",
            Self::Move | Self::Gather => "moves elements",
            Self::PerOutput(_) => "per element of the result",
            Self::PerInput(_) => "per element of the input",
            Self::Macs(_) => "products",
            Self::By(_) => "counted",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    /// The names of all rules that are for operators of PyTorch, without their namespaces.
    fn operators() -> impl Iterator<Item = (&'static str, &'static str, &'static Entry)> {
        let of_python = ["operator.", "builtins.", "math.", "nn.", "torch.sym_"];
        let names = TABLE.by_name.iter().map(|(&name, &(at, _))| {
            let own = name.rsplit('.').next().unwrap_or(name);
            (name, own, &TABLE.entries[at])
        });
        names.filter(move |(name, ..)| !of_python.iter().any(|space| name.starts_with(space)))
    }

    #[test]
    fn operators_that_write_are_found_as_such() {
        for (name, own, entry) in operators() {
            let writes = |own: &str| {
                Schema::overloads(own)
                    .any(|schema| schema.params.first().is_some_and(|p| p.written))
            };
            let found = for_method(own).filter(|found| found.name == name);
            let found = found.or_else(|| for_function(&format!("torch.ops.aten.{own}")));
            if writes(own) {
                assert!(found.is_some_and(|found| found.in_place), "{name}");
                assert!(entry.rule.in_place == InPlace::Writes, "{name}");
            }
        }
    }
}
