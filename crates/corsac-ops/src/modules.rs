//! Effects of calls of the modules of `torch.nn`.

use crate::behaviour::{Behaviour, Param, When};
use crate::host::ModuleInfo;

/// The package of the classes of `torch.nn`. A subclass may do anything, so only exactly these
/// classes are known.
const PREFIX: &str = "torch.nn.modules.";

/// Effects of a call of the module. Source: the `forward` methods of `torch/nn/modules`.
pub(crate) fn behaviour(info: &ModuleInfo) -> Behaviour {
    let declared = match info.impure {
        Some(true) => Some(Behaviour {
            side_effect: true,
            ..Behaviour::opaque()
        }),
        Some(false) => Some(Behaviour {
            reads_state: true,
            unrepeatable: true,
            ..Behaviour::view_of_any()
        }),
        None => None,
    };
    if let Some(declared) = declared {
        return declared;
    }
    if info.hooks {
        return Behaviour::opaque();
    }
    let class = info.class.strip_prefix(PREFIX);
    let Some(class) = class.and_then(|c| c.rsplit_once('.')).map(|(_, c)| c) else {
        return Behaviour::opaque();
    };
    let when = |holds| if holds { When::Always } else { When::Never };
    let input = || Param::at(0, "input");
    let stateful = Behaviour {
        reads_state: true,
        ..Behaviour::value()
    };
    match class {
        "Conv1d" | "Conv2d" | "Conv3d" | "ConvTranspose1d" | "ConvTranspose2d"
        | "ConvTranspose3d" | "Linear" | "Bilinear" | "LayerNorm" | "GroupNorm" | "RMSNorm"
        | "PReLU" => stateful,

        "GELU" | "Sigmoid" | "Tanh" | "Softmax" | "LogSoftmax" | "Softmax2d" | "Softmin"
        | "Softplus" | "Softshrink" | "Softsign" | "Tanhshrink" | "LogSigmoid" | "Hardshrink"
        | "GLU" | "AvgPool1d" | "AvgPool2d" | "AvgPool3d" | "AdaptiveAvgPool1d"
        | "AdaptiveAvgPool2d" | "AdaptiveAvgPool3d" | "Fold" | "Unfold" => Behaviour::value(),
        // With indices beside the values, where requested.
        "MaxPool1d" | "MaxPool2d" | "MaxPool3d" | "AdaptiveMaxPool1d" | "AdaptiveMaxPool2d"
        | "AdaptiveMaxPool3d" => Behaviour::pure(),

        "ReLU" | "ReLU6" | "ELU" | "CELU" | "SELU" | "SiLU" | "Mish" | "Hardtanh"
        | "Hardsigmoid" | "Hardswish" | "LeakyReLU" | "Threshold" => {
            Behaviour::value().role(input(), when(info.inplace), when(info.inplace))
        }
        "RReLU" => Behaviour::value()
            .role(input(), when(info.inplace), when(info.inplace))
            .random(when(info.training)),
        class if is_dropout(class) => {
            // The input itself where nothing is dropped, which in training is with `p = 0` and for
            // an empty tensor.
            let written = info.training && info.inplace;
            Behaviour::value()
                .role(input(), when(written), When::Always)
                .random(when(info.training))
        }

        "BatchNorm1d" | "BatchNorm2d" | "BatchNorm3d" | "InstanceNorm1d" | "InstanceNorm2d"
        | "InstanceNorm3d" => Behaviour {
            writes_state: info.training && info.tracks_statistics,
            ..stateful
        },
        "SyncBatchNorm" if !info.training => stateful,
        "Embedding" | "EmbeddingBag" => Behaviour {
            writes_state: info.renormalises,
            ..stateful
        },

        "Identity" | "Unflatten" => Behaviour::view("input"),
        "Flatten" => Behaviour {
            by_layout: true,
            ..Behaviour::view("input")
        },

        // Compositions that may return an argument or a view of one where there is nothing to do.
        "Upsample"
        | "UpsamplingNearest2d"
        | "UpsamplingBilinear2d"
        | "PixelShuffle"
        | "PixelUnshuffle"
        | "ChannelShuffle"
        | "ConstantPad1d"
        | "ConstantPad2d"
        | "ConstantPad3d"
        | "ZeroPad1d"
        | "ZeroPad2d"
        | "ZeroPad3d"
        | "ReflectionPad1d"
        | "ReflectionPad2d"
        | "ReflectionPad3d"
        | "ReplicationPad1d"
        | "ReplicationPad2d"
        | "ReplicationPad3d"
        | "CircularPad1d"
        | "CircularPad2d"
        | "CircularPad3d"
        | "LPPool1d"
        | "LPPool2d"
        | "LPPool3d"
        | "MaxUnpool1d"
        | "MaxUnpool2d"
        | "MaxUnpool3d"
        | "LocalResponseNorm"
        | "CrossMapLRN2d"
        | "CosineSimilarity"
        | "PairwiseDistance"
        | "L1Loss"
        | "MSELoss"
        | "NLLLoss"
        | "NLLLoss2d"
        | "CrossEntropyLoss"
        | "BCELoss"
        | "BCEWithLogitsLoss"
        | "KLDivLoss"
        | "SmoothL1Loss"
        | "HuberLoss"
        | "HingeEmbeddingLoss"
        | "CosineEmbeddingLoss"
        | "MarginRankingLoss"
        | "TripletMarginLoss"
        | "PoissonNLLLoss"
        | "GaussianNLLLoss"
        | "SoftMarginLoss"
        | "MultiMarginLoss"
        | "MultiLabelMarginLoss"
        | "MultiLabelSoftMarginLoss"
        | "CTCLoss" => Behaviour {
            reads_state: true,
            ..Behaviour::view_of_any()
        },
        "FractionalMaxPool2d" | "FractionalMaxPool3d" => Behaviour::pure().random(When::Always),

        "RNN" | "LSTM" | "GRU" | "RNNCell" | "LSTMCell" | "GRUCell" | "MultiheadAttention" => {
            Behaviour {
                reads_state: true,
                random: when(info.training && info.dropout != 0.0),
                ..Behaviour::view_of_any()
            }
        }
        _ => Behaviour::opaque(),
    }
}

