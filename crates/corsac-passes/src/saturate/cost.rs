//! Cost models of calls.

use corsac_ir::{Graph, Op};
use corsac_ops::shape::{Failure, NodeCost, Value};
use corsac_ops::{OperatorId, operator_name};
use thiserror::Error;

use crate::tensors::TensorFact;

/// A call whose cost is asked for.
#[derive(Debug)]
pub struct PricedCall<'a> {
    /// The target: the qualified name of a function, or the name of a method.
    pub target: &'a str,
    /// The opcode, a call of a function or of a method.
    pub op: Op,
    /// The types of the nodes among its arguments, in order, as far as they are known.
    pub operands: Vec<&'a TensorFact>,
    /// The type of its result, as far as it is known.
    pub result: &'a TensorFact,
    /// The arithmetic and traffic that the operator catalogue counts, if it has a rule and knows
    /// the types.
    pub counted: Option<&'a NodeCost>,
}

impl PricedCall<'_> {
    /// The operator, independent of the spelling.
    #[must_use]
    pub fn operator(&self) -> &str {
        operator_name(self.op, self.target).unwrap_or(self.target)
    }
}

/// Why a cost is not known.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CostError {
    /// A cost must be a number that is not negative.
    #[error("the cost of {target} must be a finite number, at least 0; got {got}")]
    NotACost {
        /// The target of the call.
        target: String,
        /// The cost that was returned.
        got: f64,
    },
    /// The host has failed, and has the error.
    #[error("the host cannot say what {target} costs")]
    Host {
        /// The target of the call.
        target: String,
    },
}

/// Costs of calls, in any unit. The cost of a program is the sum over its calls.
pub trait CostModel {
    /// The cost of a call.
    ///
    /// # Errors
    /// [`CostError`]
    fn cost(&mut self, call: &PricedCall<'_>) -> Result<f64, CostError>;
}

/// Estimates microseconds of a call that runs by itself: an overhead per call, and the longer of
/// arithmetic and memory traffic. Where types are not known, a constant for the kind of operator.
///
/// The rates are those of one core of a server processor of 2023 on large tensors, rounded; they
/// are within a factor of three for others, which rarely changes the cheaper choice: rules compare
/// few calls with few.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Microseconds for each call that is no view.
    pub call_us: f64,
    /// Microseconds for each call that only makes a view.
    pub view_us: f64,
    /// Floating-point operations per microsecond.
    pub flops_per_us: f64,
    /// Bytes per microsecond.
    pub bytes_per_us: f64,
}

impl Default for Roofline {
    fn default() -> Self {
        Self {
            call_us: 2.0,
            view_us: 1.0,
            flops_per_us: 1e5,
            bytes_per_us: 1e4,
        }
    }
}

impl CostModel for Roofline {
    fn cost(&mut self, call: &PricedCall<'_>) -> Result<f64, CostError> {
        let Some(counted) = call.counted else {
            return Ok(self.call_us * constant(call.operator()));
        };
        let known = |dim: &corsac_ops::shape::Dim| dim.known().map(|n| n as f64);
        let flops = counted.work.as_ref().ok().and_then(|w| known(&w.flops));
        let bytes = |side: &corsac_ops::shape::Counted<_>| side.as_ref().ok().and_then(known);
        let traffic = bytes(&counted.bytes_read).zip(bytes(&counted.bytes_written));
        let Some((read, written)) = traffic else {
            return Ok(self.call_us * constant(call.operator()));
        };
        let moved = (read + written) / self.bytes_per_us;
        Ok(match flops {
            Some(0.0) if moved == 0.0 => self.view_us,
            Some(flops) => self.call_us + moved.max(flops / self.flops_per_us),
            None => self.call_us * constant(call.operator()) + moved,
        })
    }
}

/// Cost of a call relative to that of an elementwise operator, where the types of its arguments are
/// not known.
fn constant(operator: &str) -> f64 {
    OperatorId::named(operator).map_or(1.0, |operator| operator.row().relative_cost)
}

/// Costs by the name of the operator or target; others cost `default`.
#[derive(Clone, Debug, Default)]
pub struct CostTable {
    /// Costs by operator (`add`) or target (`torch.add`); the target takes precedence.
    pub by_name: rustc_hash::FxHashMap<String, f64>,
    /// The cost of calls without an entry.
    pub default: f64,
}

impl CostModel for CostTable {
    fn cost(&mut self, call: &PricedCall<'_>) -> Result<f64, CostError> {
        let by_target = self.by_name.get(call.target);
        let found = by_target.or_else(|| self.by_name.get(call.operator()));
        Ok(found.copied().unwrap_or(self.default))
    }
}

/// The cost of one e-node, checked.
pub(super) fn price(
    model: &mut dyn CostModel,
    graph: &Graph,
    call: &super::language::Call,
    operands: Vec<&TensorFact>,
    result: &TensorFact,
    inferred: &Result<(Value, NodeCost), Failure>,
) -> Result<f64, CostError> {
    let target = call.target_name(graph);
    let priced = PricedCall {
        target,
        op: call.op,
        operands,
        result,
        counted: inferred.as_ref().ok().map(|(_, cost)| cost),
    };
    let cost = model.cost(&priced)?;
    if cost.is_finite() && cost >= 0.0 {
        return Ok(cost);
    }
    Err(CostError::NotACost {
        target: target.to_owned(),
        got: cost,
    })
}
