//! Estimate of the work of a program, by which small ones are run on one thread.
//!
//! The unit is one product and sum of a linear layer on one thread, about 25 ps on an AMD EPYC with
//! AVX-512. The cost of elements of other steps was measured there, on rows of 128 and images of
//! 1000 pixels in the cache, and is rounded; it may be wrong by a factor of two.

use crate::program::fused::{Function, Fused, Width};
use crate::program::{Arithmetic, Element, Epilogue, Op, Program, Step, Unary};

/// Estimated work of a run.
pub(crate) fn work(program: &Program) -> usize {
    let steps = program.steps.iter().map(|step| of_step(program, step));
    steps.fold(0, usize::saturating_add)
}

/// Cost of an element that is read, computed simply, and written.
const SIMPLE: usize = 4;
/// Cost of an element that is computed or moved one by one.
const SINGLE: usize = 48;

fn of_step(program: &Program, step: &Step) -> usize {
    let outputs = program.value(step.output).stored_len();
    let shape = |input: usize| program.shape(step.inputs[input]);
    let inputs = step.inputs.iter();
    let mut read: usize = inputs.map(|&value| program.value(value).len()).sum();
    let mut simply = |each: usize| {
        read = read.saturating_mul(SIMPLE);
        each
    };
    let each: usize = match &step.op {
        Op::Conv(conv) | Op::ChannelScaledConv(conv) | Op::QuantisedConv(conv, _) => {
            let products: usize = shape(1)[1..].iter().product();
            // With groups, an element that is read is used for few results.
            products * if conv.groups > 1 { 2 } else { 1 }
        }
        Op::Linear | Op::QuantisedLinear(_) => {
            // With few rows, a layer takes as long as its weights take to load.
            read = read.saturating_mul(3);
            shape(0).last().copied().unwrap_or(0)
        }
        Op::MatMul {
            first_transposed, ..
        } => {
            let depth = usize::from(*first_transposed);
            shape(0).iter().nth_back(depth).copied().unwrap_or(0)
        }
        Op::Attention(attention) => attention.work(),
        Op::Fused(fused) => return of_fused(fused).saturating_add(read),
        Op::Control(control) => return control.work(work),
        Op::BatchTiling(tiling) => return work(&tiling.body).saturating_mul(tiling.count),
        Op::Unary(function) => of_unary(*function),
        Op::Softmax { .. } => 32,
        Op::LayerNorm { .. } => 32,
        Op::MaxPool(pool) => SIMPLE * pool.kernel.iter().product::<usize>(),
        Op::ArgMaxPool(pool) => SINGLE * pool.kernel.iter().product::<usize>(),
        Op::AvgPool { pool, .. } => SIMPLE * pool.kernel.iter().product::<usize>(),
        Op::AdaptiveAvgPool => {
            read = read.saturating_mul(2 * SIMPLE);
            SIMPLE
        }
        Op::Reduce { .. } => {
            read = read.saturating_mul(2 * SIMPLE);
            match program.element(step.output) {
                Element::F32 | Element::F64 => SIMPLE,
                Element::I64 | Element::Bool => SINGLE,
            }
        }
        Op::Copy { .. } => SINGLE,
        Op::Recurrent(own) => {
            read = read.saturating_mul(16);
            own.gates()
        }
        Op::BatchNorm { .. }
        | Op::Binary(_)
        | Op::ChannelAffine
        | Op::ToBlocks(_)
        | Op::FromBlocks(_)
        | Op::Concat { .. }
        | Op::Pad { .. } => 2 * SIMPLE,
        Op::ConvNd(conv) => {
            let product = conv.product();
            // Elements are put into the columns, or taken from them, one by one.
            simply(product.depth.saturating_mul(2) + SINGLE * product.depth / product.rows.max(1))
        }
        // About 50 for each time that the line is divided in two.
        Op::Sort { dim, .. } => {
            let size = shape(0).get(*dim).copied().unwrap_or(1).max(1);
            simply(50 * (size.ilog2() as usize + 1))
        }
        Op::ArgReduce { dim, .. } => simply(SINGLE * shape(0).get(*dim).copied().unwrap_or(1)),
        Op::Resample { taps, .. } => {
            simply(SIMPLE * taps.first().map_or(1, |taps| taps.len().max(1)))
        }
        // There are few labels among many classes.
        Op::ToLevels(_) | Op::FromLevels(..) | Op::MapLevels(_) | Op::AddLevels(_) => {
            simply(SIMPLE)
        }
        Op::RoundRows(_) => simply(3 * SIMPLE),
        Op::LabelMargins => simply(4 * SIMPLE * shape(0).last().copied().unwrap_or(1)),
        Op::Arrange { .. } => simply(SIMPLE),
        Op::Ternary(_) => simply(3 * SIMPLE),
        Op::SafeSoftmax => simply(72),
        Op::Arithmetic(function) => simply(of_arithmetic(*function)),
        Op::Scatter { .. }
        | Op::IndexPut(_)
        | Op::Cast
        | Op::Compare(_)
        | Op::Not
        | Op::Where
        | Op::Fill(_)
        | Op::Range { .. }
        | Op::IndexSelect { .. }
        | Op::Gather { .. }
        | Op::Wrap { .. }
        | Op::Scan { .. }
        | Op::Causal => simply(SINGLE),
    };
    let epilogues = step.epilogues.iter().map(|epilogue| match epilogue {
        Epilogue::Add(_) => SIMPLE,
        Epilogue::Unary(function) => of_unary(*function),
    });
    let each = epilogues.fold(each, usize::saturating_add);
    outputs.saturating_mul(each).saturating_add(read)
}

