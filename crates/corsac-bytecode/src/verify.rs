//! Checks that the interpreter can run code without crashing.
//!
//! The interpreter trusts its compiler: it checks neither that the stack has the slots that an
//! instruction takes, nor that an index is in range, nor that `FOR_ITER` finds an iterator.
//! [`Code::verify`] follows all paths with the set of kinds that each slot of the stack and each
//! local variable can hold, and checks:
//!
//! - stack depths, as [`Code::stack_depths`]; instructions that are never reached are not checked
//!   further;
//! - indices of constants, names, variables, operators; constants that have to be tuples or code;
//! - that NULL, iterators, containers, functions, exceptions are where instructions expect them
//!   without a check; that cells are made before they are read; that variables which are loaded
//!   without a check are bound (from 3.12 on);
//! - that closures have as many cells as their code has free variables;
//! - that generators start with `RETURN_GENERATOR` and other functions have none and do not yield;
//! - pairs of instructions that the interpreter takes for one: `PRECALL` and `CALL`, `KW_NAMES` and
//!   its call, the instruction after a loop;
//! - that exceptions find the stack at least as deep as their handler keeps it.

use std::collections::VecDeque;

use crate::flow::GENERATORS;
use crate::frame_state::{State, Value};
use crate::kinds::Kinds;
use crate::operands::{choice, is_whole_comparison};
use crate::signature::{Movement, Output};
use crate::{Arg, ArgKind, BytecodeError, Code, Instruction, Version};

/// The kind of a constant, as far as code depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstKind {
    /// None.
    None,
    /// A string.
    Str,
    /// A tuple; if all its elements are strings, their number.
    Tuple(Option<usize>),
    /// A code object.
    Code {
        /// Number of free variables.
        free: usize,
        /// Whether its function returns a generator: one that is no coroutine.
        generator: bool,
        /// Its first two parameters. Those that are no [`Slot::Argument`] have to be of that kind.
        parameters: [Slot; 2],
    },
    /// Anything else.
    Other,
}

/// The kind of a local variable when the code starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A parameter.
    Argument,
    /// A parameter that is an iterator: `.0` of comprehensions.
    Iterator,
    /// A parameter that is iterated asynchronously: `.0` of asynchronous comprehensions.
    AsyncIterator,
    /// A parameter that is a tuple: `.defaults` of generic functions.
    Tuple,
    /// A parameter that is a dict: `.kwdefaults` of generic functions.
    Dict,
    /// A variable that is not bound yet, or a cell that is not made yet.
    Unbound,
    /// A cell that holds a tuple once it is made: `.type_params` of generic functions and classes.
    TupleCell,
    /// A variable of an enclosing function.
    Free,
}

/// The parts of a code object besides its code.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// `co_flags`.
    pub flags: u32,
    /// `co_consts`.
    pub consts: Vec<ConstKind>,
    /// `co_names`.
    pub names: Vec<String>,
    /// Local variables, cells and free variables, in the order of their slots.
    pub slots: Vec<Slot>,
}

/// The most slots, of all states together, that are kept at once, and the most that are visited.
const MAX_KEPT: usize = 1 << 22;
const MAX_STEPS: usize = 1 << 28;

/// The deepest stack: the interpreter allocates it in each call.
const MAX_STACK: u32 = 1 << 20;

/// Instructions that raise nothing. Regions of handlers include some of them with a stack that is
/// not as the handler expects it.
const NEVER_RAISE: [&str; 8] = [
    "COPY",
    "JUMP_FORWARD",
    "NOP",
    "POP_EXCEPT",
    "POP_TOP",
    "PUSH_EXC_INFO",
    "PUSH_NULL",
    "SWAP",
];

impl Code {
    /// The required kind of a parameter of this name at this index: names with a dot are the
    /// compiler's own, and functions that have them are called by its code only.
    #[must_use]
    pub fn parameter_slot(&self, name: &str, index: u32) -> Slot {
        let loads =
            |it: &Instruction| it.op.name.starts_with("LOAD_FAST") && it.arg == Arg::Number(index);
        match name {
            ".0" => {
                let pairs = self.instructions().windows(2);
                let asynchronous = pairs
                    .filter(|pair| loads(&pair[0]))
                    .all(|pair| pair[1].op.name == "GET_ANEXT");
                if asynchronous {
                    Slot::AsyncIterator
                } else {
                    Slot::Iterator
                }
            }
            ".defaults" | ".type_params" => Slot::Tuple,
            ".kwdefaults" => Slot::Dict,
            _ => Slot::Argument,
        }
    }

