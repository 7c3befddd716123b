//! Activation functions.

use super::InPlaceForm::{Promoted, SameType};
use super::Precision::Lower;
use super::Recompute::Copied;
use super::Requirement::Dimension;
use super::{Operator, operator};

#[rustfmt::skip]
pub(super) const ROWS: &[Operator] = &[
    operator("_log_softmax"),
    operator("_log_softmax_backward_data"),
    operator("_prelu_kernel"),
    operator("_safe_softmax"),
    operator("_softmax"),
    operator("_softmax_backward_data"),
    operator("celu").modules("CELU").in_place(SameType).inplace_parameter(2),
    operator("elu").modules("ELU").module_call("torch.nn.functional.elu", "alpha= inplace=").in_place(SameType)
        .inplace_parameter(2),
    operator("gelu").signature("input approximate=none").modules("GELU")
        .module_call("torch._C._nn.gelu", "approximate=").relative_cost(2.0),
    operator("gelu_backward"),
    operator("glu").modules("GLU"),
    operator("gumbel_softmax"),
    operator("hardshrink").modules("Hardshrink").jumps().rounds_numbers(),
    operator("hardsigmoid").signature("input inplace=False").modules("Hardsigmoid")
        .module_call("torch.nn.functional.hardsigmoid", "inplace=").in_place(SameType).inplace_parameter(1),
    operator("hardswish").signature("input inplace=False").modules("Hardswish")
        .module_call("torch.nn.functional.hardswish", "inplace=").in_place(SameType).inplace_parameter(1),
    operator("hardtanh").signature("input min_val=-1.0 max_val=1.0 inplace=False").modules("Hardtanh")
        .module_call("torch.nn.functional.hardtanh", "min_val= max_val= inplace=").in_place(SameType)
        .inplace_parameter(3).recompute(Copied),
    operator("hardtanh_backward").recompute(Copied),
    operator("leaky_relu").modules("LeakyReLU")
        .module_call("torch.nn.functional.leaky_relu", "negative_slope= inplace=").in_place(SameType)
        .inplace_parameter(2).recompute(Copied),
    operator("leaky_relu_backward"),
    operator("log_softmax").signature("input dim dtype=None").modules("LogSoftmax")
        .module_call("torch.nn.functional.log_softmax", "dim=").requires(Dimension).relative_cost(4.0),
    operator("logsigmoid log_sigmoid").modules("LogSigmoid"),
    operator("mish").signature("input inplace=False").modules("Mish")
        .module_call("torch.nn.functional.mish", "inplace=").in_place(SameType).inplace_parameter(1)
        .relative_cost(2.0),
    operator("prelu").modules("PReLU").autocast(Lower),
    operator("relu").signature("input inplace=False").modules("ReLU")
        .module_call("torch.nn.functional.relu", "inplace=").in_place(SameType).inplace_parameter(1)
        .recompute(Copied),
    operator("relu6").signature("input inplace=False").modules("ReLU6")
        .module_call("torch.nn.functional.relu6", "inplace=").in_place(SameType).inplace_parameter(1),
    operator("rrelu").modules("RReLU"),
    operator("selu").modules("SELU").module_call("torch.nn.functional.selu", "inplace=").in_place(SameType)
        .inplace_parameter(1),
    operator("sigmoid special_expit").signature("input").modules("Sigmoid").module_call("torch.sigmoid", "")
        .in_place(Promoted).inverse(&["torch.logit"]).relative_cost(2.0).converts_operands(),
    operator("sigmoid_backward"),
    operator("silu").signature("input inplace=False").modules("SiLU")
        .module_call("torch.nn.functional.silu", "inplace=").in_place(SameType).inplace_parameter(1)
        .relative_cost(2.0),
    operator("silu_backward"),
    operator("softmax").signature("input dim dtype=None").modules("Softmax")
        .module_call("torch.nn.functional.softmax", "dim=").requires(Dimension).relative_cost(4.0),
    operator("softmin").modules("Softmin"),
    operator("softplus").signature("input beta=1.0 threshold=20.0").modules("Softplus")
        .module_call("torch._C._nn.softplus", "beta= threshold=").relative_cost(2.0),
    operator("softshrink").modules("Softshrink"),
    operator("softsign").modules("Softsign"),
    operator("tanh").signature("input").modules("Tanh").module_call("torch.tanh", "").in_place(Promoted)
        .inverse(&["torch.atanh"]).relative_cost(2.0).converts_operands(),
    operator("tanh_backward"),
    operator("tanhshrink").modules("Tanhshrink"),
    operator("threshold _threshold").modules("Threshold").in_place(SameType).inplace_parameter(3).recompute(Copied).jumps(),
    operator("threshold_backward").recompute(Copied),
];
