//! Types of fewer bits than the elements that hold them.
//!
//! Integers of fewer than 64 bits are computed with 64, and wrapped to their range: sums,
//! differences, products and powers are the same whether they wrap at each step or at the end, so
//! that one kernel over 64 bits serves for all.
//!
//! Numbers of bfloat16 and float16 are computed as float32. PyTorch rounds the result of every call;
//! here results stay as they are until the rounding shows: a conversion that the program asks for,
//! an operator that is not continuous (comparisons, indices, rounding to integers), and the end of
//! the program. What lies between is more precise than in PyTorch, and costs nothing.

use corsac_ir::DType;
use corsac_ops::shape::Value;

use super::call::{Call, as_number};
use super::element::{element_of, scalar};
use super::{Lowered, Lowerer, Reason, tensor_of};
use crate::program::arithmetic::wrapped;
use crate::program::{Element, Half, Op, Precision, Scalar, Source, Unary, ValueId};

/// Number of bits of a narrow integer, and whether it is signed; `None` for int64 and all others.
pub(crate) fn integer_bits(dtype: DType) -> Option<(u32, bool)> {
    match dtype {
        DType::Int32 => Some((32, true)),
        DType::Int16 => Some((16, true)),
        DType::Int8 => Some((8, true)),
        DType::UInt8 => Some((8, false)),
        _ => None,
    }
}

impl Lowerer<'_, '_> {
    /// Records that `value` is of this type, if the type is a narrow one.
    pub(super) fn note_narrow(&mut self, value: ValueId, dtype: DType) {
        if integer_bits(dtype).is_some() || Half::of(dtype).is_some() {
            let root = self.program.root(value);
            self.narrow.insert(root, dtype);
        }
    }

    /// The narrow type of `value`, if it has one.
    fn narrow_type(&self, value: ValueId) -> Option<DType> {
        let own = self.narrow.get(&value);
        let own = own.or_else(|| self.narrow.get(&self.program.root(value)));
        own.copied().filter(|&own| own != DType::Float32)
    }

    /// The narrow type of `value`, if it has one of integers.
    pub(super) fn narrow_integers(&self, value: ValueId) -> Option<DType> {
        self.narrow_type(value)
            .filter(|&dtype| integer_bits(dtype).is_some())
    }

    /// Makes `alias` of the type of `value`, where that differs from the type of its root.
    pub(super) fn note_alias(&mut self, alias: ValueId, value: ValueId) {
        if let Some(&dtype) = self.narrow.get(&value) {
            self.narrow.insert(alias, dtype);
        }
    }

    /// Whether the node returns narrow integers.
    pub(super) fn gives_narrow(&self) -> bool {
        let mut is_narrow = false;
        self.types
            .value(self.node)
            .for_each_tensor(&mut |tensor| is_narrow |= integer_bits(tensor.dtype).is_some());
        is_narrow
    }