fn of_fused(fused: &Fused) -> usize {
    let row = fused.row.unwrap_or(1).max(1);
    let instructions = fused.instructions.iter().map(|own| {
        let each = match own.function {
            Function::Load { .. } | Function::Same | Function::Binary(_) => SIMPLE,
            Function::Compare(_)
            | Function::Where
            | Function::Select(_)
            | Function::Ternary(_)
            | Function::Reduce(_)
            | Function::ReduceSquares(_)
            | Function::Levels(_) => 2 * SIMPLE,
            Function::Arithmetic(function) => of_arithmetic(function),
            Function::Unary(function) => of_unary(function),
        };
        match (own.width, own.function) {
            (Width::Row, Function::Reduce(_) | Function::ReduceSquares(_)) | (Width::Tile, _) => {
                fused.len.saturating_mul(each)
            }
            (Width::Row, _) => (fused.len / row).saturating_mul(each),
        }
    });
    instructions.fold(0, usize::saturating_add)
}

fn of_arithmetic(function: Arithmetic) -> usize {
    match function {
        Arithmetic::Add
        | Arithmetic::Sub
        | Arithmetic::Mul
        | Arithmetic::Maximum
        | Arithmetic::Minimum
        | Arithmetic::Fmax
        | Arithmetic::Fmin
        | Arithmetic::And
        | Arithmetic::Or
        | Arithmetic::Xor => 2 * SIMPLE,
        Arithmetic::FloorDivide
        | Arithmetic::TruncDivide
        | Arithmetic::Remainder
        | Arithmetic::Fmod
        | Arithmetic::Power
        | Arithmetic::Atan2
        | Arithmetic::Hypot => SINGLE,
    }
}

/// Cost of an element of a function: vectorised ones, and those of the C library.
fn of_unary(function: Unary) -> usize {
    match function {
        Unary::Relu
        | Unary::Clamp(..)
        | Unary::LeakyRelu(_)
        | Unary::Hardswish
        | Unary::Hardsigmoid
        | Unary::Abs
        | Unary::Affine(..)
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc
        | Unary::Frac
        | Unary::Sign
        | Unary::Softsign
        | Unary::Softshrink(_)
        | Unary::Hardshrink(_)
        | Unary::DivideInto(_)
        | Unary::DivideBy(_)
        | Unary::Threshold(..)
        | Unary::RoundTo(_)
        | Unary::NanTo(_)
        | Unary::Quantise(_)
        | Unary::Dequantise { .. } => SIMPLE,
        Unary::Sqrt | Unary::Rsqrt => 12,
        Unary::Exp | Unary::Sigmoid | Unary::Silu | Unary::Erf | Unary::Elu(_) => 16,
        Unary::Tanh | Unary::Gelu | Unary::GeluTanh => 24,
        // Series in double precision.
        Unary::Log
        | Unary::Sin
        | Unary::Cos
        | Unary::Power(_)
        | Unary::Tan
        | Unary::Asin
        | Unary::Acos
        | Unary::Atan
        | Unary::Sinh
        | Unary::Cosh
        | Unary::Asinh
        | Unary::Acosh
        | Unary::Atanh
        | Unary::Exp2
        | Unary::Expm1
        | Unary::Log1p
        | Unary::Log2
        | Unary::Log10
        | Unary::Tanhshrink
        | Unary::Celu(_)
        | Unary::Softplus(..)
        | Unary::LogSigmoid
        | Unary::Mish => SINGLE,
    }
}
