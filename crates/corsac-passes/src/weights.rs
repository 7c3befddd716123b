//! The weights that a graph names, and folding a batch norm into them.
//!
//! Weights are not in the graph. A pass changes them through [`Weights`], which is implemented for
//! PyTorch modules by the Python package, and for tensors in memory here.

use std::collections::BTreeMap;

use half::{bf16, f16};
use thiserror::Error;

/// The order of two operations, seen from the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The batch norm comes after the layer: it scales output channels.
    After,
    /// The batch norm comes before the layer: it scales input channels.
    Before,
}

/// The tensors of a convolution or linear layer, by qualified name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerTensors {
    /// The module that has them, possibly without the bias; `None` where a function is called.
    pub module: Option<String>,
    /// The weight.
    pub weight: String,
    /// The bias, if there is one.
    pub bias: Option<String>,
}

impl LayerTensors {
    /// The tensors of the module at `path`.
    #[must_use]
    pub fn of_module(path: &str) -> Self {
        Self {
            module: Some(path.to_owned()),
            weight: format!("{path}.weight"),
            bias: Some(format!("{path}.bias")),
        }
    }
}

/// The tensors of a batch norm, by qualified name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormTensors {
    /// The module that has them, possibly without gamma and beta; `None` where a function is
    /// called.
    pub module: Option<String>,
    /// The running mean.
    pub mean: String,
    /// The running variance.
    pub variance: String,
    /// The factor of the result, if there is one.
    pub gamma: Option<String>,
    /// The summand of the result, if there is one.
    pub beta: Option<String>,
}

impl NormTensors {
    /// The tensors of the module at `path`.
    #[must_use]
    pub fn of_module(path: &str) -> Self {
        Self {
            module: Some(path.to_owned()),
            mean: format!("{path}.running_mean"),
            variance: format!("{path}.running_var"),
            gamma: Some(format!("{path}.weight")),
            beta: Some(format!("{path}.bias")),
        }
    }
}

/// The weights to change, and the batch norm to fold into them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold<'a> {
    /// Name in messages of the layer whose weights change.
    pub layer: &'a str,
    /// Name in messages of the batch norm that is folded into them.
    pub norm: &'a str,
    /// The layer's weights.
    pub layer_tensors: &'a LayerTensors,
    /// The batch norm's.
    pub norm_tensors: &'a NormTensors,
    /// The epsilon that the batch norm adds to the variance.
    pub eps: f64,
    /// The order of the two operations.
    pub side: Side,
    /// Whether the first dimension of the weight is that of the input channels.
    pub transposed: bool,
    /// Number of groups of channels.
    pub groups: usize,
}

/// Why weights could not be changed. They are then unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// There is no such tensor.
    #[error("there is no tensor {name}")]
    Missing {
        /// Its qualified name.
        name: String,
    },
    /// The batch norm is for another number of channels.
    #[error("{norm} normalises {got} channels, {layer} makes {expected}")]
    Channels {
        /// The layer.
        layer: String,
        /// The batch norm.
        norm: String,
        /// Channels of the layer's output.
        expected: usize,
        /// Channels of the batch norm.
        got: usize,
    },
    /// The host refused, with its reason.
    #[error("{reason}")]
    Host {
        /// The reason.
        reason: String,
    },
}

/// Access to the weights of a model.
pub trait Weights {
    /// Makes weight and bias with which the layer alone computes the same as it and the batch norm
    /// in evaluation, one after the other:
    ///
    /// ```text
    /// scale = gamma / sqrt(var + eps)
    /// shift = beta - mean * scale
    /// after:   weight' = weight * scale      per output channel
    ///          bias'   = bias * scale + shift
    /// before:  weight' = weight * scale      per input channel
    ///          bias'   = bias + the sum of weight * shift over input channels and taps
    /// ```
    ///
    /// A missing bias counts as zero, a missing gamma as one, a missing beta as zero. The tensors
    /// of a module are replaced; a function gets new ones, with other names. Returns the names.
    /// Source: `torch/nn/utils/fusion.py`; Jacob et al.,
    /// "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    /// Inference", CVPR 2018, section 3.2.
    ///
    /// # Errors
    /// If a tensor is missing or has the wrong shape; nothing has changed then.
    fn fold(&mut self, fold: &Fold<'_>) -> Result<LayerTensors, WeightsError>;
}

/// The elements of a tensor, in row-major order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Elements {
    /// `torch.float64`
    F64(Vec<f64>),
    /// `torch.float32`
    F32(Vec<f32>),
    /// `torch.float16`
    F16(Vec<f16>),
    /// `torch.bfloat16`
    BF16(Vec<bf16>),
}

