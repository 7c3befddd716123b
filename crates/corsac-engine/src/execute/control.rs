//! Runs of steps with control flow.

use rustc_hash::FxHashMap;

use super::memory::{Context, Memory, Taken, claim};
use super::{Executable, Observe};
use crate::data::{Data, DataMut, Elements, Stored};
use crate::error::RunError;
use crate::plan::Place;
use crate::program::{Control, Element, Flow, Program, Step};

/// Memory of the steps with control flow of a run, and the number of iterations so far.
#[derive(Debug, Default)]
pub(super) struct ControlMemory {
    frames: FxHashMap<usize, Frame>,
    iterations: u64,
}

impl ControlMemory {
    /// Begins a run, after this many iterations of the loops around it.
    pub(super) fn begin(&mut self, iterations: u64) {
        self.iterations = iterations;
    }
}

/// Memory of a step with control flow.
#[derive(Debug, Default)]
struct Frame {
    /// For the values of its programs.
    context: Context,
    /// The values of a loop, and those of the next iteration.
    current: Vec<Elements>,
    next: Vec<Elements>,
    /// Results that have a row for each iteration.
    rows: Vec<Elements>,
}

impl Executable {
    /// Runs a step with control flow in memory of its own, and copies the results.
    pub(super) fn run_control(
        &self,
        at: usize,
        (step, control): (&Step, &Control),
        memory: &mut Memory<'_>,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), RunError> {
        let mut alone = ControlMemory::default();
        let own = memory.control.as_deref_mut().unwrap_or(&mut alone);
        let mut frame = own.frames.remove(&at).unwrap_or_default();
        frame.context.control_mut().begin(own.iterations);
        let done = {
            let values = self.values(memory.all(outputs), inputs);
            let given = step.inputs.iter().map(|&value| values.data(value));
            let given = given.collect::<Result<Vec<Data<'_>>, _>>();
            given.and_then(|given| frame.run(control, &self.bodies[&at], &given))
        };
        let done = done.and_then(|()| {
            let results = frame.current.iter().chain(&frame.rows);
            let mut pairs = step.results().zip(results);
            pairs.try_for_each(|(value, result)| {
                let root = self.program.root(value);
                let Some(place) = self.plan.place(root) else {
                    return Ok(());
                };
                let info = self.program.value(root);
                let none = (Place::default(), 0);
                let mut taken = Taken::out_of(outputs, place, none.0);
                let own = (place, info.element, info.stored_len());
                let (written, _) = memory.take_out(own, none, &mut taken, outputs);
                let mut to = written.result;
                let fits = to.len() == result.len();
                let copied = fits.then(|| to.copy_from(result.all())).flatten();
                taken.back(outputs);
                copied.ok_or(RunError::Mismatch {
                    step: step.op.name(),
                })
            })
        });
        if let Some(own) = memory.control.as_deref_mut() {
            own.iterations = frame.context.control_mut().iterations;
            own.frames.insert(at, frame);
        }
        done
    }
}

