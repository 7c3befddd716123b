//! The text that `dis` prints.

use std::fmt::Write;

use crate::operands::choice;
use crate::{Arg, ArgKind, BytecodeError, Code, Instruction, Location, Op, Version};

/// Names for the numbers of a code object.
#[derive(Clone, Copy, Default, Debug)]
pub struct Names<'a> {
    /// The `repr` of each constant.
    pub consts: &'a [String],
    /// `co_names`.
    pub names: &'a [String],
    /// The local variables, cells and free variables, in the order of their slots.
    pub locals: &'a [String],
}

/// A line of the listing: an instruction or an `EXTENDED_ARG` before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The opcode.
    pub op: &'static Op,
    /// The argument, if it has one.
    pub arg: Option<u32>,
    /// The meaning of the argument.
    pub text: String,
    /// The offset of the instruction, in bytes.
    pub offset: usize,
    /// The offset of its first `EXTENDED_ARG`.
    pub start_offset: usize,
    /// The target of a jump, in bytes.
    pub target: Option<usize>,
    /// The line of the source that starts here; `Some(None)` where code without a line starts.
    pub starts_line: Option<Option<i32>>,
    /// The number of the label here, if it is jumped to: from 1.
    pub label: Option<usize>,
    /// Its place in the source.
    pub location: Location,
}

/// Code as `dis` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    version: Version,
    /// The lines.
    pub rows: Vec<Row>,
    /// The exception table: start, end and target in bytes, depth, whether the place is pushed.
    pub handlers: Vec<(usize, usize, usize, u32, bool)>,
    /// Offsets with labels, in order.
    labels: Vec<usize>,
    /// Length of the code in bytes.
    len: usize,
}

impl Code {
    /// The listing of the code with the names of a code object.
    ///
    /// # Errors
    /// As [`Code::assemble`].
    pub fn listing(&self, names: &Names<'_>) -> Result<Listing, BytecodeError> {
        let version = self.version();
        let layout = self.layout()?;
        let starts = &layout.starts;
        let with_table = version >= Version::V3_13;
        let mut labels = Vec::new();
        for (index, instruction) in self.instructions().iter().enumerate() {
            if let Arg::Label(label) = instruction.arg {
                labels.push(2 * starts[self.place_of(index, label)?]);
            }
        }
        let mut handlers = Vec::new();
        for (index, handler) in self.handlers().iter().enumerate() {
            let (start, end, target) = self.handler_places(index)?;
            let ends = (2 * starts[start], 2 * starts[end], 2 * starts[target]);
            if with_table {
                labels.extend([ends.0, ends.1, ends.2]);
            } else if ends.0 < ends.1 {
                labels.push(ends.2);
            }
            handlers.push((ends.0, ends.1, ends.2, handler.depth, handler.lasti));
        }
        labels.sort_unstable();
        labels.dedup();

        let mut rows = Vec::with_capacity(self.instructions().len());
        let mut lines = Lines::new(version);
        let extended = version.op_named("EXTENDED_ARG")?;
        for (index, instruction) in self.instructions().iter().enumerate() {
            let (arg, location) = (layout.args[index], instruction.location);
            let (start, offset) = (2 * starts[index], 2 * layout.offsets[index]);
            let target = match instruction.arg {
                Arg::Label(label) => Some(2 * starts[self.place_of(index, label)?]),
                Arg::Number(_) => None,
            };
            let mut starts_line = lines.next(location.line);
            let mut label = labels.binary_search(&start).ok().map(|at| at + 1);
            for at in (start..offset).step_by(2) {
                rows.push(Row {
                    op: extended,
                    arg: Some(arg >> (4 * (offset - at))),
                    text: String::new(),
                    offset: at,
                    start_offset: at,
                    target: None,
                    starts_line: starts_line.take(),
                    label: label.take(),
                    location,
                });
            }
            let has_arg = instruction.op.has_arg();
            rows.push(Row {
                op: instruction.op,
                arg: has_arg.then_some(arg),
                text: match target {
                    Some(target) if with_table => {
                        let number = labels.binary_search(&target).map_or(0, |at| at + 1);
                        let origin = instruction.op.arg == ArgKind::Origin;
                        format!("{} L{number}", if origin { "from" } else { "to" })
                    }
                    Some(target) => format!("to {target}"),
                    None => operand_text(version, instruction, names),
                },
                offset,
                start_offset: start,
                target,
                starts_line,
                label,
                location,
            });
        }
        let len = 2 * starts.last().copied().unwrap_or(0);
        Ok(Listing {
            version,
            rows,
            handlers,
            labels,
            len,
        })
    }
}

/// Finds the instructions that start a line.
struct Lines {
    with_none: bool,
    last: Option<Option<i32>>,
}

impl Lines {
    fn new(version: Version) -> Self {
        Self {
            with_none: version >= Version::V3_13,
            last: None,
        }
    }

    fn next(&mut self, line: Option<i32>) -> Option<Option<i32>> {
        if self.last == Some(line) || (line.is_none() && !self.with_none) {
            return None;
        }
        self.last = Some(line);
        Some(line)
    }
}

