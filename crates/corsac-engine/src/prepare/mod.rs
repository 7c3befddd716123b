//! Loading and packing of weights.

mod attention;
mod borrowed_weights;
mod quantised;
mod weight_cache;

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::Arc;

use rayon::prelude::*;

use crate::data::{Byte, Elements};
use crate::error::RunError;
use crate::kernels::bf16::conv::Bf16Conv;
use crate::kernels::bf16::linear::Bf16Linear;
use crate::kernels::blocked::ConvAlgorithm;
use crate::kernels::blocked::attention::Attention;
use crate::kernels::blocked::conv::BlockedConv;
use crate::kernels::blocked::depthwise::BlockedDepthwise;
use crate::kernels::blocked::linear::{LinearKernel, LinearWeight};
use crate::kernels::conv::ConvKernel;
use crate::kernels::double::linear::DoubleLinear;
use crate::kernels::int8::conv::Int8Conv;
use crate::kernels::int8::linear::Int8Linear;
use crate::kernels::int8::weight_only::WeightOnlyLinear;
use crate::kernels::linear::Linear;
use crate::kernels::matmul;
use crate::parallel::Parallel;
use crate::program::{
    ConvShape, Element, Half, Layout, Op, Program, Quantised, Rounding, Source, Step, ValueId,
    ValueInfo, WeightTransform,
};
use crate::threads::{default_threads, on_threads};
use weight_cache::{PackFormat, PackKey, WeightKey};

pub use borrowed_weights::borrow_weights;
pub(crate) use weight_cache::Packed;
pub use weight_cache::WeightCache;

/// Weights of fewer elements are packed before other threads have woken up: 64 x 1024 take 20 to 30
/// µs.
const SMALL: usize = 64 * 1024;

/// The bits of numbers of 16 bits, row by row, and their type.
pub type HalfBits<'a> = (Cow<'a, [u16]>, Half);

/// Source of weights.
pub trait Weights {
    /// The elements of weight `number`, row by row; `None` if it is missing. They are borrowed
    /// where possible: packing is then the only copy of most weights.
    fn weight(&self, number: usize) -> Option<Cow<'_, [f32]>>;

    /// The bits of a weight whose numbers have 16 bits; `None` if it is of another type, or has to be
    /// copied in memory for it.
    fn half_weight(&self, _number: usize) -> Option<HalfBits<'_>> {
        None
    }

    /// The bytes of a weight of int8 or uint8, row by row, and its type; `None` if it is of another type.
    fn byte_weight(&self, _number: usize) -> Option<(Cow<'_, [u8]>, Byte)> {
        None
    }

    /// The elements of a weight of double precision.
    fn f64_weight(&self, _number: usize) -> Option<Cow<'_, [f64]>> {
        None
    }

    /// The elements of an integer weight.
    fn i64_weight(&self, _number: usize) -> Option<Vec<i64>> {
        None
    }

    /// The elements of a boolean weight: bytes, of which those that are not 0 are true.
    fn bool_weight(&self, _number: usize) -> Option<Vec<u8>> {
        None
    }
}

/// Data that a step needs besides its inputs, made once.
#[derive(Debug)]
pub(crate) enum Prepared {
    Packed(Packed),
    Attention(Box<Attention>),
    Pairs(Vec<[usize; 2]>),
    Nothing,
}

/// A weight that was loaded.
#[derive(Clone, Debug)]
enum Loaded<'a> {
    /// Borrowed from its source.
    Borrowed(&'a [f32]),
    /// Copied, or computed from other weights.
    Own(Arc<Vec<f32>>),
}

impl<'a> From<Cow<'a, [f32]>> for Loaded<'a> {
    fn from(weight: Cow<'a, [f32]>) -> Self {
        match weight {
            Cow::Borrowed(weight) => Self::Borrowed(weight),
            Cow::Owned(weight) => Self::Own(Arc::new(weight)),
        }
    }
}

impl Deref for Loaded<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Borrowed(weight) => weight,
            Self::Own(weight) => weight,
        }
    }
}

impl Loaded<'_> {
    /// Takes ownership, to outlive the source.
    fn into_own(self) -> Arc<Vec<f32>> {
        match self {
            Self::Borrowed(weight) => Arc::new(weight.to_vec()),
            Self::Own(weight) => weight,
        }
    }
}