impl Elements {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F64(x) => x.len(),
            Self::F32(x) => x.len(),
            Self::F16(x) => x.len(),
            Self::BF16(x) => x.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values as `f64`, exactly.
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Self::F64(x) => x.clone(),
            Self::F32(x) => x.iter().map(|&x| x.into()).collect(),
            Self::F16(x) => x.iter().map(|&x| x.into()).collect(),
            Self::BF16(x) => x.iter().map(|&x| x.into()).collect(),
        }
    }

    /// `values`, rounded to the element type of `self`.
    #[must_use]
    pub fn like(&self, values: Vec<f64>) -> Self {
        match self {
            Self::F64(_) => Self::F64(values),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounding is what it is for"
            )]
            Self::F32(_) => Self::F32(values.into_iter().map(|x| x as f32).collect()),
            Self::F16(_) => Self::F16(values.into_iter().map(f16::from_f64).collect()),
            Self::BF16(_) => Self::BF16(values.into_iter().map(bf16::from_f64).collect()),
        }
    }
}

/// A tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements, in row-major order.
    pub elements: Elements,
}

/// Weights in memory, by qualified name: `layer1.0.conv1.weight`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryWeights {
    /// The tensors.
    pub tensors: BTreeMap<String, Tensor>,
}

impl MemoryWeights {
    fn values(&self, name: Option<&String>) -> Option<Vec<f64>> {
        Some(self.tensors.get(name?)?.elements.to_f64())
    }

    fn required(&self, name: &String) -> Result<Vec<f64>, WeightsError> {
        let missing = || WeightsError::Missing { name: name.clone() };
        self.values(Some(name)).ok_or_else(missing)
    }

    /// The first free name: `wish`, or `wish` with a number.
    fn fresh(&self, wish: &str) -> String {
        let candidates = (1..).map(|n| format!("{wish}_{n}"));
        std::iter::once(wish.to_owned())
            .chain(candidates)
            .find(|name| !self.tensors.contains_key(name))
            .unwrap_or_default()
    }
}

/// The channels of the elements of a weight.
struct ChannelMap {
    transposed: bool,
    /// The first two dimensions.
    sizes: [usize; 2],
    /// Elements behind the first two dimensions.
    taps: usize,
    groups: usize,
}

impl ChannelMap {
    fn of(shape: &[usize], fold: &Fold<'_>) -> Self {
        let size = |i| shape.get(i).copied().unwrap_or(1);
        Self {
            transposed: fold.transposed,
            sizes: [size(0), size(1)],
            taps: shape.iter().skip(2).product(),
            groups: fold.groups.max(1),
        }
    }

    /// Number of output channels.
    fn outputs(&self) -> usize {
        self.count(self.transposed)
    }

    /// Number of input channels.
    fn inputs(&self) -> usize {
        self.count(!self.transposed)
    }

    /// Channels of the first or the second dimension; the second has those of one group.
    fn count(&self, second: bool) -> usize {
        if second {
            self.sizes[1] * self.groups
        } else {
            self.sizes[0]
        }
    }

    /// The output and input channel of the element at `index`, in row-major order.
    fn channels(&self, index: usize) -> (usize, usize) {
        let (first, second) = (
            index / (self.taps * self.sizes[1]),
            index / self.taps % self.sizes[1],
        );
        let group = first / (self.sizes[0] / self.groups).max(1);
        let other = group * self.sizes[1] + second;
        if self.transposed {
            (other, first)
        } else {
            (first, other)
        }
    }
}

