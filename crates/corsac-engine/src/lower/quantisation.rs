//! Conversions between numbers and quantised integers.
//!
//! Levels are computed as floating-point numbers, which hold them exactly: what quantises and
//! dequantises is then a function of numbers, and what other operators read is converted to
//! integers.

use corsac_ir::DType;
use corsac_ops::shape::Value;

use super::call::Call;
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason, tensor_of};
use crate::program::{
    Arithmetic, Binary, Element, Levels, Op, Quantised, Reduction, Scalar, Sharing, Source, Unary,
    ValueId, WeightTransform,
};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    lowered("corsac.choose_qparams_per_token", |own, call| own.parameters_of_rows(call)).of_any_type(),
    tensor("corsac.dequantize_per_channel", |own, call| own.dequantised_along(call)).of_any_type(),
    tensor("corsac.dequantize_per_channel_group", |own, call| own.dequantised_groups(call)).of_any_type(),
    tensor("corsac.dequantize_per_tensor", |own, call| own.dequantised(call)).of_any_type(),
    tensor("corsac.dequantize_per_token", |own, call| own.dequantised_rows(call)).of_any_type(),
    tensor("corsac.quantize_per_channel", |own, call| own.quantised_along(call)).of_any_type(),
    tensor("corsac.quantize_per_tensor", |own, call| own.quantised(call)).of_any_type(),
    tensor("corsac.quantize_per_token", |own, call| own.quantised_rows(call)).of_any_type(),
    tensor("corsac.unpack_int4", |own, call| own.unpacked(call)).of_any_type(),
];

/// Integers as they came about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Integers {
    /// Levels, which are these floating-point numbers.
    Levels(ValueId),
    /// Levels of rows of numbers, between bounds; scales and zero points are these values.
    Rows {
        levels: ValueId,
        numbers: ValueId,
        parameters: [ValueId; 2],
    },
    /// Those of 4 bits in the bytes of this value.
    Packed(ValueId),
}

/// Whether integers of this type hold a level.
fn holds(dtype: DType, level: f32) -> bool {
    let range = match dtype {
        DType::UInt8 => 0.0..=255.0,
        DType::Int8 => -128.0..=127.0,
        DType::UInt16 => 0.0..=65_535.0,
        DType::Int16 => -32_768.0..=32_767.0,
        _ => return true,
    };
    range.contains(&level)
}

/// Largest level: sums of it and a zero point are exact.
const MOST: f64 = (1 << 22) as f64;

impl Lowerer<'_, '_> {
    /// The bounds of levels, which the type of the integers holds.
    fn bounds(call: &Call) -> Result<[f32; 2], Reason> {
        let bound = |param: &str| match call.number(param)? {
            Some(bound) if bound.abs() <= MOST => Ok(bound as f32),
            _ => Err(format!("a {param} that float32 does not hold exactly")),
        };
        match [bound("quant_min")?, bound("quant_max")?] {
            [low, high] if low > high => Err(format!("quant_min {low} above quant_max {high}")),
            [low, high] => match call.known("dtype")? {
                Some(&Value::DType(dtype)) if !holds(dtype, low) || !holds(dtype, high) => {
                    Err(format!("levels from {low} to {high} in {dtype}"))
                }
                _ => Ok([low, high]),
            },
        }
    }

    /// Checks that there are `count` scales and zero points, and that they are numbers.
    fn check_parameters(&self, parameters: &[ValueId], count: usize) -> Result<(), Reason> {
        for &own in parameters {
            let (len, element) = (self.program.value(own).len(), self.program.element(own));
            if matches!(element, Element::Bool | Element::F64) {
                return Err(format!("scales or zero points of {}", element.name()));
            }
            if len != count {
                return Err(format!(
                    "{len} scales or zero points for {count} channels or groups"
                ));
            }
        }
        Ok(())
    }

    /// The scale of levels, in single precision a number that is not 0.
    fn scale(call: &Call) -> Result<f64, Reason> {
        match call.number("scale")? {
            Some(scale) if (scale as f32).is_normal() => Ok(scale),
            _ => Err("a scale that is no normal number of float32".to_owned()),
        }
    }