/// Loads weights from their source, and packs them.
pub(crate) struct Loader<'a> {
    program: &'a Program,
    source: &'a dyn Weights,
    /// Weights that other programs of the model have loaded and packed.
    cache: &'a WeightCache,
    values: Vec<Option<Loaded<'a>>>,
    /// Integer and boolean weights, which are never packed.
    others: Vec<Option<Arc<Elements>>>,
    /// Whether steps read a weight as it is, by value.
    needed: Vec<bool>,
    /// The last step that a weight is packed for, by value.
    last: Vec<usize>,
    /// Number of threads for packing.
    threads: usize,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(
        program: &'a Program,
        source: &'a dyn Weights,
        cache: &'a WeightCache,
    ) -> Self {
        let mut last = vec![0; program.values.len()];
        for (at, step) in program.steps.iter().enumerate() {
            for_each_weight(program, step, &mut |value| last[value.index()] = at);
        }
        Self {
            program,
            source,
            cache,
            values: vec![None; program.values.len()],
            others: vec![None; program.values.len()],
            needed: vec![false; program.values.len()],
            last,
            threads: default_threads(),
        }
    }

    /// Frees the weights that were loaded for step `at` and are not needed later, so that a model
    /// is not in memory twice.
    fn release(&mut self, at: usize, step: &Step) {
        let (values, needed, last) = (&mut self.values, &self.needed, &self.last);
        for_each_weight(self.program, step, &mut |value| {
            if last[value.index()] == at && !needed[value.index()] {
                values[value.index()] = None;
            }
        });
    }

    /// The weights that steps read as they are, by value. Those that were packed are freed.
    pub(crate) fn unpacked(self) -> Vec<Option<Arc<Vec<f32>>>> {
        let values = self.values.into_iter().zip(self.needed).enumerate();
        let kept = values.map(|(at, (value, needed))| {
            let value = value.filter(|_| needed)?.into_own();
            if let Some(key) = WeightKey::of(self.program, ValueId::new(at)) {
                self.cache.keep_unpacked(key, &value);
            }
            Some(value)
        });
        kept.collect()
    }

    /// The integer and boolean weights, by value.
    pub(crate) fn take_others(&mut self) -> Vec<Option<Arc<Elements>>> {
        std::mem::take(&mut self.others)
    }

    /// Loads a weight that is a result.
    pub(crate) fn keep(&mut self, value: ValueId) -> Result<(), RunError> {
        let root = self.program.root(value);
        self.needed[root.index()] = true;
        self.load(root)
    }

    /// Loads a value that is a weight or computed from weights.
    fn load(&mut self, value: ValueId) -> Result<(), RunError> {
        let value = self.program.root(value);
        if self.values[value.index()].is_some() || self.others[value.index()].is_some() {
            return Ok(());
        }
        let Some(key) = WeightKey::of(self.program, value) else {
            return Ok(());
        };
        let info = self.program.value(value);
        if info.element != Element::F32 {
            self.others[value.index()] = match (self.cache.other(&key), info.source) {
                (Some(known), _) => Some(known),
                (None, Source::Weight(number)) => {
                    let found = match info.element {
                        Element::F64 => {
                            let found = self.source.f64_weight(number);
                            found.map(|own| Elements::F64(own.into_owned()))
                        }
                        Element::I64 => self.source.i64_weight(number).map(Elements::I64),
                        _ => self.source.bool_weight(number).map(Elements::bools),
                    };
                    let loaded = Arc::new(whole(found, number, info, Elements::len)?);
                    self.cache.keep_other(key, &loaded);
                    Some(loaded)
                }
                _ => None,
            };
            return Ok(());
        }
        if let Some(known) = self.cache.unpacked(&key) {
            self.values[value.index()] = Some(Loaded::Own(known));
            return Ok(());
        }
        let loaded = match info.source {
            Source::Weight(number) => {
                whole(self.source.weight(number), number, info, |own| own.len())?.into()
            }
            Source::Transformed(number) => {
                let (transform, inputs) = &self.program.weight_transforms[number];
                if let Some(format) = transform.quantised() {
                    let weight = self.quantised(format, inputs)?;
                    let made = self.on_threads(info.len(), || weight.numbers(&info.shape));
                    self.values[value.index()] = Some(Loaded::Own(Arc::new(made)));
                    return Ok(());
                }
                for &input in inputs {
                    self.load(input)?;
                }
                let data: Vec<&[f32]> = inputs.iter().map(|&input| self.get(input)).collect();
                let made = self.on_threads(info.len(), || transform.make(&data, &info.shape));
                Loaded::Own(Arc::new(made))
            }
            Source::Input(_) | Source::Step | Source::Alias(_) => return Ok(()),
        };
        self.values[value.index()] = Some(loaded);
        Ok(())
    }

    /// Computes a weight of `elements` elements: on the calling thread, if it is small.
    fn on_threads<T: Send>(&self, elements: usize, make: impl FnOnce() -> T + Send) -> T {
        match elements < SMALL {
            true => make(),
            false => on_threads(self.threads, make),
        }
    }

    fn get(&self, value: ValueId) -> &[f32] {
        let root = self.program.root(value);
        self.values[root.index()].as_deref().unwrap_or(&[])
    }

    /// Loads the weights that step `at` reads, and packs those that it needs packed.
    pub(crate) fn prepare(&mut self, at: usize, step: &Step) -> Result<Prepared, RunError> {
        let format = pack_format(self.program, step);
        let packed = packed_range(format.as_ref(), step);
        for (index, value) in step.reads().enumerate() {
            if self.program.is_weight(value) && !packed.contains(&index) {
                self.needed[self.program.root(value).index()] = true;
                self.load(value)?;
            }
        }
        let prepared = match (format, &step.op) {
            (Some(format), _) => Prepared::Packed(self.packed(step, format)?),
            (None, Op::Attention(attention)) => Prepared::Attention(Box::new(attention.kernel())),
            (None, Op::MatMul { .. }) => {
                let program = self.program;
                let shape = |index: usize| program.shape(step.inputs[index]);
                let (a, b) = (shape(0), shape(1));
                let result = program.shape(step.output);
                Prepared::Pairs(matmul::pairs(
                    &result[..result.len() - 2],
                    &a[..a.len() - 2],
                    &b[..b.len() - 2],
                ))
            }
            (None, _) => Prepared::Nothing,
        };
        self.release(at, step);
        Ok(prepared)
    }

    /// The bits of a weight of the source whose numbers have 16 bits.
    fn half(&self, value: ValueId) -> Result<Option<HalfBits<'a>>, RunError> {
        let info = self.program.value(self.program.root(value));
        let Source::Weight(number) = info.source else {
            return Ok(None);
        };
        let found = self.source.half_weight(number);
        match found {
            Some(_) => whole(found, number, info, |(data, _)| data.len()).map(Some),
            None => Ok(None),
        }
    }

    /// The integers of a layer, packed; `None` if bytes do not hold them.
    fn packed_integers(
        &mut self,
        step: &Step,
        format: &PackFormat,
    ) -> Result<Option<Packed>, RunError> {
        let program = self.program;
        let (weight, bias) = (step.inputs[1], step.inputs.get(2).copied());
        let Some((own, inputs)) = program.dequantised(weight) else {
            return Ok(None);
        };
        if let Some(bias) = bias {
            self.load(bias)?;
        }
        let integers = self.quantised(own, inputs)?;
        let bias = bias.map(|bias| self.get(bias));
        let pack = || match (&step.op, format) {
            (Op::QuantisedLinear(layer), PackFormat::Int8Linear(sizes, _)) => {
                let kernel = Int8Linear::new(layer.input, &integers, *sizes, bias)?;
                Some(Packed::Int8Linear(Arc::new(kernel)))
            }
            (Op::QuantisedConv(_, layer), PackFormat::Int8Conv(shape, _)) => {
                let Rounding::Levels(levels, scale) = layer.input else {
                    return None;
                };
                let kernel = Int8Conv::new(shape.clone(), (levels, scale), &integers, bias)?;
                Some(Packed::Int8Conv(Arc::new(kernel)))
            }
            (Op::Linear, PackFormat::WeightOnly(sizes)) => {
                let kernel = WeightOnlyLinear::new(&integers, *sizes, bias)?;
                Some(Packed::WeightOnly(Arc::new(kernel)))
            }
            _ => None,
        };
        Ok(self.on_threads(program.value(weight).len(), pack))
    }

    /// The numbers of a weight of double precision.
    fn doubles(&self, value: ValueId) -> Result<Cow<'a, [f64]>, RunError> {
        let info = self.program.value(self.program.root(value));
        let Source::Weight(number) = info.source else {
            unreachable!("weights of double precision are not computed from others");
        };
        whole(self.source.f64_weight(number), number, info, |own| {
            own.len()
        })
    }

    fn double_linear(&self, step: &Step, sizes: [usize; 2]) -> Result<Packed, RunError> {
        let (weight, by_input) = self.program.untransposed(step.inputs[1]);
        let weight = self.doubles(weight)?;
        let bias = step.inputs.get(2).map(|&bias| self.doubles(bias));
        let bias = bias.transpose()?;
        let pack = || DoubleLinear::new(&weight, sizes, by_input, bias.as_deref());
        let kernel = self.on_threads(weight.len(), pack);
        Ok(Packed::DoubleLinear(Arc::new(kernel)))
    }

    /// The packed weights of a step, from the cache if they are there.
    fn packed(&mut self, step: &Step, format: PackFormat) -> Result<Packed, RunError> {
        let program = self.program;
        let bias = step.weights().get(1);
        let key = WeightKey::of(program, step.inputs[1]).map(|weight| PackKey {
            format: format.clone(),
            weight,
            bias: bias.and_then(|&bias| WeightKey::of(program, bias)),
        });
        if let Some(known) = key.as_ref().and_then(|key| self.cache.packed(key)) {
            return Ok(known);
        }
        if let PackFormat::DoubleLinear(sizes) = format {
            let packed = self.double_linear(step, sizes)?;
            if let Some(key) = key {
                self.cache.keep_packed(key, &packed);
            }
            return Ok(packed);
        }
        if format.is_of_integers() {
            if let Some(packed) = self.packed_integers(step, &format)? {
                if let Some(key) = key {
                    self.cache.keep_packed(key, &packed);
                }
                return Ok(packed);
            }
            // Integers that bytes do not hold, as numbers.
            let format = match format {
                PackFormat::Int8Conv(shape, _) => PackFormat::Conv(shape),
                _ => linear_format(program, step),
            };
            return self.packed(step, format);
        }
        let (weight, by_input) = match format {
            PackFormat::Linear(..) => program.untransposed(step.inputs[1]),
            _ => (step.inputs[1], false),
        };
        let half = match format {
            // The weight of a recurrent layer is read in each time step.
            PackFormat::Linear(_, width) if step.op == Op::Linear => {
                let half = self.half(weight)?;
                half.filter(|(_, half)| width.is_some() || *half == Half::Bf16)
            }
            _ => None,
        };
        if half.is_none() {
            self.load(weight)?;
        }
        if let Some(&bias) = bias {
            self.load(bias)?;
        }
        let (weight, bias) = (self.get(weight), bias.map(|&bias| self.get(bias)));
        let elements = half.as_ref().map_or(weight.len(), |(data, _)| data.len());
        let pack = || match format {
            PackFormat::Linear(sizes, _) if let Some((data, half)) = &half => {
                let rows = program.packed_rows(program.linear_rows(step, sizes[1]));
                let weight = LinearWeight {
                    data,
                    sizes,
                    by_input,
                };
                Packed::Linear(Arc::new(match program.products(step).bf16_unit() {
                    Some(unit) => Linear::Bf16(Bf16Linear::of_bits(unit, &weight, bias)),
                    None => Linear::F32(LinearKernel::of_half((&weight, *half), bias, rows)),
                }))
            }
            PackFormat::Linear(sizes, _) => {
                let weight = LinearWeight {
                    data: weight,
                    sizes,
                    by_input,
                };
                Packed::Linear(Arc::new(linear_kernel(program, step, &weight, bias)))
            }
            PackFormat::Int8Linear(..)
            | PackFormat::Int8Conv(..)
            | PackFormat::WeightOnly(_)
            | PackFormat::DoubleLinear(_) => {
                unreachable!("integers and doubles are packed before")
            }
            PackFormat::Conv(shape) => Packed::Conv(Arc::new(ConvKernel::new(shape, weight, bias))),
            PackFormat::Blocked(shape, algorithm) => {
                match (algorithm, program.products(step).bf16_unit()) {
                    (ConvAlgorithm::Bf16, Some(unit)) => {
                        Packed::Bf16Conv(Arc::new(Bf16Conv::new(unit, shape, weight, bias)))
                    }
                    (ConvAlgorithm::Depthwise, _) => {
                        let kernel = BlockedDepthwise::new(shape, weight, bias);
                        Packed::BlockedDepthwise(Arc::new(kernel))
                    }
                    (algorithm, _) => {
                        let kernel = BlockedConv::new(shape, algorithm, weight, bias);
                        Packed::BlockedConv(Arc::new(kernel))
                    }
                }
            }
        };
        let packed = self.on_threads(elements, pack);
        if let Some(key) = key {
            self.cache.keep_packed(key, &packed);
        }
        Ok(packed)
    }
}

