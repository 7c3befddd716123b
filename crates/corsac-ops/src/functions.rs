//! Effects of functions, by qualified name: those without an operator schema, and those whose
//! schema is incomplete.

use crate::behaviour::{Behaviour, Param, When};
use crate::operators::OperatorId;
use crate::schema::Schema;
use crate::{functional, methods};

/// Effects of the function `name`; opaque if it is not known.
pub(crate) fn behaviour(name: &str) -> Behaviour {
    let (module, own) = name.rsplit_once('.').unwrap_or(("builtins", name));
    if let Some(operator) = name.strip_prefix("torch.ops.") {
        return of_operator(operator);
    }
    let known = match module {
        "builtins" => builtin(own),
        "operator" | "_operator" => operator(own),
        // Everything in `math` takes and returns numbers.
        "math" => Some(Behaviour::pure()),
        "torch.Tensor" | "torch._tensor.Tensor" | "torch._C.TensorBase" => {
            return methods::behaviour(own);
        }
        "torch.fft" => by_own_name(&format!("fft_{own}")),
        "torch.linalg" => by_own_name(&format!("linalg_{own}")),
        "torch.special" => by_own_name(&format!("special_{own}")),
        "torch.nn.functional" => functional::of_nn(own).or_else(|| by_own_name(own)),
        "torch"
        | "torch.functional"
        | "torch._VF"
        | "torch._C._VariableFunctions"
        | "torch._C._nn"
        | "torch._C._fft"
        | "torch._C._linalg"
        | "torch._C._special"
        | "torch._C._sparse"
        | "corsac._padded" => by_own_name(own),
        "torchvision.ops.stochastic_depth" | "torchvision.models.swin_transformer" => vision(own),
        _ => mode_switch(name),
    };
    known.unwrap_or_else(Behaviour::opaque)
}

/// The functions of torchvision that tracing does not look into.
fn vision(own: &str) -> Option<Behaviour> {
    match own {
        "stochastic_depth" => {
            let training = When::If(Param::at(3, "training"), true);
            Some(Behaviour::view("input").random(training))
        }
        "shifted_window_attention" => {
            let training = When::If(Param::at(12, "training"), true);
            Some(Behaviour::pure().random(training))
        }
        "_patch_merging_pad" | "_get_relative_position_bias" => Some(Behaviour::pure()),
        _ => None,
    }
}

/// Whether the table of schemas has this operator: `torch.ops.aten.add.Tensor`, or
/// `torch.ops.aten.add` for all its overloads.
#[must_use]
pub fn is_known_operator(name: &str) -> bool {
    let operator = name.strip_prefix("torch.ops.");
    operator.is_some_and(|operator| !of_operator(operator).opaque)
}

/// Whether the effects of a function are known: `torch.relu`, `operator.add`,
/// `torch.ops.aten.add.Tensor`.
#[must_use]
pub fn is_known_function(name: &str) -> bool {
    !behaviour(name).opaque
}

/// Whether the effects of a method are known, on whatever value: `view`, `add_`.
#[must_use]
pub fn is_known_method(name: &str) -> bool {
    !methods::behaviour(name).opaque
}

/// `aten.add.Tensor`, or `aten.add` for all overloads.
fn of_operator(operator: &str) -> Behaviour {
    let mut parts = operator.splitn(3, '.');
    let (Some(namespace), Some(packet)) = (parts.next(), parts.next()) else {
        return Behaviour::opaque();
    };
    let is_known = || OperatorId::named(&format!("{namespace}.{packet}")).is_some();
    // Their graphs may use random numbers.
    if namespace == "higher_order" && is_known() {
        return Behaviour {
            unrepeatable: true,
            ..Behaviour::pure()
        };
    }
    // Operators of quantisation, all of which return new tensors.
    if matches!(namespace, "corsac" | "quantized_decomposed") {
        return match is_known() && parts.next() != Some("out") {
            true => Behaviour::pure(),
            false => Behaviour::opaque(),
        };
    }
    let packet = match namespace {
        "aten" => packet.to_owned(),
        other => format!("{other}::{packet}"),
    };
    if packet.starts_with("_assert") || packet.starts_with("sym_constrain_range") {
        return Behaviour::effect();
    }
    if namespace == "profiler" {
        return Behaviour::mode_switch();
    }
    let known = match parts.next() {
        Some("default") => Schema::overload(&packet).map(|s| Behaviour::of_schema(&s)),
        Some(overload) => {
            Schema::overload(&format!("{packet}.{overload}")).map(|s| Behaviour::of_schema(&s))
        }
        None => Behaviour::of_operator(Schema::overloads(&packet)),
    };
    known.map_or_else(Behaviour::opaque, |behaviour| Behaviour {
        seeded_operator: behaviour.random != When::Never,
        ..amended(&packet, behaviour, true)
    })
}

