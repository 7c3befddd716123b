//! Modules of `torch.nn`: each is a rule, with parameters that the module's attributes supply.

use super::call::{Call, Settings};
use super::error::Failure;
use super::propagate::ModuleFacts;
use super::rule::{Found, named};
use super::value::Value;

/// The package of the classes of `torch.nn`. A subclass may do anything, so only exactly these
/// classes are known.
const PREFIX: &str = "torch.nn.modules.";

/// Modules that call one function.
pub(super) struct Module {
    /// Class names, separated by blanks.
    pub(super) classes: &'static str,
    /// The rule of the function.
    pub(super) calls: &'static str,
    /// Parameters of the rule whose attribute has another name: `size=shape`.
    pub(super) renamed: &'static str,
}

const fn module(classes: &'static str, calls: &'static str) -> Module {
    Module {
        classes,
        calls,
        renamed: "",
    }
}

const fn renamed(classes: &'static str, calls: &'static str, renamed: &'static str) -> Module {
    Module {
        classes,
        calls,
        renamed,
    }
}

pub(super) const MODULES: &[Module] = &[
    module("Conv1d", "conv1d"),
    module("Conv2d", "conv2d"),
    module("Conv3d", "conv3d"),
    module("ConvTranspose1d", "conv_transpose1d"),
    module("ConvTranspose2d", "conv_transpose2d"),
    module("ConvTranspose3d", "conv_transpose3d"),
    module("Linear NonDynamicallyQuantizableLinear", "linear"),
    module("Bilinear", "bilinear"),
    module(
        "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
        "batch_norm",
    ),
    module(
        "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
        "instance_norm",
    ),
    module("LayerNorm", "layer_norm"),
    module("RMSNorm", "rms_norm"),
    module("GroupNorm", "group_norm"),
    module("LocalResponseNorm", "local_response_norm"),
    module("MaxPool1d", "max_pool1d"),
    module("MaxPool2d", "max_pool2d"),
    module("MaxPool3d", "max_pool3d"),
    module("AvgPool1d", "avg_pool1d"),
    module("AvgPool2d", "avg_pool2d"),
    module("AvgPool3d", "avg_pool3d"),
    module("LPPool1d", "lp_pool1d"),
    module("LPPool2d", "lp_pool2d"),
    module("AdaptiveAvgPool1d", "adaptive_avg_pool1d"),
    module("AdaptiveAvgPool2d", "adaptive_avg_pool2d"),
    module("AdaptiveAvgPool3d", "adaptive_avg_pool3d"),
    module("AdaptiveMaxPool1d", "adaptive_max_pool1d"),
    module("AdaptiveMaxPool2d", "adaptive_max_pool2d"),
    module("AdaptiveMaxPool3d", "adaptive_max_pool3d"),
    module("ReLU", "relu"),
    module("ReLU6", "relu6"),
    module("SELU", "selu"),
    module("SiLU", "silu"),
    module("Mish", "mish"),
    module("Hardswish", "hardswish"),
    module("Hardsigmoid", "hardsigmoid"),
    module("ELU", "elu"),
    module("CELU", "celu"),
    module("LeakyReLU", "F.leaky_relu"),
    module("Hardtanh", "hardtanh"),
    module("Threshold", "threshold"),
    module("RReLU", "rrelu"),
    module("GELU", "gelu"),
    module("Softplus", "softplus"),
    module("Softshrink", "softshrink"),
    module("Hardshrink", "hardshrink"),
    module("Tanhshrink", "tanhshrink"),
    module("Softsign", "softsign"),
    module("LogSigmoid", "logsigmoid"),
    module("Sigmoid", "sigmoid"),
    module("Tanh", "tanh"),
    module("PReLU", "prelu"),
    module("GLU", "glu"),
    module("Softmax", "F.softmax"),
    module("LogSoftmax", "F.log_softmax"),
    module("Softmin", "F.softmin"),
    module("Dropout Dropout1d Dropout2d Dropout3d", "dropout"),
    module("AlphaDropout FeatureAlphaDropout", "alpha_dropout"),
    module("Identity", "nn.Identity.forward"),
    module("Flatten", "flatten"),
    renamed("Unflatten", "unflatten", "sizes=unflattened_size"),
    module("Embedding", "F.embedding"),
    module("EmbeddingBag", "F.embedding_bag"),
    module(
        "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
        "interpolate",
    ),
    module("PixelShuffle", "pixel_shuffle"),
    module("PixelUnshuffle", "pixel_unshuffle"),
    module("ChannelShuffle", "channel_shuffle"),
    renamed(
        "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d",
        "pad",
        "pad=padding",
    ),
    module("Unfold", "F.unfold"),
    module("Fold", "fold"),
    module("CosineSimilarity", "cosine_similarity"),
    renamed("PairwiseDistance", "pairwise_distance", "p=norm"),
    module("MSELoss", "F.mse_loss"),
    module("L1Loss", "F.l1_loss"),
    module("SmoothL1Loss", "F.smooth_l1_loss"),
    module("HuberLoss", "F.huber_loss"),
    module("SoftMarginLoss", "F.soft_margin_loss"),
    module("MarginRankingLoss", "F.margin_ranking_loss"),
    module("HingeEmbeddingLoss", "F.hinge_embedding_loss"),
    module("CosineEmbeddingLoss", "F.cosine_embedding_loss"),
    module("TripletMarginLoss", "F.triplet_margin_loss"),
    module("MultiMarginLoss", "F.multi_margin_loss"),
    module("MultiLabelMarginLoss", "F.multilabel_margin_loss"),
    module("MultiLabelSoftMarginLoss", "F.multilabel_soft_margin_loss"),
    module("PoissonNLLLoss", "F.poisson_nll_loss"),
    module("GaussianNLLLoss", "F.gaussian_nll_loss"),
    module("KLDivLoss", "F.kl_div"),
    module("BCELoss", "F.binary_cross_entropy"),
    module("BCEWithLogitsLoss", "F.binary_cross_entropy_with_logits"),
    module("NLLLoss NLLLoss2d", "F.nll_loss"),
    module("CrossEntropyLoss", "F.cross_entropy"),
    module("MultiheadAttention", "nn.MultiheadAttention.forward"),
    module(
        "TransformerEncoder TransformerEncoderLayer",
        "nn.TransformerEncoder.forward",
    ),
    module("LSTM", "nn.LSTM.forward"),
    module("GRU RNN", "nn.GRU.forward"),
];

