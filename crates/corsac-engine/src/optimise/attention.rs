//! Attention fused from steps: products, a softmax and products become one step that never holds
//! all scores in memory, and reads queries, keys and values where they lie.

use smallvec::SmallVec;

use super::flow::Flow;
use crate::program::{Attention, Binary, Element, Op, Program, Step, Unary, ValueId, View};

/// Fuses the steps of each attention into one. The steps before it that become unused stay in the
/// program.
pub(crate) fn fuse(program: &mut Program) {
    let search = Search::new(program);
    let found: Vec<Found> = (0..search.program.steps.len())
        .filter_map(|at| search.ending_at(at))
        .collect();
    let mut gone = vec![false; program.steps.len()];
    for Found { at, step, copy } in found {
        program.steps[at] = step;
        if let Some(copy) = copy {
            gone[copy] = true;
        }
    }
    let mut gone = gone.into_iter();
    program.steps.retain(|_| !gone.next().unwrap_or(false));
}

/// An attention that was found.
struct Found {
    /// Position of its last product.
    at: usize,
    step: Step,
    /// Position of the permutation after it, which it does itself.
    copy: Option<usize>,
}

/// A program in which patterns are matched backwards from the last step.
struct Search<'a> {
    program: &'a Program,
    flow: Flow,
}

impl<'a> Search<'a> {
    fn new(program: &'a Program) -> Self {
        let flow = Flow::of(program);
        Self { program, flow }
    }

    /// The step that computes `value`, if it has no epilogue and only one other step reads the value.
    fn made(&self, value: ValueId) -> Option<&'a Step> {
        let alone = self.program.root(value) == value && self.flow.is_read_once(value);
        let step = &self.program.steps[self.flow.maker(self.program, value)?];
        (alone && step.epilogues.is_empty()).then_some(step)
    }

    fn ending_at(&self, at: usize) -> Option<Found> {
        let last = &self.program.steps[at];
        let Op::MatMul {
            first_transposed: false,
            transposed: false,
            scale: 1.0,
        } = last.op
        else {
            return None;
        };
        let [weights, value] = last.inputs[..] else {
            return None;
        };
        if self.program.element(last.output) != Element::F32 {
            return None;
        }
        let softmax = self.made(weights)?;
        let scores = *softmax.inputs.first()?;
        let rank = self.program.shape(scores).len();
        let safe = match softmax.op {
            Op::Softmax { dim, log: false } if dim + 1 == rank => false,
            Op::SafeSoftmax => true,
            _ => return None,
        };
        if !last.epilogues.is_empty() {
            return None;
        }
        let mut scores = self.made(scores)?;
        let (mut causal, mut mask) = (false, None);
        match (&scores.op, &scores.inputs[..]) {
            (Op::Causal, &[product]) => {
                causal = true;
                scores = self.made(product)?;
            }
            (Op::Binary(Binary::Add), &[product, added]) => {
                mask = Some(added);
                scores = self.made(product)?;
            }
            _ => {}
        }
        let mut factor = 1.0;
        let scaled = match scores.op {
            Op::Unary(Unary::Affine(scale, 0.0)) => Some(scale),
            Op::Unary(Unary::DivideBy(divisor)) => Some(1.0 / divisor),
            _ => None,
        };
        if let (Some(scale), &[product]) = (scaled, &scores.inputs[..]) {
            factor = scale;
            scores = self.made(product)?;
        }
        let Op::MatMul {
            first_transposed: false,
            transposed,
            scale,
        } = scores.op
        else {
            return None;
        };
        let [query, key] = scores.inputs[..] else {
            return None;
        };
        let (query, from) = self.view(query);
        let mut inputs: SmallVec<[ValueId; 4]> = SmallVec::from_slice(&[from]);
        let mut next = |value: ValueId| {
            let (view, from) = self.view(value);
            inputs.push(from);
            view
        };
        let mut key = next(key);
        if !transposed {
            let rank = key.shape.len();
            key.shape.swap(rank - 2, rank - 1);
            key.strides.swap(rank - 2, rank - 1);
        }
        let value = next(value);
        let mask = mask.map(next);
        let shape = self.program.shape(last.output);
        let result = View::of(shape);
        let (result, output, copy) = match self.permuted(last.output) {
            Some((strides, copy)) => {
                let output = self.program.steps[copy].output;
                (View { strides, ..result }, output, Some(copy))
            }
            None => (result, last.output, None),
        };
        let attention = Attention {
            query,
            key,
            value,
            mask,
            result,
            scale: scale * factor,
            causal,
            safe,
        };
        attention.is_supported().then(|| Found {
            at,
            step: Step {
                op: Op::Attention(Box::new(attention)),
                inputs,
                epilogues: SmallVec::new(),
                output,
                node: last.node,
            },
            copy,
        })
    }

    /// The view through which `value` is read, and the value that it is a view of: another one if
    /// `value` is a strided copy, otherwise itself.
    fn view(&self, value: ValueId) -> (View, ValueId) {
        let own = View::of(self.program.shape(value));
        let Some(Step {
            op: Op::Copy { offset, strides },
            inputs,
            ..
        }) = self.made(value)
        else {
            return (own, value);
        };
        let strides = strides.iter().map(|&step| usize::try_from(step).ok());
        match strides.collect() {
            Some(strides) => {
                let offset = *offset;
                (
                    View {
                        offset,
                        strides,
                        ..own
                    },
                    inputs[0],
                )
            }
            None => (own, value),
        }
    }

    /// The strides of the dimensions of `value` in the permutation that is its only use, and the
    /// position of that step.
    fn permuted(&self, value: ValueId) -> Option<(SmallVec<[usize; 6]>, usize)> {
        let program = self.program;
        let &[(at, read)] = self.flow.readers(program.root(value)) else {
            return None;
        };
        let step = &program.steps[at];
        let Op::Copy { offset: 0, strides } = &step.op else {
            return None;
        };
        let shape = program.shape(step.output);
        let own = View::of(program.shape(value));
        let fits = read == value
            && program.root(value) == value
            && !self.flow.is_returned(value)
            && step.epilogues.is_empty()
            && shape.iter().product::<usize>() == own.shape.iter().product::<usize>();
        if !fits {
            return None;
        }
        let target = View::of(shape);
        let mut taken = vec![false; shape.len()];
        let strides = own.shape.iter().zip(&own.strides).map(|(&size, &stride)| {
            if size == 1 {
                return Some(0);
            }
            let same = |&dim: &usize| {
                !taken[dim] && shape[dim] == size && usize::try_from(strides[dim]) == Ok(stride)
            };
            let dim = (0..shape.len()).find(same)?;
            taken[dim] = true;
            Some(target.strides[dim])
        });
        let strides = strides.collect::<Option<_>>()?;
        Some((strides, at))
    }
}

