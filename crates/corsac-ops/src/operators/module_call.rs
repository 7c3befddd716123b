//! Calls that modules of `torch.nn` make of functions. Source: the `forward` methods of
//! `torch/nn/modules`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::{Operator, OperatorId, Requirement};

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

/// The call that a module makes of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCall {
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

    /// `weight` is that parameter or buffer by position, `weight=@` by keyword; `stride=` is that
    /// attribute, `key=name` the attribute of another name, and with `|0`, `None` counts as 0.0.
    fn read(row: &Operator) -> Option<Self> {
        let (function, arguments) = row.module_call?;
        let (mut positional, mut keywords) = (Vec::new(), Vec::new());
        for word in arguments.split_ascii_whitespace() {
            match word.split_once('=') {
                None => positional.push(Source::Tensor(word)),
                Some((key, from)) => {
                    let source = match from.strip_suffix("|0") {
                        Some("") => Source::SettingOrZero(key),
                        Some(name) => Source::SettingOrZero(name),
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
        Some(Self {
            function,
            positional,
            keywords,
            requirement: row.requirement,
        })
    }
}

/// The class that makes the same call as a function of this name, where one does: `Linear` for
/// `torch._C._nn.linear`, `ReLU` for `torch.relu`. Source: the calls of modules, and further names of
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

static CALLS: LazyLock<FxHashMap<&str, ModuleCall>> = LazyLock::new(|| {
    let rows = OperatorId::all().map(OperatorId::row);
    let calls = rows.flat_map(|row| {
        let classes = row.module_classes();
        classes.filter_map(move |class| Some((class, ModuleCall::read(row)?)))
    });
    calls.collect()
});

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
    fn classes_of_functions_call_them() {
        for call in CALLS.values() {
            if let Some(class) = module_class_of(call.function) {
                let other = ModuleCall::of(class).unwrap();
                assert_eq!(other.function, call.function);
            }
        }
        assert_eq!(module_class_of("torch.relu"), Some("ReLU"));
        assert_eq!(module_class_of("mine.relu"), None);
    }
}