/// The format in which the weights of a step are packed; `None` if they are not. Weights that are
/// computed while the program runs are packed then.
fn pack_format(program: &Program, step: &Step) -> Option<PackFormat> {
    let is_known = || step.weights().iter().all(|&value| program.is_weight(value));
    if program.element(step.output) == Element::F64 {
        let is_packed = step.op == Op::Linear && is_known();
        let weight = || program.shape(step.inputs[1]);
        return is_packed.then(|| PackFormat::DoubleLinear([weight()[0], weight()[1]]));
    }
    match &step.op {
        Op::Recurrent(own) if is_known() => {
            let width = LinearKernel::width(program.packed_rows(own.batch));
            Some(PackFormat::Linear([own.gates(), own.width], Some(width)))
        }
        Op::Linear if is_known() && program.has_integers(step) => {
            let weight = program.shape(step.inputs[1]);
            Some(PackFormat::WeightOnly([weight[0], weight[1]]))
        }
        Op::Linear if is_known() => Some(linear_format(program, step)),
        Op::QuantisedLinear(layer) => {
            let weight = program.shape(step.inputs[1]);
            Some(PackFormat::Int8Linear(
                [weight[0], weight[1]],
                layer.input.bits(),
            ))
        }
        Op::QuantisedConv(conv, layer) => {
            let mut shape = ConvShape::of(program, step, conv);
            shape.batch = 1;
            Some(PackFormat::Int8Conv(shape, layer.input.bits()))
        }
        Op::Conv(conv) | Op::ChannelScaledConv(conv) if is_known() => {
            let mut shape = ConvShape::of(program, step, conv);
            let algorithm = ConvAlgorithm::of(&shape, program.products(step));
            shape.batch = 1;
            match algorithm {
                Some(algorithm) if program.value(step.output).layout == Layout::Blocks => {
                    Some(PackFormat::Blocked(shape, algorithm))
                }
                _ => Some(PackFormat::Conv(shape)),
            }
        }
        _ => None,
    }
}