    /// Checks that the interpreter can run the code without crashing, and returns `co_stacksize`.
    ///
    /// # Errors
    /// With the offset of the first instruction found that cannot be run, or the fault of the code
    /// as a whole. [`BytecodeError::TooLarge`] if the check would take too long.
    pub fn verify(&self, frame: &Frame) -> Result<u32, BytecodeError> {
        self.assemble(1)?;
        let size = self.stack_size(frame.flags)?;
        if size > MAX_STACK {
            return Err(BytecodeError::TooLarge);
        }
        Verifier::new(self, frame)?.run()?;
        Ok(size)
    }
}

pub(crate) struct Verifier<'a> {
    pub(crate) code: &'a Code,
    pub(crate) frame: &'a Frame,
    covering: Vec<Option<usize>>,
    /// Whether an instruction may run after another one than the one before it.
    jumped_to: Vec<bool>,
    /// The states before instructions that are jumped to.
    states: Vec<Option<State>>,
    kept: usize,
    steps: usize,
    work: VecDeque<usize>,
}

impl<'a> Verifier<'a> {
    fn new(code: &'a Code, frame: &'a Frame) -> Result<Self, BytecodeError> {
        let count = code.instructions().len();
        let mut jumped_to = vec![false; count];
        for index in 0..count {
            if let Some(target) = code.jump_place(index)? {
                jumped_to[target] = true;
            }
        }
        for index in 0..code.handlers().len() {
            jumped_to[code.handler_places(index)?.2] = true;
        }
        Ok(Self {
            code,
            frame,
            covering: code.covering()?,
            jumped_to,
            states: vec![None; count],
            kept: 0,
            steps: 0,
            work: VecDeque::new(),
        })
    }

    fn version(&self) -> Version {
        self.code.version()
    }

    fn run(mut self) -> Result<(), BytecodeError> {
        self.check_prologue()?;
        let generator = self.version().entry_depth(self.frame.flags);
        let entry = State {
            stack: vec![Value::of(Kinds::OBJECT); generator as usize],
            locals: self
                .frame
                .slots
                .iter()
                .map(|slot| entry_value(*slot))
                .collect(),
        };
        self.join(0, &entry)?;
        while let Some(index) = self.work.pop_front() {
            if let Some(state) = self.states[index].clone() {
                self.follow(index, state)?;
            }
        }
        Ok(())
    }

    /// Runs from `index` on to the next instruction with a state of its own.
    fn follow(&mut self, mut index: usize, mut state: State) -> Result<(), BytecodeError> {
        loop {
            let instruction = self.code.instructions()[index];
            self.steps += 1 + state.stack.len() + state.locals.len();
            if self.steps > MAX_STEPS {
                return Err(BytecodeError::TooLarge);
            }
            if let Some(handler) = self.covering[index]
                && !NEVER_RAISE.contains(&instruction.op.name)
            {
                self.raise(index, handler, &state)?;
            }
            let target = self.code.jump_place(index)?;
            let there = self.step(index, &instruction, &mut state, target)?;
            if let (Some(target), Some(there)) = (target, there) {
                self.join(target, &there)?;
            }
            if instruction.op.ends_flow() {
                return Ok(());
            }
            index += 1;
            if self.jumped_to[index] {
                return self.join(index, &state);
            }
        }
    }

    /// The handler's state after an exception at `index`.
    fn raise(&mut self, index: usize, handler: usize, state: &State) -> Result<(), BytecodeError> {
        let region = self.code.handlers()[handler];
        let depth = region.depth as usize;
        // The slots it takes are gone when it raises.
        let instruction = &self.code.instructions()[index];
        let resumed = instruction.op.name == "YIELD_VALUE";
        let gone = match resumed {
            // It raises when it is resumed: with the value sent in place of the one yielded.
            true => 0,
            false => instruction.op.signature.gone(instruction.number()),
        };
        let height = (state.stack.len() as i64 - gone).max(0);
        if height < i64::from(region.depth) {
            let problem = format!("its handler keeps {depth} slots of a stack of {height}");
            return Err(self.code.invalid(index, problem));
        }
        let target = self.code.handler_places(handler)?.2;
        let mut there = State {
            stack: state.stack[..depth].to_vec(),
            locals: state.locals.clone(),
        };
        if resumed && let Some(sent) = there.stack.get_mut(state.stack.len() - 1) {
            *sent = Value::of(Kinds::OBJECT);
        }
        if region.lasti {
            there.stack.push(Value::of(Kinds::LASTI));
        }
        there.stack.push(Value::of(Kinds::EXCEPTION));
        self.join(target, &there)
    }

