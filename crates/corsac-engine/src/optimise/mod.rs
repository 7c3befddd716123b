//! Simplification of programs: batch norms and factors of channels are folded into weights,
//! activations and sums are fused into the steps before them, unused steps are removed, and images
//! get the layout that convolutions want.

mod attention;
mod batch_tiling;
mod channel_scaling;
mod copies;
mod flow;
mod fusion;
mod layout;
mod quantised;
mod transposition;
mod weight_scaling;

use rustc_hash::FxHashMap;

use crate::program::{
    Binary, Element, Epilogue, Layout, Op, Program, Source, Step, ValueId, WeightTransform,
};
use flow::Flow;
use weight_scaling::Scaling;

/// Simplifies `program`. Folded weights are computed when weights are packed.
pub fn optimise(program: &mut Program) {
    let controls = program.controls_mut();
    controls.for_each(|control| control.bodies.iter_mut().for_each(optimise));
    copies::compose(program);
    remove_unused(program);
    quantised::fuse(program);
    attention::fuse(program);
    // Copies that attention has not absorbed.
    transposition::read_in_place(program);
    remove_unused(program);
    let flow = Flow::of(program);
    let steps = std::mem::take(&mut program.steps);
    let mut kept: Vec<Step> = Vec::with_capacity(steps.len());
    // The step that computes a value, of those kept.
    let mut maker: FxHashMap<ValueId, usize> = FxHashMap::default();
    for step in steps {
        let output = step.output;
        let at = match absorb(program, &flow, &maker, &mut kept, &step) {
            Some(at) => {
                kept[at].output = output;
                at
            }
            None => {
                kept.push(stand_alone(program, step));
                kept.len() - 1
            }
        };
        maker.insert(output, at);
    }
    program.steps = kept;
    remove_unused(program);
    layout::assign(program);
    batch_tiling::tile(program);
    join(program);
}

/// Fuses the remaining steps, those of micro-batches too.
fn join(program: &mut Program) {
    for step in &mut program.steps {
        if let Op::BatchTiling(tiling) = &mut step.op {
            join(&mut tiling.body);
        }
    }
    channel_scaling::fuse(program);
    // Permutations that became reorderings.
    remove_unused(program);
    fusion::fuse(program);
    // Numbers that became operands.
    remove_unused(program);
    debug_assert!(is_in_order(program), "{program}");
}

/// Whether each step reads only what has been computed before.
fn is_in_order(program: &Program) -> bool {
    let mut computed = vec![false; program.values.len()];
    program.steps.iter().all(|step| {
        let is_there = |value: ValueId| {
            let root = program.root(value);
            computed[root.index()] || !matches!(program.value(root).source, Source::Step)
        };
        let all = step.reads().all(is_there);
        for value in step.results() {
            computed[program.root(value).index()] = true;
        }
        all
    })
}