impl Weights for MemoryWeights {
    fn fold(&mut self, fold: &Fold<'_>) -> Result<LayerTensors, WeightsError> {
        let names = fold.layer_tensors;
        let Some(weight) = self.tensors.get(&names.weight) else {
            let name = names.weight.clone();
            return Err(WeightsError::Missing { name });
        };
        let map = ChannelMap::of(&weight.shape, fold);
        let mean = self.required(&fold.norm_tensors.mean)?;
        let variance = self.required(&fold.norm_tensors.variance)?;
        let normalised = match fold.side {
            Side::After => map.outputs(),
            Side::Before => map.inputs(),
        };
        let or = |name: Option<&String>, default, len| {
            self.values(name).unwrap_or_else(|| vec![default; len])
        };
        let gamma = or(fold.norm_tensors.gamma.as_ref(), 1.0, normalised);
        let beta = or(fold.norm_tensors.beta.as_ref(), 0.0, normalised);
        let mut bias = or(names.bias.as_ref(), 0.0, map.outputs());
        let sizes = [&mean, &variance, &gamma, &beta].map(|values| (values.len(), normalised));
        for (got, expected) in sizes.into_iter().chain([(bias.len(), map.outputs())]) {
            if got != expected {
                return Err(WeightsError::Channels {
                    layer: fold.layer.to_owned(),
                    norm: fold.norm.to_owned(),
                    expected,
                    got,
                });
            }
        }

        let scale = |c: usize| gamma[c] / (variance[c] + fold.eps).sqrt();
        let scales: Vec<f64> = (0..normalised).map(scale).collect();
        let mut values = weight.elements.to_f64();
        match fold.side {
            Side::After => {
                for (index, value) in values.iter_mut().enumerate() {
                    *value *= scales[map.channels(index).0];
                }
                for (c, bias) in bias.iter_mut().enumerate() {
                    *bias = (*bias - mean[c]) * scales[c] + beta[c];
                }
            }
            Side::Before => {
                for (index, value) in values.iter_mut().enumerate() {
                    let (output, input) = map.channels(index);
                    bias[output] += *value * (beta[input] - mean[input] * scales[input]);
                    *value *= scales[input];
                }
            }
        }
        let folded_bias = Tensor {
            shape: vec![map.outputs()],
            elements: weight.elements.like(bias),
        };
        let folded = Tensor {
            shape: weight.shape.clone(),
            elements: weight.elements.like(values),
        };
        let result = match &names.module {
            Some(path) => LayerTensors::of_module(path),
            None => LayerTensors {
                module: None,
                weight: self.fresh(&format!("{}_folded", names.weight)),
                bias: Some(self.fresh(&format!("{}_folded_bias", names.weight))),
            },
        };
        self.tensors.insert(result.weight.clone(), folded);
        if let Some(name) = &result.bias {
            self.tensors.insert(name.clone(), folded_bias);
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], values: &[f64], like: &Elements) -> Tensor {
        Tensor {
            shape: shape.to_vec(),
            elements: like.like(values.to_vec()),
        }
    }

    /// Two output channels, one input channel, one tap.
    fn weights(like: &Elements) -> MemoryWeights {
        let tensors = [
            ("conv.weight", tensor(&[2, 1, 1], &[2.0, -3.0], like)),
            ("bn.running_mean", tensor(&[2], &[1.0, 0.5], like)),
            ("bn.running_var", tensor(&[2], &[3.0, 0.0], like)),
            ("bn.weight", tensor(&[2], &[4.0, 0.5], like)),
            ("bn.bias", tensor(&[2], &[0.25, -1.0], like)),
        ];
        MemoryWeights {
            tensors: tensors.map(|(name, t)| (name.to_owned(), t)).into(),
        }
    }

    fn fold(weights: &mut MemoryWeights) -> Result<LayerTensors, WeightsError> {
        weights.fold(&Fold {
            layer: "conv",
            norm: "bn",
            layer_tensors: &LayerTensors::of_module("conv"),
            norm_tensors: &NormTensors::of_module("bn"),
            eps: 1.0,
            side: Side::After,
            transposed: false,
            groups: 1,
        })
    }

    #[test]
    fn a_folded_layer_computes_what_both_did() {
        let kinds = [
            Elements::F64(Vec::new()),
            Elements::F32(Vec::new()),
            Elements::F16(Vec::new()),
            Elements::BF16(Vec::new()),
        ];
        for like in kinds {
            let mut weights = weights(&like);
            fold(&mut weights).unwrap();
            // scale = 4 / sqrt(4), 0.5 / sqrt(1): all exact in each type.
            let expected = tensor(&[2, 1, 1], &[4.0, -1.5], &like);
            assert_eq!(weights.tensors["conv.weight"], expected);
            let expected = tensor(&[2], &[-1.75, -1.25], &like);
            assert_eq!(weights.tensors["conv.bias"], expected);
        }
    }

    #[test]
    fn the_bias_of_the_layer_counts_and_affine_parameters_may_be_missing() {
        let like = Elements::F64(Vec::new());
        let mut weights = weights(&like);
        weights.tensors.remove("bn.weight");
        weights.tensors.remove("bn.bias");
        let bias = tensor(&[2], &[3.0, 0.5], &like);
        weights.tensors.insert("conv.bias".to_owned(), bias);
        fold(&mut weights).unwrap();
        assert_eq!(
            weights.tensors["conv.bias"],
            tensor(&[2], &[1.0, 0.0], &like)
        );
    }

