//! Programs with their weights packed, ready to run.

use crate::kernels::conv::{ConvKernel, ConvShape};
use crate::kernels::elementwise::{self, Operand};
use crate::kernels::matmul::{self, LinearKernel, Product};
use crate::kernels::{layout, normalise, pool, reduce};
use crate::plan::Plan;
use crate::program::{Op, Post, Program, Recipe, Source, Step, ValueId};

/// Where weights come from.
pub trait Weights {
    /// The elements of the weight with this number, row by row; `None` if there is none.
    fn weight(&self, number: usize) -> Option<Vec<f32>>;
}

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
    /// A weight that the program needs is not there.
    #[error("weight {number} is missing")]
    MissingWeight {
        /// Its number.
        number: usize,
    },
}

/// What a step needs besides its inputs, made once.
#[derive(Debug)]
enum Prepared {
    Conv(Box<ConvKernel>),
    Linear(LinearKernel),
    Pairs(Vec<[usize; 2]>),
    Nothing,
}

/// A program ready to run. Any number of threads may run it, each with its own [`Context`].
#[derive(Debug)]
pub struct Executable {
    program: Program,
    plan: Plan,
    /// Weights that steps read as they are, by value.
    weights: Vec<Option<Vec<f32>>>,
    prepared: Vec<Prepared>,
}

/// The memory of one run.
#[derive(Debug, Default)]
pub struct Context {
    buffers: Vec<Vec<f32>>,
}

