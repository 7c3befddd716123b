//! In-place forms of operators, which write the result into the first argument.
//!
//! Source: the schemas (`relu_` beside `relu`), and for functions of `torch.nn.functional` their
//! `inplace` parameter.

use crate::schema::Schema;

/// The form of an operator that writes its result into its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The method: `relu_`.
    pub method: &'static str,
    /// Whether the result has the shape and element type of the first argument whatever they are,
    /// so that the form exists for every call.
    pub keeps_type: bool,
    /// Whether each element is computed from those at its place, so that the first argument may be
    /// given a second time.
    pub elementwise: bool,
}

/// Operators whose result always has the type of the first argument, elementwise.
const KEEPS_TYPE: &[&str] = &[
    "ceil_",
    "celu_",
    "elu_",
    "fill_",
    "floor_",
    "frac_",
    "hardsigmoid_",
    "hardswish_",
    "hardtanh_",
    "leaky_relu_",
    "mish_",
    "neg_",
    "negative_",
    "relu_",
    "relu6_",
    "round_",
    "selu_",
    "sgn_",
    "sign_",
    "silu_",
    "threshold_",
    "trunc_",
];

/// Elementwise operators whose result may be of another type: of promoted elements, or of the
/// broadcast shape of all arguments.
const MAY_CHANGE_TYPE: &[&str] = &[
    "abs_",
    "absolute_",
    "acos_",
    "acosh_",
    "add_",
    "addcdiv_",
    "addcmul_",
    "asin_",
    "asinh_",
    "atan2_",
    "atan_",
    "atanh_",
    "bitwise_and_",
    "bitwise_not_",
    "bitwise_or_",
    "bitwise_xor_",
    "clamp_",
    "clamp_max_",
    "clamp_min_",
    "clip_",
    "copysign_",
    "cos_",
    "cosh_",
    "digamma_",
    "div_",
    "divide_",
    "erf_",
    "erfc_",
    "erfinv_",
    "exp2_",
    "exp_",
    "expm1_",
    "floor_divide_",
    "fmod_",
    "hypot_",
    "i0_",
    "lerp_",
    "lgamma_",
    "log10_",
    "log1p_",
    "log2_",
    "log_",
    "logical_and_",
    "logical_not_",
    "logical_or_",
    "logical_xor_",
    "logit_",
    "masked_fill_",
    "mul_",
    "multiply_",
    "nan_to_num_",
    "pow_",
    "reciprocal_",
    "remainder_",
    "rsqrt_",
    "sigmoid_",
    "sin_",
    "sinc_",
    "sinh_",
    "sqrt_",
    "square_",
    "sub_",
    "subtract_",
    "tan_",
    "tanh_",
    "true_divide_",
    "xlogy_",
];

/// Operators that change some elements of a copy.
const UPDATES: &[&str] = &[
    "copy_",
    "index_add_",
    "index_copy_",
    "index_fill_",
    "index_put_",
    "scatter_",
    "scatter_add_",
];

/// The in-place form of the operator `name`: `relu_` of `relu`.
#[must_use]
pub fn in_place(name: &str) -> Option<InPlace> {
    let find = |table: &[&'static str]| {
        table
            .iter()
            .copied()
            .find(|form| form.strip_suffix('_') == Some(name))
    };
    let form = |keeps_type, elementwise| {
        move |method| InPlace {
            method,
            keeps_type,
            elementwise,
        }
    };
    find(KEEPS_TYPE)
        .map(form(true, true))
        .or_else(|| find(MAY_CHANGE_TYPE).map(form(false, true)))
        .or_else(|| find(UPDATES).map(form(true, false)))
}

impl InPlace {
    /// Whether the first two arguments may be swapped, where nothing else is given.
    #[must_use]
    pub fn commutes(&self) -> bool {
        matches!(
            self.method,
            "add_" | "mul_" | "multiply_" | "bitwise_and_" | "bitwise_or_" | "bitwise_xor_"
        )
    }

    /// Whether the form takes this many arguments by position, the tensor among them, and these
    /// keywords.
    #[must_use]
    pub fn takes<'a>(
        &self,
        positional: usize,
        keywords: impl Iterator<Item = &'a str> + Clone,
    ) -> bool {
        Schema::overloads(self.method).any(|schema| schema.takes(positional, keywords.clone()))
    }
}

/// For an operator that returns a copy of its first argument with a part replaced by the second:
/// the view of that part, which takes the other arguments. Source: PyTorch's functionalisation.
#[must_use]
pub fn view_written_by(scatter: &str) -> Option<&'static str> {
    Some(match scatter {
        "select_scatter" => "select.int",
        "slice_scatter" => "slice.Tensor",
        "diagonal_scatter" => "diagonal.default",
        "as_strided_scatter" => "as_strided.default",
        _ => return None,
    })
}

