//! Memory of a run. The part that a step writes is split off, and the step reads the rest.

use std::mem;
use std::ops::Range;

use crate::aligned_buffer::{AlignedBuffer, LINE, has_room};
use crate::data::{Data, DataMut, Stored};
use crate::error::RunError;
use crate::plan::{Lens, Place};
use crate::program::Element;

use super::control::ControlMemory;

/// Memory for the values of a run. It can be reused for runs of other programs.
#[derive(Debug, Default)]
pub struct Context {
    f32: AlignedBuffer,
    f64: Vec<f64>,
    i64: Vec<i64>,
    bool: Vec<u8>,
    control: ControlMemory,
}

/// Memory that a run uses.
pub(crate) struct Memory<'m> {
    f32: &'m mut [f32],
    f64: &'m mut [f64],
    i64: &'m mut [i64],
    bool: &'m mut [u8],
    /// None for programs without control flow.
    pub(super) control: Option<&'m mut ControlMemory>,
}

impl<'m> From<&'m mut [f32]> for Memory<'m> {
    /// For programs of floating-point numbers alone.
    fn from(f32: &'m mut [f32]) -> Self {
        Self {
            f32,
            f64: &mut [],
            i64: &mut [],
            bool: &mut [],
            control: None,
        }
    }
}

/// The memory that a step writes.
pub(crate) struct Written<'a> {
    /// Its result.
    pub(crate) result: DataMut<'a>,
    /// Scratch memory for floating-point numbers.
    pub(crate) workspace: &'a mut [f32],
}

/// The memory that a step may read: all but the part that it writes.
pub(crate) struct Kept<'a> {
    f32: Rest<'a, f32>,
    f64: Rest<'a, f64>,
    i64: Rest<'a, i64>,
    bool: Rest<'a, u8>,
    results: &'a [DataMut<'a>],
    /// Remaining parts of the results that are partly written.
    written: [(Option<usize>, Rest<'a, f32>); 2],
}

/// The results that a step writes to, taken out of the list of all.
pub(crate) struct Taken<'a> {
    numbers: [Option<usize>; 2],
    results: [DataMut<'a>; 2],
}

impl<'a> Taken<'a> {
    /// Takes those that hold `result` and `workspace` out of `results`.
    pub(crate) fn out_of(results: &mut [DataMut<'a>], result: Place, workspace: Place) -> Self {
        let second = workspace
            .result
            .filter(|_| workspace.result != result.result);
        let numbers = [result.result, second];
        Self {
            numbers,
            results: numbers.map(|number| {
                number.map_or_else(DataMut::default, |number| mem::take(&mut results[number]))
            }),
        }
    }

    /// Puts them back into `results`.
    pub(crate) fn back(self, results: &mut [DataMut<'a>]) {
        for (number, result) in self.numbers.into_iter().zip(self.results) {
            if let Some(number) = number {
                results[number] = result;
            }
        }
    }
}

impl Context {
    /// Grows to at least as many elements as in `lens`. The old contents are lost.
    ///
    /// # Errors
    /// If they cannot be allocated.
    pub(crate) fn fit(&mut self, lens: Lens) -> Result<(), RunError> {
        // The old memory is freed first: its contents need not be copied.
        if self.f32.len() < lens.f32 {
            self.f32 = AlignedBuffer::default();
            claim::<f32>(lens.f32 + LINE)?;
            self.f32 = AlignedBuffer::zeros(lens.f32);
        }
        if self.f64.len() < lens.f64 {
            self.f64 = Vec::new();
            claim::<f64>(lens.f64)?;
            self.f64 = vec![0.0; lens.f64];
        }
        if self.i64.len() < lens.i64 {
            self.i64 = Vec::new();
            claim::<i64>(lens.i64)?;
            self.i64 = vec![0; lens.i64];
        }
        if self.bool.len() < lens.bool {
            self.bool = Vec::new();
            claim::<u8>(lens.bool)?;
            self.bool = vec![0; lens.bool];
        }
        Ok(())
    }

    pub(super) fn control_mut(&mut self) -> &mut ControlMemory {
        &mut self.control
    }

    pub(crate) fn memory(&mut self) -> Memory<'_> {
        Memory {
            f32: &mut self.f32,
            f64: &mut self.f64,
            i64: &mut self.i64,
            bool: &mut self.bool,
            control: Some(&mut self.control),
        }
    }
}

/// Reports an error if this many elements cannot be allocated.
pub(super) fn claim<T>(len: usize) -> Result<(), RunError> {
    let size_bytes = len.saturating_mul(size_of::<T>());
    match has_room::<T>(len) {
        true => Ok(()),
        false => Err(RunError::OutOfMemory { size_bytes }),
    }
}

impl Memory<'_> {
    /// Splits off the place of a result of `len` elements, and of a workspace.
    pub(crate) fn take_out<'a>(
        &'a mut self,
        (place, element, len): (Place, Element, usize),
        (workspace, workspace_len): (Place, usize),
        taken: &'a mut Taken<'_>,
        results: &'a [DataMut<'a>],
    ) -> (Written<'a>, Kept<'a>) {
        // An empty range for all memory but that which holds the part.
        let part = |wanted: bool, start: usize, len: usize| match wanted {
            true => start..start + len,
            false => 0..0,
        };
        let own = |result: Option<usize>, wanted: Element| {
            part(
                place.result == result && element == wanted,
                place.start,
                len,
            )
        };
        let work = |result: Option<usize>| {
            part(workspace.result == result, workspace.start, workspace_len)
        };
        let (f32, in_f32, mut work_memory) =
            Rest::of(self.f32, own(None, Element::F32), work(None));
        let (f64, in_f64, _) = Rest::of(self.f64, own(None, Element::F64), 0..0);
        let (i64, in_i64, _) = Rest::of(self.i64, own(None, Element::I64), 0..0);
        let (bool, in_bool, _) = Rest::of(self.bool, own(None, Element::Bool), 0..0);
        let mut result = match element {
            Element::F32 => DataMut::F32(in_f32),
            Element::F64 => DataMut::F64(in_f64),
            Element::I64 => DataMut::I64(in_i64),
            Element::Bool => DataMut::Bool(in_bool),
        };
        let mut written = [(None, Rest::all(&[])), (None, Rest::all(&[]))];
        let of_results = taken.numbers.iter().zip(&mut taken.results);
        for ((number, memory), written) in of_results.zip(&mut written) {
            if number.is_none() {
                continue;
            }
            match memory {
                DataMut::F32(memory) => {
                    let (rest, own, work) =
                        Rest::of(memory, own(*number, Element::F32), work(*number));
                    *written = (*number, rest);
                    if place.result == *number {
                        result = DataMut::F32(own);
                    }
                    if workspace.result == *number {
                        work_memory = work;
                    }
                }
                DataMut::F64(memory) => result = DataMut::F64(memory),
                DataMut::I64(memory) => result = DataMut::I64(memory),
                DataMut::Bool(memory) => result = DataMut::Bool(memory),
            }
        }
        let kept = Kept {
            f32,
            f64,
            i64,
            bool,
            results,
            written,
        };
        let workspace = work_memory;
        (Written { result, workspace }, kept)
    }

    /// All memory, to read.
    pub(crate) fn all<'a>(&'a self, results: &'a [DataMut<'a>]) -> Kept<'a> {
        Kept {
            f32: Rest::all(self.f32),
            f64: Rest::all(self.f64),
            i64: Rest::all(self.i64),
            bool: Rest::all(self.bool),
            results,
            written: [(None, Rest::all(&[])), (None, Rest::all(&[]))],
        }
    }
}