/// The rule for a class; `None` if none is known.
fn of_class(class: &str) -> Option<&'static Module> {
    let (_, class) = class.strip_prefix(PREFIX)?.rsplit_once('.')?;
    MODULES
        .iter()
        .find(|m| m.classes.split_ascii_whitespace().any(|own| own == class))
}

/// Whether there is a rule for modules of this class, by its qualified name.
#[must_use]
pub fn has_module_rule(class: &str) -> bool {
    of_class(class).is_some()
}

/// The rule for a module, and its attributes by the parameters of the rule.
pub(super) fn find(facts: &ModuleFacts) -> Result<(Found, &'static Module), Failure> {
    if facts.hooked {
        return Err(Failure::unknown(
            "the module has hooks, which may do anything",
        ));
    }
    let module = of_class(&facts.class)
        .ok_or_else(|| Failure::unknown(format!("there is no rule for {}", facts.class)))?;
    let (name, entry) = named(module.calls)
        .ok_or_else(|| Failure::unknown(format!("there is no rule {}", module.calls)))?;
    let found = Found {
        entry,
        name,
        in_place: false,
        exact: false,
    };
    Ok((found, module))
}

impl Module {
    /// The module's attribute for a parameter of its rule.
    pub(super) fn attribute(&self, facts: &ModuleFacts, param: &str) -> Option<Value> {
        let renamed = self.renamed.split_ascii_whitespace();
        let own = renamed
            .filter_map(|pair| pair.split_once('='))
            .find(|(to, _)| *to == param);
        let own = own.map_or(param, |(_, from)| from);
        if own == "training" {
            return Some(Value::Bool(facts.training));
        }
        facts.attribute(own).cloned()
    }
}

/// The call that a module makes with its own arguments.
pub(super) fn bind<'a>(
    facts: &ModuleFacts,
    args: impl Iterator<Item = Value>,
    kwargs: impl Iterator<Item = (&'a str, Value)>,
    settings: Settings,
) -> Result<(Found, Call<'static>), Failure> {
    let (found, module) = find(facts)?;
    let signature = &found.entry.signature;
    let mut call = Call::bind(signature, args, kwargs, settings)?;
    for (at, param) in signature.params.iter().enumerate() {
        if call.args[at].is_none() {
            call.args[at] = module.attribute(facts, param.name);
        }
    }
    Ok((found, call))
}
