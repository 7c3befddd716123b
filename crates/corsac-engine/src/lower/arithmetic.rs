//! Arithmetic and functions of numbers, element by element.

use corsac_ops::is_operator;
use corsac_ops::shape::Value;

use super::call::{Call, as_number};
use super::element::{broadcast, scalar};
use super::table::{Lowering, tensor, unary};
use super::{Lowered, Lowerer, Reason};
use crate::program::{
    Arithmetic, Binary, Comparison, Element, Op, Scalar, Ternary, Unary, ValueId,
};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    unary("abs", |_| Ok(Unary::Abs)),
    unary("acos", |_| Ok(Unary::Acos)),
    unary("acosh", |_| Ok(Unary::Acosh)),
    tensor("add", |own, call| own.sum(call, Arithmetic::Add, Binary::Add)).of_any_type(),
    tensor("addcdiv", |own, call| own.added(call, Binary::Div)),
    tensor("addcmul", |own, call| own.added(call, Binary::Mul)),
    unary("asin", |_| Ok(Unary::Asin)),
    unary("asinh", |_| Ok(Unary::Asinh)),
    unary("atan", |_| Ok(Unary::Atan)),
    tensor("atan2", |own, call| own.arithmetic(call, Arithmetic::Atan2)).of_any_type(),
    unary("atanh", |_| Ok(Unary::Atanh)),
    unary("ceil", |_| Ok(Unary::Ceil)),
    tensor("clamp", |own, call| own.clamp(call)).of_any_type(),
    tensor("clamp_max", |own, call| own.clamp(call)).of_any_type(),
    tensor("clamp_min", |own, call| own.clamp(call)).of_any_type(),
    unary("cos", |_| Ok(Unary::Cos)),
    unary("cosh", |_| Ok(Unary::Cosh)),
    unary("deg2rad", |_| { Ok(Unary::scale(std::f64::consts::PI / 180.0)) }),
    tensor("div", |own, call| own.division(call)).of_any_type(),
    unary("erf", |_| Ok(Unary::Erf)),
    unary("exp", |_| Ok(Unary::Exp)),
    unary("exp2", |_| Ok(Unary::Exp2)),
    unary("expm1", |_| Ok(Unary::Expm1)),
    unary("floor", |_| Ok(Unary::Floor)),
    tensor("floor_divide", |own, call| own.arithmetic(call, Arithmetic::FloorDivide)).of_any_type(),
    tensor("fmax", |own, call| own.arithmetic(call, Arithmetic::Fmax)).of_any_type(),
    tensor("fmin", |own, call| own.arithmetic(call, Arithmetic::Fmin)).of_any_type(),
    tensor("fmod", |own, call| own.arithmetic(call, Arithmetic::Fmod)).of_any_type(),
    unary("frac", |_| Ok(Unary::Frac)),
    tensor("hypot", |own, call| own.arithmetic(call, Arithmetic::Hypot)).of_any_type(),
    tensor("lerp", |own, call| own.interpolation(call)),
    unary("log", |_| Ok(Unary::Log)),
    unary("log10", |_| Ok(Unary::Log10)),
    unary("log1p", |_| Ok(Unary::Log1p)),
    unary("log2", |_| Ok(Unary::Log2)),
    tensor("maximum", |own, call| own.sum(call, Arithmetic::Maximum, Binary::Maximum)).of_any_type(),
    tensor("minimum", |own, call| own.sum(call, Arithmetic::Minimum, Binary::Minimum)).of_any_type(),
    tensor("mul", |own, call| own.sum(call, Arithmetic::Mul, Binary::Mul)).of_any_type(),
    tensor("neg", |own, call| own.negative(call)).of_any_type(),
    tensor("pow", |own, call| own.power(call)).of_any_type(),
    unary("rad2deg", |_| { Ok(Unary::scale(180.0 / std::f64::consts::PI)) }),
    unary("reciprocal", |_| Ok(Unary::DivideInto(1.0))),
    tensor("remainder", |own, call| own.arithmetic(call, Arithmetic::Remainder)).of_any_type(),
    unary("round", |call| match call.int("decimals")?.unwrap_or(0) {
        0 => Ok(Unary::Round),
        decimals => Err(format!("round to {decimals} decimals")),
    }),
    unary("rsqrt", |_| Ok(Unary::Rsqrt)),
    tensor("rsub", |own, call| own.sum(call, Arithmetic::Sub, Binary::Sub)).of_any_type(),
    unary("sgn", |_| Ok(Unary::Sign)),
    unary("sign", |_| Ok(Unary::Sign)),
    unary("sin", |_| Ok(Unary::Sin)),
    unary("sinh", |_| Ok(Unary::Sinh)),
    unary("sqrt", |_| Ok(Unary::Sqrt)),
    unary("square", |_| Ok(Unary::Power(2.0))),
    tensor("sub", |own, call| own.sum(call, Arithmetic::Sub, Binary::Sub)).of_any_type(),
    unary("tan", |_| Ok(Unary::Tan)),
    unary("trunc", |_| Ok(Unary::Trunc)),
];