    fn join(&mut self, index: usize, state: &State) -> Result<(), BytecodeError> {
        let changed = match &mut self.states[index] {
            Some(known) if known.stack.len() != state.stack.len() => {
                let problem = "the stack has different heights on different paths";
                return Err(self.code.invalid(index, problem.to_owned()));
            }
            Some(known) => known.join(state),
            none => {
                self.kept += state.stack.len() + state.locals.len();
                if self.kept > MAX_KEPT {
                    return Err(BytecodeError::TooLarge);
                }
                *none = Some(state.clone());
                true
            }
        };
        if changed && !self.work.contains(&index) {
            self.work.push_back(index);
        }
        Ok(())
    }

    /// Runs one instruction on `state`; returns the state at its jump target, if it jumps.
    fn step(
        &self,
        index: usize,
        instruction: &Instruction,
        state: &mut State,
        target: Option<usize>,
    ) -> Result<Option<State>, BytecodeError> {
        let invalid = |problem: String| Err(self.code.invalid(index, problem));
        if let Err(problem) = self.check_operand(instruction) {
            return invalid(problem);
        }
        if let Err(problem) = self.check_neighbours(index, instruction, target) {
            return invalid(problem);
        }
        let (op, arg) = (instruction.op, instruction.number());
        let signature = &op.signature;
        let height = state.stack.len();
        if (height as i64) < signature.needed(arg) {
            return invalid(format!("the stack is {height} high"));
        }
        match signature.movement {
            Some(Movement::Copy) => {
                let copied = state.stack[height - (arg as usize).max(1)];
                if copied.kinds.has(Kinds::NULL) {
                    return invalid(format!("expected an object to copy, got {}", copied.kinds));
                }
                let place = height - (arg as usize).max(1);
                let shared = copied.kinds.shared();
                state.stack[place].kinds = shared;
                state.stack.push(state.stack[place]);
                return Ok(None);
            }
            Some(Movement::Swap) => {
                state.stack.swap(height - 1, height - (arg as usize).max(1));
                return Ok(None);
            }
            None => {}
        }
        let taken = state
            .stack
            .split_off(height - signature.taken(arg) as usize);
        let accepted = (signature.inputs.iter())
            .flat_map(|input| std::iter::repeat_n(input.accepts, input.count(arg) as usize));
        let needy = needy_function(op.name, &taken);
        if let Some(at) = needy
            && let Err(problem) = check_needs(&taken[at..])
        {
            return invalid(problem);
        }
        for (at, (value, accepts)) in taken.iter().zip(accepted).enumerate() {
            if needy == Some(at) {
                continue;
            }
            if !value.kinds.is_within(accepts) {
                let kinds = value.kinds;
                return invalid(format!("expected {accepts} on the stack, got {kinds}"));
            }
        }
        if let Some(deep) = signature.deep {
            let value = state.stack[state.stack.len() - (arg as usize).max(1)];
            if !value.kinds.is_within(deep) {
                let kinds = value.kinds;
                return invalid(format!("expected {deep} {arg} below, got {kinds}"));
            }
        }
        let leave = |state: &mut State, outputs: &[Output]| {
            for output in outputs {
                match output {
                    Output::Same(number) => state.stack.push(taken[*number]),
                    Output::New(kinds, count) => {
                        let new = std::iter::repeat_n(Value::of(*kinds), count.of(arg) as usize);
                        state.stack.extend(new);
                    }
                }
            }
        };
        let mut there = target.map(|_| state.clone());
        if let Some(there) = &mut there {
            leave(there, signature.left(true));
        }
        leave(state, signature.left(false));
        if let Err(problem) = self.effects(index, instruction, &taken, state) {
            return invalid(problem);
        }
        if let Some(there) = &mut there {
            self.refine(index, instruction, state, there);
        }
        Ok(there)
    }

