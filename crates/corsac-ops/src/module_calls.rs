//! The function that each module of `torch.nn` calls, with its arguments.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

/// The source of an argument of a module's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A parameter or buffer of the module, `None` where it has none.
    Tensor(&'static str),
    /// An attribute of the module that is a number, a string or a tuple.
    Setting(&'static str),
    /// Such an attribute; 0.0 where it is `None`.
    SettingOrZero(&'static str),
}

/// A condition on a module under which calling the function is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing.
    None,
    /// It pads with zeros, where it pads (`padding_mode`).
    ZeroPadding,
    /// It is in evaluation and has running statistics.
    Statistics,
    /// It has the dimension that it works on (`dim`).
    Dimension,
}

/// The call that a module makes of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCall {
    /// The class among `torch.nn`'s own: `Conv2d`.
    pub class: &'static str,
    /// Qualified name of the function.
    pub function: &'static str,
    /// Arguments given by position behind the tensor.
    pub positional: Vec<Source>,
    /// Arguments given by keyword, in order.
    pub keywords: Vec<(&'static str, Source)>,
    /// The condition on the module.
    pub requirement: Requirement,
}

impl ModuleCall {
    /// The call that modules of this class make, by its name among `torch.nn`'s own; `None` where
    /// they call no single function of their input, or it is not known which.
    ///
    /// ```
    /// use corsac_ops::ModuleCall;
    ///
    /// let call = ModuleCall::of("Linear").unwrap();
    /// assert_eq!(call.function, "torch._C._nn.linear");
    /// assert!(ModuleCall::of("LSTM").is_none());
    /// ```
    #[must_use]
    pub fn of(class: &str) -> Option<&'static Self> {
        CALLS.get(class)
    }

    /// The names of all parameters and buffers that it passes.
    pub fn tensors(&self) -> impl Iterator<Item = &'static str> {
        let keywords = self.keywords.iter().map(|(_, source)| source);
        let all = self.positional.iter().chain(keywords);
        all.filter_map(|source| match source {
            Source::Tensor(name) => Some(*name),
            Source::Setting(_) | Source::SettingOrZero(_) => None,
        })
    }

    fn parse(row: &'static Row) -> impl Iterator<Item = Self> {
        let (classes, functions, arguments, requirement) = row;
        let functions = functions.split_ascii_whitespace();
        let pairs = classes.split_ascii_whitespace().zip(functions);
        pairs.map(|(class, function)| {
            let (mut positional, mut keywords) = (Vec::new(), Vec::new());
            for word in arguments.split_ascii_whitespace() {
                match word.split_once('=') {
                    None => positional.push(Source::Tensor(word)),
                    Some((key, from)) => {
                        let source = match from.strip_suffix("|0") {
                            Some(name) => {
                                Source::SettingOrZero(if name.is_empty() { key } else { name })
                            }
                            None => match from {
                                "" => Source::Setting(key),
                                "@" => Source::Tensor(key),
                                name => Source::Setting(name),
                            },
                        };
                        keywords.push((key, source));
                    }
                }
            }
            Self {
                class,
                function,
                positional,
                keywords,
                requirement: *requirement,
            }
        })
    }
}

/// The class that makes the same call as a function of this name, where one does: `Linear` for
/// `torch._C._nn.linear`, `ReLU` for `torch.relu`. Source: the table below, and further names of
/// the functions.
#[must_use]
pub fn module_class_of(function: &str) -> Option<&'static str> {
    match function {
        "torch._C._nn.linear" | "torch.nn.functional.linear" => Some("Linear"),
        "torch.conv2d" | "torch.nn.functional.conv2d" => Some("Conv2d"),
        "torch.nn.functional.relu" | "torch.relu" => Some("ReLU"),
        "torch.nn.functional.relu6" => Some("ReLU6"),
        "torch.nn.functional.silu" => Some("SiLU"),
        "torch.nn.functional.hardswish" => Some("Hardswish"),
        "torch.nn.functional.hardsigmoid" => Some("Hardsigmoid"),
        "torch.nn.functional.leaky_relu" => Some("LeakyReLU"),
        "torch.nn.functional.elu" => Some("ELU"),
        "torch._C._nn.gelu" | "torch.nn.functional.gelu" => Some("GELU"),
        "torch._C._nn.softplus" | "torch.nn.functional.softplus" => Some("Softplus"),
        "torch.sigmoid" | "torch.nn.functional.sigmoid" => Some("Sigmoid"),
        "torch.tanh" | "torch.nn.functional.tanh" => Some("Tanh"),
        _ => None,
    }
}

