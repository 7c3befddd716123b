//! Programs with their weights packed, ready to run.

mod control;
mod double;
mod layers;
mod memory;
mod step;
mod values;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::data::{Data, DataMut, Elements};
use crate::error::RunError;
use crate::kernels::matmul::Product;
use crate::plan::Plan;
use crate::prepare::{Loader, Packed, Prepared, WeightCache, Weights};
use crate::program::{ConvShape, Element, Layout, Op, Program, Rounding, Source, Step, ValueId};
use crate::threads::on_threads;

pub use memory::Context;
use memory::{Kept, Memory, Taken, Written};
use step::StepRun;
pub(crate) use values::Values;
use work::work;

/// A run of less [work](crate::execute::work) than this stays on the caller's thread: some 25 µs.
///
/// Waking a thread of the pool and being woken by it took 13 to 20 µs on two processors of an AMD
/// EPYC (2026-11-23, Linux in a virtual machine), and one more thread came 30 to 50 µs after that.
/// Of 85 programs (linear layers, chains of elements, convolutions, attention, softmax; each in
/// turn on the caller's thread and in the pool) none below this bound had a lower median in the
/// pool, and most had not up to 100 µs. The best of many calls was up to 2 µs lower there for three
/// of them, while threads were still awake. Where threads wake faster, a pool saves about 25 µs.
const SMALL: usize = 1024 * 1024;

/// A run of less work than this, some 3 µs, keeps the Python interpreter if its caller holds it: to
/// release and acquire it takes 0.04 µs, but up to 5 ms if another thread takes it in between, the
/// time slice of Python's threads.
const BRIEF: usize = 128 * 1024;

/// Callback for the time of each step, by its number.
pub type Observe<'a> = &'a mut dyn FnMut(usize, Duration);

/// A program ready to run. Any number of threads may run it, each with its own [`Context`].
#[derive(Debug)]
pub struct Executable {
    program: Program,
    plan: Plan,
    /// Weights that steps read as they are, by value.
    weights: Vec<Option<Arc<Vec<f32>>>>,
    /// Integer and boolean weights among them.
    other_weights: Vec<Option<Arc<Elements>>>,
    prepared: Vec<Prepared>,
    /// The programs of micro-batches and of control flow, by step.
    bodies: FxHashMap<usize, Vec<Executable>>,
    /// Estimated [work] of a run.
    work: usize,
    /// Whether a step calls rten-gemm, which may start threads.
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
    /// If a weight is missing, or has another size than in the program.
    pub fn new(program: Program, source: &dyn Weights) -> Result<Self, RunError> {
        Self::with_cache(program, source, &WeightCache::default())
    }

