//! A call with its operands in the order of the operator's parameters.

use corsac_ir::{NodeId, Op as GraphOp};
use corsac_ops::operator_name;
use corsac_ops::shape::Value;

use super::{Lowered, Lowerer, Reason};
use crate::program::ValueId;

/// Operators by their names, with the parameters that matter. `...` takes all further positional
/// arguments as one list.
const OPERATORS: &[(&str, &str)] = &[
    (
        "conv1d conv2d",
        "input weight bias stride padding dilation groups",
    ),
    ("linear", "input weight bias"),
    ("matmul bmm", "input other"),
    ("addmm", "bias input other"),
    (
        "scaled_dot_product_attention",
        "query key value attn_mask dropout_p is_causal scale enable_gqa",
    ),
    (
        "multi_head_attention",
        "query key value key_padding_mask need_weights attn_mask average_attn_weights is_causal \
         in_proj_weight in_proj_bias bias_k bias_v out_proj.weight out_proj.bias num_heads \
         batch_first add_zero_attn dropout training",
    ),
    (
        "batch_norm",
        "input running_mean running_var weight bias training momentum eps",
    ),
    ("layer_norm", "input normalized_shape weight bias eps"),
    ("relu relu6 hardswish hardsigmoid silu", "input inplace"),
    (
        "sigmoid tanh erf exp log sqrt rsqrt abs neg reciprocal square",
        "input",
    ),
    ("gelu", "input approximate"),
    ("elu", "input alpha inplace"),
    ("selu", "input inplace"),
    ("leaky_relu", "input negative_slope inplace"),
    ("hardtanh", "input min_val max_val inplace"),
    ("clamp", "input min max"),
    ("pow", "input exponent"),
    ("add sub rsub", "input other alpha"),
    ("mul div maximum minimum", "input other rounding_mode"),
    (
        "max_pool2d",
        "input kernel_size stride padding dilation ceil_mode return_indices",
    ),
    (
        "avg_pool2d",
        "input kernel_size stride padding ceil_mode count_include_pad divisor_override",
    ),
    ("adaptive_avg_pool2d", "input output_size"),
    ("mean sum amax amin", "input dim keepdim dtype"),
    ("softmax log_softmax", "input dim _stacklevel dtype"),
    (
        "dropout dropout1d dropout2d dropout3d",
        "input p training inplace",
    ),
    (
        "alpha_dropout feature_alpha_dropout",
        "input p training inplace",
    ),
    ("stochastic_depth", "input p mode training"),
    ("flatten", "input start_dim end_dim"),
    ("unflatten", "input dim sizes"),
    (
        "view reshape view_as reshape_as squeeze unsqueeze",
        "input shape...",
    ),
    ("permute", "input dims..."),
    ("transpose", "input dim0 dim1"),
    ("t contiguous clone detach identity", "input"),
    ("expand", "input sizes..."),
    ("cat", "tensors dim"),
    ("stack", "tensors dim"),
    ("chunk split unbind", "input sections dim"),
    ("getitem", "input index"),
    ("narrow", "input dim start length"),
    ("select", "input dim index"),
    ("roll", "input shifts dims"),
    ("pad", "input pad mode value"),
];

/// Modules of `torch.nn` by their classes, with the operators that they call on attributes of the
/// same names as the parameters.
const MODULES: &[(&str, &str)] = &[
    ("Conv1d", "conv1d"),
    ("Conv2d", "conv2d"),
    ("Linear NonDynamicallyQuantizableLinear", "linear"),
    (
        "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
        "batch_norm",
    ),
    ("LayerNorm", "layer_norm"),
    ("ReLU", "relu"),
    ("ReLU6", "relu6"),
    ("Hardswish", "hardswish"),
    ("Hardsigmoid", "hardsigmoid"),
    ("SiLU", "silu"),
    ("Sigmoid", "sigmoid"),
    ("Tanh", "tanh"),
    ("GELU", "gelu"),
    ("ELU", "elu"),
    ("SELU", "selu"),
    ("LeakyReLU", "leaky_relu"),
    ("Hardtanh", "hardtanh"),
    ("MaxPool2d", "max_pool2d"),
    ("AvgPool2d", "avg_pool2d"),
    ("AdaptiveAvgPool2d", "adaptive_avg_pool2d"),
    ("Softmax", "softmax"),
    ("LogSoftmax", "log_softmax"),
    ("Dropout Dropout1d Dropout2d Dropout3d", "dropout"),
    ("AlphaDropout FeatureAlphaDropout", "alpha_dropout"),
    ("MultiheadAttention", "multi_head_attention"),
    ("Flatten", "flatten"),
    ("Identity", "identity"),
];

/// Functions of libraries by their qualified names.
const LIBRARIES: &[(&str, &str)] = &[(
    "torchvision.ops.stochastic_depth.stochastic_depth",
    "stochastic_depth",
)];

/// Names in the host's spelling of parameters that have another one here.
const SAME: &[(&str, &str)] = &[
    ("self", "input"),
    ("axis", "dim"),
    ("keepdims", "keepdim"),
    ("chunks", "sections"),
    ("split_size", "sections"),
    ("split_size_or_sections", "sections"),
    ("split_sizes", "sections"),
    ("mat1", "input"),
    ("mat2", "other"),
    ("size", "shape"),
    ("dims", "dim"),
];

/// A call of a known operator.
pub(super) struct Call {
    /// The operator.
    pub(super) name: &'static str,
    params: Vec<&'static str>,
    operands: Vec<Option<Lowered>>,
    /// Whether the result is written to the first argument.
    pub(super) in_place: bool,
    /// The type of the first argument.
    pub(super) first_type: Value,
}

