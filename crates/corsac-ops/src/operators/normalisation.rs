//! Normalisation.

use super::Requirement::Statistics;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_native_batch_norm_legit"),
    operator("_native_batch_norm_legit_functional"),
    operator("_native_batch_norm_legit_no_training"),
    operator("batch_norm").modules("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm")
        .module_call("torch.nn.functional.batch_norm", "running_mean=@ running_var=@ weight=@ bias=@ training= momentum=|0 eps=")
        .requires(Statistics).result_is_free().relative_cost(4.0),
    operator("group_norm").modules("GroupNorm")
        .module_call("torch.nn.functional.group_norm", "num_groups= eps= weight=@ bias=@").result_is_free()
        .relative_cost(4.0),
    operator("instance_norm").modules("InstanceNorm1d InstanceNorm2d InstanceNorm3d").result_is_free(),
    operator("layer_norm").signature("input normalized_shape weight=None bias=None eps=1e-05").modules("LayerNorm")
        .module_call("torch.nn.functional.layer_norm", "normalized_shape= eps= weight=@ bias=@").result_is_free()
        .relative_cost(4.0),
    operator("local_response_norm").modules("LocalResponseNorm").composed(),
    operator("native_batch_norm"),
    operator("native_batch_norm_backward"),
    operator("native_group_norm"),
    operator("native_layer_norm"),
    operator("native_layer_norm_backward"),
    operator("normalize"),
    operator("rms_norm").signature("input normalized_shape weight=None eps=None").modules("RMSNorm")
        .module_call("torch.nn.functional.rms_norm", "normalized_shape= weight=@ eps=").relative_cost(4.0),
];