/// The format of the numbers of a linear layer.
fn linear_format(program: &Program, step: &Step) -> PackFormat {
    let weight = program.shape(step.inputs[1]);
    let rows = program.packed_rows(program.linear_rows(step, weight[1]));
    let width = match program.products(step).bf16_unit() {
        Some(_) => None,
        None => Some(LinearKernel::width(rows)),
    };
    PackFormat::Linear([weight[0], weight[1]], width)
}

/// The range of the inputs of `step` that are packed before the program runs.
pub(crate) fn packed_inputs(program: &Program, step: &Step) -> Range<usize> {
    packed_range(pack_format(program, step).as_ref(), step)
}

fn packed_range(format: Option<&PackFormat>, step: &Step) -> Range<usize> {
    match format {
        Some(_) if matches!(step.op, Op::Recurrent(_)) => 1..1 + step.weights().len(),
        Some(_) => 1..step.inputs.len(),
        None => 0..0,
    }
}

/// The weight that was found, if it has all its elements.
fn whole<T>(
    found: Option<T>,
    number: usize,
    info: &ValueInfo,
    len: fn(&T) -> usize,
) -> Result<T, RunError> {
    let found = found.ok_or(RunError::MissingWeight { number })?;
    match len(&found) == info.len() {
        true => Ok(found),
        false => Err(RunError::Length {
            what: "weight",
            number,
            expected: info.len(),
            got: len(&found),
        }),
    }
}

