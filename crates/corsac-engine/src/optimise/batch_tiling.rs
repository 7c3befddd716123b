//! Batch tiling: a batch whose values do not fit the cache is computed a few images at a time,
//! where no step combines images.
//!
//! A network begins with large images and few weights and ends with small images and many weights.
//! At the beginning it is better to take one image through several steps, since the result of a
//! step is in the cache for the next; at the end it is better to take all images through one step.
//!
//! Before: `%1 = conv(in0, w0)`, `%2 = conv(%1, w1)`; after: `%2 = batch_tiling(in0)`, whose body is
//! these two steps.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::program::{BatchTiling, Element, Epilogue, Op, Output, Program, Source, Step, ValueId};

/// Values of this many bytes that a step reads and writes stay in the cache until the next.
const CACHED: usize = 4 << 20;

/// Divides the batch of `program` into micro-batches where its values would not stay in the cache.
pub(crate) fn tile(program: &mut Program) {
    let Some(batch) = batch_of(program) else {
        return;
    };
    let sections = sections(program, batch);
    let steps = std::mem::take(&mut program.steps);
    let mut steps = steps.into_iter();
    let mut done = 0;
    let mut kept = Vec::new();
    for section in sections {
        kept.extend(steps.by_ref().take(section.start - done));
        let own: Vec<Step> = steps.by_ref().take(section.end - section.start).collect();
        done = section.end;
        kept.extend(together(program, own, section.images));
    }
    kept.extend(steps);
    program.steps = kept;
}

/// Number of images of the program, if it is more than one.
fn batch_of(program: &Program) -> Option<usize> {
    let convolution = |step: &&Step| matches!(step.op, Op::Conv(_));
    let first = program.steps.iter().find(convolution)?;
    let batch = program.shape(first.output)[0];
    (batch > 1).then_some(batch)
}

/// Steps that are computed together, for `images` images at a time.
struct Section {
    start: usize,
    end: usize,
    images: usize,
}

/// Steps between two positions of a program at which no more than one value is live.
struct Stage {
    start: usize,
    end: usize,
    /// Whether images are independent of each other.
    apart: bool,
    /// Bytes of values that are read and written for all images: of all steps, and the most of one
    /// step.
    values: usize,
    most: usize,
    /// Bytes of weights.
    weights: usize,
}

fn sections(program: &Program, batch: usize) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut most = 0;
    let mut open = false;
    for stage in stages(program, batch) {
        let pays = stage.pays(batch);
        if pays && !open {
            most = 0;
            sections.push(Section {
                start: stage.start,
                end: stage.end,
                images: batch,
            });
        }
        if let Some(section) = sections.last_mut().filter(|_| pays) {
            most = most.max(stage.most);
            section.end = stage.end;
            section.images = images_per_tile(batch, most);
        }
        open = pays;
    }
    // One step alone reads values that earlier steps have written to memory anyway.
    sections.retain(|own| own.end - own.start > 1 && own.images < batch);
    sections
}

/// Number of images of a micro-batch that stays in the cache, where all images have `bytes` bytes:
/// a divisor of `batch`.
fn images_per_tile(batch: usize, bytes: usize) -> usize {
    let fit = CACHED / (bytes / batch).max(1);
    let divides = |&count: &usize| batch.is_multiple_of(count);
    (1..=fit.min(batch)).rev().find(divides).unwrap_or(1)
}

fn stages(program: &Program, batch: usize) -> Vec<Stage> {
    let mut last_read = vec![0; program.values.len()];
    for (at, step) in program.steps.iter().enumerate() {
        for value in step.reads() {
            last_read[program.root(value).index()] = at;
        }
    }
    for value in program.results() {
        last_read[program.root(value).index()] = program.steps.len();
    }
    let mut stages = Vec::new();
    let mut stage = Stage::new(0);
    // The last step that reads a value which an earlier step than the current one has computed.
    let mut until = 0;
    for (at, step) in program.steps.iter().enumerate() {
        stage.add(program, step, batch);
        if until <= at {
            stages.push(std::mem::replace(&mut stage, Stage::new(at + 1)));
        }
        until = until.max(last_read[program.root(step.output).index()]);
    }
    // More than one value is live.
    stage.apart = false;
    stages.push(stage);
    stages
}

