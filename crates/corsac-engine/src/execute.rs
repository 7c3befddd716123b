//! Programs with their weights packed, ready to run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::data::{Data, DataMut, Elements};
use crate::general::{self, General};
use crate::kernels::blocked::attention::Operands;
use crate::kernels::blocked::linear::LinearWeight;
use crate::kernels::blocked::{self, reorder};
use crate::kernels::conv::ConvKernel;
use crate::kernels::elementwise::{self, Operand};
use crate::kernels::fused::Fused;
use crate::kernels::matmul::Product;
use crate::kernels::over::Over;
use crate::kernels::pool::Averages;
use crate::kernels::{layout, normalise, pool, recurrent, reduce, softmax};
use crate::memory::{Context, Kept, Memory, Taken, Written};
use crate::plan::Plan;
use crate::prepare::{Loader, Prepared, Weights, conv_shape, linear_kernel};
use crate::program::{Cell, Element, Layout, Op, Post, Program, Recurrent, Source, Step, ValueId};
use crate::threads::on_threads;
use crate::weight_cache::{Packed, WeightCache};
use crate::work::work;

/// A run of less [work](crate::work) than this stays on the caller's thread: some 25 µs.
///
/// To wake a thread of the pool and to be woken by it took 13 to 20 µs on two processors of an AMD EPYC (2026-11-23,
/// Linux in a virtual machine), and one more thread came 30 to 50 µs after that. Of 85 programs (linear layers, chains
/// of elements, convolutions, attention, softmax; each in turn on the caller's thread and in the pool) none below this
/// bound had a lower median in the pool, and most had not up to 100 µs. The best of many calls was up to 2 µs lower there
/// for three of them, while threads were still awake. Where threads wake faster, 25 µs are about what a pool saves.
const SMALL: usize = 1024 * 1024;

/// A run of less work than this, some 3 µs, keeps the interpreter, if its caller has one: to let go of that and take it
/// back takes 0.04 µs, but up to 5 ms if another thread takes it meanwhile, as long as Python's threads take turns.
const BRIEF: usize = 128 * 1024;

/// Who is told of steps, by their number, how long they took.
pub type Observe<'a> = &'a mut dyn FnMut(usize, Duration);

/// What is wrong with a call of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Another number of tensors than the program takes.
    #[error("the program takes {expected} inputs, not {got}")]
    InputCount {
        /// How many it takes.
        expected: usize,
        /// How many were given.
        got: usize,
    },
    /// Another number of places for results than the program makes.
    #[error("the program makes {expected} results, not {got}")]
    OutputCount {
        /// How many it makes.
        expected: usize,
        /// How many places were given.
        got: usize,
    },
    /// A tensor of another size.
    #[error("{what} {number} has {expected} elements, not {got}")]
    Length {
        /// What it is.
        what: &'static str,
        /// Its number.
        number: usize,
        /// How many elements it should have.
        expected: usize,
        /// How many it has.
        got: usize,
    },
    /// A tensor of another type of elements.
    #[error("{what} {number} is of {expected}, not {got}")]
    Element {
        /// What it is.
        what: &'static str,
        /// Its number.
        number: usize,
        /// What it should be made of.
        expected: &'static str,
        /// What it is made of.
        got: &'static str,
    },
    /// An index that is out of range.
    #[error("index {index} is out of range for a dimension of size {size}")]
    Index {
        /// The index.
        index: i64,
        /// How many elements the dimension has.
        size: usize,
    },
    /// Integers divided by zero.
    #[error("integer division by zero")]
    DivisionByZero,
    /// There is not as much memory as the values of a run take.
    #[error("there is no memory for {size_bytes} bytes")]
    OutOfMemory {
        /// How many bytes were asked for.
        size_bytes: usize,
    },
    /// A step whose operands are not of the types that it computes with: a fault of this engine.
    #[error("the operands of a {step} are not of the types that it computes with")]
    Mismatch {
        /// What it does.
        step: &'static str,
    },
    /// Time steps of packed sequences with more rows than those before, or with other rows than there are.
    #[error("batch sizes that are none of these rows")]
    BatchSizes,
    /// A step has failed after others had written to inputs.
    #[error("{error}")]
    AfterWrites {
        /// What it does.
        step: &'static str,
        /// Why.
        error: Box<RunError>,
    },
    /// A weight that the program needs is not there.
    #[error("weight {number} is missing")]
    MissingWeight {
        /// Its number.
        number: usize,
    },
}

