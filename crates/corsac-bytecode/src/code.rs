//! Code in the form for edits: instructions with labels.

use crate::{BytecodeError, Location, Op, Version};

/// The name of a place in [`Code`]: before an instruction, or at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Label(pub u32);

/// The argument of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// A number: 0 for instructions without an argument.
    Number(u32),
    /// The target of a jump.
    Label(Label),
}

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Its opcode.
    pub op: &'static Op,
    /// Its argument.
    pub arg: Arg,
    /// Its place in the source.
    pub location: Location,
    /// Least number of `EXTENDED_ARG` before it, where it has more than its argument needs.
    pub prefixes: u8,
}

impl Instruction {
    /// An instruction with a number as its argument.
    #[must_use]
    pub fn new(op: &'static Op, arg: u32) -> Self {
        Self {
            op,
            arg: Arg::Number(arg),
            location: Location::NONE,
            prefixes: 0,
        }
    }

    /// A jump to `label`.
    #[must_use]
    pub fn jump(op: &'static Op, label: Label) -> Self {
        Self {
            arg: Arg::Label(label),
            ..Self::new(op, 0)
        }
    }

    /// The same instruction from `location`.
    #[must_use]
    pub fn at(self, location: Location) -> Self {
        Self { location, ..self }
    }

    /// The argument as a number; 0 for a label.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self.arg {
            Arg::Number(number) => number,
            Arg::Label(_) => 0,
        }
    }
}

/// A row of the exception table: the handler of exceptions from `start` to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handler {
    /// The first instruction of the region.
    pub start: Label,
    /// The place behind its last instruction.
    pub end: Label,
    /// The first instruction of the handler.
    pub target: Label,
    /// Number of stack slots that are kept.
    pub depth: u32,
    /// Whether the place of the exception is pushed below the exception.
    pub lasti: bool,
}

/// The instructions of a code object, with labels in place of offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    version: Version,
    instructions: Vec<Instruction>,
    handlers: Vec<Handler>,
    /// Places of the labels: an index of `instructions`, its length for the end.
    labels: Vec<Option<usize>>,
}