/// Class, function, arguments, condition.
type Row = (&'static str, &'static str, &'static str, Requirement);

static CALLS: LazyLock<FxHashMap<&str, ModuleCall>> = LazyLock::new(|| {
    let calls = TABLE.iter().flat_map(ModuleCall::parse);
    calls.map(|call| (call.class, call)).collect()
});

/// Source: the `forward` methods of `torch/nn/modules`. Arguments: `weight` is that parameter or
/// buffer by position, `weight=@` by keyword; `stride=` is that attribute, `key=name` the attribute
/// of another name, and with `|0`, `None` counts as 0.0.
const TABLE: &[Row] = &[
    (
        "Linear",
        "torch._C._nn.linear",
        "weight bias",
        Requirement::None,
    ),
    (
        "Conv1d Conv2d Conv3d",
        "torch.conv1d torch.conv2d torch.conv3d",
        "weight bias stride= padding= dilation= groups=",
        Requirement::ZeroPadding,
    ),
    (
        "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
        "torch.conv_transpose1d torch.conv_transpose2d torch.conv_transpose3d",
        "weight bias stride= padding= output_padding= groups= dilation=",
        Requirement::ZeroPadding,
    ),
    (
        "BatchNorm1d BatchNorm2d BatchNorm3d",
        "torch.nn.functional.batch_norm torch.nn.functional.batch_norm torch.nn.functional.batch_norm",
        "running_mean=@ running_var=@ weight=@ bias=@ training= momentum=|0 eps=",
        Requirement::Statistics,
    ),
    (
        "LayerNorm",
        "torch.nn.functional.layer_norm",
        "normalized_shape= eps= weight=@ bias=@",
        Requirement::None,
    ),
    (
        "GroupNorm",
        "torch.nn.functional.group_norm",
        "num_groups= eps= weight=@ bias=@",
        Requirement::None,
    ),
    (
        "ReLU ReLU6 SiLU Hardswish Hardsigmoid",
        "torch.nn.functional.relu torch.nn.functional.relu6 torch.nn.functional.silu \
         torch.nn.functional.hardswish torch.nn.functional.hardsigmoid",
        "inplace=",
        Requirement::None,
    ),
    (
        "SELU Mish",
        "torch.nn.functional.selu torch.nn.functional.mish",
        "inplace=",
        Requirement::None,
    ),
    (
        "Hardtanh",
        "torch.nn.functional.hardtanh",
        "min_val= max_val= inplace=",
        Requirement::None,
    ),
    (
        "RMSNorm",
        "torch.nn.functional.rms_norm",
        "normalized_shape= weight=@ eps=",
        Requirement::None,
    ),
    (
        "Embedding",
        "torch.nn.functional.embedding",
        "weight padding_idx= max_norm= norm_type= scale_grad_by_freq= sparse=",
        Requirement::None,
    ),
    (
        "Upsample",
        "torch.nn.functional.interpolate",
        "size= scale_factor= mode= align_corners= recompute_scale_factor=",
        Requirement::None,
    ),
    (
        "LeakyReLU",
        "torch.nn.functional.leaky_relu",
        "negative_slope= inplace=",
        Requirement::None,
    ),
    (
        "ELU",
        "torch.nn.functional.elu",
        "alpha= inplace=",
        Requirement::None,
    ),
    (
        "GELU",
        "torch._C._nn.gelu",
        "approximate=",
        Requirement::None,
    ),
    (
        "Softplus",
        "torch._C._nn.softplus",
        "beta= threshold=",
        Requirement::None,
    ),
    (
        "Sigmoid Tanh",
        "torch.sigmoid torch.tanh",
        "",
        Requirement::None,
    ),
    (
        "Softmax LogSoftmax",
        "torch.nn.functional.softmax torch.nn.functional.log_softmax",
        "dim=",
        Requirement::Dimension,
    ),
    (
        "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
        "torch.nn.functional.dropout torch.nn.functional.dropout1d \
         torch.nn.functional.dropout2d torch.nn.functional.dropout3d \
         torch.nn.functional.alpha_dropout torch.nn.functional.feature_alpha_dropout",
        "p= training= inplace=",
        Requirement::None,
    ),
    (
        "Flatten",
        "torch.flatten",
        "start_dim= end_dim=",
        Requirement::None,
    ),
    (
        "MaxPool1d MaxPool2d",
        "torch.nn.functional.max_pool1d torch.nn.functional.max_pool2d",
        "kernel_size= stride= padding= dilation= ceil_mode= return_indices=",
        Requirement::None,
    ),
    (
        "AvgPool2d",
        "torch._C._nn.avg_pool2d",
        "kernel_size= stride= padding= ceil_mode= count_include_pad= divisor_override=",
        Requirement::None,
    ),
    (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
        "torch.adaptive_avg_pool1d torch.nn.functional.adaptive_avg_pool2d \
         torch.nn.functional.adaptive_avg_pool3d",
        "output_size=",
        Requirement::None,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_into_calls() {
        let conv = ModuleCall::of("Conv3d").unwrap();
        assert_eq!(conv.function, "torch.conv3d");
        assert_eq!(
            conv.positional,
            [Source::Tensor("weight"), Source::Tensor("bias")]
        );
        assert_eq!(conv.keywords[3], ("groups", Source::Setting("groups")));
        let norm = ModuleCall::of("BatchNorm1d").unwrap();
        assert_eq!(
            norm.tensors().collect::<Vec<_>>(),
            ["running_mean", "running_var", "weight", "bias"]
        );
        assert_eq!(
            norm.keywords[5],
            ("momentum", Source::SettingOrZero("momentum"))
        );
    }

    #[test]
    fn every_class_has_a_function() {
        for (classes, functions, ..) in TABLE {
            let count = |text: &str| text.split_ascii_whitespace().count();
            assert_eq!(count(classes), count(functions), "{classes}");
        }
    }

    #[test]
    fn classes_of_functions_call_them() {
        for call in CALLS.values() {
            if let Some(class) = module_class_of(call.function) {
                assert_eq!(class, call.class);
            }
        }
        assert_eq!(module_class_of("torch.relu"), Some("ReLU"));
        assert_eq!(module_class_of("mine.relu"), None);
    }
}