/// A program ready to run. Any number of threads may run it, each with its own [`Context`].
#[derive(Debug)]
pub struct Executable {
    program: Program,
    plan: Plan,
    /// Weights that steps read as they are, by value.
    weights: Vec<Option<Arc<Vec<f32>>>>,
    /// Integers and truth values among them.
    other_weights: Vec<Option<Arc<Elements>>>,
    prepared: Vec<Prepared>,
    /// Roughly how much [work] a run is.
    work: usize,
    /// Whether a step leaves products to rten-gemm, which may start threads.
    uses_library: bool,
    /// The first step that writes to an input.
    first_write: usize,
    /// The [results](Program::results) of the program.
    results: Vec<ValueId>,
}

impl Executable {
    /// Packs the weights of `program`.
    ///
    /// # Errors
    /// A weight that is not there, or has another size than the program says.
    pub fn new(program: Program, source: &dyn Weights) -> Result<Self, RunError> {
        Self::with_cache(program, source, &WeightCache::default())
    }

    /// The same, with what other programs of the model have packed: `cache` is for the same `source`.
    ///
    /// # Errors
    /// As [`Executable::new`].
    pub fn with_cache(
        program: Program,
        source: &dyn Weights,
        cache: &WeightCache,
    ) -> Result<Self, RunError> {
        check_elements(&program)?;
        let plan = Plan::of(&program);
        let mut loader = Loader::new(&program, source, cache);
        let steps = program.steps.iter().enumerate();
        let prepared = steps
            .map(|(at, step)| loader.prepare(at, step))
            .collect::<Result<_, _>>()?;
        for value in program.results() {
            loader.keep(value)?;
        }
        let other_weights = loader.take_others();
        let weights = loader.unpacked();
        let mut steps = program.steps.iter().zip(&prepared);
        let uses_library = steps.any(|(step, prepared)| uses_library(&program, step, prepared));
        let given = program.outputs().len();
        let writes = |step: &Step| {
            let place = plan.place(program.root(step.output));
            place
                .and_then(|place| place.result)
                .is_some_and(|result| result >= given)
        };
        let first_write = program.steps.iter().position(writes);
        Ok(Self {
            work: work(&program),
            uses_library,
            first_write: first_write.unwrap_or(program.steps.len()),
            results: program.results(),
            program,
            plan,
            weights,
            other_weights,
            prepared,
        })
    }

