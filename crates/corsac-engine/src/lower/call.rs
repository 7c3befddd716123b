//! A call with its operands by the parameters of the operator.

use corsac_ir::{Arg, NodeId};
use corsac_ops::shape::{Given, Value};
use corsac_ops::{OperatorId, is_operator};
use smallvec::SmallVec;

use super::{Lowered, Lowerer, Reason, not_held};
use crate::program::ValueId;

/// A call of an operator that has a type rule, with operands by the parameters of the rule.
pub(super) struct Call {
    /// The operator.
    pub(super) operator: OperatorId,
    operands: Vec<(&'static str, Lowered)>,
    /// Whether the result is written to the first argument.
    pub(super) in_place: bool,
    /// The tensors that are given for the results.
    pub(super) out: SmallVec<[NodeId; 2]>,
    /// The type of the first argument.
    pub(super) first_type: Value,
}

/// Attributes of modules that the corresponding function takes as arguments, although type rules
/// need not read them.
const ATTRIBUTES: &[&str] = &[
    "add_zero_attn",
    "bias_k",
    "bias_v",
    "dropout",
    "in_proj_bias",
    "in_proj_weight",
    "num_heads",
    "out_proj.bias",
    "out_proj.weight",
    "training",
];

impl Call {
    /// The call of `node`, with its operands.
    pub(super) fn of(lowerer: &mut Lowerer<'_, '_>, node: NodeId) -> Result<Self, Reason> {
        let view = lowerer.graph.node(node);
        let binding = lowerer.types.binding(lowerer.graph, view)?;
        if let Some(facts) = binding.module {
            if facts.hooked {
                return Err("the module has hooks, which may do anything".to_owned());
            }
            if let Some(Value::Str(mode)) = facts.attribute("padding_mode")
                && &**mode != "zeros"
            {
                return Err(format!("a convolution with padding_mode={mode}"));
            }
        }
        let mut operands = Vec::with_capacity(binding.given.len());
        for (param, given) in &binding.given {
            // Functions of Python's `operator` have parameters without names.
            let param = match *param {
                "a" => "input",
                "b" if is_operator!(binding.operator, "pow") => "exponent",
                "b" => "other",
                param => param,
            };
            let operand = match given {
                Given::Arg(arg) => lowerer.operand(arg)?,
                Given::Attribute(value) => lowerer.known(value)?,
                Given::Rest(args) => match args[..] {
                    [Arg::Tuple(_) | Arg::List(_) | Arg::Node(_)] => lowerer.operand(args[0])?,
                    _ => {
                        let items = args.iter().map(|arg| lowerer.operand(arg));
                        known_items(items.collect::<Result<_, _>>()?)
                    }
                },
            };
            operands.push((param, operand));
        }
        if let Some(facts) = binding.module {
            for &name in ATTRIBUTES {
                if operands.iter().all(|(own, _)| *own != name)
                    && let Some(value) = facts.attribute(name)
                {
                    operands.push((name, lowerer.known(value)?));
                }
            }
        }
        let first = view.args().first();
        let out = match binding.out {
            None => SmallVec::new(),
            Some(Arg::Tuple(items) | Arg::List(items)) => {
                let items = items.iter().map(Arg::as_node);
                let items = items.collect::<Option<_>>();
                items.ok_or("out= is no tuple of values of the graph")?
            }
            Some(out) => {
                SmallVec::from_iter([out.as_node().ok_or("out= is no value of the graph")?])
            }
        };
        let mut call = Self {
            operator: binding.operator,
            operands,
            in_place: binding.in_place,
            out,
            first_type: first.map_or(Value::None, |first| {
                lowerer.types.argument(lowerer.graph, first)
            }),
        };
        call.in_place |= call.flag("inplace", false)?;
        Ok(call)
    }

    pub(super) fn get(&self, param: &str) -> Option<&Lowered> {
        let (_, operand) = self.operands.iter().find(|(own, _)| *own == param)?;
        (!matches!(operand, Lowered::Known(Value::None))).then_some(operand)
    }

    /// All operands that are tensors.
    pub(super) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut ValueId> {
        let operands = self.operands.iter_mut();
        operands.filter_map(|(_, operand)| match operand {
            Lowered::Tensor(value) => Some(value),
            Lowered::Items(_) | Lowered::Known(_) => None,
        })
    }

    /// All operands that are known numbers, without factors of others.
    pub(super) fn numbers_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let operands = self.operands.iter_mut();
        operands.filter_map(|(param, operand)| match operand {
            Lowered::Known(_) if *param == "alpha" => None,
            Lowered::Known(value @ (Value::Int(_) | Value::Float(_))) => Some(value),
            _ => None,
        })
    }

    /// The tensor given for a parameter.
    pub(super) fn tensor(&self, param: &str) -> Result<ValueId, Reason> {
        match self.get(param) {
            Some(Lowered::Tensor(value)) => Ok(*value),
            Some(Lowered::Known(value)) => Err(not_held(value, param)),
            Some(Lowered::Items(_)) => Err(format!("{param} is no tensor")),
            None => Err(format!("there is no {param}")),
        }
    }