    /// Narrows the kinds after `COPY 1` and a jump on None: the value left is None, or is not.
    fn refine(&self, index: usize, instruction: &Instruction, on: &mut State, there: &mut State) {
        let jumps_if_none = match instruction.op.name.rsplit_once("_IF_") {
            Some((_, "NONE")) => true,
            Some((_, "NOT_NONE")) => false,
            _ => return,
        };
        let Some(before) = index.checked_sub(1).map(|at| self.code.instructions()[at]) else {
            return;
        };
        if before.op.name != "COPY" || before.number() != 1 || self.jumped_to[index] {
            return;
        }
        let not_none = if jumps_if_none { on } else { there };
        if let Some(top) = not_none.stack.last_mut() {
            top.kinds = top.kinds.without(Kinds::NONE);
        }
    }

    /// Checks that operands are in range.
    fn check_operand(&self, instruction: &Instruction) -> Result<(), String> {
        let (op, arg) = (instruction.op, instruction.number());
        let below = |what: &str, index: u32, count: usize| {
            if (index as usize) < count {
                return Ok(());
            }
            Err(format!("there is no {what} {index}: there are {count}"))
        };
        match op.arg {
            ArgKind::Const => below("constant", arg, self.frame.consts.len()),
            ArgKind::Name | ArgKind::Global | ArgKind::Attribute | ArgKind::SuperName => {
                let index = op.arg.name_index(arg).unwrap_or_default();
                below("name", index, self.frame.names.len())
            }
            ArgKind::Local | ArgKind::Free => below("variable", arg, self.frame.slots.len()),
            ArgKind::LocalPair => {
                below("variable", arg >> 4, self.frame.slots.len())?;
                below("variable", arg & 15, self.frame.slots.len())
            }
            ArgKind::SmallInt => below("small integer", arg, 257),
            ArgKind::FunctionParts | ArgKind::Format if arg > 16 => {
                Err(format!("there are no flags {arg}"))
            }
            ArgKind::Compare if !is_whole_comparison(self.version(), arg) => Err(format!(
                "the low bits of {arg} are not those of its operator"
            )),
            ArgKind::Conversion if arg == 0 => Err("there is no conversion 0".to_owned()),
            _ if choice(self.version(), op, arg).is_none() => Err(format!(
                "CPython {} has no number {arg} for it",
                self.version()
            )),
            _ => match op.name {
                "COPY" | "SWAP" | "LIST_APPEND" | "SET_ADD" | "MAP_ADD" | "LIST_EXTEND"
                | "SET_UPDATE" | "DICT_UPDATE" | "DICT_MERGE"
                    if arg == 0 =>
                {
                    Err("expected an argument of 1 or more, got 0".to_owned())
                }
                "RAISE_VARARGS" if arg > 2 => Err("raises with at most 2 arguments".to_owned()),
                "BUILD_SLICE" if !(2..=3).contains(&arg) => Err("expected 2 or 3".to_owned()),
                "BUILD_INTERPOLATION" if arg >> 2 > 3 => Err("no such conversion".to_owned()),
                "CACHE" | "RESERVED" | "INTERPRETER_EXIT" | "EXIT_INIT_CHECK"
                | "ENTER_EXECUTOR" => Err("only the interpreter itself uses it".to_owned()),
                _ => Ok(()),
            },
        }
    }