/// An operand of an elementwise operator.
enum Operand {
    Tensor(ValueId),
    Number(Scalar),
}

impl Lowerer<'_, '_> {
    /// A function that has a step of its own for floating-point numbers.
    fn sum(
        &mut self,
        call: &mut Call,
        function: Arithmetic,
        of_numbers: Binary,
    ) -> Result<ValueId, Reason> {
        if self.result_element()?.is_float() {
            self.check_elements(call)?;
            return self.binary(call, of_numbers);
        }
        if call.number("alpha")?.unwrap_or(1.0) != 1.0 {
            return Err("alpha of integers".to_owned());
        }
        self.arithmetic(call, function)
    }

    fn division(&mut self, call: &mut Call) -> Result<ValueId, Reason> {
        match call.text("rounding_mode")? {
            None => {
                self.check_elements(call)?;
                self.binary(call, Binary::Div)
            }
            Some("floor") => self.arithmetic(call, Arithmetic::FloorDivide),
            Some(_) => self.arithmetic(call, Arithmetic::TruncDivide),
        }
    }

    fn negative(&mut self, call: &mut Call) -> Result<ValueId, Reason> {
        if self.result_element()? != Element::I64 {
            self.check_elements(call)?;
            let input = call.tensor("input")?;
            return Ok(self.single(Unary::scale(-1.0), input));
        }
        let input = call.tensor("input")?;
        let zero = self.constant(Scalar::Int(0), Element::I64);
        let shape = self.shape(input);
        let op = Op::Arithmetic(Arithmetic::Sub);
        Ok(self.emit_typed(op, [zero, input], Element::I64, shape))
    }

    fn power(&mut self, call: &mut Call) -> Result<ValueId, Reason> {
        let element = self.result_element()?;
        let exponent = match call.get("exponent") {
            Some(Lowered::Known(value)) => scalar(value),
            _ => None,
        };
        let base = call.tensor("input");
        let of_numbers = base.is_ok_and(|base| self.program.element(base).is_float());
        if element.is_float() && of_numbers && exponent.is_some() {
            self.check_elements(call)?;
            let function = match call.number("exponent")? {
                // As in PyTorch: the roots of negative zero and infinity differ from their powers.
                Some(0.5) => Unary::Sqrt,
                Some(-0.5) => Unary::Rsqrt,
                Some(exponent) => Unary::Power(exponent),
                None => return Err("a power of nothing".to_owned()),
            };
            let input = call.tensor("input")?;
            return Ok(self.single(function, input));
        }
        if element == Element::I64 && !matches!(exponent, Some(Scalar::Int(0..))) {
            return Err("integers to the power of what may be negative".to_owned());
        }
        self.arithmetic_of(call, ["input", "exponent"], Arithmetic::Power)
    }

    fn binary(&mut self, call: &Call, function: Binary) -> Result<ValueId, Reason> {
        let alpha = call.number("alpha")?.unwrap_or(1.0);
        let shape = self.result_shape()?;
        let operand = |param: &str| -> Result<Result<ValueId, f64>, Reason> {
            match call.get(param) {
                Some(Lowered::Tensor(value)) => Ok(Ok(*value)),
                Some(Lowered::Known(value)) => as_number(value)
                    .map(Err)
                    .ok_or_else(|| format!("{param} is no number")),
                _ => Err(format!("{param} is neither a tensor nor a number")),
            }
        };
        let (mut a, mut b) = (operand("input")?, operand("other")?);
        if is_operator!(call.operator, "rsub") {
            std::mem::swap(&mut a, &mut b);
        }
        let is_sum = matches!(function, Binary::Add | Binary::Sub);
        if alpha != 1.0 && is_sum {
            b = match b {
                Ok(value) => {
                    let shape = self.shape(value);
                    Ok(self.emit(Op::Unary(Unary::scale(alpha)), [value], shape))
                }
                Err(number) => Err(number * alpha),
            };
        }
        let (value, function) = match (a, b) {
            (Ok(a), Ok(b)) => {
                return Ok(self.emit(Op::Binary(function), [a, b], shape));
            }
            (Ok(value), Err(c)) => match function {
                Binary::Add => (value, Unary::Affine(1.0, c)),
                Binary::Sub => (value, Unary::Affine(1.0, -c)),
                Binary::Mul => (value, Unary::scale(c)),
                Binary::Div => (value, Unary::divide_by(c)),
                _ => return Err("a number where a tensor is expected".to_owned()),
            },
            (Err(c), Ok(value)) => match function {
                Binary::Add => (value, Unary::Affine(1.0, c)),
                Binary::Sub => (value, Unary::Affine(-1.0, c)),
                Binary::Mul => (value, Unary::scale(c)),
                Binary::Div => (value, Unary::DivideInto(c)),
                _ => return Err("a number where a tensor is expected".to_owned()),
            },
            (Err(_), Err(_)) => return Err("it computes with numbers alone".to_owned()),
        };
        Ok(self.emit(Op::Unary(function), [value], shape))
    }