    fn zero(call: &Call) -> Result<f32, Reason> {
        match call.number("zero_point")? {
            Some(zero) if zero.abs() <= MOST => Ok(zero as f32),
            _ => Err("a zero_point that float32 does not hold exactly".to_owned()),
        }
    }

    /// Levels as integers of the type of the result.
    fn as_integers(&mut self, levels: ValueId, dtype: DType) -> ValueId {
        let integers = self.cast(levels, Element::I64);
        self.note_narrow(integers, dtype);
        self.integers.insert(integers, Integers::Levels(levels));
        integers
    }

    /// The levels of integers, as numbers.
    fn levels(&mut self, integers: ValueId) -> ValueId {
        let root = self.program.root(integers);
        match self.integers.get(&root) {
            Some(&(Integers::Levels(levels) | Integers::Rows { levels, .. })) => {
                let shape = self.shape(integers);
                self.alias(levels, shape)
            }
            Some(Integers::Packed(_)) | None => self.cast(integers, Element::F32),
        }
    }

    /// The numbers of integers that are a weight, as a weight.
    fn dequantised_weight(
        &mut self,
        integers: ValueId,
        sharing: Sharing,
        parameters: &[ValueId],
    ) -> Option<ValueId> {
        let root = self.program.root(integers);
        let (weight, packed, whole) = match self.integers.get(&root) {
            Some(&Integers::Packed(packed)) => (packed, true, true),
            _ => (
                root,
                false,
                self.program.shape(root) == self.program.shape(integers),
            ),
        };
        let of_weight = |value: ValueId| {
            matches!(
                self.program.value(self.program.root(value)).source,
                Source::Weight(_)
            )
        };
        let byte = matches!(self.dtype(weight), DType::Int8 | DType::UInt8);
        if !whole || !byte || !of_weight(weight) || !parameters.iter().all(|&own| of_weight(own)) {
            return None;
        }
        let shape = self.shape(integers);
        let format = Quantised { packed, sharing };
        let inputs = [&[weight], parameters].concat();
        let transform = WeightTransform::Dequantise(format);
        Some(self.program.add_transformed(transform, inputs, shape))
    }

    fn quantised(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let scale = Self::scale(call)?;
        let levels = Levels {
            inverse: (1.0 / scale) as f32,
            zero: Self::zero(call)?,
            bounds: Self::bounds(call)?,
            of_nan: 0.0,
        };
        let levels = self.single(Unary::Quantise(levels), call.tensor("input")?);
        let dtype = tensor_of(self.types.value(self.node))?.dtype;
        Ok(self.as_integers(levels, dtype))
    }

    fn dequantised(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let scale = Self::scale(call)? as f32;
        let zero = Self::zero(call)?;
        let sharing = Sharing::Tensor(scale.to_bits(), zero as i32);
        if let Some(weight) = self.dequantised_weight(input, sharing, &[]) {
            return Ok(weight);
        }
        let levels = self.levels(input);
        Ok(self.single(Unary::Dequantise { zero, scale }, levels))
    }

    /// `parameters` to broadcast along a dimension of `of`.
    fn along(&mut self, parameters: ValueId, call: &Call, of: ValueId) -> Result<ValueId, Reason> {
        let rank = self.shape(of).len();
        if rank == 0 {
            return Err("a number has no channels".to_owned());
        }
        let axis = call.dim("axis", rank, 0)?;
        let mut shape = vec![1; rank];
        shape[axis] = self.shape(of)[axis];
        self.check_parameters(&[parameters], shape[axis])?;
        let parameters = self.cast(parameters, Element::F32);
        Ok(self.alias(parameters, shape))
    }

