//! From bytes to instructions with labels.

use crate::location::decode_locations;
use crate::varint::Reader;
use crate::{
    Arg, ArgKind, BytecodeError, Code, Handler, Instruction, Label, Location, Op, RawCode, Version,
};

/// An instruction with its place in the bytes.
pub(crate) struct Unit {
    /// Offset of its first `EXTENDED_ARG`, in code units.
    pub(crate) start: usize,
    /// Its own offset, in code units.
    pub(crate) offset: usize,
    /// Offset behind it and its cache units, in code units.
    pub(crate) end: usize,
    pub(crate) op: &'static Op,
    pub(crate) arg: u32,
}

impl Unit {
    /// The target of a jump or an origin, in code units.
    pub(crate) fn target(&self) -> Option<i64> {
        let (end, arg) = (self.end as i64, i64::from(self.arg));
        match self.op.arg {
            ArgKind::JumpForward => Some(end + arg),
            ArgKind::JumpBackward | ArgKind::Origin => Some(end - arg),
            _ => None,
        }
    }
}

/// Reads the instructions of `code`.
pub(crate) fn decode_units(version: Version, code: &[u8]) -> Result<Vec<Unit>, BytecodeError> {
    if !code.len().is_multiple_of(2) || code.len() > 1 << 30 {
        return Err(BytecodeError::Length { len: code.len() });
    }
    let extended = |unit: usize, problem| BytecodeError::ExtendedArg {
        offset: 2 * unit,
        problem,
    };
    let count = code.len() / 2;
    let mut units = Vec::new();
    let (mut start, mut offset, mut arg) = (0, 0, 0_u32);
    while offset < count {
        let (opcode, byte) = (code[2 * offset], code[2 * offset + 1]);
        let op = version.op(opcode).ok_or(BytecodeError::UnknownOpcode {
            offset: 2 * offset,
            opcode,
            version,
        })?;
        arg |= u32::from(byte);
        if op.name == "EXTENDED_ARG" {
            if offset - start == 3 {
                return Err(extended(offset, "for the fourth time"));
            }
            if arg >> 23 != 0 {
                return Err(extended(offset, "makes an argument above 2^31 - 1"));
            }
            arg <<= 8;
            offset += 1;
            continue;
        }
        let end = offset + 1 + usize::from(op.caches);
        let caches = code.get(2 * offset + 2..2 * end).unwrap_or(&[1]);
        if op.name == "CACHE" || caches.iter().any(|byte| *byte != 0) {
            let name = op.name;
            return Err(BytecodeError::Cache {
                offset: 2 * offset,
                name,
            });
        }
        units.push(Unit {
            start,
            offset,
            end,
            op,
            arg,
        });
        (start, offset, arg) = (end, end, 0);
    }
    if start < count {
        return Err(extended(start, "without an instruction"));
    }
    Ok(units)
}

/// A row of the exception table in code units.
pub(crate) struct Region {
    /// Its place in the table, in bytes.
    pub(crate) at: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) target: usize,
    pub(crate) depth: u32,
    pub(crate) lasti: bool,
}

/// Reads the exception table.
pub(crate) fn decode_regions(table: &[u8]) -> Result<Vec<Region>, BytecodeError> {
    let mut regions = Vec::new();
    let mut reader = Reader::new(table);
    while reader.position() < table.len() {
        let at = reader.position();
        let cut = || BytecodeError::ExceptionTable {
            offset: at,
            problem: "the entry is cut off, misplaced, or has a number that is too large",
        };
        let start = reader.big_endian(true).ok_or_else(cut)?;
        let mut number = || reader.big_endian(false).ok_or_else(cut);
        let (length, target, rest) = (number()?, number()?, number()?);
        regions.push(Region {
            at,
            start: start as usize,
            end: start as usize + length as usize,
            target: target as usize,
            depth: rest >> 1,
            lasti: rest & 1 != 0,
        });
    }
    Ok(regions)
}

/// Finds the instruction that starts at a code unit.
struct Starts<'a>(&'a [Unit]);

impl Starts<'_> {
    fn index(&self, unit: i64, or_end: bool) -> Option<usize> {
        let unit = usize::try_from(unit).ok()?;
        match self.0.binary_search_by_key(&unit, |it| it.start) {
            Ok(index) => Some(index),
            Err(_) => {
                let end = self.0.last().map_or(0, |last| last.end);
                (or_end && unit == end).then_some(self.0.len())
            }
        }
    }
}

