//! Control flow: successors, handlers, basic blocks, stack depths.

use std::ops::Range;

use crate::{Arg, BytecodeError, Code, Version};

/// Flags of code whose call makes a generator, a coroutine or an asynchronous generator.
pub(crate) const GENERATORS: u32 = 0x20 | 0x80 | 0x200;

impl Version {
    /// Stack depth of a new frame by the compiler's count, with the value first sent to a generator
    /// already on it.
    pub(crate) fn entry_depth(self, flags: u32) -> u32 {
        u32::from(self <= Self::V3_12 && flags & GENERATORS != 0)
    }
}

/// A basic block: instructions that run one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its instructions.
    pub instructions: Range<usize>,
    /// The blocks that may run next, the one that follows first.
    pub successors: Vec<usize>,
    /// The blocks that handle its exceptions.
    pub handlers: Vec<usize>,
}

impl Code {
    /// The basic blocks in the order of the code. The bounds of regions of handlers are bounds of
    /// blocks, too.
    ///
    /// # Errors
    /// For a label without a place, and regions of handlers that overlap or are out of order.
    pub fn blocks(&self) -> Result<Vec<Block>, BytecodeError> {
        let count = self.instructions().len();
        let covering = self.covering()?;
        let mut starts = vec![false; count + 1];
        starts[0] = true;
        for (index, instruction) in self.instructions().iter().enumerate() {
            if let Some(target) = self.jump_place(index)? {
                starts[target] = true;
            }
            if instruction.op.ends_flow() || instruction.op.jumps() {
                starts[index + 1] = true;
            }
            if index > 0 && covering[index] != covering[index - 1] {
                starts[index] = true;
            }
        }
        for index in 0..self.handlers().len() {
            starts[self.handler_places(index)?.2] = true;
        }
        let bounds: Vec<usize> = (0..count).filter(|index| starts[*index]).collect();
        let block_at = |index: usize| bounds.partition_point(|start| *start < index);
        let mut blocks = Vec::with_capacity(bounds.len());
        for (number, &start) in bounds.iter().enumerate() {
            let end = bounds.get(number + 1).copied().unwrap_or(count);
            let last = &self.instructions()[end - 1];
            let mut successors = Vec::new();
            if !last.op.ends_flow() && end < count {
                successors.push(number + 1);
            }
            if let Some(target) = self.jump_place(end - 1)? {
                let target = block_at(target);
                if !successors.contains(&target) {
                    successors.push(target);
                }
            }
            let handlers = match covering[start] {
                Some(handler) => vec![block_at(self.handler_places(handler)?.2)],
                None => Vec::new(),
            };
            blocks.push(Block {
                instructions: start..end,
                successors,
                handlers,
            });
        }
        Ok(blocks)
    }

    /// The handler of each instruction.
    pub(crate) fn covering(&self) -> Result<Vec<Option<usize>>, BytecodeError> {
        let mut covering = vec![None; self.instructions().len()];
        let mut last_end = 0;
        for index in 0..self.handlers().len() {
            let (start, end, _) = self.handler_places(index)?;
            if start < last_end {
                let problem = "its region overlaps the one before, or comes before it";
                return Err(BytecodeError::Handler { index, problem });
            }
            covering[start..end].fill(Some(index));
            last_end = end;
        }
        Ok(covering)
    }

    /// The target of the instruction, if it is a jump that is followed.
    pub(crate) fn jump_place(&self, index: usize) -> Result<Option<usize>, BytecodeError> {
        let instruction = &self.instructions()[index];
        match instruction.arg {
            Arg::Label(label) if instruction.op.jumps() => {
                let place = self.place_of(index, label)?;
                if place >= self.instructions().len() {
                    let name = instruction.op.name;
                    let expected = "a label before an instruction";
                    return Err(BytecodeError::Operand {
                        index,
                        name,
                        expected,
                    });
                }
                Ok(Some(place))
            }
            _ => Ok(None),
        }
    }