/// Folds or fuses `step` into a step before it, if that is possible, and returns the position of
/// the step that then computes the result.
fn absorb(
    program: &mut Program,
    flow: &Flow,
    maker: &FxHashMap<ValueId, usize>,
    kept: &mut [Step],
    step: &Step,
) -> Option<usize> {
    let is_of_numbers = program.element(step.output) == Element::F32;
    if !is_of_numbers && !matches!(step.op, Op::ToLevels(_) | Op::MapLevels(_)) {
        return None;
    }
    // No aliases: their shape may differ from that of the value that the step computes.
    let made_by = |program: &Program, value: ValueId| {
        let whole = program.root(value) == value && flow.is_read_once(value);
        whole.then(|| maker.get(&value).copied()).flatten()
    };
    match &step.op {
        Op::BatchNorm { eps } => {
            let at = made_by(program, step.inputs[0])?;
            let rows = program.shape(step.output).len() == 2;
            let before = &mut kept[at];
            let takes_factors = match before.op {
                Op::Conv(_) => true,
                // Its outputs are channels where the batch norm has no dimensions after them.
                Op::Linear => rows && !program.has_integers(before),
                _ => false,
            };
            let known = before.inputs[1..]
                .iter()
                .all(|&value| program.is_weight(value));
            if !takes_factors || !known || !before.epilogues.is_empty() {
                return None;
            }
            let norm = &step.inputs[1..];
            let transform =
                |inputs: &[ValueId], make: fn(f64) -> WeightTransform| (make(*eps), inputs.into());
            let weight = before.inputs[1];
            let factor = [&[weight], norm].concat();
            let (weight_transform, factor) = transform(&factor, WeightTransform::NormWeight);
            let shape = program.shape(weight).to_vec();
            let folded = program.add_transformed(weight_transform, factor, shape);
            let offset = match before.inputs.get(2) {
                Some(&bias) => {
                    let inputs = [&[bias], norm].concat();
                    let (transform, inputs) = transform(&inputs, WeightTransform::NormBias);
                    let shape = program.shape(norm[0]).to_vec();
                    program.add_transformed(transform, inputs, shape)
                }
                None => {
                    let (transform, inputs) = transform(norm, WeightTransform::NormOffset);
                    let shape = program.shape(norm[0]).to_vec();
                    program.add_transformed(transform, inputs, shape)
                }
            };
            before.inputs = [before.inputs[0], folded, offset].into_iter().collect();
            Some(at)
        }
        Op::Unary(function) => {
            let at = made_by(program, step.inputs[0])?;
            kept[at].op.takes_epilogues().then(|| {
                kept[at].epilogues.push(Epilogue::Unary(*function));
                at
            })
        }
        // A clamp of levels is one of the levels before.
        Op::MapLevels(table) => {
            let at = made_by(program, step.inputs[0])?;
            let levels = match &mut kept[at].op {
                Op::ToLevels(levels) => levels,
                Op::AddLevels(add) => &mut add.levels,
                Op::QuantisedLinear(layer) | Op::QuantisedConv(_, layer) => {
                    layer.output.as_mut()?
                }
                _ => return None,
            };
            *levels = levels.clamped(table)?;
            Some(at)
        }
        Op::ToLevels(levels) => {
            let at = made_by(program, step.inputs[0])?;
            let whole = program.shape(step.inputs[0]) == program.shape(step.output);
            let layout = program.value(step.output).layout;
            let before = &mut kept[at];
            let functions = before.epilogues.iter();
            let mut functions = functions.map(|own| matches!(own, Epilogue::Unary(_)));
            let alone = functions.all(|is_function| is_function);
            let (layer, own) = match &mut before.op {
                Op::QuantisedLinear(layer) => (layer, Layout::Rows),
                Op::QuantisedConv(_, layer) => (layer, Layout::Pixels),
                _ => return None,
            };
            let fits = whole && alone && layer.output.is_none() && layout == own;
            fits.then(|| {
                layer.output = Some(*levels);
                at
            })
        }
        Op::Binary(Binary::Mul) => {
            let scaling = Scaling::of(program, kept, step, |value| made_by(program, value))?;
            scaling.apply(program, kept);
            Some(scaling.result)
        }
        Op::Binary(Binary::Add) => {
            let [a, b] = step.inputs[..] else { return None };
            let shape = program.shape(step.output);
            if program.shape(a) != shape || program.shape(b) != shape {
                return None;
            }
            // Fuses into the later step: the other operand is computed by then.
            let (at_a, at_b) = (made_by(program, a), made_by(program, b));
            let made_at = |value: ValueId| maker.get(&program.root(value)).copied();
            let fits = |at: Option<usize>, other: ValueId| {
                let at = at?;
                let there = made_at(other).is_none_or(|made| made < at);
                (kept[at].sums_up() && there).then_some(at)
            };
            let (at, other) = match (fits(at_a, b), fits(at_b, a)) {
                (Some(at), _) => (at, b),
                (None, Some(at)) => (at, a),
                (None, None) => return None,
            };
            kept[at].epilogues.push(Epilogue::Add(other));
            Some(at)
        }
        _ => None,
    }
}

impl Step {
    fn sums_up(&self) -> bool {
        matches!(
            self.op,
            Op::Conv(_)
                | Op::Linear
                | Op::QuantisedLinear(_)
                | Op::QuantisedConv(..)
                | Op::MatMul { .. }
        )
    }
}

/// Turns a batch norm that was not folded into a factor and an offset for each channel.
fn stand_alone(program: &mut Program, step: Step) -> Step {
    let Op::BatchNorm { eps } = step.op else {
        return step;
    };
    if program.element(step.output) == Element::F64 {
        return step;
    }
    let norm = &step.inputs[1..];
    let shape = program.shape(norm[0]).to_vec();
    let scale =
        program.add_transformed(WeightTransform::NormScale(eps), norm.into(), shape.clone());
    let offset = program.add_transformed(WeightTransform::NormOffset(eps), norm.into(), shape);
    Step {
        op: Op::ChannelAffine,
        inputs: [step.inputs[0], scale, offset].into_iter().collect(),
        ..step
    }
}

fn remove_unused(program: &mut Program) {
    let mut wanted = vec![false; program.values.len()];
    for value in program.results() {
        wanted[program.root(value).index()] = true;
    }
    let mut keep = vec![false; program.steps.len()];
    for (at, step) in program.steps.iter().enumerate().rev() {
        if step.results().any(|own| wanted[program.root(own).index()]) {
            keep[at] = true;
            for value in step.reads() {
                wanted[program.root(value).index()] = true;
            }
        }
    }
    let mut keep = keep.into_iter();
    program.steps.retain(|_| keep.next().unwrap_or(true));
}
