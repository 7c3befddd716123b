//! Concatenation without copies: the operands are computed where they lie in the result.
//!
//! The feature maps of a block of DenseNet are joined before each layer, with one more each time.
//! Since each result begins with the one before, all of them and their operands lie in one region
//! of memory.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::is_step;
use crate::aligned_buffer::LINE;
use crate::kernels::blocked::BLOCK;
use crate::program::{Element, Layout, Op, Program, Step, ValueId};

/// Largest number of parts of a region, so that the time to join two does not grow with the
/// program.
const PARTS: usize = 512;

/// Values that share a region of memory, and their places in it.
#[derive(Debug, Default)]
pub(super) struct ConcatElision {
    /// By value, the region that it lies in, and its offset from the origin of the region.
    places: FxHashMap<ValueId, (usize, isize)>,
    regions: Vec<Region>,
}

#[derive(Debug, Default)]
struct Region {
    /// By where they begin.
    parts: BTreeMap<isize, Part>,
    /// The values that lie in it.
    values: Vec<ValueId>,
}

/// Elements that one step writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    len: isize,
    writer: Writer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The step that computes this value.
    Value(ValueId),
    /// The concatenation with this result copies the operand with this number.
    Copy(ValueId, usize),
}

/// An operand of a concatenation.
struct Operand {
    value: ValueId,
    /// Its offset in the result.
    start: isize,
    len: isize,
    /// Whether it may be computed there.
    fits: bool,
}

impl ConcatElision {
    /// Places the operands of the concatenations of `program`, where the result is one contiguous
    /// piece of memory and no other value needs them elsewhere. `result` has, by value, the result
    /// of the program that it is.
    pub(super) fn of(program: &Program, result: &[Option<usize>]) -> Self {
        let mut elision = Self::default();
        for step in &program.steps {
            if let Some(operands) = operands(program, step, result) {
                elision.join(step.output, operands);
            }
        }
        elision
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of the region that `value` lies in, and its offset from the beginning of the
    /// region.
    pub(super) fn place(&self, value: ValueId) -> Option<(usize, usize)> {
        let &(region, at) = self.places.get(&value)?;
        let (&first, _) = self.regions[region].parts.first_key_value()?;
        Some((region, (at - first).unsigned_abs()))
    }

    /// Number of elements of each region.
    pub(super) fn lens(&self) -> impl Iterator<Item = usize> + '_ {
        self.regions.iter().map(|region| {
            let first = region.parts.first_key_value();
            let last = region.parts.last_key_value();
            let ends = first.zip(last);
            ends.map_or(0, |((first, _), (last, part))| {
                (last + part.len - first).unsigned_abs()
            })
        })
    }

    fn join(&mut self, result: ValueId, mut operands: Vec<Operand>) {
        // Each time one operand less is computed in place.
        let joined = loop {
            if !operands.iter().any(|operand| operand.fits) {
                return;
            }
            match self.joined(result, &operands) {
                Ok(joined) => break joined,
                Err(number) => operands[number].fits = false,
            }
        };
        let (mut region, moved) = joined;
        let own = self.regions.len();
        for (other, by) in moved {
            let values = std::mem::take(&mut self.regions[other]).values;
            for &value in &values {
                if let Some(place) = self.places.get_mut(&value) {
                    *place = (own, place.1 + by);
                }
            }
            region.values.extend(values);
        }
        let fitting = operands.iter().filter(|operand| operand.fits);
        let placed = fitting.map(|operand| (operand.value, operand.start));
        for (value, start) in placed.chain([(result, 0)]) {
            if self.places.insert(value, (own, start)).is_none() {
                region.values.push(value);
            }
        }
        self.regions.push(region);
    }

    /// The region with `result` at 0, and the offsets by which the regions of its operands move; or
    /// the number of an operand that cannot be computed in place.
    fn joined(
        &self,
        result: ValueId,
        operands: &[Operand],
    ) -> Result<(Region, FxHashMap<usize, isize>), usize> {
        let mut region = Region::default();
        let mut moved: FxHashMap<usize, isize> = FxHashMap::default();
        // The parts of the result.
        for (number, operand) in operands.iter().enumerate() {
            let place = self.places.get(&operand.value).filter(|_| operand.fits);
            match place {
                Some(&(other, at)) => {
                    let by = operand.start - at;
                    if moved.insert(other, by).is_some_and(|before| before != by) {
                        return Err(number);
                    }
                    let parts = self.regions[other].parts.range(at..at + operand.len);
                    region
                        .parts
                        .extend(parts.map(|(&start, &part)| (start + by, part)));
                }
                None => {
                    let writer = match operand.fits {
                        true => Writer::Value(operand.value),
                        false => Writer::Copy(result, number),
                    };
                    let len = operand.len;
                    region.parts.insert(operand.start, Part { len, writer });
                }
            }
        }
        // The other parts of the regions of the operands, which move with them.
        for (number, operand) in operands.iter().enumerate() {
            if let Some(&(other, _)) = self.places.get(&operand.value).filter(|_| operand.fits) {
                let by = moved[&other];
                for (&start, &part) in &self.regions[other].parts {
                    if !region.add(start + by, part) {
                        return Err(number);
                    }
                }
            }
        }
        Ok((region, moved))
    }
}

impl Region {
    /// Adds a part. Returns false if it overlaps another one, or there are too many.
    fn add(&mut self, start: isize, part: Part) -> bool {
        if self.parts.get(&start) == Some(&part) {
            return true;
        }
        let end = start + part.len;
        let before = self.parts.range(..end).next_back();
        let free = before.is_none_or(|(&other, part)| other + part.len <= start);
        if free && self.parts.len() < PARTS {
            self.parts.insert(start, part);
            return true;
        }
        false
    }
}

/// The operands of `step`, if it is a concatenation whose operands are contiguous in the result.
fn operands(program: &Program, step: &Step, result: &[Option<usize>]) -> Option<Vec<Operand>> {
    let is_result = |value: ValueId| result[value.index()].is_some();
    let Op::Concat { dim } = step.op else {
        return None;
    };
    let joined = program.value(step.output);
    let one_piece = joined.shape[..dim].iter().all(|&size| size == 1);
    if !one_piece
        || !step.epilogues.is_empty()
        || joined.element != Element::F32
        || !is_step(program, step.output)
        || is_result(step.output)
    {
        return None;
    }
    let roots: Vec<ValueId> = step.inputs.iter().map(|&own| program.root(own)).collect();
    let mut start = 0;
    let mut operands = Vec::with_capacity(roots.len());
    for (&input, &root) in step.inputs.iter().zip(&roots) {
        let shape = program.shape(input);
        let inner: usize = shape[dim + 1..].iter().product();
        let len = inner
            * match joined.layout {
                Layout::Blocks => shape[dim].next_multiple_of(BLOCK),
                Layout::Rows | Layout::Pixels => shape[dim],
            };
        if len == 0 {
            return None;
        }
        let info = program.value(root);
        operands.push(Operand {
            value: root,
            start: isize::try_from(start).ok()?,
            len: isize::try_from(len).ok()?,
            fits: is_step(program, root)
                && (info.element, info.layout) == (Element::F32, joined.layout)
                && info.stored_len() == len
                && start % LINE == 0
                && !is_result(root)
                && roots.iter().filter(|&&other| other == root).count() == 1,
        });
        start += len;
    }
    Some(operands)
}