    /// The stack depth before each instruction; `None` for those that are never reached.
    ///
    /// `flags` is `co_flags`: the frame of a generator starts in another way.
    ///
    /// # Errors
    /// If the stack has too little for an instruction, paths meet with different depths, or
    /// execution runs over the end.
    pub fn stack_depths(&self, flags: u32) -> Result<StackDepths, BytecodeError> {
        let covering = self.covering()?;
        let mut depths: Vec<Option<u32>> = vec![None; self.instructions().len()];
        let mut entered = vec![false; self.handlers().len()];
        let entry = self.version().entry_depth(flags);
        let mut max = 0;
        let mut work = vec![(0, i64::from(entry))];
        let mut unreached = Unreached::default();
        loop {
            let Some((mut index, mut depth)) = work.pop() else {
                match self.next_unreached(&mut unreached, &depths)? {
                    Some(start) => work.push(start),
                    None => break,
                }
                continue;
            };
            loop {
                let Some(instruction) = self.instructions().get(index) else {
                    let problem = "execution runs over the end of the code";
                    return Err(BytecodeError::Frame { problem });
                };
                let invalid = |problem: String| self.invalid(index, problem);
                let Ok(height) = u32::try_from(depth) else {
                    return Err(invalid(format!("the stack would be {depth} high")));
                };
                match depths[index] {
                    Some(known) if known == height => break,
                    Some(known) => {
                        return Err(invalid(format!(
                            "the stack is {known} high on one path, {height} on another"
                        )));
                    }
                    None => depths[index] = Some(height),
                }
                max = max.max(depth);
                if let Some(handler) = covering[index]
                    && !std::mem::replace(&mut entered[handler], true)
                {
                    let region = &self.handlers()[handler];
                    let depth = i64::from(region.depth) + i64::from(region.lasti) + 1;
                    max = max.max(depth);
                    work.push((self.handler_places(handler)?.2, depth));
                }
                let (op, arg) = (instruction.op, instruction.number());
                let needed = op.signature.needed(arg);
                if depth < needed {
                    return Err(invalid(format!(
                        "the stack is {depth} high, expected {needed} at least"
                    )));
                }
                if let Some(target) = self.jump_place(index)? {
                    let there = depth + op.stack_effect(arg, true);
                    max = max.max(there);
                    work.push((target, there));
                }
                depth += op.stack_effect(arg, false);
                max = max.max(depth);
                if op.ends_flow() {
                    break;
                }
                index += 1;
            }
        }
        let max = u32::try_from(max).map_err(|_| BytecodeError::TooLarge)?;
        Ok(StackDepths {
            before: depths,
            max,
        })
    }

    /// The next code that is never reached and that the compiler counted, with its stack depth:
    /// handlers of regions that have become empty. The depth follows from the region that starts
    /// there, or from the code that it runs into.
    fn next_unreached(
        &self,
        unreached: &mut Unreached,
        depths: &[Option<u32>],
    ) -> Result<Option<(usize, i64)>, BytecodeError> {
        while unreached.handler < self.handlers().len() {
            let handler = unreached.handler;
            unreached.handler += 1;
            let (start, end, _) = self.handler_places(handler)?;
            if start < end && depths[start].is_none() {
                return Ok(Some((start, i64::from(self.handlers()[handler].depth))));
            }
        }
        while unreached.index < depths.len() {
            let start = unreached.index;
            let mut height = 0;
            while let Some(instruction) = self.instructions().get(unreached.index) {
                if let Some(known) = depths[unreached.index] {
                    if unreached.index == start {
                        break;
                    }
                    return Ok(Some((start, i64::from(known) - height)));
                }
                let (op, arg) = (instruction.op, instruction.number());
                if let Some(target) = self.jump_place(unreached.index)?
                    && let Some(known) = depths[target]
                {
                    height += op.stack_effect(arg, true);
                    return Ok(Some((start, i64::from(known) - height)));
                }
                height += op.stack_effect(arg, false);
                unreached.index += 1;
                if op.ends_flow() {
                    break;
                }
            }
            unreached.index = unreached.index.max(start + 1);
        }
        Ok(None)
    }

    /// `co_stacksize`: the maximum stack depth.
    ///
    /// # Errors
    /// As [`Code::stack_depths`].
    pub fn stack_size(&self, flags: u32) -> Result<u32, BytecodeError> {
        // From 3.13 on a frame has at least one slot.
        let least = u32::from(self.version() >= Version::V3_13);
        Ok(self.stack_depths(flags)?.max.max(least))
    }

    /// The error for a fault of the instruction `index`.
    pub(crate) fn invalid(&self, index: usize, problem: String) -> BytecodeError {
        let offset = self.layout().map_or(0, |layout| 2 * layout.offsets[index]);
        let name = self.instructions()[index].op.name;
        BytecodeError::Invalid {
            offset,
            name,
            problem,
        }
    }
}

/// State of the search for code that is never reached.
#[derive(Default)]
struct Unreached {
    handler: usize,
    index: usize,
}

/// Stack depths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackDepths {
    /// Before each instruction that is reached.
    pub before: Vec<Option<u32>>,
    /// The greatest anywhere.
    pub max: u32,
}