    #[test]
    fn nothing_changes_where_tensors_are_missing_or_do_not_fit() {
        let like = Elements::F32(Vec::new());
        let mut missing = weights(&like);
        missing.tensors.remove("bn.running_var");
        let before = missing.clone();
        let error = fold(&mut missing).unwrap_err();
        assert_eq!(error.to_string(), "there is no tensor bn.running_var");
        assert_eq!(missing, before);

        let mut wrong = weights(&like);
        let mean = tensor(&[3], &[0.0; 3], &like);
        wrong.tensors.insert("bn.running_mean".to_owned(), mean);
        let before = wrong.clone();
        let error = fold(&mut wrong).unwrap_err();
        assert_eq!(error.to_string(), "bn normalises 3 channels, conv makes 2");
        assert_eq!(wrong, before);
    }

    /// The layer, as sums over channels: one tap, one position.
    fn apply(weight: &Tensor, bias: &[f64], fold: &Fold<'_>, x: &[f64]) -> Vec<f64> {
        let map = ChannelMap::of(&weight.shape, fold);
        let mut y = bias.to_vec();
        for (index, value) in weight.elements.to_f64().into_iter().enumerate() {
            let (output, input) = map.channels(index);
            y[output] += value * x[input];
        }
        y
    }

    #[test]
    fn every_side_layout_and_grouping_computes_what_both_did() {
        let like = Elements::F64(Vec::new());
        for (side, transposed, groups) in [
            (Side::After, false, 1),
            (Side::After, false, 2),
            (Side::After, true, 1),
            (Side::After, true, 2),
            (Side::Before, false, 1),
            (Side::Before, false, 2),
        ] {
            // Four input channels, six output channels.
            let (inputs, outputs) = (4, 6);
            let shape = match transposed {
                false => [outputs, inputs / groups, 1],
                true => [inputs, outputs / groups, 1],
            };
            let len: usize = shape.iter().product();
            let ramp = |len: usize, from: f64| -> Vec<f64> {
                (0..len).map(|i| from + i as f64 * 0.25).collect()
            };
            let normalised = if side == Side::After { outputs } else { inputs };
            let mut weights = MemoryWeights::default();
            for (name, shape, values) in [
                ("w", &shape[..], ramp(len, -1.0)),
                ("b", &[outputs], ramp(outputs, 0.5)),
                ("mean", &[normalised], ramp(normalised, -0.5)),
                ("var", &[normalised], ramp(normalised, 1.0)),
                ("gamma", &[normalised], ramp(normalised, 2.0)),
                ("beta", &[normalised], ramp(normalised, -3.0)),
            ] {
                let tensor = tensor(shape, &values, &like);
                weights.tensors.insert(name.to_owned(), tensor);
            }
            let name = |name: &str| name.to_owned();
            let layer_tensors = LayerTensors {
                module: None,
                weight: name("w"),
                bias: Some(name("b")),
            };
            let norm_tensors = NormTensors {
                module: None,
                mean: name("mean"),
                variance: name("var"),
                gamma: Some(name("gamma")),
                beta: Some(name("beta")),
            };
            let fold = Fold {
                layer: "conv",
                norm: "norm",
                layer_tensors: &layer_tensors,
                norm_tensors: &norm_tensors,
                eps: 0.5,
                side,
                transposed,
                groups,
            };
            let values = |w: &MemoryWeights, name: &str| w.tensors[name].elements.to_f64();
            let normalise = |x: &[f64], w: &MemoryWeights| -> Vec<f64> {
                let [mean, var, gamma, beta] =
                    ["mean", "var", "gamma", "beta"].map(|n| values(w, n));
                let each = x.iter().enumerate();
                let one = |(c, x): (usize, &f64)| {
                    (x - mean[c]) / (var[c] + 0.5).sqrt() * gamma[c] + beta[c]
                };
                each.map(one).collect()
            };
            let x = ramp(inputs, 1.5);
            let (weight, bias) = (weights.tensors["w"].clone(), values(&weights, "b"));
            let expected = match side {
                Side::After => normalise(&apply(&weight, &bias, &fold, &x), &weights),
                Side::Before => apply(&weight, &bias, &fold, &normalise(&x, &weights)),
            };
            let result = weights.fold(&fold).unwrap();
            assert_eq!(result.weight, "w_folded");
            assert_eq!(weights.tensors["w"], weight, "others may use it");
            let bias = values(&weights, &result.bias.unwrap());
            let found = apply(&weights.tensors[&result.weight], &bias, &fold, &x);
            for (found, expected) in found.iter().zip(&expected) {
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{side:?} {transposed} {groups}"
                );
            }
        }
    }
}