impl Executable {
    /// Packs the weights of `program`.
    ///
    /// # Errors
    /// A weight that is not there, or has another size than the program says.
    pub fn new(program: Program, source: &dyn Weights) -> Result<Self, RunError> {
        let plan = Plan::of(&program);
        let mut weights = Loader {
            program: &program,
            source,
            values: vec![None; program.values.len()],
        };
        let mut prepared = Vec::with_capacity(program.steps.len());
        let mut needed = vec![false; program.values.len()];
        for step in &program.steps {
            prepared.push(weights.prepare(step, &mut needed)?);
        }
        for value in program.outputs() {
            let root = program.root(value);
            weights.load(root)?;
            needed[root.index()] = true;
        }
        let mut values = weights.values;
        for (value, needed) in values.iter_mut().zip(needed) {
            if !needed {
                *value = None;
            }
        }
        Ok(Self {
            program,
            plan,
            weights: values,
            prepared,
        })
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

    /// Memory for a run.
    #[must_use]
    pub fn context(&self) -> Context {
        let buffers = self.plan.buffers().iter().map(|&len| vec![0.0; len]);
        Context {
            buffers: buffers.collect(),
        }
    }

    /// Runs the program on `inputs`, row by row, and writes its results to `outputs`.
    ///
    /// # Errors
    /// Inputs or outputs of another number or size than the program has.
    pub fn run(
        &self,
        context: &mut Context,
        inputs: &[&[f32]],
        outputs: &mut [&mut [f32]],
    ) -> Result<(), RunError> {
        self.check(inputs, outputs)?;
        for (at, step) in self.program.steps.iter().enumerate() {
            let root = self.program.root(step.output);
            let Some(place) = self.plan.place(root) else {
                continue;
            };
            let len = self.program.value(root).len();
            // Taken out, so that inputs can be read meanwhile.
            let mut buffer = std::mem::take(&mut context.buffers[place]);
            let values = Values {
                executable: self,
                buffers: &context.buffers,
                inputs,
            };
            self.step(at, step, &values, &mut buffer[..len]);
            context.buffers[place] = buffer;
        }
        let values = Values {
            executable: self,
            buffers: &context.buffers,
            inputs,
        };
        for (value, out) in self.program.outputs().into_iter().zip(outputs) {
            out.copy_from_slice(values.get(value));
        }
        Ok(())
    }

    fn check(&self, inputs: &[&[f32]], outputs: &[&mut [f32]]) -> Result<(), RunError> {
        let length = |what, number, expected, got| match expected == got {
            true => Ok(()),
            false => Err(RunError::Length {
                what,
                number,
                expected,
                got,
            }),
        };
        if inputs.len() != self.program.inputs {
            return Err(RunError::InputCount {
                expected: self.program.inputs,
                got: inputs.len(),
            });
        }
        for value in &self.program.values {
            if let Source::Input(number) = value.source {
                length("input", number, value.len(), inputs[number].len())?;
            }
        }
        let results = self.program.outputs();
        for (number, (&value, out)) in results.iter().zip(outputs).enumerate() {
            length("output", number, self.program.value(value).len(), out.len())?;
        }
        Ok(())
    }

    fn step(&self, at: usize, step: &Step, values: &Values<'_>, out: &mut [f32]) {
        let program = &self.program;
        let input = |index: usize| values.get(step.inputs[index]);
        let shape_of = |index: usize| program.shape(step.inputs[index]);
        let shape = program.shape(step.output);
        let in_place = self.plan.is_in_place(at);
        // What steps that work in place find in their result to begin with.
        let begin = |out: &mut [f32]| {
            if !in_place {
                out.copy_from_slice(values.get(step.inputs[0]));
            }
        };
        match (&step.op, &self.prepared[at]) {
            (Op::Conv(_), prepared) => {
                let finish = |start: usize, chunk: &mut [f32]| {
                    finish(&step.post, values, start, chunk);
                };
                match prepared {
                    Prepared::Conv(kernel) => kernel.run(input(0), out, &finish),
                    _ => conv_kernel(program, step, &|value| values.get(value)).run(
                        input(0),
                        out,
                        &finish,
                    ),
                }
                return;
            }
            (Op::Linear, Prepared::Linear(kernel)) => kernel.run(input(0), out),
            (Op::Linear, _) => {
                linear_kernel(program, step, &|value| values.get(value)).run(input(0), out);
            }
            (Op::MatMul { transposed, scale }, Prepared::Pairs(pairs)) => {
                let (a, b) = (shape_of(0), shape_of(1));
                let product = Product {
                    rows: a[a.len() - 2],
                    depth: a[a.len() - 1],
                    columns: shape[shape.len() - 1],
                    transposed: *transposed,
                    scale: *scale,
                    pairs,
                };
                debug_assert!(b.len() >= 2);
                product.run(input(0), input(1), out);
            }
            (Op::ChannelAffine, _) => {
                begin(out);
                let row = shape[2..].iter().product();
                elementwise::channel_affine(out, input(1), input(2), row);
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
                begin(out);
                let row = shape[shape.len() - dims..].iter().product();
                let weight_values = weight.then(|| input(1));
                let bias_values = bias.then(|| input(1 + usize::from(*weight)));
                normalise::layer_norm(out, row, weight_values, bias_values, *eps);
            }
            (Op::Unary(function), _) => {
                begin(out);
                elementwise::unary(*function, out);
            }
            (Op::Binary(function), _) => {
                if in_place && shape_of(1) == shape {
                    elementwise::binary_in_place(*function, out, input(1));
                } else if in_place {
                    let first = out.to_vec();
                    let a = Operand {
                        data: &first,
                        shape: shape_of(0),
                    };
                    let b = Operand {
                        data: input(1),
                        shape: shape_of(1),
                    };
                    elementwise::binary(*function, a, b, shape, out);
                } else {
                    let operand = |index: usize| Operand {
                        data: input(index),
                        shape: shape_of(index),
                    };
                    elementwise::binary(*function, operand(0), operand(1), shape, out);
                }
            }
            (Op::Softmax { dim, log }, _) => {
                begin(out);
                let inner = shape[dim + 1..].iter().product();
                normalise::softmax_strided(out, shape[*dim], inner, *log);
            }
            (Op::MaxPool(pool), _) => {
                pool::max_pool(input(0), image(shape_of(0)), pool, image(shape), out);
            }
            (
                Op::AvgPool {
                    pool,
                    count_padding,
                    divisor,
                },
                _,
            ) => pool::avg_pool(
                input(0),
                image(shape_of(0)),
                pool,
                *count_padding,
                *divisor,
                image(shape),
                out,
            ),
            (Op::AdaptiveAvgPool, _) => {
                pool::adaptive_avg_pool(input(0), image(shape_of(0)), image(shape), out);
            }
            (Op::Reduce { reduction, dims }, _) => {
                reduce::reduce(*reduction, input(0), shape_of(0), dims, out);
            }
            (Op::Copy { offset, strides }, _) => {
                layout::copy(input(0), *offset, strides, shape, out);
            }
            (Op::Concat { dim }, _) => {
                let inner: usize = shape[dim + 1..].iter().product();
                let mut start = 0;
                for (index, _) in step.inputs.iter().enumerate() {
                    let row = shape_of(index)[*dim] * inner;
                    layout::place(input(index), row, out, shape[*dim] * inner, start);
                    start += row;
                }
            }
            (Op::Pad { widths, value }, _) => {
                layout::pad(input(0), shape_of(0), widths, *value, out);
            }
            (Op::MatMul { .. } | Op::BatchNorm { .. }, _) => {
                unreachable!("prepared when the program was made")
            }
        }
        if !step.post.is_empty() {
            use rayon::prelude::*;
            out.par_chunks_mut(crate::kernels::GRAIN)
                .enumerate()
                .for_each(|(index, chunk)| {
                    finish(&step.post, values, index * crate::kernels::GRAIN, chunk);
                });
        }
    }
}

fn conv_kernel<'a>(
    program: &Program,
    step: &Step,
    get: &dyn Fn(ValueId) -> &'a [f32],
) -> ConvKernel {
    let Op::Conv(conv) = &step.op else {
        unreachable!("asked of convolutions only")
    };
    let (image, kernel) = (program.shape(step.inputs[0]), program.shape(step.inputs[1]));
    let out = program.shape(step.output);
    let out = &out[out.len() - 3..];
    let shape = ConvShape {
        batch: image[0],
        input: [image[1], image[2], image[3]],
        output: [kernel[0], out[1], out[2]],
        kernel: [kernel[2], kernel[3]],
        conv: conv.clone(),
    };
    let bias = step.inputs.get(2).map(|&bias| get(bias));
    ConvKernel::new(shape, get(step.inputs[1]), bias)
}