fn params_of(name: &str) -> Option<(&'static str, &'static str)> {
    OPERATORS.iter().find_map(|(names, params)| {
        let own = names.split(' ').find(|own| *own == name)?;
        Some((own, *params))
    })
}

fn in_place_of_python(target: &str) -> Option<&'static str> {
    Some(match target {
        "operator.iadd" | "_operator.iadd" | "__iadd__" => "add",
        "operator.isub" | "_operator.isub" | "__isub__" => "sub",
        "operator.imul" | "_operator.imul" | "__imul__" => "mul",
        "operator.itruediv" | "_operator.itruediv" | "__itruediv__" => "div",
        _ => return None,
    })
}

impl Call {
    /// What `node` calls, with its operands.
    pub(super) fn of(lowerer: &mut Lowerer<'_, '_>, node: NodeId) -> Result<Self, Reason> {
        let view = lowerer.graph.node(node);
        let target = view.target_name();
        let unknown = || format!("{target} is no operator that this engine knows");
        let (name, facts) = if view.op() == GraphOp::CallModule {
            let facts = lowerer.types.module(view);
            let facts = facts.ok_or_else(|| "the module is not known".to_owned())?;
            if facts.hooked {
                return Err("the module has hooks, which may do anything".to_owned());
            }
            let class = facts.class.strip_prefix("torch.nn.modules.");
            let class = class
                .and_then(|c| c.rsplit_once('.'))
                .map_or("", |(_, c)| c);
            let known = MODULES
                .iter()
                .find(|(classes, _)| classes.split(' ').any(|own| own == class));
            let (_, name) = known
                .ok_or_else(|| format!("{} is no module that this engine knows", facts.class))?;
            (*name, Some(facts))
        } else {
            let library = || LIBRARIES.iter().find(|(own, _)| *own == target);
            let name = operator_name(view.op(), target)
                .or_else(|| in_place_of_python(target))
                .or_else(|| library().map(|(_, name)| *name));
            (name.ok_or_else(unknown)?, None)
        };
        let (plain, mut in_place) = match name.strip_suffix('_') {
            Some(plain) if params_of(plain).is_some() => (plain, true),
            _ => (name, in_place_of_python(target).is_some()),
        };
        let (name, params) = params_of(plain).ok_or_else(unknown)?;
        let variadic = params.ends_with("...");
        let params: Vec<&str> = params.trim_end_matches("...").split(' ').collect();
        let mut operands = vec![None; params.len()];
        let args = view.args();
        let first_type = args.first().map_or(Value::None, |first| {
            lowerer.types.argument(lowerer.graph, first)
        });
        let last = params.len() - 1;
        if variadic && args.len() > params.len() {
            let items: Vec<Lowered> = args[last..]
                .iter()
                .map(|arg| lowerer.operand(arg))
                .collect::<Result<_, _>>()?;
            operands[last] = Some(known_items(items));
        }
        for (at, arg) in args.iter().enumerate() {
            if variadic && args.len() > params.len() && at >= last {
                break;
            }
            let slot = operands
                .get_mut(at)
                .ok_or_else(|| format!("{name} takes no argument {}", at + 1))?;
            *slot = Some(lowerer.operand(arg)?);
        }
        for (key, arg) in view.kwargs() {
            let key = lowerer.graph.text(*key);
            let own = SAME
                .iter()
                .find(|(host, _)| *host == key)
                .map_or(key, |(_, own)| own);
            let at = params.iter().position(|p| *p == key || *p == own);
            let at = at.ok_or_else(|| format!("{name} takes no argument {key}"))?;
            operands[at] = Some(lowerer.operand(arg)?);
        }
        if let Some(facts) = facts {
            for (at, param) in params.iter().enumerate() {
                if operands[at].is_none() {
                    operands[at] = match *param {
                        "training" => Some(Lowered::Known(Value::Bool(facts.training))),
                        param => match facts.attribute(param) {
                            Some(value) => Some(lowerer.known(value)?),
                            None => None,
                        },
                    };
                }
            }
            if let Some(Value::Str(mode)) = facts.attribute("padding_mode")
                && &**mode != "zeros"
            {
                return Err(format!("a convolution with padding_mode={mode}"));
            }
        }
        let mut call = Self {
            name,
            params,
            operands,
            in_place,
            first_type,
        };
        in_place |= call.params.contains(&"inplace") && call.flag("inplace", false)?;
        call.in_place = in_place;
        Ok(call)
    }

    pub(super) fn get(&self, param: &str) -> Option<&Lowered> {
        let at = self.params.iter().position(|own| *own == param)?;
        let operand = self.operands[at].as_ref()?;
        (!matches!(operand, Lowered::Known(Value::None))).then_some(operand)
    }

    /// The tensor given for a parameter.
    pub(super) fn tensor(&self, param: &str) -> Result<ValueId, Reason> {
        match self.get(param) {
            Some(Lowered::Tensor(value)) => Ok(*value),
            Some(_) => Err(format!("{param} is no tensor")),
            None => Err(format!("there is no {param}")),
        }
    }

    /// The tensor given for a parameter, if one was.
    pub(super) fn optional(&self, param: &str) -> Result<Option<ValueId>, Reason> {
        match self.get(param) {
            None => Ok(None),
            Some(_) => self.tensor(param).map(Some),
        }
    }

    /// The tensors in a list.
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

    /// What is known of a parameter before the program runs.
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

    /// A size for each of two dimensions.
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

    pub(super) fn text(&self, param: &str) -> Result<Option<&str>, Reason> {
        match self.known(param)? {
            None => Ok(None),
            Some(Value::Str(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{param} is no string")),
        }
    }
}

/// The items as one list, known if all are.
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

/// A dimension counted from the end, if it is negative.
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
