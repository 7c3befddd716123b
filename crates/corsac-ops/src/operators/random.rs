//! Operators that use random numbers.

use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("alpha_dropout").modules("AlphaDropout"),
    operator("dropout").modules("Dropout"),
    operator("dropout1d").modules("Dropout1d"),
    operator("dropout2d").modules("Dropout2d"),
    operator("dropout3d").modules("Dropout3d"),
    operator("feature_alpha_dropout").modules("FeatureAlphaDropout"),
    operator("rrelu").modules("RReLU"),
];
