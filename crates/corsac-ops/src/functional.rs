//! Effects of Python functions of `torch.nn.functional` and `torch` that are no operators. Source:
//! their signatures and bodies.

use crate::behaviour::{Behaviour, Param, When};
use crate::operators::OperatorId;

fn input() -> Param {
    Param::at(0, "input")
}

/// An activation with `inplace=False` at `position`.
fn activation(position: u16) -> Behaviour {
    let when = || When::If(Param::at(position, "inplace"), false);
    Behaviour::value().role(input(), when(), when())
}

/// `f(input, p, training, inplace)`: the input itself where nothing is dropped, which is in
/// evaluation, with `p = 0`, and of an empty tensor.
fn dropout(training_by_default: bool) -> Behaviour {
    let in_place = When::If(Param::at(3, "inplace"), false);
    Behaviour::value()
        .role(input(), in_place, When::Always)
        .random(When::If(Param::at(2, "training"), training_by_default))
}

/// `f(input, running_mean, running_var, …)`: the statistics are written to under a condition.
fn normalisation(training: &Param, by_default: bool) -> Behaviour {
    let when = || When::If(training.clone(), by_default);
    Behaviour::value()
        .role(Param::at(1, "running_mean"), when(), When::Never)
        .role(Param::at(2, "running_var"), when(), When::Never)
}

/// A function of `torch.nn.functional`, where it differs from the operator with its name.
pub(crate) fn of_nn(own: &str) -> Option<Behaviour> {
    if let Some(position) = OperatorId::named(own).and_then(|own| own.row().inplace_parameter) {
        return Some(activation(position));
    }
    Some(match own {
        "rrelu" => activation(4).random(When::If(Param::at(3, "training"), false)),
        "dropout" | "dropout1d" | "dropout2d" | "dropout3d" => dropout(true),
        "alpha_dropout" | "feature_alpha_dropout" => dropout(false),
        "batch_norm" => normalisation(&Param::at(5, "training"), false),
        "instance_norm" => normalisation(&Param::at(5, "use_input_stats"), true),
        // Rows of the weight are renormalised where `max_norm` is given.
        "embedding" | "embedding_bag" => Behaviour::pure().role(
            Param::at(1, "weight"),
            When::If(Param::at(3, "max_norm"), false),
            When::Never,
        ),
        "gumbel_softmax"
        | "fractional_max_pool2d"
        | "fractional_max_pool3d"
        | "fractional_max_pool2d_with_indices"
        | "fractional_max_pool3d_with_indices" => Behaviour::pure().random(When::Always),
        "multi_head_attention_forward" => Behaviour::view_of_any().random(When::Always),
        "max_pool1d"
        | "max_pool2d"
        | "max_pool3d"
        | "adaptive_max_pool1d"
        | "adaptive_max_pool2d"
        | "adaptive_max_pool3d"
        | "max_pool1d_with_indices"
        | "max_pool2d_with_indices"
        | "max_pool3d_with_indices" => Behaviour::pure(),
        "adaptive_max_pool1d_with_indices"
        | "adaptive_max_pool2d_with_indices"
        | "adaptive_max_pool3d_with_indices" => Behaviour::pure(),
        "adaptive_avg_pool2d" | "adaptive_avg_pool3d" => Behaviour::value(),
        "affine_grid"
        | "cross_entropy"
        | "fold"
        | "gaussian_nll_loss"
        | "grid_sample"
        | "interpolate"
        | "linear_cross_entropy"
        | "local_response_norm"
        | "logsigmoid"
        | "lp_pool1d"
        | "lp_pool2d"
        | "lp_pool3d"
        | "max_unpool1d"
        | "multilabel_soft_margin_loss"
        | "normalize"
        | "softmin"
        | "softsign"
        | "tanhshrink"
        | "triplet_margin_loss"
        | "upsample"
        | "upsample_bilinear"
        | "upsample_nearest" => Behaviour::view_of_any(),
        _ => return None,
    })
}

/// A function of `torch` that is no operator.
pub(crate) fn of_torch(own: &str) -> Option<Behaviour> {
    Some(match own {
        "_assert" | "_assert_async" | "_check" | "_check_is_size" => Behaviour::effect(),
        "lobpcg" | "pca_lowrank" | "svd_lowrank" => Behaviour::view_of_any().random(When::Always),
        "as_tensor" | "asarray" | "from_numpy" | "unique" | "lu" | "unravel_index"
        | "sym_float" | "sym_int" | "sym_ite" | "sym_max" | "sym_min" | "sym_not" | "sym_sqrt"
        | "sym_sum" => Behaviour::view_of_any(),
        "tensor"
        | "Size"
        | "device"
        | "finfo"
        | "iinfo"
        | "broadcast_shapes"
        | "is_tensor"
        | "is_storage"
        | "typename"
        | "get_default_dtype"
        | "get_default_device"
        | "get_num_threads"
        | "is_grad_enabled"
        | "is_autocast_enabled"
        | "is_inference_mode_enabled" => Behaviour::pure(),
        _ => return None,
    })
}