fn linear_kernel<'a>(
    program: &Program,
    step: &Step,
    get: &dyn Fn(ValueId) -> &'a [f32],
) -> LinearKernel {
    let weight = program.shape(step.inputs[1]);
    let bias = step.inputs.get(2).map(|&bias| get(bias));
    LinearKernel::new(get(step.inputs[1]), [weight[0], weight[1]], bias)
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
struct Values<'a> {
    executable: &'a Executable,
    buffers: &'a [Vec<f32>],
    inputs: &'a [&'a [f32]],
}

impl<'a> Values<'a> {
    fn get(&self, value: ValueId) -> &'a [f32] {
        let program = &self.executable.program;
        let root = program.root(value);
        let len = program.value(root).len();
        match program.value(root).source {
            Source::Input(number) => self.inputs[number],
            Source::Weight(_) | Source::Derived(_) => self.executable.weights[root.index()]
                .as_deref()
                .unwrap_or(&[]),
            Source::Step | Source::Alias(_) => match self.executable.plan.place(root) {
                Some(place) => &self.buffers[place][..len],
                None => &[],
            },
        }
    }
}

/// Weights on the way from their source to where they are packed.
struct Loader<'a> {
    program: &'a Program,
    source: &'a dyn Weights,
    values: Vec<Option<Vec<f32>>>,
}

