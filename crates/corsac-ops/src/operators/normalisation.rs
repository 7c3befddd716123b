//! Normalisation.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("batch_norm").modules("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm").result_is_free(),
    operator("group_norm").modules("GroupNorm").result_is_free(),
    operator("instance_norm").modules("InstanceNorm1d InstanceNorm2d InstanceNorm3d").result_is_free(),
    operator("layer_norm").modules("LayerNorm").result_is_free(),
    operator("local_response_norm").modules("LocalResponseNorm"),
    operator("rms_norm").modules("RMSNorm"),
];