impl Frame {
    /// Runs the programs of a step on its inputs. The results are `current` and `rows`.
    fn run(
        &mut self,
        control: &Control,
        bodies: &[Executable],
        given: &[Data<'_>],
    ) -> Result<(), RunError> {
        let most = control.most_iterations;
        match (control.flow, bodies, given) {
            (Flow::Cond, [first, second], [condition, operands @ ..]) => {
                let chosen = if is_true(*condition)? { first } else { second };
                self.rows.clear();
                fit(&mut self.current, &chosen.program, usize::MAX)?;
                let places = self.current.iter_mut().map(Elements::all_mut);
                run_body(&mut self.context, chosen, operands, places.collect())
            }
            (Flow::While { carried }, [condition, body], given) => {
                let (initial, others) = given.split_at(carried);
                self.rows.clear();
                self.begin(body, initial)?;
                let mut truth = Vec::new();
                fit(&mut truth, &condition.program, usize::MAX)?;
                loop {
                    let values = self.current.iter().map(Elements::all);
                    let values: Vec<Data<'_>> = values.chain(others.iter().copied()).collect();
                    let places = truth.iter_mut().map(Elements::all_mut).collect();
                    run_body(&mut self.context, condition, &values, places)?;
                    if !is_true(truth[0].all())? {
                        return Ok(());
                    }
                    count(&mut self.context, most)?;
                    let places = self.next.iter_mut().map(Elements::all_mut).collect();
                    run_body(&mut self.context, body, &values, places)?;
                    std::mem::swap(&mut self.current, &mut self.next);
                }
            }
            (
                Flow::Scan {
                    carried,
                    scanned,
                    length,
                },
                [body],
                given,
            ) => {
                let (initial, given) = given.split_at(carried);
                let (tensors, others) = given.split_at(scanned);
                self.begin(body, initial)?;
                self.begin_rows(body, carried, length)?;
                for at in 0..length {
                    count(&mut self.context, most)?;
                    let values = self.current.iter().map(Elements::all);
                    let rows = tensors.iter().map(|own| {
                        let row = own.len() / length;
                        own.part(at * row..(at + 1) * row).unwrap_or(*own)
                    });
                    let values = values.chain(rows).chain(others.iter().copied());
                    let values: Vec<Data<'_>> = values.collect();
                    let places = self.next.iter_mut().map(Elements::all_mut);
                    let rows = self.rows.iter_mut().map(|own| {
                        let row = own.len() / length;
                        let part = own.all_mut().part(at * row..(at + 1) * row);
                        part.unwrap_or_default()
                    });
                    let places = places.chain(rows).collect();
                    run_body(&mut self.context, body, &values, places)?;
                    std::mem::swap(&mut self.current, &mut self.next);
                }
                Ok(())
            }
            _ => Err(RunError::Mismatch {
                step: "control flow",
            }),
        }
    }

    /// Begins a loop with these values.
    fn begin(&mut self, body: &Executable, initial: &[Data<'_>]) -> Result<(), RunError> {
        fit(&mut self.current, &body.program, initial.len())?;
        fit(&mut self.next, &body.program, initial.len())?;
        for (own, initial) in self.current.iter_mut().zip(initial) {
            let fits = own.len() == initial.len();
            let copied = fits.then(|| own.all_mut().copy_from(*initial)).flatten();
            copied.ok_or(RunError::Mismatch { step: "loop" })?;
        }
        Ok(())
    }

    /// Makes memory for the results behind the first ones, with a row for each iteration.
    fn begin_rows(
        &mut self,
        body: &Executable,
        carried: usize,
        length: usize,
    ) -> Result<(), RunError> {
        let program = &body.program;
        let results = program.outputs().into_iter().skip(carried);
        let infos = results.map(|value| program.value(value));
        let types = infos.map(|info| (info.element, info.len().saturating_mul(length)));
        fit_types(&mut self.rows, types)
    }
}

/// Counts an iteration.
fn count(context: &mut Context, most: u64) -> Result<(), RunError> {
    let iterations = &mut context.control_mut().iterations;
    *iterations = iterations.saturating_add(1);
    match *iterations <= most {
        true => Ok(()),
        false => Err(RunError::Iterations { most }),
    }
}

/// Runs a program of a step, whose results are rounded to their types.
fn run_body(
    context: &mut Context,
    body: &Executable,
    given: &[Data<'_>],
    mut places: Vec<DataMut<'_>>,
) -> Result<(), RunError> {
    body.run_within(context, given, &mut places, None::<Observe<'_>>)?;
    for (&dtype, place) in body.program.output_dtypes.iter().zip(&mut places) {
        place.round_to(dtype);
    }
    Ok(())
}

/// Makes memory for the first results of a program, unless it is there.
fn fit(memory: &mut Vec<Elements>, program: &Program, most: usize) -> Result<(), RunError> {
    let results = program.outputs().into_iter().take(most);
    let infos = results.map(|value| program.value(value));
    fit_types(memory, infos.map(|info| (info.element, info.len())))
}

fn fit_types(
    memory: &mut Vec<Elements>,
    types: impl Iterator<Item = (Element, usize)>,
) -> Result<(), RunError> {
    let types: Vec<(Element, usize)> = types.collect();
    memory.resize_with(types.len(), Elements::default);
    for (own, (element, len)) in memory.iter_mut().zip(types) {
        if (own.all().element(), own.len()) == (element, len) {
            continue;
        }
        // The old memory is freed first.
        *own = Elements::default();
        match element {
            Element::F32 => claim::<f32>(len)?,
            Element::F64 => claim::<f64>(len)?,
            Element::I64 => claim::<i64>(len)?,
            Element::Bool => claim::<u8>(len)?,
        }
        *own = Elements::zeros(element, len);
    }
    Ok(())
}

fn is_true(truth: Data<'_>) -> Result<bool, RunError> {
    match u8::of(truth) {
        Some(&[truth]) => Ok(truth != 0),
        _ => Err(RunError::Mismatch { step: "condition" }),
    }
}