/// The position of `inplace` among the parameters of a function of `torch.nn.functional` that uses
/// no random numbers: 1 for `relu(input, inplace=False)`.
#[must_use]
pub fn inplace_parameter(function: &str) -> Option<u16> {
    Some(match function {
        "relu" | "relu6" | "hardswish" | "hardsigmoid" | "silu" | "selu" | "mish" => 1,
        "elu" | "celu" | "leaky_relu" => 2,
        "hardtanh" | "threshold" | "_threshold" => 3,
        _ => return None,
    })
}

/// The function of `torch.nn.functional` that a module of this class of `torch.nn` calls, where the
/// module has no settings besides `inplace`.
#[must_use]
pub fn activation_function(class: &str) -> Option<&'static str> {
    Some(match class {
        "ReLU" => "relu",
        "ReLU6" => "relu6",
        "SELU" => "selu",
        "SiLU" => "silu",
        "Mish" => "mish",
        "Hardswish" => "hardswish",
        "Hardsigmoid" => "hardsigmoid",
        _ => return None,
    })
}

/// Whether a module of `torch.nn` is an activation with settings besides `inplace`.
#[must_use]
pub fn is_activation_with_settings(class: &str) -> bool {
    matches!(
        class,
        "ELU" | "CELU" | "LeakyReLU" | "Hardtanh" | "Threshold"
    )
}

/// Whether the gradient of an operator, or of a module of `torch.nn`, is computed without the
/// result, so that the result may be overwritten. Source: `derivatives.yaml` of PyTorch.
#[must_use]
pub fn result_is_free(name: &str) -> bool {
    matches!(
        name,
        "conv1d"
            | "conv2d"
            | "conv3d"
            | "conv_transpose1d"
            | "conv_transpose2d"
            | "conv_transpose3d"
            | "convolution"
            | "linear"
            | "matmul"
            | "mm"
            | "bmm"
            | "addmm"
            | "baddbmm"
            | "batch_norm"
            | "layer_norm"
            | "group_norm"
            | "instance_norm"
            | "add"
            | "sub"
            | "mul"
            | "neg"
            | "cat"
            | "stack"
            | "avg_pool2d"
            | "adaptive_avg_pool2d"
            | "embedding"
            | "operator.add"
            | "operator.sub"
            | "operator.mul"
            | "operator.matmul"
            | "Conv1d"
            | "Conv2d"
            | "Conv3d"
            | "ConvTranspose1d"
            | "ConvTranspose2d"
            | "ConvTranspose3d"
            | "Linear"
            | "BatchNorm1d"
            | "BatchNorm2d"
            | "BatchNorm3d"
            | "LayerNorm"
            | "GroupNorm"
            | "AvgPool2d"
            | "AdaptiveAvgPool2d"
            | "Embedding"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_writes_to_its_first_argument_and_nothing_else() {
        for method in [KEEPS_TYPE, MAY_CHANGE_TYPE, UPDATES].concat() {
            let schemas: Vec<_> = Schema::overloads(method).collect();
            assert!(!schemas.is_empty(), "there is no {method}");
            for schema in schemas {
                let written: Vec<_> = schema.params.iter().map(|p| p.written).collect();
                assert!(written[0], "{method}");
                assert!(!written[1..].contains(&true), "{method}");
                assert!(!schema.random, "{method}");
            }
        }
    }

    #[test]
    fn forms_are_found_by_the_name_of_the_operator() {
        let relu = in_place("relu").unwrap();
        assert_eq!((relu.method, relu.keeps_type), ("relu_", true));
        assert_eq!(in_place("add").unwrap().method, "add_");
        assert!(!in_place("index_add").unwrap().elementwise);
        for name in [
            "relu_",
            "softmax",
            "matmul",
            "maximum",
            "bernoulli",
            "dropout",
            "",
        ] {
            assert_eq!(in_place(name), None, "{name}");
        }
    }

    #[test]
    fn arguments_are_those_of_the_schema() {
        let add = in_place("add").unwrap();
        assert!(add.takes(2, ["alpha"].into_iter()));
        assert!(!add.takes(3, [].into_iter()) || Schema::overload("add_.Scalar").is_some());
        assert!(!add.takes(2, ["out"].into_iter()));
        assert!(!add.takes(2, ["other"].into_iter()), "given twice");
        assert!(
            in_place("clamp")
                .unwrap()
                .takes(1, ["min", "max"].into_iter())
        );
    }
}