    pub(super) fn arithmetic(
        &mut self,
        call: &Call,
        function: Arithmetic,
    ) -> Result<ValueId, Reason> {
        let params = match is_operator!(call.operator, "rsub") {
            true => ["other", "input"],
            false => ["input", "other"],
        };
        self.arithmetic_of(call, params, function)
    }

    pub(super) fn arithmetic_of(
        &mut self,
        call: &Call,
        params: [&str; 2],
        function: Arithmetic,
    ) -> Result<ValueId, Reason> {
        let element = self.result_element()?;
        if !function.is_of(element) {
            return Err(format!("{} of {}", call.operator.name(), element.name()));
        }
        let a = self.operand_as(call, params[0], element)?;
        let b = self.operand_as(call, params[1], element)?;
        let shape = self.result_shape()?;
        // Functions with kernels of their own, into which later functions are fused.
        let own = match function {
            Arithmetic::Maximum => Some(Binary::Maximum),
            Arithmetic::Minimum => Some(Binary::Minimum),
            _ => None,
        };
        if let (Some(own), true) = (own, element.is_float()) {
            return Ok(self.emit(Op::Binary(own), [a, b], shape));
        }
        Ok(self.emit_typed(Op::Arithmetic(function), [a, b], element, shape))
    }

    fn clamp(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let element = self.result_element()?;
        if element == Element::Bool {
            return Err("bounds of truth values".to_owned());
        }
        let mut value = call.tensor("input")?;
        value = self.cast(value, element);
        let numbers =
            ["min", "max"].map(|param| !matches!(call.get(param), Some(Lowered::Tensor(_))));
        if element.is_float() && numbers == [true, true] {
            let bound = |param: &str, default: f64| -> Result<f64, Reason> {
                Ok(call.number(param)?.unwrap_or(default))
            };
            let (low, high) = (
                bound("min", f64::NEG_INFINITY)?,
                bound("max", f64::INFINITY)?,
            );
            if low.is_nan() || high.is_nan() {
                return Err("clamp to NaN".to_owned());
            }
            let shape = self.shape(value);
            let function = Unary::Clamp(low, high);
            return Ok(self.emit(Op::Unary(function), [value], shape));
        }
        for (param, function) in [("min", Arithmetic::Maximum), ("max", Arithmetic::Minimum)] {
            if call.get(param).is_none() {
                continue;
            }
            let bound = self.operand_as(call, param, element)?;
            let shape = broadcast(&self.shape(value), &self.shape(bound))?.to_vec();
            let op = Op::Arithmetic(function);
            value = self.emit_typed(op, [value, bound], element, shape);
        }
        Ok(value)
    }

    fn added(&mut self, call: &Call, function: Binary) -> Result<ValueId, Reason> {
        let (a, b) = (call.tensor("tensor1")?, call.tensor("tensor2")?);
        let value = call.number("value")?.unwrap_or(1.0);
        let ternary = match function {
            Binary::Mul => Ternary::AddProduct(value),
            _ => Ternary::AddQuotient(value),
        };
        let input = call.tensor("input")?;
        if let Some(found) = self.ternary(ternary, [input, a, b])? {
            return Ok(found);
        }
        let product = self.pairwise(function, a, b)?;
        let scaled = self.scaled(product, value);
        self.pairwise(Binary::Add, call.tensor("input")?, scaled)
    }

