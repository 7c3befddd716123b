//! Element types of values, and the building blocks of lowerings.

use corsac_ir::DType;
use corsac_ops::shape::Value;
use smallvec::{SmallVec, smallvec};

use super::call::as_number;
use super::{Lowerer, Reason, tensor_of};
use crate::kernels::rows::broadcast_strides;
use crate::program::{Element, Op, Scalar, ValueId};

/// The types of PyTorch that programs have.
pub const DTYPES: &[DType] = &[
    DType::Float32,
    DType::Float64,
    DType::Int64,
    DType::Bool,
    DType::BFloat16,
    DType::Float16,
    DType::Int32,
    DType::Int16,
    DType::Int8,
    DType::UInt8,
];

/// The element type for a type of PyTorch.
pub(crate) fn element_of(dtype: DType) -> Result<Element, Reason> {
    match dtype {
        DType::Float32 | DType::BFloat16 | DType::Float16 => Ok(Element::F32),
        DType::Float64 => Ok(Element::F64),
        DType::Int64 | DType::Int32 | DType::Int16 | DType::Int8 | DType::UInt8 => Ok(Element::I64),
        DType::Bool => Ok(Element::Bool),
        other => Err(format!("a tensor of {other}")),
    }
}

/// A known number.
pub(super) fn scalar(value: &Value) -> Option<Scalar> {
    match value {
        Value::Int(dim) => dim.known().map(Scalar::Int),
        Value::Bool(value) => Some(Scalar::Int(i64::from(*value))),
        value => as_number(value).map(Scalar::Float),
    }
}

/// The shape that two shapes broadcast to.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<SmallVec<[usize; 6]>, Reason> {
    let rank = a.len().max(b.len());
    let mut shape: SmallVec<[usize; 6]> = smallvec![1; rank];
    for (at, size) in shape.iter_mut().enumerate() {
        let of = |sizes: &[usize]| {
            (at + sizes.len())
                .checked_sub(rank)
                .map_or(1, |own| sizes[own])
        };
        *size = match (of(a), of(b)) {
            (1, other) | (other, 1) => other,
            (x, y) if x == y => x,
            (x, y) => return Err(format!("sizes {x} and {y} do not broadcast")),
        };
    }
    Ok(shape)
}

impl Lowerer<'_, '_> {
    /// Element type of the value of the current node.
    pub(super) fn result_element(&self) -> Result<Element, Reason> {
        element_of(tensor_of(self.types.value(self.node))?.dtype)
    }

    /// `value` converted to another element type.
    pub(super) fn cast(&mut self, value: ValueId, element: Element) -> ValueId {
        if self.program.element(value) == element {
            return value;
        }
        // Where more digits are kept, it shows that fewer were.
        let value = match element {
            Element::F64 => self.rounded(value),
            _ => value,
        };
        let shape = self.shape(value);
        self.emit_typed(Op::Cast, [value], element, shape)
    }

    /// A number, as a tensor without dimensions.
    pub(super) fn constant(&mut self, number: Scalar, element: Element) -> ValueId {
        self.emit_typed(Op::Fill(number), [], element, Vec::new())
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

    /// `value` with at least one dimension: a number becomes a vector of one element.
    pub(super) fn at_least_a_vector(&mut self, value: ValueId) -> ValueId {
        match self.program.shape(value) {
            [] => self.alias(value, vec![1]),
            _ => value,
        }
    }

    /// Checks that `value` has the shape that its kernel expects.
    pub(super) fn expect_shape(&self, value: ValueId, expected: &[usize]) -> Result<(), Reason> {
        let shape = self.program.shape(value);
        match shape == expected {
            true => Ok(()),
            false => Err(format!("a weight of shape {shape:?}, not {expected:?}")),
        }
    }
}
