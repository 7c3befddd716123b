//! Activation functions.

use super::InPlaceForm::{Promoted, SameType};
use super::Precision::Lower;
use super::Requirement::Dimension;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("celu").modules("CELU").in_place(SameType).inplace_parameter(2),
    operator("elu").modules("ELU").module_call("torch.nn.functional.elu", "alpha= inplace=").in_place(SameType)
        .inplace_parameter(2),
    operator("gelu").modules("GELU").module_call("torch._C._nn.gelu", "approximate="),
    operator("glu").modules("GLU"),
    operator("hardshrink").modules("Hardshrink"),
    operator("hardsigmoid").modules("Hardsigmoid").module_call("torch.nn.functional.hardsigmoid", "inplace=")
        .in_place(SameType).inplace_parameter(1),
    operator("hardswish").modules("Hardswish").module_call("torch.nn.functional.hardswish", "inplace=")
        .in_place(SameType).inplace_parameter(1),
    operator("hardtanh").modules("Hardtanh")
        .module_call("torch.nn.functional.hardtanh", "min_val= max_val= inplace=").in_place(SameType)
        .inplace_parameter(3),
    operator("leaky_relu").modules("LeakyReLU")
        .module_call("torch.nn.functional.leaky_relu", "negative_slope= inplace=").in_place(SameType)
        .inplace_parameter(2),
    operator("log_softmax").modules("LogSoftmax").module_call("torch.nn.functional.log_softmax", "dim=")
        .requires(Dimension),
    operator("logsigmoid").modules("LogSigmoid"),
    operator("mish").modules("Mish").module_call("torch.nn.functional.mish", "inplace=").in_place(SameType)
        .inplace_parameter(1),
    operator("prelu").modules("PReLU").autocast(Lower),
    operator("relu").modules("ReLU").module_call("torch.nn.functional.relu", "inplace=").in_place(SameType)
        .inplace_parameter(1),
    operator("relu6").modules("ReLU6").module_call("torch.nn.functional.relu6", "inplace=").in_place(SameType)
        .inplace_parameter(1),
    operator("selu").modules("SELU").module_call("torch.nn.functional.selu", "inplace=").in_place(SameType)
        .inplace_parameter(1),
    operator("sigmoid special_expit").modules("Sigmoid").module_call("torch.sigmoid", "").in_place(Promoted)
        .inverse(&["torch.logit"]),
    operator("silu").modules("SiLU").module_call("torch.nn.functional.silu", "inplace=").in_place(SameType)
        .inplace_parameter(1),
    operator("softmax").modules("Softmax").module_call("torch.nn.functional.softmax", "dim=").requires(Dimension),
    operator("softmin").modules("Softmin"),
    operator("softplus").modules("Softplus").module_call("torch._C._nn.softplus", "beta= threshold="),
    operator("softshrink").modules("Softshrink"),
    operator("softsign").modules("Softsign"),
    operator("tanh").modules("Tanh").module_call("torch.tanh", "").in_place(Promoted).inverse(&["torch.atanh"]),
    operator("tanhshrink").modules("Tanhshrink"),
    operator("threshold _threshold").modules("Threshold").in_place(SameType).inplace_parameter(3),
];
