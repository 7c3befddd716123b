//! Integers of fewer than 64 bits: computed with 64, and wrapped to their range.
//!
//! Sums, differences, products and powers of integers that wrap around are the same whether they
//! wrap at each step or at the end, so that one kernel over 64 bits serves for all.

use corsac_ir::DType;
use corsac_ops::shape::Value;

use super::call::Call;
use super::element::scalar;
use super::{Lowered, Lowerer, Reason};
use crate::program::arithmetic::wrapped;
use crate::program::{Element, Op, Scalar, ValueId};

/// Number of bits of a narrow integer, and whether it is signed; `None` for int64 and all others.
fn bits(dtype: DType) -> Option<(u32, bool)> {
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
        if bits(dtype).is_some() {
            let root = self.program.root(value);
            self.narrow.insert(root, dtype);
        }
    }

    /// The narrow type of `value`, if it has one.
    pub(super) fn narrow_type(&self, value: ValueId) -> Option<DType> {
        self.narrow.get(&self.program.root(value)).copied()
    }

    /// Whether the node returns narrow integers.
    pub(super) fn gives_narrow(&self) -> bool {
        let mut is_narrow = false;
        self.types
            .value(self.node)
            .for_each_tensor(&mut |tensor| is_narrow |= bits(tensor.dtype).is_some());
        is_narrow
    }

    /// The PyTorch element type of `value`.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        match self.program.element(value) {
            Element::F32 => DType::Float32,
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
        let Some((bits, signed)) = bits(first.dtype) else {
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

    fn in_range(&mut self, moved: bool, value: ValueId, dtype: DType) -> Result<ValueId, Reason> {
        let Some((bits, signed)) = bits(dtype) else {
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
            Element::I64 | Element::F32 => wrap(self),
        };
        self.note_narrow(value, dtype);
        Ok(value)
    }
}