/// A function of `torch`, `torch.nn.functional` and the like.
fn by_own_name(own: &str) -> Option<Behaviour> {
    if let Some(known) = functional::of_torch(own).or_else(|| mode_switch(own)) {
        return Some(known);
    }
    let mut behaviour = Behaviour::of_operator(Schema::overloads(own))?;
    // `torch._foreach_add_` returns the list that it writes to, where the operator returns nothing.
    for role in &mut behaviour.roles {
        if role.written == When::Always {
            role.aliased = When::Always;
        }
    }
    // `out` may be a tuple, and is called `out` whatever its name in the schema.
    let behaviour = behaviour.role(Param::keyword("out"), When::Always, When::Always);
    Some(amended(own, behaviour, false))
}

/// `behaviour` with the facts that schemas lack.
pub(crate) fn amended(packet: &str, mut behaviour: Behaviour, exact: bool) -> Behaviour {
    let statistics = |behaviour: Behaviour, training: Param, default| {
        let when = When::If(training, default);
        behaviour
            .role(Param::at(3, "running_mean"), when.clone(), When::Never)
            .role(Param::at(4, "running_var"), when, When::Never)
    };
    match packet {
        // Running statistics are written to in training, without being marked in the schema.
        "batch_norm" | "native_batch_norm" | "cudnn_batch_norm" | "miopen_batch_norm"
        | "_batch_norm_impl_index" => {
            behaviour.aliases_all = false;
            return statistics(behaviour, Param::at(5, "training"), false);
        }
        "instance_norm" => {
            behaviour.aliases_all = false;
            return statistics(behaviour, Param::at(5, "use_input_stats"), true);
        }
        "batch_norm_gather_stats" | "batch_norm_gather_stats_with_counts" => {
            return statistics(behaviour, Param::at(5, "momentum"), true);
        }
        "batch_norm_update_stats" => {
            return behaviour
                .role(Param::at(1, "running_mean"), When::Always, When::Never)
                .role(Param::at(2, "running_var"), When::Always, When::Never);
        }
        // Views whose schemas declare none.
        "lift" | "_unsafe_view" | "unsafe_split" | "unsafe_split_with_sizes" | "unsafe_chunk"
        | "to_dense" | "_to_dense" | "sparse_mask" | "dequantize"
        // The input itself where that is empty, or has no dimensions.
        | "native_dropout" | "_nested_compute_contiguous_strides_offsets"
        // Afterwards the first argument shares storage with the second.
        | "set_" | "set_data" => behaviour.aliases_all = true,
        // Compositions whose result is always new: they end in a kernel that allocates it.
        "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d"
        | "conv_transpose3d" | "_convolution" | "_convolution_mode" | "linear" | "bilinear"
        | "matmul" | "linalg_matmul" | "layer_norm" | "group_norm" | "rms_norm" | "softmax"
        | "log_softmax" | "special_softmax" | "special_log_softmax" | "max_pool1d"
        | "max_pool2d" | "max_pool3d" | "max_pool1d_with_indices" | "avg_pool1d"
        | "adaptive_avg_pool1d" | "adaptive_avg_pool2d" | "adaptive_avg_pool3d"
        | "adaptive_max_pool1d" | "relu6" | "selu" | "prelu" | "square" | "subtract"
        | "multiply" | "divide" | "true_divide" | "negative" | "absolute" | "arccos"
        | "arccosh" | "arcsin" | "arcsinh" | "arctan" | "arctan2" | "arctanh" | "clip" | "fix"
        | "greater" | "greater_equal" | "less" | "less_equal" | "not_equal" | "float_power"
        | "max" | "min" | "std" | "var" | "std_mean" | "var_mean" | "argsort" | "argwhere"
        | "isclose" | "isfinite" | "isreal" | "hstack" | "vstack" | "dstack" | "row_stack"
        | "column_stack" | "concat" | "concatenate" | "tile" | "outer" | "ger" | "inner"
        | "cross_entropy_loss" | "nll_loss_nd" | "one_hot" | "cosine_similarity" | "where"
        | "__and__" | "__or__" | "__xor__" | "scaled_dot_product_attention" => behaviour.aliases_all = false,
        // The input itself where nothing is dropped.
        "dropout" | "feature_dropout" | "alpha_dropout" | "feature_alpha_dropout" if !exact => {
            behaviour.random = When::If(Param::at(2, "train"), true);
        }
        // The seventh argument is `train`, or the dropout for packed sequences: if it is false or zero,
        // no random numbers are used.
        "lstm" | "gru" | "rnn_tanh" | "rnn_relu" if !exact => {
            behaviour.random = When::If(Param::at(6, "train"), true);
        }
        "rrelu" | "rrelu_" if !exact => {
            behaviour.random = When::If(Param::at(3, "training"), false);
        }
        // Its first argument becomes as large as the product, which no schema has.
        "addbmm_" => behaviour.reshapes = true,
        // A view where strides allow one, the tensor itself where it has the wanted layout.
        "reshape" | "reshape_as" | "_reshape_alias" | "flatten" | "ravel" | "contiguous" | "to" => {
            behaviour.by_layout = true;
            return behaviour;
        }
        _ => {}
    }
    behaviour.by_layout &= behaviour.aliases_all;
    behaviour
}