impl Loader<'_> {
    /// Loads a value that is a weight or made of weights.
    fn load(&mut self, value: ValueId) -> Result<(), RunError> {
        let value = self.program.root(value);
        if self.values[value.index()].is_some() {
            return Ok(());
        }
        let info = self.program.value(value);
        let loaded = match info.source {
            Source::Weight(number) => {
                let found = self.source.weight(number);
                let found = found.ok_or(RunError::MissingWeight { number })?;
                if found.len() != info.len() {
                    return Err(RunError::Length {
                        what: "weight",
                        number,
                        expected: info.len(),
                        got: found.len(),
                    });
                }
                found
            }
            Source::Derived(number) => {
                let (recipe, inputs) = &self.program.recipes[number];
                for &input in inputs {
                    self.load(input)?;
                }
                let inputs: Vec<&[f32]> = inputs.iter().map(|&input| self.get(input)).collect();
                recipe.make(&inputs)
            }
            Source::Input(_) | Source::Step | Source::Alias(_) => return Ok(()),
        };
        self.values[value.index()] = Some(loaded);
        Ok(())
    }

    fn get(&self, value: ValueId) -> &[f32] {
        let root = self.program.root(value);
        self.values[root.index()].as_deref().unwrap_or(&[])
    }

    fn is_weight(&self, value: ValueId) -> bool {
        let root = self.program.root(value);
        matches!(
            self.program.value(root).source,
            Source::Weight(_) | Source::Derived(_)
        )
    }

    fn prepare(&mut self, step: &Step, needed: &mut [bool]) -> Result<Prepared, RunError> {
        for value in step.reads() {
            self.load(value)?;
        }
        // Weights that are computed while the program runs are packed then.
        let packs = matches!(step.op, Op::Conv(_) | Op::Linear)
            && step.inputs[1..].iter().all(|&value| self.is_weight(value));
        let program = self.program;
        let shape = |index: usize| program.shape(step.inputs[index]);
        for (index, value) in step.reads().enumerate() {
            let packed = packs && (1..step.inputs.len()).contains(&index);
            if self.is_weight(value) && !packed {
                needed[self.program.root(value).index()] = true;
            }
        }
        Ok(match &step.op {
            Op::Conv(_) if packs => {
                let kernel = conv_kernel(program, step, &|value| self.get(value));
                Prepared::Conv(Box::new(kernel))
            }
            Op::Linear if packs => {
                Prepared::Linear(linear_kernel(program, step, &|value| self.get(value)))
            }
            Op::MatMul { .. } => {
                let (a, b) = (shape(0), shape(1));
                let result = program.shape(step.output);
                Prepared::Pairs(matmul::pairs(
                    &result[..result.len() - 2],
                    &a[..a.len() - 2],
                    &b[..b.len() - 2],
                ))
            }
            _ => Prepared::Nothing,
        })
    }
}

impl Recipe {
    /// The weight made of `inputs`, in double precision.
    fn make(self, inputs: &[&[f32]]) -> Vec<f32> {
        let (own, norm) = match self {
            Self::NormWeight(_) | Self::NormBias(_) => (inputs[0], &inputs[1..]),
            Self::NormScale(_) | Self::NormOffset(_) => (&[][..], inputs),
        };
        let (Self::NormWeight(eps)
        | Self::NormBias(eps)
        | Self::NormScale(eps)
        | Self::NormOffset(eps)) = self;
        let (mean, variance) = (norm[0], norm[1]);
        let scale = |at: usize| {
            let gamma = norm.get(2).map_or(1.0, |gamma| f64::from(gamma[at]));
            gamma / (f64::from(variance[at]) + f64::from(eps)).sqrt()
        };
        let offset = |at: usize| {
            let beta = norm.get(3).map_or(0.0, |beta| f64::from(beta[at]));
            beta - f64::from(mean[at]) * scale(at)
        };
        let channels = 0..mean.len();
        match self {
            Self::NormScale(_) => channels.map(|at| scale(at) as f32).collect(),
            Self::NormOffset(_) => channels.map(|at| offset(at) as f32).collect(),
            Self::NormBias(_) => channels
                .map(|at| (f64::from(own[at]) * scale(at) + offset(at)) as f32)
                .collect(),
            Self::NormWeight(_) => {
                let row = own.len() / mean.len().max(1);
                let rows = own.chunks(row.max(1)).enumerate();
                rows.flat_map(|(at, row)| {
                    let scale = scale(at) as f32;
                    row.iter().map(move |weight| weight * scale)
                })
                .collect()
            }
        }
    }
}
