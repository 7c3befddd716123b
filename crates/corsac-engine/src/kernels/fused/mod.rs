//! Execution of the instructions of a fused step.

mod choice;
mod levels;
#[cfg(test)]
mod tests;

use std::array;

use multiversion::multiversion;
use rayon::prelude::*;
use smallvec::SmallVec;

use crate::aligned_buffer::AlignedBuffer;
use crate::data::{Data, DataMut, Stored};
use crate::kernels::GRAIN;
use crate::kernels::elementwise::{self, Real};
use crate::kernels::reduce::{self, OfRow};
use crate::parallel::Parallel;
use crate::program::fused::{Access, Arg, Function, Fused, Instruction, Target, Width};
use crate::program::{Element, Float};

/// Largest number of operands of an instruction.
const OPERANDS: usize = 6;

/// An operand of an instruction, for a tile.
#[derive(Clone, Copy)]
enum Operand<'a, T> {
    /// The current contents of the target.
    Target,
    /// One number for each element.
    Each(&'a [T]),
    /// One number for each row.
    Rows(&'a [T]),
    /// One number for all.
    Number(T),
}

/// A tile of the result.
#[derive(Clone, Copy)]
struct Place {
    /// The first element.
    start: usize,
    /// Number of elements.
    len: usize,
    /// The first row.
    first: usize,
    /// Number of rows.
    rows: usize,
}

impl Place {
    fn count(self, width: Width) -> usize {
        match width {
            Width::Tile => self.len,
            Width::Row => self.rows,
        }
    }
}

impl Fused {
    /// Computes `out`, and the row result in `rows`, if there is one. If the step works `in_place`, `out` holds the first
    /// input, and that of `inputs` is ignored.
    pub fn run(&self, inputs: &[Data<'_>], in_place: bool, out: DataMut<'_>, rows: &mut [f32]) {
        match out {
            DataMut::F32(out) => self.numbers(inputs, in_place, out, rows),
            DataMut::F64(out) => self.numbers(inputs, in_place, out, &mut []),
            DataMut::Bool(out) if self.element == Element::F64 => {
                self.bytes(inputs, out, |x: f64| u8::from(x != 0.0));
            }
            DataMut::Bool(out) if self.gives_levels() => self.bytes(inputs, out, |x: f32| x as u8),
            DataMut::Bool(out) => self.bytes(inputs, out, |x: f32| u8::from(x != 0.0)),
            DataMut::I64(_) => {
                unreachable!("results of integers are refused when a program is made")
            }
        }
    }

    /// Computes a result of numbers.
    fn numbers<T: OfRow + Stored>(
        &self,
        inputs: &[Data<'_>],
        in_place: bool,
        out: &mut [T],
        rows: &mut [T],
    ) {
        self.tiles(out, rows, |place, registers, out, rows| {
            if in_place {
                let first = &mut registers[self.registers];
                first[..out.len()].copy_from_slice(out);
            }
            self.instructions(inputs, in_place, place, registers, [out, rows]);
        });
    }

    /// Computes a result of bytes, which `as_byte` makes of numbers.
    fn bytes<T: OfRow + Stored>(
        &self,
        inputs: &[Data<'_>],
        out: &mut [u8],
        as_byte: impl Fn(T) -> u8 + Sync,
    ) {
        self.tiles(out, &mut [], |place, registers, out, _| {
            let mut numbers = std::mem::take(&mut registers[self.registers]);
            let own = &mut numbers[..out.len()];
            self.instructions(inputs, false, place, registers, [own, &mut []]);
            convert(own, out, &as_byte);
            registers[self.registers] = numbers;
        });
    }

    /// Calls `compute` with each tile of the result, with registers, and with the tile's part of the row result.
    fn tiles<O: Send, T: Real>(
        &self,
        out: &mut [O],
        rows: &mut [T],
        compute: impl Fn(Place, &mut [AlignedBuffer<T>], &mut [O], &mut [T]) + Sync,
    ) {
        let tile = self.tile();
        let row = self.row.unwrap_or(1);
        let chunk = match self.result() {
            Width::Tile => tile,
            Width::Row => tile / row,
        };
        // Registers, one for the first input or the result, and six for expanded operands.
        let count = self.registers + 1 + OPERANDS;
        let least = (2 * GRAIN).div_ceil(tile * self.instructions.len().max(1));
        let compute = |at: usize, out: &mut [O], rows: &mut [T]| {
            let start = at * tile;
            let len = tile.min(self.len - start);
            let place = Place {
                start,
                len,
                first: start / row,
                rows: len / row,
            };
            let mut registers = T::registers().take();
            if registers.len() < count {
                registers.resize_with(count, AlignedBuffer::default);
            }
            for register in &mut registers[..count] {
                if register.len() < tile {
                    register.reuse(tile);
                }
            }
            compute(place, &mut registers, out, rows);
            T::registers().set(registers);
        };
        let tiles = out.par_chunks_mut(chunk.max(1)).enumerate();
        match self.row_result {
            None => tiles
                .with_min_len(least)
                .run_parallel(|(at, out)| compute(at, out, &mut [])),
            Some(_) => tiles
                .zip(rows.par_chunks_mut((tile / row).max(1)))
                .with_min_len(least)
                .run_parallel(|((at, out), rows)| compute(at, out, rows)),
        }
    }

    fn instructions<T: OfRow + Stored>(
        &self,
        inputs: &[Data<'_>],
        in_place: bool,
        place: Place,
        registers: &mut [AlignedBuffer<T>],
        [out, row_result]: [&mut [T]; 2],
    ) {
        // What is one number for all elements of the tile is not expanded.
        let mut numbers: SmallVec<[Option<T>; 16]> = SmallVec::from_elem(None, self.registers);
        for instruction in &self.instructions {
            let one = |arg: &Arg| match *arg {
                Arg::Register(number, _) => numbers[number].is_some(),
                Arg::Input(input) => self.inputs[input] == Access::Number,
                Arg::Number(_) => true,
            };
            let is_one = match (instruction.function, instruction.target) {
                (_, Target::Result | Target::RowResult) => false,
                (Function::Load { input, .. }, _) => self.is_one(input, place),
                _ => instruction.args.iter().all(one),
            };
            let is_one = is_one && instruction.width == Width::Tile;
            let count = if is_one {
                1
            } else {
                place.count(instruction.width)
            };
            // Taken out, so that the others can be read.
            let (target, mut own) = match instruction.target {
                Target::Result | Target::RowResult => (None, None),
                Target::Register(number) => {
                    (Some(number), Some(std::mem::take(&mut registers[number])))
                }
            };
            let to = match &mut own {
                Some(register) => &mut register[..count],
                None if instruction.target == Target::RowResult => &mut row_result[..count],
                None => &mut out[..count],
            };
            if let Function::Load { input, levels } = instruction.function {
                self.load((inputs[input], levels), input, place, instruction.width, to);
            } else {
                let spares = instruction.function.spares();
                let mut spare: [AlignedBuffer<T>; OPERANDS] = Default::default();
                for (at, spare) in spare.iter_mut().enumerate().take(spares) {
                    *spare = std::mem::take(&mut registers[self.registers + 1 + at]);
                }
                let operand = |at: usize| match instruction.args.get(at).copied() {
                    Some(Arg::Register(number, _)) if let Some(own) = numbers[number] => {
                        Operand::Number(own)
                    }
                    Some(Arg::Register(number, _)) if Some(number) == target => Operand::Target,
                    Some(Arg::Register(number, width)) => {
                        let data = &registers[number][..place.count(width)];
                        one_for_each(data, width, instruction)
                    }
                    Some(Arg::Input(0)) if in_place => {
                        Operand::Each(&registers[self.registers][..place.len])
                    }
                    Some(Arg::Input(input)) => self.input(inputs[input], input, place, instruction),
                    Some(Arg::Number(number)) => Operand::Number(Float::of(number)),
                    None => Operand::Target,
                };
                let operands = array::from_fn(operand);
                let row = self.row.unwrap_or(1);
                compute(instruction.function, operands, row, &mut spare, to);
                for (at, spare) in spare.into_iter().enumerate().take(spares) {
                    registers[self.registers + 1 + at] = spare;
                }
            }
            if let (Some(number), Some(own)) = (target, own) {
                numbers[number] = is_one.then(|| own[0]);
                registers[number] = own;
            }
        }
    }

    /// Whether all elements of an input for a tile are one.
    fn is_one(&self, input: usize, place: Place) -> bool {
        match &self.inputs[input] {
            Access::Number => true,
            Access::Broadcast(broadcast) => broadcast.is_one(place.start, place.len),
            Access::Whole | Access::Rows => false,
        }
    }

    fn input<'a, T: OfRow + Stored>(
        &self,
        data: Data<'a>,
        input: usize,
        place: Place,
        instruction: &Instruction,
    ) -> Operand<'a, T> {
        let Some(data) = Stored::of(data) else {
            unreachable!("inputs of other types are refused when a program is made");
        };
        match self.inputs[input] {
            Access::Whole => Operand::Each(&data[place.start..][..place.len]),
            Access::Rows => {
                let data = &data[place.first..][..place.rows];
                one_for_each(data, Width::Row, instruction)
            }
            Access::Number | Access::Broadcast(_) => Operand::Number(data[0]),
        }
    }

    /// Loads elements of an input as floating-point numbers.
    fn load<T: OfRow + Stored>(
        &self,
        (data, levels): (Data<'_>, bool),
        input: usize,
        place: Place,
        width: Width,
        to: &mut [T],
    ) {
        let start = match width {
            Width::Tile => place.start,
            Width::Row => place.first,
        };
        match data {
            Data::F32(data) => self.inputs[input].read(data, start, to, |x| Float::of(x.into())),
            Data::F64(data) => self.inputs[input].read(data, start, to, Float::of),
            Data::I64(data) => self.inputs[input].read(data, start, to, T::of_integer),
            Data::Bool(data) if levels => {
                self.inputs[input].read(data, start, to, |x| Float::of(x.into()));
            }
            Data::Bool(data) => {
                let as_number = |x: u8| Float::of(if x != 0 { 1.0 } else { 0.0 });
                self.inputs[input].read(data, start, to, as_number);
            }
        }
    }
}

impl Function {
    /// Number of operands that must have one number for each element.
    fn spares(self) -> usize {
        match self {
            Self::Load { .. } | Self::Same | Self::Unary(_) | Self::Binary(_) => 0,
            Self::Reduce(_) | Self::ReduceSquares(_) => 1,
            Self::Arithmetic(_) | Self::Compare(_) => 2,
            Self::Where | Self::Ternary(_) => 3,
            Self::Select(_) => 4,
            Self::Levels(_) => OPERANDS,
        }
    }
}

impl Access {
    /// Writes the elements of a tensor from `start` on, with this access.
    pub(crate) fn read<T: Copy, N: Copy>(
        &self,
        data: &[T],
        start: usize,
        to: &mut [N],
        as_number: impl Fn(T) -> N,
    ) {
        match self {
            Self::Whole | Self::Rows => {
                let data = &data[start..][..to.len()];
                to.iter_mut()
                    .zip(data)
                    .for_each(|(to, &x)| *to = as_number(x));
            }
            Self::Number => to.fill(as_number(data[0])),
            Self::Broadcast(broadcast) => broadcast.read(data, start, to, as_number),
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw", "x86_64+avx2"))]
fn convert<T: Copy, F: Fn(T) -> u8>(from: &[T], to: &mut [u8], as_byte: &F) {
    for (to, &x) in to.iter_mut().zip(from) {
        *to = as_byte(x);
    }
}

/// Numbers for rows are expanded to elements where the instruction needs elements.
fn one_for_each<'a, T>(data: &'a [T], width: Width, instruction: &Instruction) -> Operand<'a, T> {
    let of_rows = matches!(
        instruction.function,
        Function::Reduce(_) | Function::ReduceSquares(_)
    );
    match (width, instruction.width) {
        (Width::Row, Width::Tile) => Operand::Rows(data),
        (Width::Row, Width::Row) if of_rows => Operand::Rows(data),
        _ => Operand::Each(data),
    }
}

fn compute<T: OfRow>(
    function: Function,
    operands: [Operand<'_, T>; OPERANDS],
    row: usize,
    spare: &mut [AlignedBuffer<T>; OPERANDS],
    to: &mut [T],
) {
    match function {
        Function::Load { .. } => {}
        Function::Same => put(operands[0], row, to),
        Function::Unary(function) => match operands[0] {
            Operand::Each(data) => T::unary_from(function, Some(data), to),
            operand => {
                put(operand, row, to);
                T::unary_from(function, None, to);
            }
        },
        Function::Binary(function) => match (operands[0], operands[1]) {
            (Operand::Each(a), Operand::Each(b)) => elementwise::binary_chunk(function, a, b, to),
            (a @ (Operand::Number(_) | Operand::Rows(_)), Operand::Each(b)) => {
                with_numbers(function, a, Some(b), row, true, to);
            }
            (a, Operand::Each(b)) => {
                put(a, row, to);
                elementwise::binary_in_place(function, to, b);
            }
            (Operand::Each(a), b) => with_numbers(function, b, Some(a), row, false, to),
            (a, b) => {
                put(a, row, to);
                with_numbers(function, b, None, row, false, to);
            }
        },
        Function::Arithmetic(function) => {
            let [a, b, ..] = spare;
            let len = to.len();
            let (a, b) = (
                each(operands[0], row, a, len),
                each(operands[1], row, b, len),
            );
            T::arithmetic_chunk(function, a, b, to);
        }
        Function::Compare(comparison) => choice::compare(comparison, operands, row, spare, to),
        Function::Where => choice::choose(operands, row, spare, to),
        Function::Select(comparison) => choice::select(comparison, operands, row, spare, to),
        Function::Ternary(function) => {
            let [a, b, c, ..] = spare;
            let len = to.len();
            let (a, b, c) = (
                each(operands[0], row, a, len),
                each(operands[1], row, b, len),
                each(operands[2], row, c, len),
            );
            elementwise::ternary_chunk(function, [a, b, c], to);
        }
        Function::Levels(function) => levels::compute(function, operands, row, spare, to),
        Function::Reduce(reduction) => {
            let data = each(operands[0], row, &mut spare[0], to.len() * row);
            for (to, row) in to.iter_mut().zip(data.chunks_exact(row)) {
                *to = T::of_row(reduction, row);
            }
        }
        Function::ReduceSquares(reduction) => {
            let data = each(operands[0], row, &mut spare[0], to.len() * row);
            for (to, row) in to.iter_mut().zip(data.chunks_exact(row)) {
                *to = reduce::of_squares(reduction, row);
            }
        }
    }
}

/// Writes an operand to `to`, unless it is there already.
fn put<T: Copy>(operand: Operand<'_, T>, row: usize, to: &mut [T]) {
    match operand {
        Operand::Target => {}
        Operand::Each(data) => to.copy_from_slice(data),
        Operand::Rows(data) => {
            for (to, &x) in to.chunks_exact_mut(row).zip(data) {
                to.fill(x);
            }
        }
        Operand::Number(number) => to.fill(number),
    }
}

/// An operand with one number for each element, expanded into `spare` if necessary.
fn each<'a, T: Copy>(
    operand: Operand<'a, T>,
    row: usize,
    spare: &'a mut [T],
    len: usize,
) -> &'a [T] {
    match operand {
        Operand::Each(data) => data,
        other => {
            let own = &mut spare[..len];
            put(other, row, own);
            own
        }
    }
}

/// `function` of `from`, or else of `to`, and of numbers for rows or one for all.
fn with_numbers<T: Float>(
    function: crate::program::Binary,
    numbers: Operand<'_, T>,
    from: Option<&[T]>,
    row: usize,
    reversed: bool,
    to: &mut [T],
) {
    match numbers {
        Operand::Rows(numbers) => {
            elementwise::binary_rows(function, from, to, numbers, row, reversed)
        }
        Operand::Number(number) => {
            let row = to.len();
            elementwise::binary_rows(function, from, to, &[number], row, reversed);
        }
        Operand::Each(_) | Operand::Target => {}
    }
}