impl Stage {
    fn new(start: usize) -> Self {
        Self {
            start,
            end: start,
            apart: true,
            values: 0,
            most: 0,
            weights: 0,
        }
    }

    fn add(&mut self, program: &Program, step: &Step, batch: usize) {
        let (mut values, mut weights) = (bytes(program, step.output), 0);
        for value in step.reads() {
            let sum = match program.is_weight(value) {
                true => &mut weights,
                false => &mut values,
            };
            *sum = usize::saturating_add(*sum, bytes(program, value));
        }
        self.end += 1;
        self.apart &= is_apart(program, step, batch);
        self.values = self.values.saturating_add(values);
        self.most = self.most.max(values);
        self.weights = self.weights.saturating_add(weights);
    }

    /// Whether reading its weights once for each image takes less than writing its values to memory
    /// and reading them back.
    fn pays(&self, batch: usize) -> bool {
        self.apart && self.most > CACHED && self.weights.saturating_mul(batch) < self.values
    }
}

fn bytes(program: &Program, value: ValueId) -> usize {
    let info = program.value(value);
    info.stored_len().saturating_mul(info.element.size_bytes())
}

/// Whether `step` computes each image of its result from that image alone.
fn is_apart(program: &Program, step: &Step, batch: usize) -> bool {
    let images = |value: ValueId| {
        let starts = |value: ValueId| {
            let shape = program.shape(value);
            shape.len() > 1 && shape[0] == batch
        };
        let root = program.root(value);
        let numbers = program.element(root) == Element::F32;
        numbers && starts(value) && starts(root) && !program.is_weight(root)
    };
    let dims = program.shape(step.output).len();
    // The same for all images, or one for each image.
    let operand = |&value: &ValueId| {
        let shape = program.shape(value);
        let same = program.is_weight(value) && (shape.len() < dims || shape[0] == 1);
        same || shape.len() == dims && images(value)
    };
    let (Some(&first), true) = (step.inputs.first(), images(step.output)) else {
        return false;
    };
    let rest = &step.inputs[1..];
    let weights = || rest.iter().all(|&value| program.is_weight(value));
    let known = match &step.op {
        Op::Conv(_) | Op::ChannelAffine => images(first) && weights(),
        Op::Unary(_)
        | Op::MaxPool(_)
        | Op::AvgPool { .. }
        | Op::AdaptiveAvgPool
        | Op::ToBlocks(_)
        | Op::FromBlocks(_) => images(first),
        Op::Binary(_) => step.inputs.iter().all(operand),
        Op::Concat { dim } => *dim > 0 && step.inputs.iter().all(|&value| images(value)),
        _ => false,
    };
    known
        && step.epilogues.iter().all(|epilogue| match epilogue {
            Epilogue::Add(value) => images(*value),
            Epilogue::Unary(_) => true,
        })
}

