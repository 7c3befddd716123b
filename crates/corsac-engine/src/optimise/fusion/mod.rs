//! Fusion of elementwise steps: chains of functions, comparisons, selections and reductions of rows
//! become one step, computed [a tile at a time](crate::kernels::fused).
//!
//! A group grows from its last step towards the inputs: a step joins it if all readers of its
//! result are in the group. So a group has one result, replaces its last step, and computes no
//! value twice. Two groups that alone read a tensor become [one with two results](pairs), if one of
//! them is a number for each row.

mod build;
mod combine;
mod group;
mod groups;
mod pairs;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::flow::Flow;
use crate::data::Stored;
use crate::program::fused::Function;
use crate::program::{
    Arithmetic, Binary, Comparison, Element, Epilogue, Layout, Op, Program, Reduction, Source,
    Step, Unary, ValueId,
};
use groups::Groups;

/// Rows with more elements than this do not stay in the cache.
const LONGEST_ROW: usize = 16 * 1024;
/// Least number of rows that give work to several threads; fewer are fused only if there is little
/// work.
const FEWEST_ROWS: usize = 8;
/// Number of elements that are little work.
const LITTLE: usize = 64 * 1024;

/// Fuses elementwise steps.
pub(crate) fn fuse(program: &mut Program) {
    let flow = Flow::of(program);
    let none = FxHashMap::default();
    let mut groups = Groups::of(program, &flow, &none);
    let pairs = pairs::find(program, &flow, &groups);
    if !pairs.is_empty() {
        groups = Groups::of(program, &flow, &pairs);
    }
    groups.replace(program);
}

/// The number that fills `value`, if it is filled with one.
fn number(program: &Program, flow: &Flow, value: ValueId) -> Option<f64> {
    let Op::Fill(number) = program.steps[flow.maker(program, value)?].op else {
        return None;
    };
    match program.element(value) {
        Element::F32 => Some(f32::number(number).into()),
        Element::F64 => Some(f64::number(number)),
        Element::Bool => Some(u8::number(number).into()),
        Element::I64 => None,
    }
}

/// Kind of a step that can be fused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A function of elements at the same place, after broadcasting.
    Each(Function),
    /// The same, with a number as its second operand.
    WithNumber(Function, f64),
    /// A reduction of each row of this many elements.
    Rows(Reduction, usize),
}

impl Kind {
    /// Kind of `step`; `None` if it cannot be fused.
    fn of(program: &Program, step: &Step) -> Option<Self> {
        let info = program.value(step.output);
        // Images of bytes are as good as rows where all are of one shape.
        let by_pixel = |value: ValueId| {
            let own = program.value(value);
            own.layout == Layout::Pixels && own.stored_len() == own.len()
        };
        let in_rows = |value: ValueId| {
            program.value(value).layout == Layout::Rows
                && program.value(program.root(value)).layout == Layout::Rows
        };
        let all = || step.reads().chain([step.output]);
        let simple = (all().all(in_rows) || all().all(by_pixel)) && !info.is_empty();
        let plain = program.root(step.output) == step.output;
        let epilogues = step
            .epilogues
            .iter()
            .all(|epilogue| matches!(epilogue, Epilogue::Unary(_)));
        if !(simple && plain && epilogues) || info.element == Element::I64 {
            return None;
        }
        let inputs: SmallVec<[Element; 4]> = step
            .inputs
            .iter()
            .map(|&value| program.element(value))
            .collect();
        let integers = inputs.contains(&Element::I64);
        if integers && !matches!(step.op, Op::Cast) {
            return None;
        }
        let function = match step.op {
            Op::Unary(function) => Function::Unary(function),
            Op::ToLevels(levels) => Function::Unary(Unary::Quantise(levels.as_bytes())),
            Op::FromLevels(zero, scale) => Function::Unary(Unary::Dequantise {
                zero: zero as f32,
                scale,
            }),
            Op::Binary(function) => Function::Binary(function),
            Op::Reduce {
                reduction,
                ref dims,
            } if info.element.is_float() => {
                let shape = program.shape(step.inputs[0]);
                let first = shape.len() - dims.len();
                let last = dims.iter().copied().eq(first..shape.len());
                let row: usize = shape[first..].iter().product();
                return (last && row > 1).then_some(Self::Rows(reduction, row));
            }
            Op::Compare(comparison) => Function::Compare(comparison),
            Op::Where => Function::Where,
            Op::Ternary(function) => Function::Ternary(function),
            Op::Not => return Some(Self::WithNumber(Function::Compare(Comparison::Eq), 0.0)),
            Op::Cast if info.element == Element::Bool && inputs[..] != [Element::Bool] => {
                return Some(Self::WithNumber(Function::Compare(Comparison::Ne), 0.0));
            }
            Op::Cast => Function::Same,
            Op::Arithmetic(function) => match (info.element, function) {
                (Element::F32 | Element::F64, Arithmetic::Add) => Function::Binary(Binary::Add),
                (Element::F32 | Element::F64, Arithmetic::Sub) => Function::Binary(Binary::Sub),
                (Element::F32 | Element::F64, Arithmetic::Mul) => Function::Binary(Binary::Mul),
                (Element::F32 | Element::F64, other) => Function::Arithmetic(other),
                // For booleans.
                (_, Arithmetic::And | Arithmetic::Mul | Arithmetic::Minimum | Arithmetic::Fmin) => {
                    Function::Binary(Binary::Mul)
                }
                (_, Arithmetic::Xor) => Function::Compare(Comparison::Ne),
                _ => Function::Binary(Binary::Maximum),
            },
            _ => return None,
        };
        Some(Self::Each(function))
    }
}

/// The type of the floating-point numbers that a step reads and writes: none if there are none; `Err`
/// if there are two.
fn float_of(program: &Program, step: &Step) -> Result<Option<Element>, ()> {
    let mut found = None;
    for value in step.reads().chain([step.output]) {
        let element = program.element(value);
        if element.is_float() && *found.get_or_insert(element) != element {
            return Err(());
        }
    }
    Ok(found)
}

/// The elementwise functions in the epilogues of a step.
fn epilogues(step: &Step) -> impl Iterator<Item = Unary> + '_ {
    step.epilogues.iter().filter_map(|epilogue| match epilogue {
        Epilogue::Unary(function) => Some(*function),
        Epilogue::Add(_) => None,
    })
}

/// Number of elements of a row of `result`, if `shape` has one for each row: the same leading
/// dimensions, and then none or sizes of 1.
fn rows_of(shape: &[usize], result: &[usize]) -> Option<usize> {
    let len: usize = shape.iter().product();
    let all: usize = result.iter().product();
    if len == 0 || len == all || len == 1 {
        return None;
    }
    let missing = result.len().checked_sub(shape.len())?;
    let own = |at: usize| at.checked_sub(missing).map_or(1, |at| shape[at]);
    let rows = (0..result.len()).find(|&at| own(at) != result[at])?;
    (rows..result.len())
        .all(|at| own(at) == 1)
        .then_some(all / len)
}

/// Whether rows of `row` elements can be tiles of tensors of `len` elements.
fn rows_fit(len: usize, row: usize) -> bool {
    row <= LONGEST_ROW && len.is_multiple_of(row) && (len / row >= FEWEST_ROWS || len <= LITTLE)
}

/// Whether `value` is computed by a step, and its live range ends at step `at`.
fn dies(program: &Program, flow: &Flow, value: ValueId, at: usize) -> bool {
    let root = program.root(value);
    matches!(program.value(root).source, Source::Step)
        && !flow.is_returned(root)
        && flow.readers(root).iter().all(|&(reader, _)| reader <= at)
}