impl View {
    /// All elements of a value of this shape, row by row.
    pub(crate) fn of(shape: &[usize]) -> Self {
        let mut strides: SmallVec<[usize; 6]> = SmallVec::from_elem(1, shape.len());
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shape[dim];
        }
        Self {
            offset: 0,
            shape: SmallVec::from_slice(shape),
            strides,
        }
    }
}

impl Attention {
    /// Whether there is a kernel for it.
    fn is_supported(&self) -> bool {
        let matrices = [&self.query, &self.key, &self.value, &self.result];
        let ranks = matrices.iter().all(|view| view.shape.len() >= 2);
        let mask = self.mask.as_ref();
        if !ranks || mask.is_some_and(|mask| mask.shape.len() < 2) {
            return false;
        }
        let sizes = matrices.iter().all(|view| !view.shape.contains(&0));
        let rank = self.result.shape.len();
        let outputs = self.result.shape[rank - 1];
        // Rows of the result are contiguous, and each begins at a multiple of their length.
        let strides = &self.result.strides;
        let whole = (outputs == 1 || strides[rank - 1] == 1)
            && strides[..rank - 1].iter().all(|step| step % outputs == 0);
        sizes && whole
    }

    /// Estimated work for an element of the result.
    pub(crate) fn work(&self) -> usize {
        let keys = self.key.shape[self.key.shape.len() - 2];
        // Two products, and the softmax between them.
        keys.saturating_mul(4)
    }
}
