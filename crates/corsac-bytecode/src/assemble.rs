//! From instructions with labels to bytes.

use crate::decode::prefixes_for;
use crate::location::{Span, encode_locations};
use crate::varint::push_big_endian;
use crate::{Arg, ArgKind, BytecodeError, Code, Version};

/// The bytes of a code object: its code and two tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RawCode {
    /// `co_code`.
    pub code: Vec<u8>,
    /// `co_exceptiontable`.
    pub exception_table: Vec<u8>,
    /// `co_linetable`.
    pub line_table: Vec<u8>,
    /// `co_firstlineno`, which the line table counts from.
    pub first_line: i32,
}

/// Offsets of instructions, in code units.
pub(crate) struct Layout {
    /// The offset of each instruction, behind its `EXTENDED_ARG`.
    pub(crate) offsets: Vec<usize>,
    /// The offset of each instruction's first unit, and the end of the code.
    pub(crate) starts: Vec<usize>,
    /// The argument of each instruction.
    pub(crate) args: Vec<u32>,
}

impl Code {
    /// Writes the code and its tables; `first_line` is `co_firstlineno`.
    ///
    /// # Errors
    /// For a label without a place, a jump against its opcode's direction, and operands of the
    /// wrong kind. [`Code::verify`] checks whether the code would run.
    pub fn assemble(&self, first_line: i32) -> Result<RawCode, BytecodeError> {
        let layout = self.layout()?;
        let units = layout.starts.last().copied().unwrap_or(0);
        if units > 1 << 29 {
            return Err(BytecodeError::Length { len: 2 * units });
        }
        let mut code = Vec::with_capacity(2 * units);
        for (index, instruction) in self.instructions().iter().enumerate() {
            let arg = layout.args[index];
            for prefix in (1..=layout.offsets[index] - layout.starts[index]).rev() {
                let extended = self.version().op_named("EXTENDED_ARG")?;
                code.extend([extended.code, (arg >> (8 * prefix)) as u8]);
            }
            code.extend([instruction.op.code, arg as u8]);
            code.resize(code.len() + 2 * usize::from(instruction.op.caches), 0);
        }

        let mut exception_table = Vec::new();
        for (index, handler) in self.handlers().iter().enumerate() {
            let (start, end, target) = self.handler_places(index)?;
            let problem = "its depth is above 2^30";
            let depth = (handler.depth <= 1 << 30).then_some(handler.depth);
            let depth = depth.ok_or(BytecodeError::Handler { index, problem })?;
            let start = layout.starts[start];
            let length = layout.starts[end] - start;
            push_big_endian(&mut exception_table, start as u32, true);
            push_big_endian(&mut exception_table, length as u32, false);
            push_big_endian(&mut exception_table, layout.starts[target] as u32, false);
            let rest = depth << 1 | u32::from(handler.lasti);
            push_big_endian(&mut exception_table, rest, false);
        }

        // The compiler of 3.11 writes an entry for each instruction; later ones join equal entries.
        let joins = self.version() > Version::V3_11;
        let mut spans: Vec<Span> = Vec::new();
        for (index, instruction) in self.instructions().iter().enumerate() {
            let units = layout.starts[index + 1] - layout.starts[index];
            match spans.last_mut() {
                Some(last) if joins && last.location == instruction.location => last.units += units,
                _ => spans.push(Span {
                    units,
                    location: instruction.location,
                }),
            }
        }
        let line_table = encode_locations(spans, first_line);
        Ok(RawCode {
            code,
            exception_table,
            line_table,
            first_line,
        })
    }

    /// The offset of each instruction in bytes, as `dis` shows it.
    ///
    /// # Errors
    /// As [`Code::assemble`].
    pub fn offsets(&self) -> Result<Vec<usize>, BytecodeError> {
        Ok(self.layout()?.offsets.iter().map(|at| 2 * at).collect())
    }

    /// Finds the smallest layout: arguments of jumps grow until nothing moves any more.
    pub(crate) fn layout(&self) -> Result<Layout, BytecodeError> {
        let instructions = self.instructions();
        let mut args = Vec::with_capacity(instructions.len());
        let mut jumps = Vec::new();
        for (index, instruction) in instructions.iter().enumerate() {
            let expect = |expected| BytecodeError::Operand {
                index,
                name: instruction.op.name,
                expected,
            };
            match instruction.arg {
                Arg::Label(label) if instruction.op.arg.is_jump() => {
                    let place = self.place_of(index, label)?;
                    if place >= instructions.len() {
                        return Err(expect("a label before an instruction"));
                    }
                    let forward = instruction.op.arg == ArgKind::JumpForward;
                    // A backward jump by zero units leads to the next instruction.
                    if if forward {
                        place <= index
                    } else {
                        place > index + 1
                    } {
                        let name = instruction.op.name;
                        let label = label.0;
                        return Err(BytecodeError::Direction { index, name, label });
                    }
                    jumps.push((index, place, forward));
                    args.push(0);
                }
                Arg::Label(_) => return Err(expect("a number, got a label")),
                Arg::Number(_) if instruction.op.arg.is_jump() => {
                    return Err(expect("a label, got a number"));
                }
                Arg::Number(number) if number > i32::MAX as u32 => {
                    return Err(expect("a number below 2^31"));
                }
                Arg::Number(number) => args.push(number),
            }
        }
        let mut prefixes: Vec<u8> = (args.iter().zip(instructions))
            .map(|(arg, it)| prefixes_for(*arg).max(it.prefixes.min(3)))
            .collect();
        let mut starts = vec![0; instructions.len() + 1];
        loop {
            for (index, it) in instructions.iter().enumerate() {
                let units = usize::from(prefixes[index]) + 1 + usize::from(it.op.caches);
                starts[index + 1] = starts[index] + units;
            }
            let mut moved = false;
            for &(index, place, forward) in &jumps {
                let (end, target) = (starts[index + 1], starts[place]);
                let distance = if forward { target - end } else { end - target };
                args[index] = u32::try_from(distance).unwrap_or(u32::MAX);
                let needed = prefixes_for(args[index]);
                if needed > prefixes[index] {
                    prefixes[index] = needed;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let offsets = (starts.iter().zip(&prefixes))
            .map(|(start, prefixes)| start + usize::from(*prefixes))
            .collect();
        Ok(Layout {
            offsets,
            starts,
            args,
        })
    }
}
