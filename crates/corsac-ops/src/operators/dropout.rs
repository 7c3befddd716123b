//! Dropout.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("alpha_dropout").modules("AlphaDropout")
        .module_call("torch.nn.functional.alpha_dropout", "p= training= inplace="),
    operator("dropout").signature("input p=0.5 training=True inplace=False").modules("Dropout")
        .module_call("torch.nn.functional.dropout", "p= training= inplace="),
    operator("dropout1d").modules("Dropout1d").module_call("torch.nn.functional.dropout1d", "p= training= inplace="),
    operator("dropout2d").modules("Dropout2d").module_call("torch.nn.functional.dropout2d", "p= training= inplace="),
    operator("dropout3d").modules("Dropout3d").module_call("torch.nn.functional.dropout3d", "p= training= inplace="),
    operator("feature_alpha_dropout").modules("FeatureAlphaDropout")
        .module_call("torch.nn.functional.feature_alpha_dropout", "p= training= inplace="),
    operator("feature_dropout"),
    operator("native_dropout"),
    operator("stochastic_depth"),
];