    /// Packs the weights of `program`, and reuses those that other programs of the model have
    /// packed: `cache` is for the same `source`.
    ///
    /// # Errors
    /// As [`Executable::new`].
    pub fn with_cache(
        program: Program,
        source: &dyn Weights,
        cache: &WeightCache,
    ) -> Result<Self, RunError> {
        check_operators(&program)?;
        let plan = Plan::of(&program);
        let mut loader = Loader::new(&program, source, cache);
        let steps = program.steps.iter().enumerate();
        let prepared = steps
            .map(|(at, step)| loader.prepare(at, step))
            .collect::<Result<_, _>>()?;
        let mut bodies: FxHashMap<usize, Vec<Self>> = FxHashMap::default();
        for (at, step) in program.steps.iter().enumerate() {
            let own = match &step.op {
                Op::BatchTiling(tiling) => std::slice::from_ref(&tiling.body),
                Op::Control(control) => &control.bodies,
                _ => continue,
            };
            let own = own.iter();
            let own = own.map(|body| Self::with_cache(body.clone(), source, cache));
            bodies.insert(at, own.collect::<Result<_, _>>()?);
        }
        for value in program.results() {
            loader.keep(value)?;
        }
        let other_weights = loader.take_others();
        let weights = loader.unpacked();
        let mut steps = program.steps.iter().zip(&prepared);
        let uses_library = steps.any(|(step, prepared)| uses_library(&program, step, prepared))
            || bodies.values().flatten().any(|body| body.uses_library);
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
            bodies,
        })
    }

    /// Whether a run is so short that it is fastest on the caller's thread, whatever the number of
    /// others.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.work < SMALL && !self.uses_library
    }

    /// Whether a run is so short that the caller need not release the Python interpreter for it.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        self.work < BRIEF
    }

    /// Calls `run`, which runs this program, with up to this many threads: those of a
    /// [pool](on_threads), or the caller's alone if the run [is small](Self::is_small), or if there
    /// is one thread and no step may start others.
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

    /// The places of its values.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Memory for runs, which the first one allocates. That of another program can be used instead.
    #[must_use]
    pub fn context(&self) -> Context {
        Context::default()
    }

    /// Runs the program on `inputs`, row by row, and writes its results to `outputs`: on the
    /// calling thread alone, unless that belongs to a pool ([`Self::on_threads`]).
    ///
    /// # Errors
    /// If inputs or outputs differ in number or size from those of the program, or memory cannot be
    /// allocated.
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

    /// Runs the program on inputs and outputs of any element type.
    ///
    /// Inputs that are [written](Program::written) to are passed after the results, with their
    /// elements in them; their places among `inputs` are ignored.
    ///
    /// # Errors
    /// If inputs or outputs differ in number, size or type from those of the program, an index is
    /// out of range, or memory cannot be allocated.
    pub fn run_typed(
        &self,
        context: &mut Context,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), RunError> {
        self.run_observed(context, inputs, outputs, None)
    }

    /// Runs the program, and calls `observe` with the time of each of [all
    /// steps](Program::all_steps), of those of micro-batches once for each.
    ///
    /// # Errors
    /// As [`Self::run_typed`].
    pub fn run_observed(
        &self,
        context: &mut Context,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
        observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        context.control_mut().begin(0);
        self.run_within(context, inputs, outputs, observe)
    }

    /// Runs the program in a run of another one.
    fn run_within(
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

    /// Runs the program on inputs that have been checked.
    fn run_steps(
        &self,
        memory: &mut Memory<'_>,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
        mut observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        // Steps of micro-batches are counted.
        let mut number = 0;
        for (at, step) in self.program.steps.iter().enumerate() {
            let start = observe.is_some().then(Instant::now);
            let mut within = observe
                .as_mut()
                .map(|observe| |step: usize, time: Duration| observe(number + step, time));
            let within = within.as_mut().map(|observe| observe as Observe<'_>);
            self.run_step(at, step, memory, inputs, outputs, within)
                .map_err(|error| self.after_writes(at, step, error))?;
            if let (Some(start), Some(observe)) = (start, &mut observe)
                && !matches!(step.op, Op::BatchTiling(_))
            {
                observe(number, start.elapsed());
            }
            number += step.count();
        }
        // Results that no step wrote: inputs, weights, and values that are returned twice.
        for (number, &value) in self.results.iter().enumerate() {
            if !self.plan.is_result(self.program.root(value), number) {
                let copied = self.copy_result(number, value, memory, inputs, outputs);
                let steps = &self.program.steps;
                copied.map_err(|error| match steps.last() {
                    Some(last) => self.after_writes(steps.len(), last, error),
                    None => error,
                })?;
            }
        }
        Ok(())
    }

    /// `error` in the step `at` or behind it, as one after writes to inputs where there are some
    /// before.
    fn after_writes(&self, at: usize, step: &Step, error: RunError) -> RunError {
        match at > self.first_write {
            true => RunError::AfterWrites {
                step: step.op.name(),
                error: Box::new(error),
            },
            false => error,
        }
    }

    /// Copies a value to the result `number`.
    fn copy_result(
        &self,
        number: usize,
        value: ValueId,
        memory: &Memory<'_>,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), RunError> {
        let mut own = std::mem::take(&mut outputs[number]);
        let missing = RunError::MissingValue {
            value: value.index(),
            element: own.element().name(),
        };
        let from = self.values(memory.all(outputs), inputs).data(value);
        let done = from.and_then(|from| own.copy_from(from).ok_or(missing));
        outputs[number] = own;
        done
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
        if let Op::Control(control) = &step.op {
            return self.run_control(at, (step, control), memory, inputs, outputs);
        }
        let root = self.program.root(step.output);
        let Some(place) = self.plan.place(root) else {
            return Ok(());
        };
        let info = self.program.value(root);
        let workspace = self.plan.workspace(at);
        // The others can be read in the meantime.
        let mut taken = Taken::out_of(outputs, place, workspace.0);
        let own = (place, info.element, info.stored_len());
        let (written, kept) = memory.take_out(own, workspace, &mut taken, outputs);
        let values = self.values(kept, inputs);
        let Written { result, workspace } = written;
        let run = StepRun {
            executable: self,
            at,
            step,
            values: &values,
        };
        let done = run.run(workspace, result, observe);
        taken.back(outputs);
        done
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
                // Inputs that are written to are the last results.
                let written = &self.program.written;
                let given = match written.iter().position(|&(own, _)| own == number) {
                    Some(at) => {
                        let result = self.results.len() - written.len() + at;
                        outputs.get(result).map(DataMut::shared)
                    }
                    None => Some(inputs[number]),
                };
                // A wrong number of results is reported below.
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
}

/// Checks that operands have the types that steps compute with, where kernels rely on them, and that
/// only steps which apply epilogues have them.
fn check_operators(program: &Program) -> Result<(), RunError> {
    let is_f32 = |value: ValueId| program.element(value) == Element::F32;
    let is_no_integer = |value: ValueId| program.element(value) != Element::I64;
    let fits = |step: &Step| {
        let types = match &step.op {
            Op::Fused(fused) => {
                let is_own = |value: ValueId| program.element(value) == fused.element;
                let is_read = |input: usize| step.inputs.get(input).copied().is_some_and(is_own);
                let result = program.element(step.output);
                (result == Element::Bool || result == fused.element)
                    && fused.row_result.is_none_or(|value| {
                        let rows = fused.row.map(|row| fused.len / row.max(1));
                        step.results().all(is_f32) && rows == Some(program.value(value).len())
                    })
                    && fused.reads().all(is_read)
            }
            // Of levels.
            Op::MaxPool(_) if program.value(step.output).layout == Layout::Pixels => {
                let mut all = step.reads().chain([step.output]);
                all.all(|value| program.element(value) == Element::Bool)
            }
            Op::QuantisedLinear(layer) | Op::QuantisedConv(_, layer) => {
                let by_row = matches!(layer.input, Rounding::ByRow { .. });
                is_f32(step.inputs[0]) == by_row
                    && is_f32(step.output) == layer.output.is_none()
                    && [step.inputs[0], step.output].into_iter().all(is_no_integer)
            }
            op => {
                let element = program.element(step.output);
                let is_own = |value: ValueId| program.element(value) == element;
                let has_kernel = element != Element::F64 || op.takes_doubles();
                has_kernel && (!op.is_of_floats() || element.is_float() && step.reads().all(is_own))
            }
        };
        // Other kernels take the bytes of images, and numbers by pixel, for something else.
        let by_pixel = |value: ValueId| program.value(program.root(value)).layout == Layout::Pixels;
        let layouts = match &step.op {
            Op::QuantisedConv(..)
            | Op::ToLevels(_)
            | Op::FromLevels(..)
            | Op::MapLevels(_)
            | Op::AddLevels(_)
            | Op::MaxPool(_) => true,
            Op::Unary(_) | Op::Binary(_) | Op::Fused(_) => {
                let count = step.reads().filter(|&value| by_pixel(value)).count();
                let all = count == step.reads().count();
                (count == 0 || all) && by_pixel(step.output) == (count > 0)
            }
            _ => !step.reads().chain([step.output]).any(by_pixel),
        };
        types && layouts && (step.epilogues.is_empty() || step.op.takes_epilogues())
    };
    match program.steps.iter().find(|step| !fits(step)) {
        None => Ok(()),
        Some(step) => Err(RunError::Mismatch {
            step: step.op.name(),
        }),
    }
}

/// The product of matrices that a step computes; `None` for another operator.
fn matrices<'a>(program: &Program, step: &Step, pairs: &'a [[usize; 2]]) -> Option<Product<'a>> {
    let Op::MatMul {
        first_transposed,
        transposed,
        scale,
    } = step.op
    else {
        return None;
    };
    let (a, shape) = (program.shape(step.inputs[0]), program.shape(step.output));
    Some(Product {
        rows: shape[shape.len() - 2],
        depth: a[a.len() - if first_transposed { 2 } else { 1 }],
        columns: shape[shape.len() - 1],
        first_transposed,
        transposed,
        scale,
        pairs,
    })
}

/// Whether a step calls rten-gemm.
fn uses_library(program: &Program, step: &Step, prepared: &Prepared) -> bool {
    if program.element(step.output) == Element::F64 {
        return false;
    }
    match (&step.op, prepared) {
        (Op::Conv(_) | Op::ChannelScaledConv(_), Prepared::Packed(Packed::Conv(kernel))) => {
            kernel.uses_library()
        }
        (Op::Conv(conv) | Op::ChannelScaledConv(conv), Prepared::Nothing) => {
            ConvShape::of(program, step, conv).uses_library()
        }
        (Op::MatMul { .. }, _) => {
            matrices(program, step, &[]).is_some_and(|product| !product.is_small())
        }
        (Op::ConvNd(conv), _) => !conv.product().is_small(),
        _ => false,
    }
}