impl Code {
    /// Reads a code object's bytes. [`Code::assemble`] returns the same bytes again.
    ///
    /// # Errors
    /// For bytes that are no code of this version, with the offset.
    pub fn disassemble(version: Version, raw: &RawCode) -> Result<Self, BytecodeError> {
        let units = decode_units(version, &raw.code)?;
        let regions = decode_regions(&raw.exception_table)?;
        let starts = Starts(&units);
        let end = units.last().map_or(0, |last| last.end);

        // Labels are numbered in the order of their places.
        let mut places = Vec::new();
        let mut targets = Vec::with_capacity(units.len());
        for unit in &units {
            let index = match unit.target() {
                None => None,
                Some(target) => {
                    let index = starts.index(target, false);
                    let index = index.ok_or(BytecodeError::Target {
                        offset: 2 * unit.offset,
                        what: unit.op.name,
                        target: 2 * target,
                    })?;
                    places.push(index);
                    Some(index)
                }
            };
            targets.push(index);
        }
        let mut handlers = Vec::with_capacity(regions.len());
        for region in &regions {
            let find = |unit: usize, or_end| {
                starts
                    .index(unit as i64, or_end)
                    .ok_or(BytecodeError::Target {
                        offset: region.at,
                        what: "the exception table",
                        target: 2 * unit as i64,
                    })
            };
            let ends = (
                find(region.start, true)?,
                find(region.end, true)?,
                find(region.target, false)?,
            );
            places.extend([ends.0, ends.1, ends.2]);
            handlers.push(ends);
        }
        places.sort_unstable();
        places.dedup();
        // Each place is in the list.
        let label = |index: usize| Label(places.partition_point(|place| *place < index) as u32);

        let handlers = (handlers.into_iter().zip(&regions))
            .map(|((start, end, target), region)| Handler {
                start: label(start),
                end: label(end),
                target: label(target),
                depth: region.depth,
                lasti: region.lasti,
            })
            .collect();

        let spans = decode_locations(&raw.line_table, raw.first_line, end)?;
        let mut spans = spans.into_iter();
        let (mut covered, mut location) = (0, Location::NONE);
        let mut instructions = Vec::with_capacity(units.len());
        for (unit, target) in units.iter().zip(targets) {
            while covered <= unit.offset {
                let Some(span) = spans.next() else { break };
                covered += span.units;
                location = span.location;
            }
            let arg = match target {
                None => Arg::Number(unit.arg),
                Some(index) => Arg::Label(label(index)),
            };
            let needed = match target {
                None => prefixes_for(unit.arg),
                Some(_) => 0,
            };
            let prefixes = (unit.offset - unit.start) as u8;
            instructions.push(Instruction {
                op: unit.op,
                arg,
                location,
                prefixes: if prefixes > needed { prefixes } else { 0 },
            });
        }
        let labels = places.into_iter().map(Some).collect();
        let mut code = Self::from_parts(version, instructions, handlers, labels);
        code.forget_prefixes(&units)?;
        Ok(code)
    }

    /// Removes the prefix counts of jumps whose number of `EXTENDED_ARG` follows from the distance.
    fn forget_prefixes(&mut self, units: &[Unit]) -> Result<(), BytecodeError> {
        let had: Vec<u8> = self.instructions().iter().map(|it| it.prefixes).collect();
        if had.iter().all(|prefixes| *prefixes == 0) {
            return Ok(());
        }
        for instruction in self.instructions_mut() {
            if instruction.op.arg.is_jump() {
                instruction.prefixes = 0;
            }
        }
        let layout = self.layout()?;
        if units
            .iter()
            .zip(&layout.offsets)
            .any(|(unit, offset)| unit.offset != *offset)
        {
            for (instruction, prefixes) in self.instructions_mut().iter_mut().zip(had) {
                instruction.prefixes = prefixes;
            }
        }
        Ok(())
    }
}

/// Number of `EXTENDED_ARG` that an argument needs.
pub(crate) fn prefixes_for(arg: u32) -> u8 {
    match arg {
        0..=0xff => 0,
        0x100..=0xffff => 1,
        0x1_0000..=0xff_ffff => 2,
        _ => 3,
    }
}
