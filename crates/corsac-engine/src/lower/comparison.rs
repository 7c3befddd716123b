//! Comparisons, logic and choices, element by element.

use super::call::Call;
use super::element::broadcast;
use super::table::{Lowering, tensor};
use super::{Lowerer, Reason};
use crate::program::{Arithmetic, Comparison, Element, Op, Scalar, Unary, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("bitwise_and", |own, call| own.arithmetic(call, Arithmetic::And)).of_any_type(),
    tensor("bitwise_not", |own, call| own.bitwise_not(call)).of_any_type(),
    tensor("bitwise_or", |own, call| own.arithmetic(call, Arithmetic::Or)).of_any_type(),
    tensor("bitwise_xor", |own, call| own.arithmetic(call, Arithmetic::Xor)).of_any_type(),
    tensor("eq", |own, call| own.compare(call, Comparison::Eq)).of_any_type(),
    tensor("ge", |own, call| own.compare(call, Comparison::Ge)).of_any_type(),
    tensor("gt", |own, call| own.compare(call, Comparison::Gt)).of_any_type(),
    tensor("isfinite", |own, call| own.size_compared(call, Comparison::Lt)).of_any_type(),
    tensor("isinf", |own, call| own.size_compared(call, Comparison::Eq)).of_any_type(),
    tensor("isnan", |own, call| own.is_nan(call)).of_any_type(),
    tensor("le", |own, call| own.compare(call, Comparison::Le)).of_any_type(),
    tensor("logical_and", |own, call| own.logical(call, Arithmetic::And)).of_any_type(),
    tensor("logical_not", |own, call| own.logical_not(call)).of_any_type(),
    tensor("logical_or", |own, call| own.logical(call, Arithmetic::Or)).of_any_type(),
    tensor("logical_xor", |own, call| own.logical(call, Arithmetic::Xor)).of_any_type(),
    tensor("lt", |own, call| own.compare(call, Comparison::Lt)).of_any_type(),
    tensor("masked_fill", |own, call| own.masked_fill(call)).of_any_type(),
    tensor("ne", |own, call| own.compare(call, Comparison::Ne)).of_any_type(),
    tensor("where", |own, call| own.select_where(call)).of_any_type(),
];

impl Lowerer<'_, '_> {
    fn compare(&mut self, call: &Call, comparison: Comparison) -> Result<ValueId, Reason> {
        let common = self.common(call, ["input", "other"])?;
        let a = self.operand_as(call, "input", common)?;
        let b = self.operand_as(call, "other", common)?;
        let shape = self.result_shape()?;
        Ok(self.emit_typed(Op::Compare(comparison), [a, b], Element::Bool, shape))
    }

    fn logical(&mut self, call: &Call, function: Arithmetic) -> Result<ValueId, Reason> {
        let a = self.operand_as(call, "input", Element::Bool)?;
        let b = self.operand_as(call, "other", Element::Bool)?;
        let shape = self.result_shape()?;
        Ok(self.emit_typed(Op::Arithmetic(function), [a, b], Element::Bool, shape))
    }

    fn logical_not(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        Ok(self.emit_typed(Op::Not, [input], Element::Bool, shape))
    }

    fn bitwise_not(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let element = self.program.element(input);
        if element.is_float() {
            return Err("the bits of floating-point numbers".to_owned());
        }
        let shape = self.shape(input);
        Ok(self.emit_typed(Op::Not, [input], element, shape))
    }

    /// The absolute value compared with infinity, than which all integers are smaller.
    fn size_compared(&mut self, call: &Call, comparison: Comparison) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        if self.program.element(input).is_float() {
            let size = self.single(Unary::Abs, input);
            return Ok(self.compared(comparison, size, f64::INFINITY));
        }
        let smaller = Scalar::Int(i64::from(comparison == Comparison::Lt));
        let shape = self.shape(input);
        Ok(self.emit_typed(Op::Fill(smaller), [], Element::Bool, shape))
    }

    fn is_nan(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let op = Op::Compare(Comparison::Ne);
        Ok(self.emit_typed(op, [input, input], Element::Bool, shape))
    }

    fn masked_fill(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, mask) = (call.tensor("input")?, call.tensor("mask")?);
        self.expect_flags(mask)?;
        let element = self.program.element(input);
        let value = self.operand_as(call, "value", element)?;
        if !self.shape(value).is_empty() {
            return Err("a value with dimensions".to_owned());
        }
        self.choose(mask, value, input)
    }

    /// Checks that `value` holds booleans: PyTorch takes no numbers in place of them.
    fn expect_flags(&self, value: ValueId) -> Result<(), Reason> {
        match self.program.element(value) {
            Element::Bool => Ok(()),
            other => Err(format!("a condition of {}", other.name())),
        }
    }

    fn select_where(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.get("other").is_none() {
            return Err("the places of what is true".to_owned());
        }
        let element = self.result_element()?;
        let condition = call.tensor("condition")?;
        self.expect_flags(condition)?;
        let a = self.operand_as(call, "input", element)?;
        let b = self.operand_as(call, "other", element)?;
        self.choose(condition, a, b)
    }

    /// `condition ? a : b`, broadcast.
    pub(super) fn choose(
        &mut self,
        condition: ValueId,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, Reason> {
        let shape = broadcast(&self.shape(a), &self.shape(b))?;
        let shape = broadcast(&self.shape(condition), &shape)?.to_vec();
        let element = self.program.element(a);
        Ok(self.emit_typed(Op::Where, [condition, a, b], element, shape))
    }

    pub(super) fn compared(
        &mut self,
        comparison: Comparison,
        value: ValueId,
        with: f64,
    ) -> ValueId {
        let element = self.program.element(value);
        let number = self.constant(Scalar::Float(with), element);
        let shape = self.shape(value);
        let op = Op::Compare(comparison);
        self.emit_typed(op, [value, number], Element::Bool, shape)
    }
}
