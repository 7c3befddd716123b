//! Activation functions.

use super::InPlaceForm::{Promoted, SameType};
use super::Precision::Lower;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("celu").modules("CELU").in_place(SameType).inplace_parameter(2),
    operator("elu").modules("ELU").in_place(SameType).inplace_parameter(2),
    operator("gelu").modules("GELU"),
    operator("glu").modules("GLU"),
    operator("hardshrink").modules("Hardshrink"),
    operator("hardsigmoid").modules("Hardsigmoid").in_place(SameType).inplace_parameter(1),
    operator("hardswish").modules("Hardswish").in_place(SameType).inplace_parameter(1),
    operator("hardtanh").modules("Hardtanh").in_place(SameType).inplace_parameter(3),
    operator("leaky_relu").modules("LeakyReLU").in_place(SameType).inplace_parameter(2),
    operator("log_softmax").modules("LogSoftmax"),
    operator("logsigmoid").modules("LogSigmoid"),
    operator("mish").modules("Mish").in_place(SameType).inplace_parameter(1),
    operator("prelu").modules("PReLU").autocast(Lower),
    operator("relu").modules("ReLU").in_place(SameType).inplace_parameter(1),
    operator("relu6").modules("ReLU6").in_place(SameType).inplace_parameter(1),
    operator("selu").modules("SELU").in_place(SameType).inplace_parameter(1),
    operator("sigmoid special_expit").modules("Sigmoid").in_place(Promoted).inverse(&["torch.logit"]),
    operator("silu").modules("SiLU").in_place(SameType).inplace_parameter(1),
    operator("softmax").modules("Softmax"),
    operator("softmin").modules("Softmin"),
    operator("softplus").modules("Softplus"),
    operator("softshrink").modules("Softshrink"),
    operator("softsign").modules("Softsign"),
    operator("tanh").modules("Tanh").in_place(Promoted).inverse(&["torch.atanh"]),
    operator("tanhshrink").modules("Tanhshrink"),
    operator("threshold _threshold").modules("Threshold").in_place(SameType).inplace_parameter(3),
];