    /// The tensor given for a parameter, if there is one.
    pub(super) fn optional(&self, param: &str) -> Result<Option<ValueId>, Reason> {
        match self.get(param) {
            None => Ok(None),
            Some(_) => self.tensor(param).map(Some),
        }
    }

    /// The tensors of a list.
    pub(super) fn tensors(&self, param: &str) -> Result<Vec<ValueId>, Reason> {
        let Some(Lowered::Items(items)) = self.get(param) else {
            return Err(format!("{param} is no list of tensors"));
        };
        let tensor = |item: &Lowered| match item {
            Lowered::Tensor(value) => Ok(*value),
            _ => Err(format!("{param} is no list of tensors")),
        };
        items.iter().map(tensor).collect()
    }

    /// The value of a parameter that is known before the program runs.
    pub(super) fn known(&self, param: &str) -> Result<Option<&Value>, Reason> {
        match self.get(param) {
            None => Ok(None),
            Some(Lowered::Known(value)) => Ok(Some(value)),
            Some(_) => Err(format!("{param} is computed when the program runs")),
        }
    }

    pub(super) fn flag(&self, param: &str, default: bool) -> Result<bool, Reason> {
        match self.known(param)? {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(format!("{param} is no truth value")),
        }
    }

    pub(super) fn number(&self, param: &str) -> Result<Option<f64>, Reason> {
        let number =
            |value: &Value| as_number(value).ok_or_else(|| format!("{param} is no number"));
        self.known(param)?.map(number).transpose()
    }

    pub(super) fn number_or(&self, param: &str, default: f64) -> Result<f64, Reason> {
        Ok(self.number(param)?.unwrap_or(default))
    }

    pub(super) fn int(&self, param: &str) -> Result<Option<i64>, Reason> {
        let int = |value: &Value| as_int(value).ok_or_else(|| format!("{param} is no integer"));
        self.known(param)?.map(int).transpose()
    }

    /// The integers given for a parameter: a list, or one.
    pub(super) fn ints(&self, param: &str) -> Result<Option<Vec<i64>>, Reason> {
        let Some(value) = self.known(param)? else {
            return Ok(None);
        };
        let ints = match value.as_items() {
            Some(items) => items.iter().map(as_int).collect(),
            None => as_int(value).map(|value| vec![value]),
        };
        ints.map(Some)
            .ok_or_else(|| format!("{param} is no list of integers"))
    }

    /// A pair of sizes, or one for both dimensions.
    pub(super) fn pair(&self, param: &str, default: usize) -> Result<[usize; 2], Reason> {
        let wrong = || format!("{param} is no pair of sizes");
        let Some(ints) = self.ints(param)? else {
            return Ok([default; 2]);
        };
        let size = |value: i64| usize::try_from(value).map_err(|_| wrong());
        match ints[..] {
            [] => Ok([default; 2]),
            [both] => Ok([size(both)?; 2]),
            [rows, columns] => Ok([size(rows)?, size(columns)?]),
            _ => Err(wrong()),
        }
    }

    /// The dimension given for a parameter, of a tensor of this rank.
    pub(super) fn dim(&self, param: &str, rank: usize, default: i64) -> Result<usize, Reason> {
        wrapped(self.int(param)?.unwrap_or(default), rank)
    }

    /// The dimensions that are given, in order: all if there are none.
    pub(super) fn dims(&self, rank: usize) -> Result<SmallVec<[usize; 4]>, Reason> {
        let mut dims: SmallVec<[usize; 4]> = match self.ints("dim")? {
            Some(dims) if !dims.is_empty() => dims
                .into_iter()
                .map(|dim| wrapped(dim, rank))
                .collect::<Result<_, _>>()?,
            _ => (0..rank).collect(),
        };
        dims.sort_unstable();
        Ok(dims)
    }

    pub(super) fn text(&self, param: &str) -> Result<Option<&str>, Reason> {
        match self.known(param)? {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{param} is no string")),
        }
    }
}

/// The items as one list, which is known if all items are.
fn known_items(items: Vec<Lowered>) -> Lowered {
    let known = items.iter().map(|item| match item {
        Lowered::Known(value) => Some(value.clone()),
        _ => None,
    });
    match known.collect::<Option<Vec<Value>>>() {
        Some(known) => Lowered::Known(Value::List(known.into())),
        None => Lowered::Items(items),
    }
}

/// A dimension, counted from the end if it is negative.
pub(super) fn wrapped(dim: i64, rank: usize) -> Result<usize, Reason> {
    let len = rank.max(1) as i64;
    let at = if dim < 0 { dim + len } else { dim };
    usize::try_from(at)
        .ok()
        .filter(|&at| (at as i64) < len)
        .ok_or_else(|| format!("there is no dimension {dim}"))
}

pub(super) fn as_int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(dim) => dim.known(),
        _ => None,
    }
}

pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(dim) => dim.known().map(|value| value as f64),
        Value::Float(value) => Some(*value),
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        _ => None,
    }
}