impl<'a> Kept<'a> {
    /// The `len` elements at `place`; `None` if the step writes them.
    pub(crate) fn data(&self, place: Place, element: Element, len: usize) -> Option<Data<'a>> {
        match (element, place.result) {
            (Element::F32, None) => self.f32.get(place.start, len).map(Data::F32),
            (Element::F64, None) => self.f64.get(place.start, len).map(Data::F64),
            (Element::I64, None) => self.i64.get(place.start, len).map(Data::I64),
            (Element::Bool, None) => self.bool.get(place.start, len).map(Data::Bool),
            (Element::F32, Some(result)) => self.in_result(result, place.start, len),
            (_, Some(result)) => {
                Some(self.results[result].shared()).filter(|own| own.element() == element)
            }
        }
    }

    /// Floating-point numbers in the memory of a result.
    fn in_result(&self, result: usize, start: usize, len: usize) -> Option<Data<'a>> {
        let mut written = self.written.iter();
        let part = match written.find(|(number, _)| *number == Some(result)) {
            Some((_, rest)) => rest.get(start, len),
            None => f32::of(self.results[result].shared())?.get(start..start + len),
        };
        part.map(Data::F32)
    }
}

/// Memory that ranges were split off: the remaining pieces, each with its start.
struct Rest<'a, T> {
    pieces: [(usize, &'a [T]); 3],
}

impl<'a, T> Rest<'a, T> {
    fn all(memory: &'a [T]) -> Self {
        Self {
            pieces: [(0, memory), (0, &[]), (0, &[])],
        }
    }

    /// Splits off two disjoint ranges.
    fn of(
        memory: &'a mut [T],
        first: Range<usize>,
        second: Range<usize>,
    ) -> (Self, &'a mut [T], &'a mut [T]) {
        let swapped = second.start < first.start;
        let (low, high) = match swapped {
            true => (second, first),
            false => (first, second),
        };
        let (before, rest) = memory.split_at_mut(low.start);
        let (low_piece, rest) = rest.split_at_mut(low.len());
        let (between, rest) = rest.split_at_mut(high.start.saturating_sub(low.end));
        let (high_piece, after) = rest.split_at_mut(high.len());
        let after_start = low.end.max(high.end);
        let rest = Self {
            pieces: [(0, before), (low.end, between), (after_start, after)],
        };
        match swapped {
            true => (rest, high_piece, low_piece),
            false => (rest, low_piece, high_piece),
        }
    }

    /// The `len` elements from `start` on; `None` if they were split off.
    fn get(&self, start: usize, len: usize) -> Option<&'a [T]> {
        let piece = |&(from, piece): &(usize, &'a [T])| {
            let at = start.checked_sub(from)?;
            piece.get(at..at + len)
        };
        match len {
            0 => Some(&[]),
            _ => self.pieces.iter().find_map(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_is_not_in_the_rest() {
        for (first, second) in [(2..4, 6..9), (6..9, 2..4), (4..6, 6..8), (0..0, 3..5)] {
            let mut memory: Vec<usize> = (0..10).collect();
            let whole = memory.clone();
            let (rest, one, other) = Rest::of(&mut memory, first.clone(), second.clone());
            assert_eq!(one, &whole[first.clone()]);
            assert_eq!(other, &whole[second.clone()]);
            for start in 0..10 {
                for len in 1..=10 - start {
                    let apart = |range: &Range<usize>| {
                        range.is_empty() || start + len <= range.start || range.end <= start
                    };
                    let expected = match apart(&first) && apart(&second) {
                        true => Some(&whole[start..start + len]),
                        false => None,
                    };
                    assert_eq!(
                        rest.get(start, len),
                        expected,
                        "{first:?} {second:?} {start} {len}"
                    );
                }
            }
        }
    }
}