    /// Levels between bounds, of numbers with scales and zero points that broadcast.
    fn levels_by(
        &mut self,
        numbers: ValueId,
        scales: ValueId,
        zero_points: Option<ValueId>,
        bounds: [f32; 2],
    ) -> Result<ValueId, Reason> {
        let inverse = self.single(Unary::DivideInto(1.0), scales);
        let scaled = self.pairwise(Binary::Mul, numbers, inverse)?;
        let mut levels = self.single(Unary::Round, scaled);
        if let Some(zero_points) = zero_points {
            levels = self.pairwise(Binary::Add, levels, zero_points)?;
        }
        let bounded = Levels {
            inverse: 1.0,
            zero: 0.0,
            bounds,
            of_nan: 0.0,
        };
        Ok(self.single(Unary::Quantise(bounded), levels))
    }

    /// The numbers of levels with scales and zero points that broadcast.
    fn numbers_by(
        &mut self,
        levels: ValueId,
        scales: ValueId,
        zero_points: Option<ValueId>,
    ) -> Result<ValueId, Reason> {
        let distances = match zero_points {
            Some(zero_points) => self.pairwise(Binary::Sub, levels, zero_points)?,
            None => levels,
        };
        self.pairwise(Binary::Mul, distances, scales)
    }

    fn quantised_along(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let scales = self.along(call.tensor("scales")?, call, input)?;
        let zero_points = call.optional("zero_points")?;
        let zero_points = zero_points.map(|own| self.along(own, call, input));
        let levels =
            self.levels_by(input, scales, zero_points.transpose()?, Self::bounds(call)?)?;
        let dtype = tensor_of(self.types.value(self.node))?.dtype;
        Ok(self.as_integers(levels, dtype))
    }

    fn dequantised_along(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let (scales, zero_points) = (call.tensor("scales")?, call.optional("zero_points")?);
        let along = self.along(scales, call, input)?;
        let axis = call.dim("axis", self.shape(input).len(), 0)?;
        let parameters: Vec<ValueId> = [scales].into_iter().chain(zero_points).collect();
        self.check_parameters(&parameters, self.shape(input)[axis])?;
        if let Some(weight) = self.dequantised_weight(input, Sharing::Along(axis), &parameters) {
            return Ok(weight);
        }
        let zero_points = zero_points.map(|own| self.along(own, call, input));
        let levels = self.levels(input);
        self.numbers_by(levels, along, zero_points.transpose()?)
    }

    fn dequantised_groups(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let shape = self.shape(input);
        let group = call.int("group_size")?.unwrap_or(128);
        let group = usize::try_from(group).map_err(|_| "group_size is negative")?;
        let ([rows, columns], true) = (&shape[..], group > 0) else {
            return Err(format!(
                "groups of {group} in a tensor of {} dimensions",
                shape.len()
            ));
        };
        let (scales, zero_points) = (call.tensor("scales")?, call.optional("zero_points")?);
        let count = rows * columns / group;
        let parameters: Vec<ValueId> = [scales].into_iter().chain(zero_points).collect();
        if columns % group != 0 {
            return Err(format!(
                "groups of {group} that do not divide rows of {columns}"
            ));
        }
        self.check_parameters(&parameters, count)?;
        if let Some(weight) = self.dequantised_weight(input, Sharing::Group(group), &parameters) {
            return Ok(weight);
        }
        let [scales, zero_points] = [Some(scales), zero_points].map(|own| {
            let own = self.cast(own?, Element::F32);
            Some(self.alias(own, vec![count, 1]))
        });
        let levels = self.levels(input);
        let levels = self.alias(levels, vec![count, group]);
        let scales = scales.ok_or("there are no scales")?;
        let numbers = self.numbers_by(levels, scales, zero_points)?;
        Ok(self.alias(numbers, shape))
    }