/// The meaning of an argument.
fn operand_text(version: Version, instruction: &Instruction, names: &Names<'_>) -> String {
    let (op, arg) = (instruction.op, instruction.number());
    let at = |list: &[String], index: u32| list.get(index as usize).cloned().unwrap_or_default();
    match op.arg {
        // 3.11 does not show these.
        ArgKind::Const if version == Version::V3_11 && op.name != "LOAD_CONST" => String::new(),
        ArgKind::Const => at(names.consts, arg),
        ArgKind::Name => at(names.names, arg),
        ArgKind::Global | ArgKind::Attribute | ArgKind::SuperName => {
            let index = op.arg.name_index(arg).unwrap_or_default();
            let name = at(names.names, index);
            let global = op.arg == ArgKind::Global;
            let more = if global { "NULL" } else { "NULL|self" };
            match (arg & 1, version) {
                (0, _) => name,
                _ if name.is_empty() => name,
                (_, Version::V3_11 | Version::V3_12) => format!("{more} + {name}"),
                _ => format!("{name} + {more}"),
            }
        }
        ArgKind::Local | ArgKind::Free => at(names.locals, arg),
        ArgKind::LocalPair => {
            let (first, second) = (at(names.locals, arg >> 4), at(names.locals, arg & 15));
            format!("{first}, {second}")
        }
        _ => choice(version, op, arg).unwrap_or_default(),
    }
}

impl Listing {
    /// The text, with a line end after each line: as `dis.dis` prints one code object.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let write = match self.version {
            Version::V3_11 | Version::V3_12 => Self::write_offsets,
            Version::V3_13 | Version::V3_14 => Self::write_labels,
        };
        // Writing to a string never fails.
        let _ = write(self, &mut text);
        text
    }

    /// The style of 3.11 and 3.12: `>>` and offsets.
    fn write_offsets(&self, text: &mut String) -> std::fmt::Result {
        let last_line = self
            .rows
            .iter()
            .filter_map(|row| row.starts_line.flatten())
            .max();
        let line_width = match last_line {
            None => 0,
            Some(line) if line >= 1000 => line.to_string().len(),
            Some(_) => 3,
        };
        let last_offset = self.len.saturating_sub(2);
        let width = if last_offset >= 10_000 {
            last_offset.to_string().len()
        } else {
            4
        };
        for row in &self.rows {
            let line = row.starts_line.flatten();
            if line.is_some() && row.offset > 0 {
                text.push('\n');
            }
            let mut out = String::new();
            if line_width > 0 {
                let line = line.map(|line| line.to_string()).unwrap_or_default();
                write!(out, "{line:>line_width$} ")?;
            }
            let mark = if row.label.is_some() { ">>" } else { "  " };
            write!(out, "    {mark} {:>width$} {:<20}", row.offset, row.op.name)?;
            if let Some(arg) = row.arg {
                write!(out, " {arg:>5}")?;
                if !row.text.is_empty() {
                    write!(out, " ({})", row.text)?;
                }
            }
            writeln!(text, "{}", out.trim_end())?;
        }
        if !self.handlers.is_empty() {
            writeln!(text, "ExceptionTable:")?;
        }
        for (start, end, target, depth, lasti) in &self.handlers {
            let end = *end as i64 - 2;
            let lasti = if *lasti { " lasti" } else { "" };
            writeln!(text, "  {start} to {end} -> {target} [{depth}]{lasti}")?;
        }
        Ok(())
    }

    /// The style of 3.13 and 3.14: labels.
    fn write_labels(&self, text: &mut String) -> std::fmt::Result {
        let starts = || self.rows.iter().filter_map(|row| row.starts_line);
        let last_line = starts().flatten().filter(|line| *line != 0).max();
        let line_width = match last_line {
            None | Some(-1) => 0,
            Some(line) => {
                let none = starts().any(|line| line.is_none());
                line.to_string().len().max(if none { 4 } else { 3 })
            }
        };
        let label_width = 4 + self.labels.len().to_string().len();
        for row in &self.rows {
            if row.starts_line.is_some() && line_width > 0 && row.offset > 0 {
                text.push('\n');
            }
            let mut out = String::new();
            if line_width > 0 {
                let line = match row.starts_line {
                    None => String::new(),
                    Some(None) => "  --".to_owned(),
                    Some(Some(line)) => line.to_string(),
                };
                write!(out, "{line:>line_width$} ")?;
            }
            let label = row
                .label
                .map(|label| format!("L{label}:"))
                .unwrap_or_default();
            let name = row.op.name;
            write!(out, "{label:>label_width$}     {name:<20}")?;
            if let Some(arg) = row.arg {
                let width = 5_usize.saturating_sub(name.len().saturating_sub(20));
                write!(out, " {arg:>width$}")?;
                if !row.text.is_empty() {
                    write!(out, " ({})", row.text)?;
                }
            }
            writeln!(text, "{}", out.trim_end())?;
        }
        if !self.handlers.is_empty() {
            writeln!(text, "ExceptionTable:")?;
        }
        let label = |offset: &usize| self.labels.binary_search(offset).map_or(0, |at| at + 1);
        for (start, end, target, depth, lasti) in &self.handlers {
            let (start, end, target) = (label(start), label(end), label(target));
            let lasti = if *lasti { " lasti" } else { "" };
            writeln!(text, "  L{start} to L{end} -> L{target} [{depth}]{lasti}")?;
        }
        Ok(())
    }
}
