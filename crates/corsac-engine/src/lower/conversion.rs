//! Conversions, copies and creation of tensors.

use super::call::Call;
use super::element::{broadcast, scalar};
use super::table::{Lowering, tensor};
use super::{Lowerer, Reason};
use crate::program::{Element, Op, Scalar, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    tensor("to", |own, call| own.converted(call)).of_any_type(),
    tensor("_to_copy", |own, call| own.converted(call)).of_any_type(),
    tensor("convert_element_type", |own, call| own.converted(call)).of_any_type(),
    tensor("double", |own, call| own.converted(call)).of_any_type(),
    tensor("float", |own, call| own.converted(call)).of_any_type(),
    tensor("half", |own, call| own.converted(call)).of_any_type(),
    tensor("bfloat16", |own, call| own.converted(call)).of_any_type(),
    tensor("long", |own, call| own.converted(call)).of_any_type(),
    tensor("int", |own, call| own.converted(call)).of_any_type(),
    tensor("short", |own, call| own.converted(call)).of_any_type(),
    tensor("char", |own, call| own.converted(call)).of_any_type(),
    tensor("byte", |own, call| own.converted(call)).of_any_type(),
    tensor("bool", |own, call| own.converted(call)).of_any_type(),
    tensor("type", |own, call| own.converted(call)).of_any_type(),
    tensor("type_as", |own, call| own.converted(call)).of_any_type(),
    tensor("cpu", |own, call| own.converted(call)).of_any_type(),
    tensor("copy", |own, call| own.copied_from(call)).of_any_type(),
    tensor("clone", |_, call| call.tensor("input")),
    tensor("contiguous", |_, call| call.tensor("input")),
    tensor("detach", |_, call| call.tensor("input")),
    tensor("Identity", |_, call| call.tensor("input")),
    tensor("arange", |own, call| own.range(call)).of_any_type(),
    tensor("full", |own, call| own.filled(call, "fill_value")).of_any_type(),
    tensor("full_like", |own, call| own.filled(call, "fill_value")).of_any_type(),
    tensor("new_full", |own, call| own.filled(call, "fill_value")).of_any_type(),
    tensor("fill", |own, call| own.filled(call, "value")).of_any_type(),
    tensor("scalar_tensor", |own, call| own.filled(call, "s")).of_any_type(),
    tensor("tensor", |own, call| own.filled(call, "data")).of_any_type(),
    tensor("ones", |own, _| own.constants(Scalar::Int(1))).of_any_type(),
    tensor("ones_like", |own, _| own.constants(Scalar::Int(1))).of_any_type(),
    tensor("new_ones", |own, _| own.constants(Scalar::Int(1))).of_any_type(),
    tensor("zeros", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    tensor("zeros_like", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    tensor("new_zeros", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    tensor("zero", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    tensor("zero_", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    // What is left as memory has it may be zeros, too.
    tensor("empty", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    tensor("empty_like", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
    tensor("new_empty", |own, _| own.constants(Scalar::Int(0))).of_any_type(),
];

/// The number given for a parameter.
fn number(call: &Call, param: &str) -> Result<Scalar, Reason> {
    match call.known(param)? {
        Some(value) => scalar(value).ok_or_else(|| format!("{param} is no number")),
        None => Err(format!("there is no {param}")),
    }
}

impl Lowerer<'_, '_> {
    fn converted(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let element = self.result_element()?;
        // Floating-point numbers become narrow integers in one step.
        Ok(
            match self.program.element(input).is_float()
                && self.gives_narrow()
                && !element.is_float()
            {
                true => input,
                // Booleans and integers become numbers of 16 bits in one step.
                false if self.program.element(input) != Element::F32 => {
                    let value = self.cast(input, element);
                    return self.rounded_as_result(value);
                }
                false => self.cast(input, element),
            },
        )
    }

    fn copied_from(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (input, source) = (call.tensor("input")?, call.tensor("src")?);
        let (element, shape) = (self.program.element(input), self.shape(input));
        let source = self.cast(source, element);
        if broadcast(&self.shape(source), &shape)?[..] != shape[..] {
            return Err("a copy of another shape".to_owned());
        }
        Ok(self.broadcast_to(source, &shape))
    }

    /// A tensor whose elements are all the same number.
    fn constants(&mut self, number: Scalar) -> Result<ValueId, Reason> {
        let (element, shape) = (self.result_element()?, self.result_shape()?);
        let value = self.emit_typed(Op::Fill(number), [], element, shape);
        self.rounded_as_result(value)
    }

    fn filled(&mut self, call: &Call, param: &str) -> Result<ValueId, Reason> {
        let number = number(call, param)?;
        self.constants(number)
    }

    fn range(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (element, shape) = (self.result_element()?, self.result_shape()?);
        // A single bound is the end.
        let start = match (call.get("start"), call.get("end")) {
            (Some(_), Some(_)) => number(call, "start")?,
            _ => Scalar::Int(0),
        };
        let step = match call.get("step") {
            Some(_) => number(call, "step")?,
            None => Scalar::Int(1),
        };
        let value = self.emit_typed(Op::Range { start, step }, [], element, shape);
        self.rounded_as_result(value)
    }
}