    fn parameters_of_rows(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("input")?;
        let [low, high] = Self::bounds(call)?;
        let mut shape = self.shape(input);
        let dim = shape.len().checked_sub(1).ok_or("a number has no rows")?;
        if shape[dim] == 0 {
            return Err("an extreme of nothing".to_owned());
        }
        shape[dim] = 1;
        let mut extreme = |reduction, clamp| {
            let dims = [dim].into_iter().collect();
            let found = self.emit(Op::Reduce { reduction, dims }, [input], shape.clone());
            self.single(clamp, found)
        };
        let least = extreme(Reduction::Min, Unary::Clamp(f64::NEG_INFINITY, 0.0));
        let most = extreme(Reduction::Max, Unary::Clamp(0.0, f64::INFINITY));
        let range = self.pairwise(Binary::Sub, most, least)?;
        let scales = self.single(Unary::DivideBy(f64::from(high - low)), range);
        let scales = self.single(
            Unary::Clamp(f32::MIN_POSITIVE.into(), f64::INFINITY),
            scales,
        );
        // NaN for a range that is not finite.
        let nothing = self.single(Unary::scale(0.0), scales);
        let scales = self.pairwise(Binary::Add, scales, nothing)?;
        let under = self.pairwise(Binary::Div, least, scales)?;
        let zero_points = self.single(Unary::Affine(-1.0, low.into()), under);
        let zero_points = self.single(Unary::Round, zero_points);
        let zero_points = self.single(Unary::Clamp(low.into(), high.into()), zero_points);
        let zero_points = self.single(Unary::NanTo(low.into()), zero_points);
        let zero_points = self.as_integers(zero_points, DType::Int32);
        self.row_parameters
            .insert([scales, zero_points], (input, [low, high]));
        Ok(Lowered::Items(vec![
            Lowered::Tensor(scales),
            Lowered::Tensor(zero_points),
        ]))
    }

    fn quantised_rows(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let parameters = [call.tensor("scales")?, call.tensor("zero_points")?];
        let [scales, zero_points] = parameters;
        let bounds = Self::bounds(call)?;
        let zeros = self.levels(zero_points);
        let levels = self.levels_by(input, scales, Some(zeros), bounds)?;
        let dtype = tensor_of(self.types.value(self.node))?.dtype;
        let integers = self.as_integers(levels, dtype);
        if self.row_parameters.get(&parameters) == Some(&(input, bounds)) {
            let rows = Integers::Rows {
                levels,
                numbers: input,
                parameters,
            };
            self.integers.insert(integers, rows);
        }
        Ok(integers)
    }

    fn dequantised_rows(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let input = call.tensor("input")?;
        let own = [call.tensor("scales")?, call.tensor("zero_points")?];
        if let Some(&Integers::Rows {
            numbers,
            parameters,
            ..
        }) = self.integers.get(&input)
            && parameters == own
            && let Some(&(_, bounds)) = self.row_parameters.get(&parameters)
        {
            let shape = self.shape(numbers);
            let bounds = bounds.map(|bound| bound as i32);
            return Ok(self.emit(Op::RoundRows(bounds), [numbers], shape));
        }
        let [scales, zero_points] = own;
        let (levels, zeros) = (self.levels(input), self.levels(zero_points));
        self.numbers_by(levels, scales, Some(zeros))
    }

    /// Two integers of 4 bits of each byte.
    fn unpacked(&mut self, call: &Call) -> Result<ValueId, Reason> {
        let packed = call.tensor("input")?;
        let mut shape = self.shape(packed);
        shape.push(1);
        let number = |own: &mut Self, number| own.constant(Scalar::Int(number), Element::I64);
        let (sign, low, step) = (number(self, 8), number(self, 15), number(self, 16));
        let of = |own: &mut Self, function, a, b| {
            let shape = own.shape(packed);
            own.emit_typed(Op::Arithmetic(function), [a, b], Element::I64, shape)
        };
        let halves = [
            of(self, Arithmetic::And, packed, low),
            of(self, Arithmetic::FloorDivide, packed, step),
        ];
        let halves = halves.map(|half| {
            let moved = of(self, Arithmetic::Xor, half, sign);
            let signed = of(self, Arithmetic::Sub, moved, sign);
            self.alias(signed, shape.clone())
        });
        let dim = shape.len() - 1;
        let pairs = [&shape[..dim], &[2]].concat();
        let pairs = self.emit_typed(Op::Concat { dim }, halves, Element::I64, pairs);
        let whole = self.result_shape()?;
        let integers = self.alias(pairs, whole);
        self.note_narrow(integers, DType::Int8);
        let root = self.program.root(integers);
        self.integers.insert(root, Integers::Packed(packed));
        Ok(integers)
    }
}