/// Whether it is one of `torch.nn`'s modules that zero elements at random while training.
pub(crate) fn is_dropout(class: &str) -> bool {
    matches!(
        class,
        "Dropout"
            | "Dropout1d"
            | "Dropout2d"
            | "Dropout3d"
            | "AlphaDropout"
            | "FeatureAlphaDropout"
    )
}

impl ModuleInfo {
    /// The name of the class among `torch.nn`'s own: `Conv2d`; `None` for any other class.
    #[must_use]
    pub fn torch_class(&self) -> Option<&str> {
        let (_, class) = self.class.strip_prefix(PREFIX)?.rsplit_once('.')?;
        Some(class)
    }

    /// Whether it is one of `torch.nn`'s modules that zero elements at random while training.
    #[must_use]
    pub fn is_dropout(&self) -> bool {
        self.torch_class().is_some_and(is_dropout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(class: &str) -> ModuleInfo {
        ModuleInfo {
            class: class.to_owned(),
            ..ModuleInfo::default()
        }
    }

    #[test]
    fn a_batch_norm_writes_its_statistics_in_training_only() {
        let mut norm = module("torch.nn.modules.batchnorm.BatchNorm2d");
        norm.tracks_statistics = true;
        assert!(!behaviour(&norm).writes_state);
        norm.training = true;
        assert!(behaviour(&norm).writes_state);
        norm.tracks_statistics = false;
        assert!(!behaviour(&norm).writes_state);
    }

    #[test]
    fn a_dropout_is_its_input_in_evaluation_and_random_in_training() {
        let mut dropout = module("torch.nn.modules.dropout.Dropout");
        assert_eq!(behaviour(&dropout).roles, Behaviour::view("input").roles);
        dropout.training = true;
        assert_eq!(behaviour(&dropout).random, When::Always);
        // With `p = 0` in training, too.
        assert_eq!(behaviour(&dropout).roles, Behaviour::view("input").roles);
    }

    #[test]
    fn what_is_not_of_torch_nn_or_has_hooks_is_opaque() {
        assert!(behaviour(&module("mine.Conv2d")).opaque);
        assert!(behaviour(&module("torch.nn.modules.container.Sequential")).opaque);
        let mut relu = module("torch.nn.modules.activation.ReLU");
        assert!(behaviour(&relu).is_pure());
        relu.hooks = true;
        assert!(behaviour(&relu).opaque);
    }

    #[test]
    fn a_module_that_says_what_it_is_is_believed() {
        let mut mine = module("mine.Counter");
        mine.impure = Some(false);
        assert!(!behaviour(&mine).opaque);
        mine.impure = Some(true);
        assert!(behaviour(&mine).side_effect);
    }
}