/// Calls `visit` with the values that `step` reads, and with the weights that they are computed
/// from.
fn for_each_weight(program: &Program, step: &Step, visit: &mut dyn FnMut(ValueId)) {
    let mut rest: Vec<ValueId> = step.reads().collect();
    while let Some(value) = rest.pop() {
        let root = program.root(value);
        visit(root);
        if let Source::Transformed(number) = program.value(root).source {
            rest.extend(&program.weight_transforms[number].1);
        }
    }
}

/// A linear layer with its weights packed.
pub(crate) fn linear_kernel(
    program: &Program,
    step: &Step,
    weight: &LinearWeight<'_>,
    bias: Option<&[f32]>,
) -> Linear {
    if let Op::Recurrent(own) = &step.op {
        // A rounding error of one time step would carry into all later ones.
        return Linear::F32(LinearKernel::new(
            weight,
            bias,
            program.packed_rows(own.batch),
        ));
    }
    match program.products(step).bf16_unit() {
        Some(unit) => Linear::Bf16(Bf16Linear::new(unit, weight, bias)),
        None => {
            let rows = program.packed_rows(program.linear_rows(step, weight.sizes[1]));
            Linear::F32(LinearKernel::new(weight, bias, rows))
        }
    }
}

/// The transpose of `matrix`, which has `rows` columns; the result has `rows` rows.
fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len() / rows.max(1);
    let mut made = vec![0.0; matrix.len()];
    made.par_chunks_mut(columns.max(1))
        .enumerate()
        .run_parallel(|(row, out)| {
            for (column, out) in out.iter_mut().enumerate() {
                *out = matrix[column * rows + row];
            }
        });
    made
}

