//! Operators over integers and booleans, and conversions between element types.

use corsac_ir::DType;
use corsac_ops::shape::Value;

use super::call::{Call, as_number};
use super::operators::broadcast;
use super::views::View;
use super::{Lowered, Lowerer, Reason};
use crate::kernels::rows::broadcast_strides;
use crate::program::{Arithmetic, Binary, Comparison, Element, Op, Reduction, Scalar, ValueId};

/// The element type for a type of PyTorch.
pub(super) fn element_of(dtype: DType) -> Result<Element, Reason> {
    match dtype {
        DType::Float32 => Ok(Element::F32),
        DType::Int64 | DType::Int32 | DType::Int16 | DType::Int8 | DType::UInt8 => Ok(Element::I64),
        DType::Bool => Ok(Element::Bool),
        other => Err(format!("a tensor of {other}")),
    }
}

/// An operand of an elementwise operator.
enum Operand {
    Tensor(ValueId),
    Number(Scalar),
}

impl Lowerer<'_, '_> {
    /// Lowers an operator whose operands may be of any type; `None` for all others.
    pub(super) fn typed(&mut self, call: &Call) -> Result<Option<Lowered>, Reason> {
        let value = match call.name {
            "eq" => self.compare(call, Comparison::Eq)?,
            "ne" => self.compare(call, Comparison::Ne)?,
            "lt" => self.compare(call, Comparison::Lt)?,
            "le" => self.compare(call, Comparison::Le)?,
            "gt" => self.compare(call, Comparison::Gt)?,
            "ge" => self.compare(call, Comparison::Ge)?,
            "logical_and" => self.logical(call, Arithmetic::And)?,
            "logical_or" => self.logical(call, Arithmetic::Or)?,
            "logical_xor" => self.logical(call, Arithmetic::Xor)?,
            "logical_not" => {
                let input = call.tensor("input")?;
                self.not(input)
            }
            "bitwise_not" => {
                let input = call.tensor("input")?;
                let element = self.program.element(input);
                if element == Element::F32 {
                    return Err("the bits of floating-point numbers".to_owned());
                }
                let shape = self.shape(input);
                self.emit_typed(Op::Not, [input], element, shape)
            }
            "bitwise_and" => self.arithmetic(call, Arithmetic::And)?,
            "bitwise_or" => self.arithmetic(call, Arithmetic::Or)?,
            "bitwise_xor" => self.arithmetic(call, Arithmetic::Xor)?,
            "floor_divide" => self.arithmetic(call, Arithmetic::FloorDivide)?,
            "remainder" => self.arithmetic(call, Arithmetic::Remainder)?,
            "fmod" => self.arithmetic(call, Arithmetic::Fmod)?,
            "fmax" => self.arithmetic(call, Arithmetic::Fmax)?,
            "fmin" => self.arithmetic(call, Arithmetic::Fmin)?,
            "atan2" => self.arithmetic(call, Arithmetic::Atan2)?,
            "hypot" => self.arithmetic(call, Arithmetic::Hypot)?,
            "add" | "mul" | "sub" | "rsub" | "maximum" | "minimum"
                if self.result_element()? != Element::F32 =>
            {
                if call.number("alpha")?.unwrap_or(1.0) != 1.0 {
                    return Err("alpha of integers".to_owned());
                }
                let function = match call.name {
                    "add" => Arithmetic::Add,
                    "mul" => Arithmetic::Mul,
                    "sub" | "rsub" => Arithmetic::Sub,
                    "maximum" => Arithmetic::Maximum,
                    _ => Arithmetic::Minimum,
                };
                self.arithmetic(call, function)?
            }
            "div" if call.text("rounding_mode")?.is_some() => match call.text("rounding_mode")? {
                Some("floor") => self.arithmetic(call, Arithmetic::FloorDivide)?,
                _ => self.arithmetic(call, Arithmetic::TruncDivide)?,
            },
            "pow" => return self.power(call),
            "neg" if self.result_element()? == Element::I64 => {
                let input = call.tensor("input")?;
                let zero = self.constant(Scalar::Int(0), Element::I64);
                let shape = self.shape(input);
                let op = Op::Arithmetic(Arithmetic::Sub);
                self.emit_typed(op, [zero, input], Element::I64, shape)
            }
            "clamp" | "clamp_min" | "clamp_max" => self.clamp(call)?,
            "where" => self.select_where(call)?,
            "masked_fill" => {
                let (input, mask) = (call.tensor("input")?, call.tensor("mask")?);
                self.expect_flags(mask)?;
                let element = self.program.element(input);
                let value = self.operand_as(call, "value", element)?;
                if !self.shape(value).is_empty() {
                    return Err("a value with dimensions".to_owned());
                }
                self.choose(mask, value, input)?
            }
            "isnan" => {
                let input = call.tensor("input")?;
                let shape = self.shape(input);
                let op = Op::Compare(Comparison::Ne);
                self.emit_typed(op, [input, input], Element::Bool, shape)
            }
            "to"
            | "_to_copy"
            | "convert_element_type"
            | "float"
            | "long"
            | "int"
            | "short"
            | "char"
            | "byte"
            | "bool"
            | "type"
            | "type_as"
            | "cpu" => {
                let input = call.tensor("input")?;
                let element = self.result_element()?;
                // Floating-point numbers become narrow integers in one step.
                match self.program.element(input) == Element::F32 && self.gives_narrow() {
                    true => input,
                    false => self.cast(input, element),
                }
            }
            "arange" | "full" | "zeros" | "ones" | "empty" | "zeros_like" | "ones_like"
            | "full_like" | "empty_like" | "new_zeros" | "new_ones" | "new_full" | "new_empty"
            | "scalar_tensor" | "tensor" | "fill" | "zero" | "zero_" => self.creation(call)?,
            "embedding" => {
                if call.get("max_norm").is_some() {
                    return Err("embedding with max_norm".to_owned());
                }
                let (mut table, mut indices) = (call.tensor("weight")?, call.tensor("input")?);
                if self.program.element(table) == Element::I64 {
                    std::mem::swap(&mut table, &mut indices);
                }
                self.rows(table, 0, indices, false)?
            }
            "_get_relative_position_bias" => self.position_bias(call)?,
            "index_select" => {
                let (input, index) = (call.tensor("input")?, call.tensor("index")?);
                if self.shape(index).len() > 1 {
                    return Err("an index that is no vector".to_owned());
                }
                let input = self.at_least_a_vector(input);
                let dim = call.dim("dim", self.shape(input).len(), 0)?;
                let value = self.rows(input, dim, index, false)?;
                let shape = self.result_shape()?;
                self.alias(value, shape)
            }
            "gather" | "take_along_dim" => {
                let index = if call.name == "gather" {
                    "index"
                } else {
                    "indices"
                };
                let (input, index) = (call.tensor("input")?, call.tensor(index)?);
                if call.name == "take_along_dim" && call.get("dim").is_none() {
                    return Err("take_along_dim without dim".to_owned());
                }
                let result = self.result_shape()?;
                let (mut input, mut index) = (input, index);
                if call.name == "take_along_dim" {
                    let rank = self.shape(input).len();
                    let dim = call.dim("dim", rank, 0)?;
                    let (mut a, mut b) = (self.shape(input), self.shape(index));
                    let (size, count) = (a[dim], b[dim]);
                    (a[dim], b[dim]) = (1, 1);
                    let mut both = broadcast(&a, &b)?.to_vec();
                    both[dim] = size;
                    input = self.broadcast_to(input, &both);
                    both[dim] = count;
                    index = self.broadcast_to(index, &both);
                }
                let (input, index) = (self.at_least_a_vector(input), self.at_least_a_vector(index));
                self.expect_indices(index, &[])?;
                let (shape, sizes) = (self.shape(index), self.shape(input));
                let dim = call.dim("dim", sizes.len(), 0)?;
                let fits = |at: usize| at == dim || shape[at] <= sizes[at];
                if shape.len() != sizes.len() || !(0..shape.len()).all(fits) {
                    return Err("an index of another shape".to_owned());
                }
                let element = self.program.element(input);
                let wraps = call.name == "take_along_dim";
                let op = Op::Gather { dim, wraps };
                let value = self.emit_typed(op, [input, index], element, shape);
                self.alias(value, result)
            }
            "take" => {
                let (input, index) = (call.tensor("input")?, call.tensor("index")?);
                self.expect_indices(index, &[])?;
                let len = self.program.value(input).len();
                let flat = self.alias(input, vec![len]);
                self.rows(flat, 0, index, true)?
            }
            "getitem" | "index" | "_unsafe_index" if self.has_index_tensors(call) => {
                self.indexed(call)?
            }
            "diff" => self.differences(call)?,
            "scatter" | "scatter_add" | "scatter_reduce" => self.scattered(call)?,
            "index_put" | "index_add" | "index_copy" | "index_fill" => {
                let input = call.tensor("input")?;
                let view = View::of(&self.shape(input));
                self.put_by_index(call, input, &view)?
            }
            "copy" => {
                let (input, source) = (call.tensor("input")?, call.tensor("src")?);
                let (element, shape) = (self.program.element(input), self.shape(input));
                let source = self.cast(source, element);
                if broadcast(&self.shape(source), &shape)?[..] != shape[..] {
                    return Err("a copy of another shape".to_owned());
                }
                self.broadcast_to(source, &shape)
            }
            "cumsum" | "cumprod" => {
                let input = call.tensor("input")?;
                let element = self.result_element()?;
                let input = self.cast(input, element);
                let result = self.shape(input);
                let input = self.at_least_a_vector(input);
                let shape = self.shape(input);
                let dim = call.dim("dim", shape.len(), 0)?;
                let product = call.name == "cumprod";
                let op = Op::Scan { dim, product };
                let value = self.emit_typed(op, [input], element, shape);
                self.alias(value, result)
            }
            "any" | "all" => {
                let input = call.tensor("input")?;
                let input = self.cast(input, Element::Bool);
                if call.ints("dim")?.is_some_and(|dims| dims.is_empty()) {
                    // Without dimensions it reduces nothing, where other operators reduce all.
                    return Ok(Some(Lowered::Tensor(input)));
                }
                let reduction = match call.name {
                    "any" => Reduction::Max,
                    _ => Reduction::Min,
                };
                self.folded(call, input, reduction)?
            }
            "max" | "min" if call.get("other").is_some() || self.second_tensor(call) => {
                let function = match call.name {
                    "max" => Arithmetic::Maximum,
                    _ => Arithmetic::Minimum,
                };
                let param = if call.get("other").is_some() {
                    "other"
                } else {
                    "dim"
                };
                self.arithmetic_of(call, ["input", param], function)?
            }
            "sum" | "prod" | "amax" | "amin" | "max" | "min"
                if call.get("other").is_none()
                    && (self.first_element(call) != Element::F32 || call.name == "prod") =>
            {
                if matches!(call.name, "max" | "min") && call.get("dim").is_some() {
                    return self.extremes(call).map(Some);
                }
                let reduction = match call.name {
                    "sum" => Reduction::Sum,
                    "prod" => Reduction::Product,
                    "amax" | "max" => Reduction::Max,
                    _ => Reduction::Min,
                };
                let input = call.tensor("input")?;
                let result = self.reduced_element()?;
                let input = self.cast(input, result);
                if result == Element::F32 && !matches!(reduction, Reduction::Product) {
                    // A sum of integers as floating-point numbers.
                    return Err("a sum of integers in floating point".to_owned());
                }
                self.folded(call, input, reduction)?
            }
            "max" | "min" if call.get("dim").is_some() => return self.extremes(call).map(Some),
            "argmax" | "argmin" => {
                let mut input = call.tensor("input")?;
                let result = self.result_shape()?;
                if call.get("dim").is_none() {
                    let len = self.program.value(input).len();
                    input = self.alias(input, vec![len]);
                }
                let input = self.at_least_a_vector(input);
                let dim = call.dim("dim", self.shape(input).len(), 0)?;
                let places = self.extreme(input, dim, call.name == "argmax")?;
                self.alias(places, result)
            }
            "topk" | "sort" | "msort" | "argsort" | "kthvalue" => {
                return self.sorted(call).map(Some);
            }
            "tril" | "triu" => self.triangle(call)?,
            "flip" | "fliplr" | "flipud" => self.flipped(call)?,
            _ => return Ok(None),
        };
        Ok(Some(Lowered::Tensor(value)))
    }

