//! The weights that a graph names, and folding a batch norm into them.
//!
//! Weights are not in the graph. A pass that changes them does it through [`Weights`], which is
//! implemented for PyTorch modules by the Python package and for memory here.

use std::collections::BTreeMap;

use half::{bf16, f16};
use thiserror::Error;

/// Which weights to change, by the qualified names of two modules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fold<'a> {
    /// The convolution or linear layer whose weights change.
    pub layer: &'a str,
    /// The batch norm that is folded into them.
    pub norm: &'a str,
    /// What the batch norm adds to the variance.
    pub eps: f64,
}

/// Why weights could not be changed. They are then as they were before.
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
        /// Why.
        reason: String,
    },
}

/// Something that has the weights of a model.
pub trait Weights {
    /// Changes the weight and bias of a layer so that it computes what the layer followed by the
    /// batch norm in evaluation did:
    ///
    /// ```text
    /// scale = gamma / sqrt(var + eps)
    /// weight' = weight * scale            per output channel, the first dimension
    /// bias' = (bias - mean) * scale + beta
    /// ```
    ///
    /// A missing bias counts as zero, a missing gamma as one, a missing beta as zero. Source:
    /// `torch/nn/utils/fusion.py`; Jacob et al., "Quantization and Training of Neural Networks
    /// for Efficient Integer-Arithmetic-Only Inference", CVPR 2018, section 3.2.
    ///
    /// # Errors
    /// If a tensor is missing or has the wrong shape; nothing has changed then.
    fn fold(&mut self, fold: Fold<'_>) -> Result<(), WeightsError>;
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
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F64(x) => x.len(),
            Self::F32(x) => x.len(),
            Self::F16(x) => x.len(),
            Self::BF16(x) => x.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their values; exact.
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
    fn values(&self, module: &str, tensor: &str) -> Option<Vec<f64>> {
        let tensor = self.tensors.get(&format!("{module}.{tensor}"))?;
        Some(tensor.elements.to_f64())
    }

    fn required(&self, module: &str, tensor: &str) -> Result<Vec<f64>, WeightsError> {
        self.values(module, tensor)
            .ok_or_else(|| WeightsError::Missing {
                name: format!("{module}.{tensor}"),
            })
    }
}

impl Weights for MemoryWeights {
    fn fold(&mut self, fold: Fold<'_>) -> Result<(), WeightsError> {
        let weight_name = format!("{}.weight", fold.layer);
        let Some(weight) = self.tensors.get(&weight_name) else {
            return Err(WeightsError::Missing { name: weight_name });
        };
        let channels = weight.shape.first().copied().unwrap_or(0);
        let mean = self.required(fold.norm, "running_mean")?;
        let variance = self.required(fold.norm, "running_var")?;
        let or = |values: Option<Vec<f64>>, default| values.unwrap_or(vec![default; channels]);
        let gamma = or(self.values(fold.norm, "weight"), 1.0);
        let beta = or(self.values(fold.norm, "bias"), 0.0);
        let bias = or(self.values(fold.layer, "bias"), 0.0);
        for values in [&mean, &variance, &gamma, &beta, &bias] {
            if values.len() != channels {
                return Err(WeightsError::Channels {
                    layer: fold.layer.to_owned(),
                    norm: fold.norm.to_owned(),
                    expected: channels,
                    got: values.len(),
                });
            }
        }

        let scale = |c: usize| gamma[c] / (variance[c] + fold.eps).sqrt();
        let scales: Vec<f64> = (0..channels).map(scale).collect();
        let per_channel = weight.elements.len() / channels.max(1);
        let folded = weight.elements.to_f64().into_iter().enumerate();
        let folded = folded.map(|(i, w)| w * scales[i / per_channel]).collect();
        let folded_bias = (0..channels)
            .map(|c| (bias[c] - mean[c]) * scales[c] + beta[c])
            .collect();
        let folded_bias = Tensor {
            shape: vec![channels],
            elements: weight.elements.like(folded_bias),
        };
        let folded = Tensor {
            shape: weight.shape.clone(),
            elements: weight.elements.like(folded),
        };
        self.tensors.insert(weight_name, folded);
        self.tensors
            .insert(format!("{}.bias", fold.layer), folded_bias);
        Ok(())
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

    const FOLD: Fold<'_> = Fold {
        layer: "conv",
        norm: "bn",
        eps: 1.0,
    };

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
            weights.fold(FOLD).unwrap();
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
        weights.fold(FOLD).unwrap();
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
        let error = missing.fold(FOLD).unwrap_err();
        assert_eq!(error.to_string(), "there is no tensor bn.running_var");
        assert_eq!(missing, before);

        let mut wrong = weights(&like);
        let mean = tensor(&[3], &[0.0; 3], &like);
        wrong.tensors.insert("bn.running_mean".to_owned(), mean);
        let before = wrong.clone();
        let error = wrong.fold(FOLD).unwrap_err();
        assert_eq!(error.to_string(), "bn normalises 3 channels, conv makes 2");
        assert_eq!(wrong, before);
    }
}