    /// Whether a run is so short that the caller's thread is best for it, however many others there are.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.work < SMALL && !self.uses_library
    }

    /// Whether a run is over before another thread could do anything with what the caller lets go meanwhile.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        self.work < BRIEF
    }

    /// Does `run`, which runs this program, on up to so many threads: those of a [pool](on_threads), or the caller's
    /// alone, if the run [is small](Self::is_small) or it would be one thread of a pool.
    pub fn on_threads<T: Send>(&self, threads: usize, run: impl FnOnce() -> T + Send) -> T {
        let alone = self.is_small() || threads == 1 && !self.uses_library;
        match alone {
            true => run(),
            false => on_threads(threads, run),
        }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Where its values lie.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Memory for runs, which the first one takes. It may have been another program's.
    #[must_use]
    pub fn context(&self) -> Context {
        Context::default()
    }

    /// Runs the program on `inputs`, row by row, and writes its results to `outputs`: by the calling thread alone,
    /// unless it is one of a pool ([`Self::on_threads`]).
    ///
    /// # Errors
    /// Inputs or outputs of another number or size than the program has; too little memory.
    pub fn run(
        &self,
        context: &mut Context,
        inputs: &[&[f32]],
        outputs: &mut [&mut [f32]],
    ) -> Result<(), RunError> {
        let inputs: Vec<Data<'_>> = inputs.iter().map(|&input| Data::F32(input)).collect();
        let outputs = outputs.iter_mut();
        let mut outputs: Vec<DataMut<'_>> = outputs.map(|out| DataMut::F32(out)).collect();
        self.run_typed(context, &inputs, &mut outputs)
    }

    /// The same for inputs and outputs of any type of elements.
    ///
    /// # Errors
    /// Inputs or outputs of another number, size or type than the program has; indices out of range; too
    /// little memory.
    ///
    /// Inputs that are [written](Program::written) to come after the results, with their elements in them; in
    /// their places among `inputs` is anything.
    pub fn run_typed(
        &self,
        context: &mut Context,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), RunError> {
        self.run_observed(context, inputs, outputs, None)
    }

    /// The same; `observe` is told of each of [all steps](Program::all_steps) how long it took, those of
    /// portions for each portion.
    ///
    /// # Errors
    /// As of [`Self::run_typed`].
    pub fn run_observed(
        &self,
        context: &mut Context,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
        observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        self.check(inputs, outputs)?;
        context.fit(self.plan.lens())?;
        self.run_steps(&mut context.memory(), inputs, outputs, observe)
    }

    /// Runs the program on inputs that are as it wants them.
    fn run_steps(
        &self,
        memory: &mut Memory<'_>,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
        mut observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        // Those of portions are counted in.
        let mut number = 0;
        for (at, step) in self.program.steps.iter().enumerate() {
            let start = observe.is_some().then(Instant::now);
            let mut within = observe
                .as_mut()
                .map(|observe| |step: usize, time: Duration| observe(number + step, time));
            let within = within.as_mut().map(|observe| observe as Observe<'_>);
            let done = self.run_step(at, step, memory, inputs, outputs, within);
            done.map_err(|error| match at > self.first_write {
                true => RunError::AfterWrites {
                    step: step.op.name(),
                    error: Box::new(error),
                },
                false => error,
            })?;
            if let (Some(start), Some(observe)) = (start, &mut observe)
                && !matches!(step.op, Op::Portions(_))
            {
                observe(number, start.elapsed());
            }
            number += step.count();
        }
        // Those that no step wrote: inputs, weights, and what is returned twice.
        for (number, &value) in self.results.iter().enumerate() {
            if !self.plan.is_result(self.program.root(value), number) {
                let mut own = std::mem::take(&mut outputs[number]);
                own.copy_from(self.values(memory.all(outputs), inputs).data(value));
                outputs[number] = own;
            }
        }
        Ok(())
    }

    fn run_step(
        &self,
        at: usize,
        step: &Step,
        memory: &mut Memory<'_>,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
        observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        let root = self.program.root(step.output);
        let Some(place) = self.plan.place(root) else {
            return Ok(());
        };
        let info = self.program.value(root);
        let workspace = self.plan.workspace(at);
        // Others can be read meanwhile.
        let mut taken = Taken::out_of(outputs, place, workspace.0);
        let own = (place, info.element, info.stored_len());
        let (written, kept) = memory.take_out(own, workspace, &mut taken, outputs);
        let values = self.values(kept, inputs);
        let Written { result, workspace } = written;
        let done = match (&step.op, result) {
            (Op::Fused(fused), result) => {
                self.run_fused(at, step, fused, &values, result);
                Ok(())
            }
            (Op::Portions(portions), DataMut::F32(result)) => self.run_portions(
                (at, step),
                portions.count,
                &values,
                workspace,
                result,
                observe,
            ),
            (Op::Recurrent(recurrent), DataMut::F32(result)) => {
                self.run_recurrent((at, step), recurrent, &values, workspace, result)
            }
            (op, DataMut::F32(result)) if !matches!(op, Op::General(_)) => {
                self.step(at, step, &values, workspace, result);
                Ok(())
            }
            (_, result) => general::run(
                &self.program,
                step,
                &values,
                self.plan.is_in_place(at),
                result,
            ),
        };
        taken.back(outputs);
        done
    }

    fn run_fused(
        &self,
        at: usize,
        step: &Step,
        fused: &Fused,
        values: &Values<'_>,
        result: DataMut<'_>,
    ) {
        let in_place = self.plan.is_in_place(at);
        let read = step.inputs.iter().enumerate();
        let read: SmallVec<[Data<'_>; 8]> = read
            .map(|(index, &value)| match in_place && index == 0 {
                true => Data::F32(&[]),
                false => values.data(value),
            })
            .collect();
        fused.run(&read, in_place, result);
    }

    fn run_recurrent(
        &self,
        (at, step): (usize, &Step),
        recurrent: &Recurrent,
        values: &Values<'_>,
        workspace: &mut [f32],
        result: &mut [f32],
    ) -> Result<(), RunError> {
        let weights = step.weights();
        let made;
        let linear = match &self.prepared[at] {
            Prepared::Packed(Packed::Linear(kernel)) => kernel,
            // Weights that are computed while the program runs.
            _ => {
                let weight = LinearWeight {
                    data: values.get(weights[0]),
                    sizes: [recurrent.gates(), recurrent.width],
                    by_input: false,
                };
                let bias = weights.get(1).map(|&bias| values.get(bias));
                made = Arc::new(linear_kernel(&self.program, step, &weight, bias));
                &made
            }
        };
        let mut others = step.inputs[1 + weights.len()..].iter().copied();
        let mut next = || others.next().map_or(&[][..], |value| values.get(value));
        let gates = values.get(step.inputs[0]);
        let hidden = next();
        let cells = match recurrent.cell {
            Cell::Lstm => next(),
            Cell::Gru | Cell::Tanh | Cell::Relu => &[],
        };
        let projection = (recurrent.width != recurrent.hidden).then(next);
        let rows = gates.len() / recurrent.gates().max(1);
        let all: Vec<i64>;
        let batch_sizes = match (recurrent.varies, step.inputs.last()) {
            (true, Some(&sizes)) => values.data(sizes).integers(),
            _ => {
                all = vec![recurrent.batch as i64; rows / recurrent.batch.max(1)];
                &all
            }
        };
        if recurrent.varies && !recurrent.fits(rows, batch_sizes) {
            return Err(RunError::BatchSizes);
        }
        let operands = recurrent::Operands {
            gates,
            hidden,
            cells,
            projection,
            batch_sizes,
        };
        recurrent.run(&operands, linear, workspace, result);
        Ok(())
    }

    fn run_portions(
        &self,
        (at, step): (usize, &Step),
        count: usize,
        values: &Values<'_>,
        workspace: &mut [f32],
        result: &mut [f32],
        mut observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        let Prepared::Portions(body) = &self.prepared[at] else {
            unreachable!("prepared when the program was made");
        };
        let len = result.len() / count;
        for (number, result) in result.chunks_exact_mut(len).enumerate() {
            let inputs = step.inputs.iter().map(|&value| {
                let all = values.get(value);
                let len = all.len() / count;
                Data::F32(&all[number * len..][..len])
            });
            let inputs: SmallVec<[Data<'_>; 4]> = inputs.collect();
            let mut memory = Memory::from(&mut *workspace);
            let observe = observe
                .as_mut()
                .map(|observe| &mut **observe as Observe<'_>);
            body.run_steps(&mut memory, &inputs, &mut [DataMut::F32(result)], observe)?;
        }
        Ok(())
    }

    fn values<'a>(&'a self, kept: Kept<'a>, inputs: &'a [Data<'a>]) -> Values<'a> {
        Values {
            executable: self,
            kept,
            inputs,
        }
    }

    fn check(&self, inputs: &[Data<'_>], outputs: &[DataMut<'_>]) -> Result<(), RunError> {
        let fits = |what, number, value: ValueId, element: Element, got: usize| {
            let info = self.program.value(value);
            if info.element != element {
                return Err(RunError::Element {
                    what,
                    number,
                    expected: info.element.name(),
                    got: element.name(),
                });
            }
            match info.len() == got {
                true => Ok(()),
                false => Err(RunError::Length {
                    what,
                    number,
                    expected: info.len(),
                    got,
                }),
            }
        };
        if inputs.len() != self.program.inputs {
            return Err(RunError::InputCount {
                expected: self.program.inputs,
                got: inputs.len(),
            });
        }
        for (at, value) in self.program.values.iter().enumerate() {
            if let Source::Input(number) = value.source {
                let result = self.program.result_of_input(number);
                let given = match result {
                    Some(result) => outputs.get(result).map(DataMut::shared),
                    None => Some(inputs[number]),
                };
                // The number of results is checked below.
                let Some(given) = given else { continue };
                let value = ValueId::new(at);
                fits("input", number, value, given.element(), given.len())?;
            }
        }
        let results = &self.results;
        if results.len() != outputs.len() {
            return Err(RunError::OutputCount {
                expected: results.len(),
                got: outputs.len(),
            });
        }
        for (number, (&value, out)) in results.iter().zip(outputs).enumerate() {
            fits("output", number, value, out.element(), out.len())?;
        }
        Ok(())
    }

    fn step(
        &self,
        at: usize,
        step: &Step,
        values: &Values<'_>,
        workspace: &mut [f32],
        out: &mut [f32],
    ) {
        let program = &self.program;
        let input = |index: usize| values.get(step.inputs[index]);
        let shape_of = |index: usize| program.shape(step.inputs[index]);
        let shape = program.shape(step.output);
        let in_place = self.plan.is_in_place(at);
        let in_blocks = program.value(step.output).layout == Layout::Blocks;
        let finish = |start: usize, chunk: &mut [f32]| {
            finish(&step.post, values, start, chunk);
        };
        let over = || Over {
            from: (!in_place).then(|| input(0)),
            finish: (!step.post.is_empty()).then_some(&finish),
        };
        match (&step.op, &self.prepared[at]) {
            (Op::Conv(_) | Op::GatedConv(_) | Op::Linear, prepared) => {
                let bias = || step.inputs.get(2).map(|&bias| values.get(bias));
                match (prepared, &step.op) {
                    (Prepared::Packed(Packed::Conv(kernel)), _) => {
                        kernel.run(input(0), out, &finish);
                    }
                    (Prepared::Packed(Packed::BlockedConv(kernel)), op) => {
                        let factors = matches!(op, Op::GatedConv(_)).then(|| input(3));
                        kernel.run(input(0), factors, workspace, out, &finish);
                    }
                    (Prepared::Packed(Packed::Bf16Conv(kernel)), _) => {
                        kernel.run(input(0), workspace, out, &finish);
                    }
                    (Prepared::Packed(Packed::BlockedDepthwise(kernel)), _) => {
                        kernel.run(input(0), out, &finish);
                    }
                    (Prepared::Packed(Packed::Linear(kernel)), _) => {
                        kernel.run(input(0), workspace, out, &finish);
                    }
                    // Weights that are computed while the program runs.
                    (_, Op::Linear) => {
                        let weight = LinearWeight {
                            data: input(1),
                            sizes: [shape_of(1)[0], shape_of(1)[1]],
                            by_input: false,
                        };
                        let kernel = linear_kernel(program, step, &weight, bias());
                        kernel.run(input(0), workspace, out, &finish);
                    }
                    _ => {
                        let shape = conv_shape(program, step);
                        ConvKernel::new(shape, input(1), bias()).run(input(0), out, &finish);
                    }
                }
                return;
            }
            (Op::MatMul { .. }, Prepared::Pairs(pairs)) => {
                product(program, step, pairs).run(input(0), input(1), out);
            }
            (Op::Attention(attention), Prepared::Attention(kernel)) => {
                let operands = Operands {
                    query: input(0),
                    key: input(1),
                    value: input(2),
                    mask: attention.mask.as_ref().map_or(&[], |_| input(3)),
                };
                kernel.run(&operands, out);
            }
            (Op::ChannelAffine, _) => {
                let plane = shape[2..].iter().product();
                let channel_affine = match in_blocks {
                    true => blocked::affine::channel_affine,
                    false => elementwise::channel_affine,
                };
                channel_affine(&over(), out, input(1), input(2), plane);
                return;
            }
            (
                Op::LayerNorm {
                    dims,
                    eps,
                    weight,
                    bias,
                },
                _,
            ) => {
                let row = shape[shape.len() - dims..].iter().product();
                let weight_values = weight.then(|| input(1));
                let bias_values = bias.then(|| input(1 + usize::from(*weight)));
                normalise::layer_norm(&over(), out, row, [weight_values, bias_values], *eps);
                return;
            }
            (Op::Unary(function), _) => {
                elementwise::unary(&over(), *function, out);
                return;
            }
            (Op::Binary(function), _) => {
                if in_blocks && shape_of(0) != shape_of(1) {
                    let plane = shape[2] * shape[3];
                    let reversed = shape_of(0) != shape;
                    let (image, numbers) = match reversed {
                        true => (input(1), input(0)),
                        false => (input(0), input(1)),
                    };
                    blocked::affine::with_channels(*function, image, numbers, reversed, plane, out);
                } else if in_place {
                    elementwise::binary_over(*function, out, input(1));
                } else {
                    let operand = |index: usize| Operand {
                        data: input(index),
                        shape: shape_of(index),
                    };
                    elementwise::binary(*function, operand(0), operand(1), shape, out);
                }
            }
            (Op::Softmax { dim, log }, _) => {
                let inner = shape[dim + 1..].iter().product();
                softmax::softmax_strided(&over(), out, shape[*dim], inner, *log);
                return;
            }
            (Op::MaxPool(pool), _) => {
                let max_pool = match in_blocks {
                    true => blocked::pool::max_pool,
                    false => pool::max_pool,
                };
                max_pool(input(0), image(shape_of(0)), pool, image(shape), out);
            }
            (
                Op::AvgPool {
                    pool,
                    count_padding,
                    divisor,
                },
                _,
            ) => {
                let averages = Averages {
                    pool,
                    count_padding: *count_padding,
                    divisor: *divisor,
                };
                let avg_pool = match in_blocks {
                    true => blocked::pool::avg_pool,
                    false => pool::avg_pool,
                };
                avg_pool(input(0), image(shape_of(0)), &averages, image(shape), out);
            }
            (Op::AdaptiveAvgPool, _) => {
                let adaptive_avg_pool = match in_blocks {
                    true => blocked::pool::adaptive_avg_pool,
                    false => pool::adaptive_avg_pool,
                };
                adaptive_avg_pool(input(0), image(shape_of(0)), image(shape), out);
            }
            (Op::ToBlocks(order), _) => {
                let plane = shape[2] * shape[3];
                reorder::to_blocks(input(0), *order, shape[1], plane, out);
            }
            (Op::FromBlocks(order), _) => {
                let image = shape_of(0);
                reorder::from_blocks(input(0), *order, image[1], image[2] * image[3], out);
            }
            (Op::Reduce { reduction, dims }, _) => {
                reduce::reduce(*reduction, input(0), shape_of(0), dims, out);
            }
            (Op::Copy { offset, strides }, _) => {
                layout::copy(input(0), *offset, strides, shape, out);
            }
            (Op::Concat { dim }, _) => {
                let inner: usize = shape[dim + 1..].iter().product();
                // Blocks of channels follow each other as channels do.
                let along = |shape: &[usize]| match in_blocks {
                    true => shape[*dim].next_multiple_of(blocked::BLOCK),
                    false => shape[*dim],
                };
                let mut start = 0;
                for (index, &operand) in step.inputs.iter().enumerate() {
                    let row = along(shape_of(index)) * inner;
                    if !self.plan.lies_in(program, operand, (step.output, start)) {
                        layout::place(input(index), row, out, along(shape) * inner, start);
                    }
                    start += row;
                }
            }
            (Op::Pad { widths, value }, _) => {
                layout::pad(input(0), shape_of(0), widths, *value, out);
            }
            (
                Op::MatMul { .. }
                | Op::Attention(_)
                | Op::Recurrent(_)
                | Op::BatchNorm { .. }
                | Op::General(_)
                | Op::Fused(_)
                | Op::Portions(_),
                _,
            ) => unreachable!("prepared when the program was made, or done elsewhere"),
        }
        if !step.post.is_empty() {
            let over = Over {
                from: None,
                finish: Some(&finish),
            };
            over.pieces(out, crate::kernels::GRAIN, |_, _| {});
        }
    }
}

/// That steps which compute with floating-point numbers alone are given no others.
fn check_elements(program: &Program) -> Result<(), RunError> {
    let is_typed = |step: &Step| match step.op {
        Op::General(_) | Op::Fused(_) | Op::Recurrent(_) => true,
        _ => {
            let values = step.reads().chain([step.output]);
            values
                .into_iter()
                .all(|value| program.element(value) == Element::F32)
        }
    };
    match program.steps.iter().find(|step| !is_typed(step)) {
        None => Ok(()),
        Some(step) => Err(RunError::Mismatch {
            step: step.op.name(),
        }),
    }
}

/// Whether a step leaves products to rten-gemm.
fn uses_library(program: &Program, step: &Step, prepared: &Prepared) -> bool {
    match (&step.op, prepared) {
        (Op::Conv(_) | Op::GatedConv(_), Prepared::Packed(Packed::Conv(kernel))) => {
            kernel.uses_library()
        }
        (Op::Conv(_) | Op::GatedConv(_), Prepared::Nothing) => {
            conv_shape(program, step).uses_library()
        }
        (Op::MatMul { .. }, _) => !product(program, step, &[]).is_small(),
        (Op::Portions(_), Prepared::Portions(body)) => body.uses_library,
        (Op::General(General::Volume(volume)), _) => !volume.product().is_small(),
        _ => false,
    }
}

/// The product that a step is.
fn product<'a>(program: &Program, step: &Step, pairs: &'a [[usize; 2]]) -> Product<'a> {
    let Op::MatMul {
        first_transposed,
        transposed,
        scale,
    } = step.op
    else {
        unreachable!("asked of products only")
    };
    let (a, shape) = (program.shape(step.inputs[0]), program.shape(step.output));
    Product {
        rows: shape[shape.len() - 2],
        depth: a[a.len() - if first_transposed { 2 } else { 1 }],
        columns: shape[shape.len() - 1],
        first_transposed,
        transposed,
        scale,
        pairs,
    }
}

/// Rows and columns.
fn image(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}

/// What is done to a piece of a result that begins at `start`.
fn finish(post: &[Post], values: &Values<'_>, start: usize, chunk: &mut [f32]) {
    for post in post {
        match post {
            Post::Add(value) => {
                let other = &values.get(*value)[start..start + chunk.len()];
                elementwise::binary_in_place(crate::program::Binary::Add, chunk, other);
            }
            Post::Unary(function) => elementwise::unary_chunk(*function, chunk),
        }
    }
}

/// The values of a run, as far as they are computed.
pub(crate) struct Values<'a> {
    executable: &'a Executable,
    kept: Kept<'a>,
    inputs: &'a [Data<'a>],
}

impl<'a> Values<'a> {
    /// The elements of a value of any type.
    pub(crate) fn data(&self, value: ValueId) -> Data<'a> {
        let program = &self.executable.program;
        let root = program.root(value);
        let len = program.value(root).stored_len();
        match program.value(root).source {
            _ if program.element(root) == Element::F32 => Data::F32(self.get(root)),
            Source::Input(number) => match self.executable.plan.place(root) {
                Some(place) => self.kept.data(place, program.element(root), len),
                None => self.inputs[number],
            },
            Source::Weight(_) | Source::Derived(_) => {
                let weight = self.executable.other_weights[root.index()].as_ref();
                weight.map_or(Data::I64(&[]), |weight| weight.first(len))
            }
            Source::Step | Source::Alias(_) => match self.executable.plan.place(root) {
                Some(place) => self.kept.data(place, program.element(root), len),
                None => Data::I64(&[]),
            },
        }
    }

    pub(crate) fn get(&self, value: ValueId) -> &'a [f32] {
        let program = &self.executable.program;
        let root = program.root(value);
        let len = program.value(root).stored_len();
        match program.value(root).source {
            Source::Input(number) => match self.executable.plan.place(root) {
                Some(place) => self.kept.numbers(place, len),
                None => self.inputs[number].numbers(),
            },
            Source::Weight(_) | Source::Derived(_) => self.executable.weights[root.index()]
                .as_deref()
                .map_or(&[], Vec::as_slice),
            Source::Step | Source::Alias(_) => match self.executable.plan.place(root) {
                Some(place) => self.kept.numbers(place, len),
                None => &[],
            },
        }
    }
}
