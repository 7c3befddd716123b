//! Activation functions.

use std::cmp::Ordering;

use corsac_ops::is_operator;

use super::call::{Call, wrapped};
use super::table::{Lowering, tensor, unary};
use super::{Lowerer, Reason};
use crate::program::{Binary, Op, Unary, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    unary("celu", |call| Ok(Unary::Celu(call.number_or("alpha", 1.0)?))),
    unary("elu", elu),
    unary("gelu", gelu),
    tensor("glu", |own, call| own.glu(call)),
    unary("hardshrink", |call| { Ok(Unary::Hardshrink(call.number_or("lambd", 0.5)?)) }),
    unary("hardsigmoid", |_| Ok(Unary::Hardsigmoid)),
    unary("hardswish", |_| Ok(Unary::Hardswish)),
    unary("hardtanh", hardtanh),
    unary("leaky_relu", leaky_relu),
    tensor("log_softmax", |own, call| own.softmax(call, true)),
    tensor("_log_softmax", |own, call| own.softmax(call, true)),
    unary("logsigmoid", |_| Ok(Unary::LogSigmoid)),
    unary("mish", |_| Ok(Unary::Mish)),
    tensor("prelu", |own, call| own.prelu(call)),
    tensor("_prelu_kernel", |own, call| own.prelu(call)),
    unary("relu", |_| Ok(Unary::Relu)),
    unary("relu6", |_| Ok(Unary::Clamp(0.0, 6.0))),
    tensor("selu", |own, call| own.selu(call)),
    unary("sigmoid", |_| Ok(Unary::Sigmoid)),
    unary("silu", |_| Ok(Unary::Silu)),
    tensor("softmax", |own, call| own.softmax(call, false)),
    tensor("_softmax", |own, call| own.softmax(call, false)),
    tensor("softmin", |own, call| own.softmin(call)),
    unary("softplus", |call| { Ok(Unary::Softplus(call.number_or("beta", 1.0)?, call.number_or("threshold", 20.0)?)) }),
    unary("softshrink", |call| match call.number_or("lambd", 0.5)? {
        by @ 0.0.. => Ok(Unary::Softshrink(by)),
        by => Err(format!("shrinking by {by}")),
    }),
    unary("softsign", |_| Ok(Unary::Softsign)),
    unary("tanh", |_| Ok(Unary::Tanh)),
    unary("tanhshrink", |_| Ok(Unary::Tanhshrink)),
    unary("threshold", |call| { Ok(Unary::Threshold(call.number_or("threshold", 0.0)?, call.number_or("value", 0.0)?)) }),
];

fn elu(call: &Call) -> Result<Unary, Reason> {
    if (
        call.number_or("scale", 1.0)?,
        call.number_or("input_scale", 1.0)?,
    ) != (1.0, 1.0)
    {
        return Err("elu with scales".to_owned());
    }
    Ok(Unary::Elu(call.number_or("alpha", 1.0)?))
}

fn gelu(call: &Call) -> Result<Unary, Reason> {
    match call.text("approximate")? {
        None | Some("none") => Ok(Unary::Gelu),
        Some("tanh") => Ok(Unary::GeluTanh),
        Some(other) => Err(format!("gelu with approximate={other}")),
    }
}

fn hardtanh(call: &Call) -> Result<Unary, Reason> {
    let (least, most) = (
        call.number_or("min_val", -1.0)?,
        call.number_or("max_val", 1.0)?,
    );
    match least.partial_cmp(&most) {
        Some(Ordering::Less | Ordering::Equal) => Ok(Unary::Clamp(least, most)),
        // Not in order, or NaN.
        _ => Err(format!("from {least} to {most}")),
    }
}

fn leaky_relu(call: &Call) -> Result<Unary, Reason> {
    Ok(Unary::LeakyRelu(call.number_or("negative_slope", 0.01)?))
}

impl Lowerer<'_, '_> {
    fn selu(&mut self, call: &Call) -> Result<ValueId, Reason> {
        // Source: torch.nn.SELU.
        let (alpha, scale) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
        let input = call.tensor("input")?;
        let elu = self.single(Unary::Elu(alpha), input);
        Ok(self.single(Unary::scale(scale), elu))
    }

    fn prelu(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
        let shape = self.shape(input);
        let mut own = self.shape(weight);
        let count = self.program.value(weight).len();
        let rank = own.len();
        if is_operator!(call.operator, "prelu") && rank > 1 {
            return Err("a weight of several dimensions".to_owned());
        }
        if is_operator!(call.operator, "prelu") && count == 1 {
            own.clear();
        } else if is_operator!(call.operator, "prelu") && shape.len() > 1 {
            own = vec![1; shape.len() - 1];
            own[0] = count;
        }
        let weight = self.alias(weight, own);
        self.pairwise(Binary::Prelu, input, weight)
    }

    fn glu(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let dim = call.dim("dim", shape.len(), -1)?;
        let half = shape[dim] / 2;
        let (a, b) = (
            self.narrowed(input, dim, 0, half),
            self.narrowed(input, dim, half, half),
        );
        let gate = self.single(Unary::Sigmoid, b);
        self.pairwise(Binary::Mul, a, gate)
    }

    pub(super) fn softmax(&mut self, call: &Call, log: bool) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let result = self.shape(input);
        let input = self.at_least_a_vector(input);
        let shape = self.shape(input);
        let dim = call
            .int("dim")?
            .ok_or_else(|| "softmax without dim".to_owned())?;
        let op = Op::Softmax {
            dim: wrapped(dim, shape.len())?,
            log,
        };
        let value = self.emit(op, [input], shape);
        Ok(self.alias(value, result))
    }

    fn softmin(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let result = self.shape(input);
        let input = self.at_least_a_vector(input);
        let negative = self.single(Unary::scale(-1.0), input);
        let dim = call.dim("dim", self.shape(input).len(), -1)?;
        let shape = self.shape(input);
        let value = self.emit(Op::Softmax { dim, log: false }, [negative], shape);
        Ok(self.alias(value, result))
    }
}