/// Functions that affect later calls.
fn mode_switch(name: &str) -> Option<Behaviour> {
    let own = match name.rsplit_once('.') {
        Some((module, own)) if module.starts_with("torch.") => own,
        Some(_) => return None,
        None => name,
    };
    matches!(
        own.trim_start_matches('_'),
        "set_grad_enabled"
            | "enter_autocast"
            | "exit_autocast"
            | "enter_inference_mode"
            | "exit_inference_mode"
            | "record_function_enter"
            | "record_function_enter_new"
            | "record_function_exit"
            | "manual_seed"
            | "seed"
            | "set_rng_state"
            | "set_default_dtype"
            | "set_default_device"
            | "set_flush_denormal"
            | "set_float32_matmul_precision"
            | "use_deterministic_algorithms"
            | "set_autocast_enabled"
            | "set_autocast_dtype"
            | "autocast_increment_nesting"
            | "autocast_decrement_nesting"
            | "clear_autocast_cache"
    )
    .then(Behaviour::mode_switch)
}

/// Python's own functions.
fn builtin(own: &str) -> Option<Behaviour> {
    Some(match own {
        "abs" | "bool" | "bytes" | "complex" | "divmod" | "float" | "format" | "hash" | "id"
        | "int" | "isinstance" | "issubclass" | "len" | "pow" | "range" | "repr" | "round"
        | "slice" | "str" | "type" | "all" | "any" | "callable" | "chr" | "ord" | "hasattr" => {
            Behaviour::pure()
        }
        "getattr" | "dict" | "enumerate" | "frozenset" | "list" | "max" | "min" | "reversed"
        | "set" | "sorted" | "sum" | "tuple" | "zip" => Behaviour::view_of_any(),
        "print" => Behaviour::effect(),
        _ => return None,
    })
}

/// Python's `operator` module. In-place forms write to their first argument where it is a tensor
/// or a list, and make a new value where it is a number.
fn operator(own: &str) -> Option<Behaviour> {
    Some(match own {
        // Of two lists, a list that holds their items.
        "add" | "mul" => Behaviour {
            concatenates: true,
            ..Behaviour::pure()
        },
        "sub" | "truediv" | "floordiv" | "mod" | "pow" | "matmul" | "neg" | "abs" | "invert"
        | "inv" | "and_" | "or_" | "xor" | "lshift" | "rshift" | "lt" | "le" | "eq" | "ne"
        | "ge" | "gt" | "not_" | "truth" | "is_" | "is_not" | "contains" | "countOf"
        | "indexOf" | "index" | "length_hint" => Behaviour::value(),
        // A view of a tensor; an element of a container. `+x` is `x`.
        "getitem" | "pos" | "concat" => Behaviour::view_of_any(),
        "setitem" => Behaviour {
            // A container keeps the values put into it.
            aliases_all: true,
            ..Behaviour::in_place("self")
        },
        "delitem" => Behaviour::in_place("self"),
        "iadd" => Behaviour {
            concatenates: true,
            ..Behaviour::in_place("self")
        },
        "isub" | "imul" | "itruediv" | "ifloordiv" | "imod" | "ipow" | "imatmul" | "iand"
        | "ior" | "ixor" | "ilshift" | "irshift" => Behaviour::in_place("self"),
        "iconcat" => Behaviour {
            aliases_all: true,
            ..Behaviour::in_place("self")
        },
        _ => return None,
    })
}
