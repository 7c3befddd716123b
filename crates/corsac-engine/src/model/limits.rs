//! Limits of model files.

use super::error::ModelError;

/// Limits above which a model file is refused.
///
/// A file is data, and may come from anywhere: a few bytes of it can ask for more memory than there
/// is. The defaults are far above the needs of models that fit a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the header: names, shapes and offsets of weights, and the text of the graph.
    pub header_bytes: u64,
    /// Nodes of the graph.
    pub nodes: usize,
    /// Bytes of all weights together.
    pub weight_bytes: u64,
    /// Bytes of all values of a run that are live at once, and of any single one.
    pub value_bytes: u64,
    /// Iterations of all loops of a call together.
    pub iterations: u64,
}

impl Default for Limits {
    /// 32 MiB, 100,000 nodes, 64 GiB, 8 GiB, 10,000,000 iterations.
    fn default() -> Self {
        Self {
            header_bytes: 32 << 20,
            nodes: 100_000,
            weight_bytes: 64 << 30,
            value_bytes: 8 << 30,
            iterations: 10_000_000,
        }
    }
}

/// Checks that `size` is at most `limit`.
pub(super) fn within(
    what: &'static str,
    size: impl TryInto<u64>,
    limit: impl TryInto<u64>,
) -> Result<(), ModelError> {
    let number = |value: Result<u64, _>| value.unwrap_or(u64::MAX);
    let (size, limit) = (
        number(size.try_into().map_err(drop)),
        number(limit.try_into().map_err(drop)),
    );
    if size <= limit {
        return Ok(());
    }
    Err(ModelError::TooLarge { what, size, limit })
}