    /// Element type of the value of the current node.
    pub(super) fn result_element(&self) -> Result<Element, Reason> {
        element_of(super::tensor_of(self.types.value(self.node))?.dtype)
    }

    /// Element type of the value of the current node, if that is one tensor.
    fn reduced_element(&self) -> Result<Element, Reason> {
        match self.types.value(self.node) {
            Value::Tensor(tensor) => element_of(tensor.dtype),
            _ => Err("it has several results".to_owned()),
        }
    }

    fn first_element(&self, call: &Call) -> Element {
        let first = call.tensor("input");
        first.map_or(Element::F32, |value| self.program.element(value))
    }

    fn second_tensor(&self, call: &Call) -> bool {
        matches!(call.get("dim"), Some(Lowered::Tensor(_)))
    }

    /// `value` converted to another element type.
    pub(super) fn cast(&mut self, value: ValueId, element: Element) -> ValueId {
        if self.program.element(value) == element {
            return value;
        }
        let shape = self.shape(value);
        self.emit_typed(Op::Cast, [value], element, shape)
    }

    /// A number, as a tensor without dimensions.
    pub(super) fn constant(&mut self, number: Scalar, element: Element) -> ValueId {
        self.emit_typed(Op::Fill(number), [], element, Vec::new())
    }

    fn not(&mut self, value: ValueId) -> ValueId {
        let shape = self.shape(value);
        self.emit_typed(Op::Not, [value], Element::Bool, shape)
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
    fn common(&self, call: &Call, params: [&str; 2]) -> Result<Element, Reason> {
        let mut common = Element::Bool;
        for param in params {
            let own = match self.elementwise_operand(call, param)? {
                Operand::Tensor(value) => self.program.element(value),
                Operand::Number(Scalar::Float(_)) => Element::F32,
                Operand::Number(Scalar::Int(_)) => match call.get(param) {
                    Some(Lowered::Known(Value::Bool(_))) => Element::Bool,
                    _ => Element::I64,
                },
            };
            // Promotion order: booleans, integers, floating-point numbers.
            common = common.max(own);
        }
        Ok(common)
    }

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

    fn arithmetic(&mut self, call: &Call, function: Arithmetic) -> Result<ValueId, Reason> {
        let params = match call.name {
            "rsub" => ["other", "input"],
            _ => ["input", "other"],
        };
        self.arithmetic_of(call, params, function)
    }

    fn arithmetic_of(
        &mut self,
        call: &Call,
        params: [&str; 2],
        function: Arithmetic,
    ) -> Result<ValueId, Reason> {
        let element = self.result_element()?;
        if !function.is_of(element) {
            return Err(format!("{} of {}", call.name, element.name()));
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
        if let (Some(own), Element::F32) = (own, element) {
            return Ok(self.emit(Op::Binary(own), [a, b], shape));
        }
        Ok(self.emit_typed(Op::Arithmetic(function), [a, b], element, shape))
    }

    fn power(&mut self, call: &Call) -> Result<Option<Lowered>, Reason> {
        let element = self.result_element()?;
        let exponent = match call.get("exponent") {
            Some(Lowered::Known(value)) => scalar(value),
            _ => None,
        };
        let base = matches!(call.get("input"), Some(Lowered::Tensor(_)));
        if element == Element::F32
            && base
            && exponent.is_some()
            && self.first_element(call) == Element::F32
        {
            return Ok(None);
        }
        if element == Element::I64 && !matches!(exponent, Some(Scalar::Int(0..))) {
            return Err("integers to the power of what may be negative".to_owned());
        }
        let value = self.arithmetic_of(call, ["input", "exponent"], Arithmetic::Power)?;
        Ok(Some(Lowered::Tensor(value)))
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
        if element == Element::F32 && numbers == [true, true] {
            let bound = |param: &str, default: f64| -> Result<f32, Reason> {
                Ok(call.number(param)?.unwrap_or(default) as f32)
            };
            let (low, high) = (
                bound("min", f64::NEG_INFINITY)?,
                bound("max", f64::INFINITY)?,
            );
            if low.is_nan() || high.is_nan() {
                return Err("clamp to NaN".to_owned());
            }
            let shape = self.shape(value);
            let function = crate::program::Unary::Clamp(low, high);
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

    fn creation(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let (element, shape) = (self.result_element()?, self.result_shape()?);
        let number = |param: &str| match call.known(param)? {
            Some(value) => scalar(value).ok_or_else(|| format!("{param} is no number")),
            None => Err(format!("there is no {param}")),
        };
        if call.name == "arange" {
            let zero = Scalar::Int(0);
            // A single bound is the end.
            let start = match (call.get("start"), call.get("end")) {
                (Some(_), Some(_)) => number("start")?,
                _ => zero,
            };
            let step = match call.get("step") {
                Some(_) => number("step")?,
                None => Scalar::Int(1),
            };
            let op = Op::Range { start, step };
            return Ok(self.emit_typed(op, [], element, shape));
        }
        let value = match call.name {
            "full" | "full_like" | "new_full" => number("fill_value")?,
            "ones" | "ones_like" | "new_ones" => Scalar::Int(1),
            "scalar_tensor" => number("s")?,
            "tensor" => number("data")?,
            "fill" => number("value")?,
            // Of what is left as memory has it, too.
            _ => Scalar::Int(0),
        };
        Ok(self.emit_typed(Op::Fill(value), [], element, shape))
    }

    /// `value` broadcast to a shape.
    pub(super) fn broadcast_to(&mut self, value: ValueId, shape: &[usize]) -> ValueId {
        let own = self.shape(value);
        if own == shape {
            return value;
        }
        let strides = broadcast_strides(&own, shape.len());
        let element = self.program.element(value);
        if self.program.value(value).len() == shape.iter().product::<usize>() {
            return self.alias(value, shape.to_vec());
        }
        let op = Op::Copy { offset: 0, strides };
        self.emit_typed(op, [value], element, shape.to_vec())
    }
}

/// The index `:`.
pub(super) fn all() -> Value {
    Value::Slice([Value::None, Value::None, Value::None].into())
}

/// A known number.
pub(super) fn scalar(value: &Value) -> Option<Scalar> {
    match value {
        Value::Int(dim) => dim.known().map(Scalar::Int),
        Value::Bool(value) => Some(Scalar::Int(i64::from(*value))),
        value => as_number(value).map(Scalar::Float),
    }
}