    fn interpolation(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (start, end) = (call.tensor("input")?, call.tensor("end")?);
        if let Some(Lowered::Tensor(weight)) = call.get("weight") {
            return self.lerp(start, end, *weight);
        }
        let Some(Lowered::Known(weight)) = call.get("weight") else {
            return Err("lerp by what is no number".to_owned());
        };
        let weight = as_number(weight).ok_or("weight is no number")?;
        let distance = self.pairwise(Binary::Sub, end, start)?;
        // Source: `lerp` of PyTorch, from the nearer end.
        if weight.abs() < 0.5 {
            let part = self.scaled(distance, weight);
            self.pairwise(Binary::Add, start, part)
        } else {
            let part = self.scaled(distance, 1.0 - weight);
            self.pairwise(Binary::Sub, end, part)
        }
    }

    /// A function of three values in one step, if they and the result hold floating-point numbers.
    fn ternary(
        &mut self,
        function: Ternary,
        values: [ValueId; 3],
    ) -> Result<Option<ValueId>, Reason> {
        let is_number = |value: ValueId| self.program.element(value) == self.float;
        if !values.into_iter().all(is_number) {
            return Ok(None);
        }
        let shape = self.result_shape()?;
        Ok(Some(self.emit_typed(
            Op::Ternary(function),
            values,
            self.float,
            shape,
        )))
    }

    /// Linear interpolation between tensors, by a tensor.
    fn lerp(&mut self, start: ValueId, end: ValueId, weight: ValueId) -> Result<ValueId, Reason> {
        if let Some(found) = self.ternary(Ternary::Lerp, [start, end, weight])? {
            return Ok(found);
        }
        let distance = self.pairwise(Binary::Sub, end, start)?;
        let part = self.pairwise(Binary::Mul, weight, distance)?;
        let from_start = self.pairwise(Binary::Add, start, part)?;
        let rest = self.single(Unary::Affine(-1.0, 1.0), weight);
        let part = self.pairwise(Binary::Mul, distance, rest)?;
        let from_end = self.pairwise(Binary::Sub, end, part)?;
        let size = self.single(Unary::Abs, weight);
        // Source: `lerp` of PyTorch, from the nearer end.
        let is_near = self.compared(Comparison::Lt, size, 0.5);
        self.choose(is_near, from_start, from_end)
    }

    /// A function of each pair of elements, after broadcasting.
    pub(super) fn pairwise(
        &mut self,
        function: Binary,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, Reason> {
        let shape = broadcast(&self.shape(a), &self.shape(b))?.to_vec();
        Ok(self.emit(Op::Binary(function), [a, b], shape))
    }

    /// A function of each element.
    pub(super) fn single(&mut self, function: Unary, value: ValueId) -> ValueId {
        let shape = self.shape(value);
        self.emit(Op::Unary(function), [value], shape)
    }

    pub(super) fn scaled(&mut self, value: ValueId, factor: f64) -> ValueId {
        match factor {
            1.0 => value,
            factor => self.single(Unary::scale(factor), value),
        }
    }

    fn elementwise_operand(&self, call: &Call, param: &str) -> Result<Operand, Reason> {
        match call.get(param) {
            Some(Lowered::Tensor(value)) => Ok(Operand::Tensor(*value)),
            Some(Lowered::Known(value)) => scalar(value)
                .map(Operand::Number)
                .ok_or_else(|| format!("{param} is no number")),
            _ => Err(format!("{param} is neither a tensor nor a number")),
        }
    }

    /// An operand as a tensor of this element type.
    pub(super) fn operand_as(
        &mut self,
        call: &Call,
        param: &str,
        element: Element,
    ) -> Result<ValueId, Reason> {
        Ok(match self.elementwise_operand(call, param)? {
            Operand::Tensor(value) => self.cast(value, element),
            Operand::Number(number) => self.constant(number, element),
        })
    }

    /// The common type of operands that are compared.
    pub(super) fn common(&self, call: &Call, params: [&str; 2]) -> Result<Element, Reason> {
        let mut common = Element::Bool;
        let mut has_dims = false;
        for param in params {
            let (own, dims) = match self.elementwise_operand(call, param)? {
                Operand::Tensor(value) => {
                    let dims = !self.program.shape(value).is_empty();
                    (self.program.element(value), dims)
                }
                Operand::Number(Scalar::Float(_)) => (Element::F32, false),
                Operand::Number(Scalar::Int(_)) => match call.get(param) {
                    Some(Lowered::Known(Value::Bool(_))) => (Element::Bool, false),
                    _ => (Element::I64, false),
                },
            };
            // Promotion order: booleans, integers, floating-point numbers. Those of one kind are of the
            // type of what has dimensions.
            let alike = common.is_float() && own.is_float() && has_dims != dims;
            common = match alike {
                true if dims => own,
                true => common,
                false => common.max(own),
            };
            has_dims |= dims;
        }
        Ok(common)
    }
}
