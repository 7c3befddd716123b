//! Borrowed weights: large weights that steps read as they are, such as the rows of an embedding.
//! The host passes them with each run, so that they are never copied.

use corsac_ir::DType;
use rustc_hash::FxHashMap;

use crate::prepare::packed_inputs;
use crate::program::{Element, Program, Source, ValueId};

/// Least number of elements of a borrowed weight.
const LARGE: usize = 256 * 1024;

/// Turns the large weights that `program`, which is [optimised](crate::optimise), reads as they are
/// into inputs, if `can_borrow` is true for their numbers. Returns these numbers: the weights are
/// passed after all other inputs, in this order.
pub fn borrow_weights(program: &mut Program, can_borrow: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let mut borrowed = Vec::new();
    let mut inputs: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut steps = std::mem::take(&mut program.steps);
    for step in &mut steps {
        let packed = packed_inputs(program, step);
        for (at, value) in step.reads_mut().enumerate() {
            let info = program.value(*value);
            let Source::Weight(number) = info.source else {
                continue;
            };
            let (element, dtype) = match info.element {
                Element::F32 => (Element::F32, DType::Float32),
                Element::F64 => (Element::F64, DType::Float64),
                Element::I64 | Element::Bool => continue,
            };
            let large = info.len() >= LARGE;
            if packed.contains(&at) || !large || !can_borrow(number) {
                continue;
            }
            let shape = info.shape.clone();
            *value = *inputs.entry(*value).or_insert_with(|| {
                borrowed.push(number);
                program.inputs += 1;
                program.input_dtypes.push(dtype);
                program.add_typed(element, shape, Source::Input(program.inputs - 1))
            });
        }
    }
    program.steps = steps;
    borrowed
}