/// Rows of `weight`, each times its factor.
fn scaled(weight: &[f32], factors: &[f32]) -> Vec<f32> {
    let row = (weight.len() / factors.len().max(1)).max(1);
    let mut made = weight.to_vec();
    let rows = made.par_chunks_mut(row).zip(factors);
    rows.run_parallel(|(row, factor)| row.iter_mut().for_each(|weight| *weight *= factor));
    made
}

impl WeightTransform {
    /// The number that is added to the variance.
    pub(crate) fn eps(self) -> f64 {
        match self {
            Self::NormWeight(eps)
            | Self::NormBias(eps)
            | Self::NormScale(eps)
            | Self::NormOffset(eps) => eps,
            Self::Transpose | Self::Scale | Self::Dequantise(_) => 0.0,
        }
    }

    /// The format of the integers that it makes numbers of.
    pub(crate) fn quantised(self) -> Option<Quantised> {
        match self {
            Self::Dequantise(format) => Some(format),
            _ => None,
        }
    }

    /// Computes the weight of shape `shape` from `inputs`.
    fn make(self, inputs: &[&[f32]], shape: &[usize]) -> Vec<f32> {
        match self {
            Self::NormWeight(eps) => scaled(inputs[0], &Norm::of(&inputs[1..], eps).scales()),
            Self::NormBias(eps) => {
                let norm = Norm::of(&inputs[1..], eps);
                let biases = inputs[0].iter().enumerate();
                let made =
                    biases.map(|(at, &bias)| f64::from(bias) * norm.scale(at) + norm.offset(at));
                made.map(|bias| bias as f32).collect()
            }
            Self::NormScale(eps) => Norm::of(inputs, eps).scales(),
            Self::NormOffset(eps) => {
                let norm = Norm::of(inputs, eps);
                let channels = 0..norm.mean.len();
                channels.map(|at| norm.offset(at) as f32).collect()
            }
            Self::Transpose => transposed(inputs[0], shape[0]),
            Self::Scale => scaled(inputs[0], inputs[1]),
            // Made from integers.
            Self::Dequantise(_) => Vec::new(),
        }
    }
}

/// A batch norm in evaluation mode, in double precision.
struct Norm<'a> {
    mean: &'a [f32],
    variance: &'a [f32],
    gamma: Option<&'a [f32]>,
    beta: Option<&'a [f32]>,
    eps: f64,
}

impl<'a> Norm<'a> {
    /// From mean, variance, and weight and bias if there are four inputs.
    fn of(inputs: &[&'a [f32]], eps: f64) -> Self {
        Self {
            mean: inputs[0],
            variance: inputs[1],
            gamma: inputs.get(2).copied(),
            beta: inputs.get(3).copied(),
            eps,
        }
    }

    /// Factor of channel `at`.
    fn scale(&self, at: usize) -> f64 {
        let gamma = self.gamma.map_or(1.0, |gamma| f64::from(gamma[at]));
        gamma / (f64::from(self.variance[at]) + self.eps).sqrt()
    }

    /// Offset of channel `at`, added after the factor.
    fn offset(&self, at: usize) -> f64 {
        let beta = self.beta.map_or(0.0, |beta| f64::from(beta[at]));
        beta - f64::from(self.mean[at]) * self.scale(at)
    }

    fn scales(&self) -> Vec<f32> {
        (0..self.mean.len())
            .map(|at| self.scale(at) as f32)
            .collect()
    }
}
