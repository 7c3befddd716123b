//! The weights of layers and batch norms, by name.

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