    /// The PyTorch element type of `value`.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        match self.program.element(value) {
            Element::F32 => self.narrow_type(value).unwrap_or(DType::Float32),
            Element::F64 => DType::Float64,
            Element::Bool => DType::Bool,
            Element::I64 => self.narrow_type(value).unwrap_or(DType::Int64),
        }
    }

    /// Checks that `value` holds indices: of int64, or of one of these types.
    pub(super) fn expect_indices(&self, value: ValueId, others: &[DType]) -> Result<(), Reason> {
        let dtype = self.dtype(value);
        match dtype == DType::Int64 || others.contains(&dtype) {
            true => Ok(()),
            false => Err(format!("indices of {dtype}")),
        }
    }

    /// Checks that numbers beside narrow integers are in their range: PyTorch refuses others, or
    /// wraps them.
    pub(super) fn check_numbers(&self, call: &Call) -> Result<(), Reason> {
        let Value::Tensor(first) = &call.first_type else {
            return Ok(());
        };
        let Some((bits, signed)) = integer_bits(first.dtype) else {
            return Ok(());
        };
        for param in [
            "input",
            "other",
            "value",
            "fill_value",
            "min",
            "max",
            "exponent",
        ] {
            if let Some(Lowered::Known(value)) = call.get(param)
                && let Some(Scalar::Int(number)) = scalar(value)
                && wrapped(number, bits, signed) != number
            {
                return Err(format!("{number} beside {}", first.dtype));
            }
        }
        Ok(())
    }

    /// The result of a call, in the PyTorch types.
    pub(super) fn as_typed(&mut self, call: &Call, lowered: Lowered) -> Result<Lowered, Reason> {
        let mut dtypes = Vec::new();
        self.types
            .value(self.node)
            .for_each_tensor(&mut |tensor| dtypes.push(tensor.dtype));
        let moved = call.operator.row().moves_elements;
        self.each_typed(moved, lowered, &mut dtypes.into_iter())
    }

    fn each_typed(
        &mut self,
        moved: bool,
        lowered: Lowered,
        dtypes: &mut dyn Iterator<Item = DType>,
    ) -> Result<Lowered, Reason> {
        Ok(match lowered {
            Lowered::Tensor(value) => match dtypes.next() {
                Some(dtype) => Lowered::Tensor(self.in_range(moved, value, dtype)?),
                None => Lowered::Tensor(value),
            },
            Lowered::Items(items) => {
                let items = items.into_iter();
                let items = items.map(|item| self.each_typed(moved, item, dtypes));
                Lowered::Items(items.collect::<Result<_, _>>()?)
            }
            known @ Lowered::Known(_) => known,
        })
    }

    /// Notes the layers with weights of bfloat16, and so inputs that PyTorch has rounded; if all layers
    /// are, it is the precision of the program.
    pub(super) fn note_precision(&mut self) {
        let layers = self.program.steps.iter();
        let layers = layers.filter(|step| matches!(step.op, Op::Linear | Op::Conv(_)));
        let weights = layers.map(|step| self.program.untransposed(step.inputs[1]).0);
        let (rounded, others): (Vec<ValueId>, Vec<ValueId>) =
            weights.partition(|&weight| self.dtype(weight) == DType::BFloat16);
        if others.is_empty() && !rounded.is_empty() {
            self.program.precision = Precision::Bf16;
        }
        let roots = rounded.iter().map(|&weight| self.program.root(weight));
        self.program.rounded = roots.collect();
    }

    /// Rounds the operands of a call whose result shows whether they are rounded.
    pub(super) fn round_operands(&mut self, call: &mut Call) {
        let typed = |own: &mut ValueId| Some((*own, Half::of(self.dtype(*own))?));
        let typed = call.tensors_mut().find_map(typed);
        if call.operator.row().rounds_numbers
            && let Some((typed, half)) = typed
        {
            let has_dims = !self.program.shape(typed).is_empty();
            for operand in call.tensors_mut() {
                *operand = self.promoted(*operand, half, has_dims);
            }
            for value in call.numbers_mut() {
                if let Some(number) = as_number(value) {
                    *value = Value::Float(f64::from(half.nearest(number as f32)));
                }
            }
        }
        if self.rounding_shows(call) {
            for operand in call.tensors_mut() {
                *operand = self.rounded(*operand);
            }
        }
    }

    /// An operand beside a tensor of 16 bits, rounded where PyTorch converts it to that type: integers, and
    /// a number without dimensions of float32 or float64 beside a tensor with some.
    fn promoted(&mut self, operand: ValueId, half: Half, has_dims: bool) -> ValueId {
        let is_number = self.program.shape(operand).is_empty();
        match (self.program.element(operand), self.dtype(operand)) {
            (Element::I64, _) if has_dims || is_number => {
                let number = self.cast(operand, Element::F32);
                self.rounded_to(number, half)
            }
            (Element::F64, _) if has_dims && is_number => {
                let number = self.cast(operand, Element::F32);
                self.rounded_to(number, half)
            }
            (Element::F32, DType::Float32) if has_dims && is_number => {
                self.rounded_to(operand, half)
            }
            _ => operand,
        }
    }

    fn rounding_shows(&self, call: &Call) -> bool {
        let row = call.operator.row();
        let mut gives_floats = true;
        self.types.value(self.node).for_each_tensor(&mut |tensor| {
            gives_floats &= element_of(tensor.dtype) == Ok(Element::F32);
        });
        row.jumps || call.get("rounding_mode").is_some() || !(row.moves_elements || gives_floats)
    }

    /// A new value as the result of a conversion: rounded, if the type of the result has 16 bits.
    pub(super) fn rounded_as_result(&mut self, value: ValueId) -> Result<ValueId, Reason> {
        let dtype = tensor_of(self.types.value(self.node))?.dtype;
        Ok(match Half::of(dtype) {
            Some(half) => self.rounded_to(value, half),
            None => value,
        })
    }

    /// `value` rounded to its type, if that has 16 bits and `value` is not known to be rounded.
    pub(super) fn rounded(&mut self, value: ValueId) -> ValueId {
        match Half::of(self.dtype(value)) {
            Some(half) if !self.is_rounded(value) => match self.rounded.get(&value) {
                Some(&known) => known,
                None => {
                    let rounded = self.rounded_to(value, half);
                    self.rounded.insert(value, rounded);
                    rounded
                }
            },
            _ => value,
        }
    }

    /// Whether `value`, of a type of 16 bits, is known to be rounded to it.
    pub(super) fn is_rounded(&self, value: ValueId) -> bool {
        let root = self.program.root(value);
        match self.program.value(root).source {
            Source::Step => self.rounded.get(&root) == Some(&root),
            _ => self.narrow.get(&root) == Some(&self.dtype(value)),
        }
    }

    /// Records that `value`, the result of a step, is rounded to its type of 16 bits.
    pub(super) fn note_rounded(&mut self, value: ValueId) {
        self.rounded.insert(value, value);
    }

    pub(super) fn rounded_to(&mut self, value: ValueId, half: Half) -> ValueId {
        let rounded = self.single(Unary::RoundTo(half), value);
        self.note_narrow(rounded, half.dtype());
        self.note_rounded(rounded);
        rounded
    }

    /// `value` as a number of type `dtype`, a floating-point type.
    pub(super) fn as_float(&mut self, value: ValueId, dtype: DType) -> ValueId {
        let own = self.dtype(value);
        if own == dtype {
            return value;
        }
        let root = self.program.root(value);
        let steps = self.program.steps.iter().rev();
        let mut steps = steps.take_while(|step| step.node == self.node);
        let is_made = steps.any(|step| step.output == root)
            || matches!(self.program.value(root).source, Source::Transformed(_));
        let is_new = is_made && !self.narrow.contains_key(&root);
        match Half::of(dtype) {
            // The result of a call, which PyTorch would round.
            Some(_) if is_new => {
                self.note_narrow(value, dtype);
                value
            }
            Some(half) => self.rounded_to(value, half),
            None => {
                let value = self.rounded(value);
                let (shape, root) = (self.shape(value), self.program.root(value));
                let source = Source::Alias(root);
                let wide = self.program.add_typed(Element::F32, shape, source);
                self.narrow.insert(wide, DType::Float32);
                wide
            }
        }
    }

    fn in_range(&mut self, moved: bool, value: ValueId, dtype: DType) -> Result<ValueId, Reason> {
        if self.program.element(value) == Element::F32
            && (dtype == DType::Float32 || Half::of(dtype).is_some())
        {
            return Ok(self.as_float(value, dtype));
        }
        let Some((bits, signed)) = integer_bits(dtype) else {
            if self.dtype(value) == dtype || dtype != DType::Int64 {
                return Ok(value);
            }
            // The same numbers, no longer marked as narrow.
            let shape = self.shape(value);
            return Ok(self.emit_typed(Op::Cast, [value], Element::I64, shape));
        };
        if self.narrow_type(value) == Some(dtype) {
            return Ok(value);
        }
        let wrap = |own: &mut Self| {
            let shape = own.shape(value);
            own.emit_typed(Op::Wrap { bits, signed }, [value], Element::I64, shape)
        };
        let value = match self.program.element(value) {
            Element::Bool => self.cast(value, Element::I64),
            Element::I64 if moved => value,
            Element::I64 | Element::F32 | Element::F64 => wrap(self),
        };
        self.note_narrow(value, dtype);
        Ok(value)
    }
}