impl Code {
    /// Code without an instruction.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            instructions: Vec::new(),
            handlers: Vec::new(),
            labels: Vec::new(),
        }
    }

    pub(crate) fn from_parts(
        version: Version,
        instructions: Vec<Instruction>,
        handlers: Vec<Handler>,
        labels: Vec<Option<usize>>,
    ) -> Self {
        Self {
            version,
            instructions,
            handlers,
            labels,
        }
    }

    /// The version of CPython that the code is for.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The instructions, without `EXTENDED_ARG` and cache units.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The instructions, to be changed in place.
    pub fn instructions_mut(&mut self) -> &mut [Instruction] {
        &mut self.instructions
    }

    /// The exception table.
    #[must_use]
    pub fn handlers(&self) -> &[Handler] {
        &self.handlers
    }

    /// The exception table, to be changed.
    pub fn handlers_mut(&mut self) -> &mut Vec<Handler> {
        &mut self.handlers
    }

    /// Number of labels; they are numbered from 0.
    #[must_use]
    pub fn label_count(&self) -> usize {
        self.labels.len()
    }

    /// The index of the instruction that `label` is before, if it has a place.
    #[must_use]
    pub fn position(&self, label: Label) -> Option<usize> {
        self.labels.get(label.0 as usize).copied().flatten()
    }

    /// A new label without a place, for jumps that are made before their targets.
    pub fn new_label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts `label` before the instruction `index`.
    ///
    /// # Panics
    /// If the code has no such label, or fewer instructions.
    pub fn place(&mut self, label: Label, index: usize) {
        assert!(index <= self.instructions.len(), "no instruction {index}");
        self.labels[label.0 as usize] = Some(index);
    }

    /// The label of the instruction `index`: one that is there, or a new one.
    ///
    /// # Panics
    /// If the code has fewer instructions.
    pub fn label_at(&mut self, index: usize) -> Label {
        match self.labels.iter().position(|place| *place == Some(index)) {
            Some(number) => Label(number as u32),
            None => {
                let label = self.new_label();
                self.place(label, index);
                label
            }
        }
    }

    /// Appends an instruction.
    pub fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    /// Puts instructions before the instruction `at`; jumps to it run them, too, and regions that
    /// start there include them.
    ///
    /// # Panics
    /// If the code has fewer instructions.
    pub fn insert_at(&mut self, at: usize, new: impl IntoIterator<Item = Instruction>) {
        self.insert(at, new, |place| place > at);
    }

    /// Puts instructions before the instruction `at`; jumps to it do not run them, and regions that
    /// end there include them.
    ///
    /// # Panics
    /// If the code has fewer instructions.
    pub fn insert_before(&mut self, at: usize, new: impl IntoIterator<Item = Instruction>) {
        self.insert(at, new, |place| place >= at);
    }

    fn insert(
        &mut self,
        at: usize,
        new: impl IntoIterator<Item = Instruction>,
        moves: impl Fn(usize) -> bool,
    ) {
        let before = self.instructions.len();
        self.instructions.splice(at..at, new);
        let count = self.instructions.len() - before;
        for place in self.labels.iter_mut().flatten() {
            if moves(*place) {
                *place += count;
            }
        }
    }

    /// Removes the instructions of `range`; labels in it are then before the next instruction.
    ///
    /// # Panics
    /// If the code has fewer instructions.
    pub fn remove(&mut self, range: std::ops::Range<usize>) {
        self.instructions.drain(range.clone());
        for place in self.labels.iter_mut().flatten() {
            if *place >= range.end {
                *place -= range.len();
            } else if *place > range.start {
                *place = range.start;
            }
        }
    }

    /// Gives jumps the opcode of the direction that they have, where their opcode has the other one
    /// and there is such an opcode.
    ///
    /// # Errors
    /// For a label without a place.
    pub fn orient_jumps(&mut self) -> Result<(), BytecodeError> {
        for index in 0..self.instructions.len() {
            let Instruction { op, arg, .. } = self.instructions[index];
            let Arg::Label(label) = arg else { continue };
            let place = self.place_of(index, label)?;
            let other = match op.arg {
                _ if !op.jumps() => continue,
                crate::ArgKind::JumpForward if place <= index => {
                    op.name.replace("FORWARD", "BACKWARD")
                }
                crate::ArgKind::JumpBackward if place > index + 1 => op
                    .name
                    .replace("BACKWARD_NO_INTERRUPT", "FORWARD")
                    .replace("BACKWARD", "FORWARD"),
                _ => continue,
            };
            if let Ok(other) = self.version.op_named(&other) {
                self.instructions[index].op = other;
            }
        }
        Ok(())
    }

    pub(crate) fn place_of(&self, index: usize, label: Label) -> Result<usize, BytecodeError> {
        self.position(label)
            .ok_or_else(|| BytecodeError::UnplacedLabel {
                index,
                name: (self.instructions.get(index)).map_or("handler", |it| it.op.name),
                label: label.0,
            })
    }

    /// The regions of the handlers as indices: start, end, target.
    pub(crate) fn handler_places(
        &self,
        index: usize,
    ) -> Result<(usize, usize, usize), BytecodeError> {
        let handler = &self.handlers[index];
        let place = |label: Label| {
            let problem = "one of its labels has no place";
            (self.position(label)).ok_or(BytecodeError::Handler { index, problem })
        };
        let (start, end, target) = (
            place(handler.start)?,
            place(handler.end)?,
            place(handler.target)?,
        );
        let problem = if start > end {
            "its region ends before it starts"
        } else if target >= self.instructions.len() {
            "there is no instruction where it goes to"
        } else {
            return Ok((start, end, target));
        };
        Err(BytecodeError::Handler { index, problem })
    }
}