/// `steps` as one step, which takes `images` images through all of them before the next.
fn together(program: &Program, steps: Vec<Step>, images: usize) -> Option<Step> {
    let last = steps.last()?;
    let (output, node) = (last.output, last.node);
    let mut body = Program {
        precision: program.precision,
        any_rows: program.any_rows,
        rounded: program.rounded.clone(),
        values: program.values.clone(),
        weight_transforms: program.weight_transforms.clone(),
        output: Some(Output::Value(output)),
        ..Program::default()
    };
    let mut inputs = SmallVec::new();
    let mut made = FxHashSet::default();
    for step in &steps {
        for value in step.reads().filter(|&value| !program.is_weight(value)) {
            let root = program.root(value);
            if !made.contains(&root) && !inputs.contains(&root) {
                body.values[root.index()].source = Source::Input(inputs.len());
                inputs.push(root);
            }
            body.values[value.index()].shape[0] = images;
            body.values[root.index()].shape[0] = images;
        }
        body.values[step.output.index()].shape[0] = images;
        made.insert(step.output);
    }
    body.inputs = inputs.len();
    body.steps = steps;
    let count = program.shape(output)[0] / images;
    Some(Step {
        op: Op::BatchTiling(Box::new(BatchTiling { count, body })),
        inputs,
        epilogues: SmallVec::new(),
        output,
        node,
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::execute::Executable;
    use crate::plan::Plan;
    use crate::prepare::Weights;
    use crate::program::{Conv, Reduction, Unary};

    struct Random;

    impl Weights for Random {
        fn weight(&self, number: usize) -> Option<Cow<'_, [f32]>> {
            Some(numbers([32 * 32, 32][number]).into())
        }
    }

    fn numbers(len: usize) -> Vec<f32> {
        let numbers = (0..len).map(|at| (at * 7919 % 1013) as f32 / 1013.0 - 0.4);
        numbers.collect()
    }

    /// `relu(conv(relu(conv(x))) + x)`, and its mean over images.
    fn program(batch: usize) -> Program {
        let mut program = Program {
            inputs: 1,
            ..Program::default()
        };
        let node = corsac_ir::Graph::new().placeholder("x").expect("a name");
        let images = [batch, 32, 64, 64];
        let input = program.add_value(images.to_vec(), Source::Input(0));
        let weight = program.add_value(vec![32, 32, 1, 1], Source::Weight(0));
        let bias = program.add_value(vec![32], Source::Weight(1));
        let conv = Op::Conv(Conv {
            stride: [1, 1],
            padding: [[0, 0]; 2],
            dilation: [1, 1],
            groups: 1,
        });
        let mean = Op::Reduce {
            reduction: Reduction::Mean,
            dims: SmallVec::from_slice(&[0]),
        };
        let relu = Epilogue::Unary(Unary::Relu);
        let mut add = |op: &Op, inputs: &[ValueId], epilogues: &[Epilogue], shape: [usize; 4]| {
            let output = program.add_value(shape.to_vec(), Source::Step);
            program.steps.push(Step {
                op: op.clone(),
                inputs: SmallVec::from_slice(inputs),
                epilogues: SmallVec::from_slice(epilogues),
                output,
                node,
            });
            output
        };
        let first = add(&conv, &[input, weight, bias], &[relu], images);
        let epilogues = [Epilogue::Add(input), relu];
        let second = add(&conv, &[first, weight, bias], &epilogues, images);
        let mean = add(&mean, &[second], &[], [1, 32, 64, 64]);
        let results = [second, mean].map(Output::Value);
        program.output = Some(Output::Tuple(results.into()));
        program
    }

    fn results(program: Program, input: &[f32]) -> [Vec<f32>; 2] {
        let executable = Executable::new(program, &Random).expect("weights of these sizes");
        let mut results = [vec![0.0; input.len()], vec![0.0; 32 * 64 * 64]];
        let [images, mean] = &mut results;
        let mut context = executable.context();
        let run = executable.run(&mut context, &[input], &mut [images, mean]);
        run.expect("an input of this size");
        results
    }

    #[test]
    fn a_large_batch_is_divided() {
        let mut program = program(8);
        tile(&mut program);
        assert_eq!(
            program.to_string(),
            "%3[2, 32, 64, 64] = conv(in0, w0, w1) -> Relu, 4 times\n\
             %4[2, 32, 64, 64] = conv(%3, w0, w1) + in0 -> Relu, 4 times\n\
             %5[1, 32, 64, 64] = reduce(%4)\n\
             return %4, %5\n"
        );
    }

    #[test]
    fn images_in_the_cache_stay_together() {
        for batch in [1, 2] {
            let mut divided = program(batch);
            tile(&mut divided);
            assert_eq!(divided, program(batch));
        }
    }

    #[test]
    fn results_are_those_of_the_whole_batch() {
        for batch in [5, 8, 12] {
            let input = numbers(batch * 32 * 64 * 64);
            let mut divided = program(batch);
            tile(&mut divided);
            assert_ne!(divided, program(batch));
            assert!(Plan::of(&divided).size_bytes() < Plan::of(&program(batch)).size_bytes());
            assert_eq!(results(divided, &input), results(program(batch), &input));
        }
    }
}