    /// Checks that instructions which the interpreter takes for one come together.
    fn check_neighbours(
        &self,
        index: usize,
        instruction: &Instruction,
        target: Option<usize>,
    ) -> Result<(), String> {
        let name_at = |at: usize| self.code.instructions().get(at).map_or("", |it| it.op.name);
        let number_at = |at: usize| {
            self.code
                .instructions()
                .get(at)
                .map_or(0, Instruction::number)
        };
        let follows = |at: usize| !self.jumped_to.get(at).copied().unwrap_or(true);
        let arg = instruction.number();
        let version = self.version();
        match instruction.op.name {
            "PRECALL" => {
                let call = index + 1;
                if name_at(call) != "CALL" || number_at(call) != arg || !follows(call) {
                    return Err("expected CALL with the same number next".to_owned());
                }
            }
            "CALL"
                if version == Version::V3_11 && (index == 0 || name_at(index - 1) != "PRECALL") =>
            {
                return Err("expected PRECALL before it".to_owned());
            }
            "KW_NAMES" => {
                let call = index + 1;
                let is_call = matches!(
                    (name_at(call), version),
                    ("PRECALL", Version::V3_11) | ("CALL", Version::V3_12)
                );
                let ConstKind::Tuple(Some(count)) = self.frame.consts[arg as usize] else {
                    return Err(format!("constant {arg} is no tuple of names"));
                };
                if !is_call || !follows(call) || count > number_at(call) as usize {
                    return Err("expected a call with as many arguments next".to_owned());
                }
            }
            "FOR_ITER" if version > Version::V3_11 => {
                let end = target.unwrap_or_default();
                let then = match version {
                    Version::V3_13 => "POP_TOP",
                    Version::V3_14 => "POP_ITER",
                    _ => name_at(end + 1),
                };
                if name_at(end) != "END_FOR" || name_at(end + 1) != then {
                    return Err("expected to jump to END_FOR and what belongs to it".to_owned());
                }
            }
            "SEND"
                if version > Version::V3_11
                    && name_at(target.unwrap_or_default()) != "END_SEND" =>
            {
                return Err("expected to jump to END_SEND".to_owned());
            }
            "YIELD_VALUE" if self.frame.flags & GENERATORS == 0 => {
                return Err("the flags are not those of a generator".to_owned());
            }
            "LOAD_CLASSDEREF" if self.frame.flags & 1 != 0 => {
                return Err("the code has no namespace of its own".to_owned());
            }
            "ASYNC_GEN_WRAP" if self.frame.flags & 0x200 == 0 => {
                return Err("the flags are not those of an asynchronous generator".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the `YIELD_VALUE` at `index` is part of `yield from` or `await`. As the interpreter
    /// does when an exception is thrown in, decides by the `RESUME` that follows.
    pub(crate) fn delegates(&self, index: usize) -> Result<bool, String> {
        let instructions = self.code.instructions();
        let resumes = instructions
            .get(index + 1)
            .is_some_and(|next| next.op.name == "RESUME" && next.number() & 3 >= 2);
        let arg = instructions[index].number();
        if self.version() >= Version::V3_13 && arg != u32::from(resumes) {
            return Err(format!("expected {} here, got {arg}", u32::from(resumes)));
        }
        let sends = index > 0 && instructions[index - 1].op.name == "SEND";
        if resumes && (!sends || self.jumped_to[index]) {
            return Err("expected SEND before it, since RESUME after it says so".to_owned());
        }
        Ok(resumes)
    }

    /// Checks that a generator starts as one, and nothing else does.
    fn check_prologue(&self) -> Result<(), BytecodeError> {
        let is_generator = self.frame.flags & GENERATORS != 0;
        let instructions = self.code.instructions();
        let prologue = ["COPY_FREE_VARS", "MAKE_CELL", "NOP"];
        let first = instructions
            .iter()
            .position(|it| !prologue.contains(&it.op.name))
            .unwrap_or(0);
        let is_it = |it: &Instruction| it.op.name == "RETURN_GENERATOR";
        let starts = instructions.get(first).is_some_and(is_it);
        let again = instructions.iter().skip(first + 1).any(is_it)
            || (starts && self.jumped_to[..=first].contains(&true));
        let problem = match (is_generator, starts, again) {
            (true, true, false) | (false, false, false) => return Ok(()),
            (true, false, _) => "a generator has to start with RETURN_GENERATOR",
            (_, _, true) | (false, true, _) => "RETURN_GENERATOR where no generator starts",
        };
        Err(BytecodeError::Frame { problem })
    }
}

fn entry_value(slot: Slot) -> Value {
    Value::of(match slot {
        Slot::Argument => Kinds::OBJECT,
        Slot::Iterator => Kinds::ITER,
        Slot::AsyncIterator => Kinds::ASYNC_ITER,
        Slot::Tuple => Kinds::TUPLE,
        Slot::Dict => Kinds::DICT,
        Slot::Unbound | Slot::TupleCell | Slot::Free => Kinds::NULL,
    })
}

/// The place, among the slots that a call takes, of a function that requires certain kinds of
/// parameters.
fn needy_function(opname: &str, taken: &[Value]) -> Option<usize> {
    let at = taken.iter().position(|value| value.kinds != Kinds::NULL)?;
    (opname == "CALL" && taken[at].kinds == Kinds::NEEDY_FUNCTION).then_some(at)
}

/// Checks that such a function, the first slot of `call`, gets such arguments.
fn check_needs(call: &[Value]) -> Result<(), String> {
    let mut arguments = call[1..].iter().filter(|value| value.kinds != Kinds::NULL);
    for slot in call[0].needs() {
        let kinds = arguments.next().map_or(Kinds::NULL, |value| value.kinds);
        let needed = entry_value(slot).kinds;
        if slot != Slot::Argument && !kinds.is_within(needed) {
            return Err(format!("expected {needed} as an argument, got {kinds}"));
        }
    }
    Ok(())
}
