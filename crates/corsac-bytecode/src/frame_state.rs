//! Values of the slots of a frame, and effects of instructions besides their signature.

use crate::kinds::Kinds;
use crate::verify::{ConstKind, Slot, Verifier};
use crate::{Instruction, Version};

/// The values that a slot may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub(crate) kinds: Kinds,
    note: Note,
}

/// Further facts about a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Note {
    Nothing,
    /// Code with `free` free variables, which may be a generator's, or a function of it.
    Code {
        free: usize,
        generator: bool,
        parameters: [Slot; 2],
    },
    /// A tuple of this many cells.
    Cells(usize),
    /// The value of the local variable with this index, without a reference of its own.
    Borrowed(usize),
}

impl Value {
    pub(crate) fn of(kinds: Kinds) -> Self {
        Self {
            kinds,
            note: Note::Nothing,
        }
    }

    /// The required kinds of the first parameters of the function.
    pub(crate) fn needs(&self) -> [Slot; 2] {
        match self.note {
            Note::Code { parameters, .. } => parameters,
            _ => [Slot::Argument; 2],
        }
    }

    /// The kind of a function with this code and its closure.
    fn closed_function(&self) -> Kinds {
        if self.needs() == [Slot::Argument; 2] {
            Kinds::FUNCTION
        } else {
            Kinds::NEEDY_FUNCTION
        }
    }
}

/// The slots of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) stack: Vec<Value>,
    pub(crate) locals: Vec<Value>,
}

impl State {
    /// Joins the values of another path; returns whether that adds any.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        let mine = self.stack.iter_mut().chain(&mut self.locals);
        for (mine, other) in mine.zip(other.stack.iter().chain(&other.locals)) {
            let kinds = mine.kinds.or(other.kinds);
            let note = match (mine.note, other.note) {
                (mine, other) if mine == other => mine,
                // One note holds one variable: a value borrowed on one path counts as borrowed.
                (Note::Borrowed(local), _) | (_, Note::Borrowed(local)) => Note::Borrowed(local),
                _ => Note::Nothing,
            };
            changed |= kinds != mine.kinds || note != mine.note;
            *mine = Value { kinds, note };
        }
        changed
    }

    fn load(&mut self, local: usize, borrow: bool) {
        let note = if borrow {
            Note::Borrowed(local)
        } else {
            Note::Nothing
        };
        let kinds = self.locals[local].kinds;
        self.stack.push(Value { kinds, note });
    }

    /// Sets a local variable, unless the stack borrows its value.
    fn store(&mut self, local: usize, value: Value) -> Result<(), String> {
        if self.stack.iter().any(|it| it.note == Note::Borrowed(local)) {
            return Err(format!("the stack borrows what variable {local} holds"));
        }
        let note = match value.note {
            Note::Borrowed(_) => Note::Nothing,
            note => note,
        };
        let kinds = value.kinds.shared();
        self.locals[local] = Value { kinds, note };
        Ok(())
    }
}

impl Verifier<'_> {
    /// Applies the effects of `instruction` besides its signature; `taken` are the values it took.
    pub(crate) fn effects(
        &self,
        at: usize,
        instruction: &Instruction,
        taken: &[Value],
        state: &mut State,
    ) -> Result<(), String> {
        let arg = instruction.number();
        let index = arg as usize;
        let pair = (index >> 4, index & 15);
        let name = instruction.op.name;
        // The values that the signature left for loads are replaced by those of the variables.
        let mut load = |count: usize, locals: &[usize], borrow: bool| {
            state.stack.truncate(state.stack.len() - count);
            for local in locals {
                state.load(*local, borrow);
            }
        };
        match name {
            "LOAD_FAST" | "LOAD_FAST_BORROW" | "LOAD_FAST_CHECK" => {
                load(1, &[index], name == "LOAD_FAST_BORROW");
                let top = state.stack.len() - 1;
                // Before 3.12, and with a check always, an unbound variable is an exception.
                if name == "LOAD_FAST_CHECK" || self.code.version() == Version::V3_11 {
                    for value in [&mut state.stack[top], &mut state.locals[index]] {
                        value.kinds = value.kinds.without(Kinds::NULL);
                    }
                } else {
                    self.check_bound(state, &[index])?;
                }
            }
            "LOAD_CLOSURE" => load(1, &[index], false),
            "LOAD_FAST_LOAD_FAST" | "LOAD_FAST_BORROW_LOAD_FAST_BORROW" => {
                load(2, &[pair.0, pair.1], name.contains("BORROW"));
                self.check_bound(state, &[pair.0, pair.1])?;
            }
            "LOAD_FAST_AND_CLEAR" => {
                load(1, &[index], false);
                state.store(index, Value::of(Kinds::NULL))?;
            }
            "STORE_FAST" => state.store(index, taken[0])?,
            "STORE_FAST_LOAD_FAST" => {
                load(1, &[], false);
                state.store(pair.0, taken[0])?;
                state.load(pair.1, false);
                self.check_bound(state, &[pair.1])?;
            }
            "STORE_FAST_STORE_FAST" => {
                state.store(pair.0, taken[1])?;
                state.store(pair.1, taken[0])?;
            }
            "DELETE_FAST" => state.store(index, Value::of(Kinds::NULL))?,
            "MAKE_CELL" => state.store(index, Value::of(Kinds::CELL))?,
            "COPY_FREE_VARS" => {
                let slots = &self.frame.slots;
                let free = slots.iter().filter(|slot| **slot == Slot::Free).count();
                if free != index {
                    return Err(format!("the code has {free} free variables"));
                }
                for local in slots.len() - free..slots.len() {
                    state.store(local, Value::of(Kinds::CELL))?;
                }
            }
            "LOAD_DEREF"
            | "STORE_DEREF"
            | "DELETE_DEREF"
            | "LOAD_CLASSDEREF"
            | "LOAD_FROM_DICT_OR_DEREF" => {
                let kinds = state.locals[index].kinds;
                if !kinds.is_within(Kinds::CELL) {
                    return Err(format!("expected a cell in variable {index}, got {kinds}"));
                }
                match name {
                    _ if self.frame.slots[index] != Slot::TupleCell => {}
                    "LOAD_DEREF" | "LOAD_FROM_DICT_OR_DEREF" => leave(state, Kinds::TUPLE),
                    "STORE_DEREF" => expect(&taken[0], Kinds::TUPLE)?,
                    _ => {}
                }
            }
            "LOAD_CONST" => self.load_const(index, state),
            "BUILD_TUPLE" => {
                let cells = taken.iter().all(|it| it.kinds == Kinds::CELL);
                if cells && let Some(top) = state.stack.last_mut() {
                    top.note = Note::Cells(taken.len());
                }
            }
            // The set of a class body or module from 3.14 on, a name that only the compiler uses.
            "LOAD_NAME" if self.frame.names[index] == "__conditional_annotations__" => {
                leave(state, Kinds::SET);
            }
            // The compiler calls generator expressions and iterates without GET_ITER.
            "CALL"
                if matches!(
                    taken[0].note,
                    Note::Code {
                        generator: true,
                        ..
                    }
                ) =>
            {
                leave(state, Kinds::ITER);
            }
            "MAKE_FUNCTION" => self.make_function(arg, taken, state)?,
            "SET_FUNCTION_ATTRIBUTE" => self.set_function_attribute(arg, taken, state)?,
            "CALL_INTRINSIC_1" => {
                let before = at.checked_sub(1).map(|at| &self.code.instructions()[at]);
                if arg == 11
                    && !before.is_some_and(|it| it.op.name == "BUILD_TUPLE" && it.number() == 3)
                {
                    return Err("expected BUILD_TUPLE 3 before it".to_owned());
                }
                let (accepts, leaves) = match arg {
                    3 => (Kinds::EXCEPTION, Kinds::EXCEPTION),
                    6 => (Kinds::LIST.or(Kinds::EXCEPTION_LIST), Kinds::TUPLE),
                    7..=9 => (Kinds::STR, Kinds::OBJECT),
                    10 | 11 => (Kinds::TUPLE, Kinds::OBJECT),
                    _ => (Kinds::ANY_OBJECT, Kinds::OBJECT),
                };
                expect(&taken[0], accepts)?;
                leave(state, leaves);
            }
            "CALL_INTRINSIC_2" => {
                let (first, second, leaves) = match arg {
                    1 => (
                        Kinds::ANY_OBJECT,
                        Kinds::EXCEPTION_LIST,
                        Kinds::EXCEPTION.or(Kinds::NONE),
                    ),
                    2 | 3 => (Kinds::STR, Kinds::FUNCTION, Kinds::OBJECT),
                    4 => (Kinds::FUNCTION, Kinds::TUPLE, Kinds::FUNCTION),
                    _ => (Kinds::ANY_OBJECT, Kinds::ANY_OBJECT, Kinds::OBJECT),
                };
                expect(&taken[0], first)?;
                expect(&taken[1], second)?;
                leave(state, leaves);
            }
            "YIELD_VALUE" if self.delegates(at)? => {
                let below = state.stack.len().checked_sub(2).map(|at| state.stack[at]);
                expect(&below.unwrap_or(Value::of(Kinds::NULL)), Kinds::ITER)?;
            }
            "BUILD_LIST" if arg == 0 => leave(state, Kinds::EXCEPTION_LIST),
            "LIST_APPEND" | "LIST_EXTEND" => {
                let exceptions = Kinds::EXCEPTION.or(Kinds::NONE);
                let list = state.stack.len() - index;
                if name == "LIST_EXTEND" || !taken[0].kinds.is_within(exceptions) {
                    state.stack[list].kinds = state.stack[list].kinds.shared();
                }
            }
            "DICT_MERGE" => {
                // An error names the function that is called, which lies below.
                let older = matches!(self.code.version(), Version::V3_11 | Version::V3_12);
                let below = index + if older { 2 } else { 3 };
                let function = state
                    .stack
                    .len()
                    .checked_sub(below)
                    .map(|at| state.stack[at]);
                let function = function.ok_or_else(|| "the stack is too low".to_owned())?;
                expect(&function, Kinds::ANY_OBJECT)?;
            }
            "RERAISE" if arg > 0 => {
                let place = state
                    .stack
                    .len()
                    .checked_sub(index)
                    .map(|at| state.stack[at]);
                let place = place.ok_or_else(|| "the stack is too low".to_owned())?;
                expect(&place, Kinds::LASTI)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn check_bound(&self, state: &State, locals: &[usize]) -> Result<(), String> {
        for local in locals {
            if state.locals[*local].kinds.has(Kinds::NULL) {
                return Err(format!("variable {local} may not be bound"));
            }
        }
        Ok(())
    }

    fn load_const(&self, index: usize, state: &mut State) {
        let (kinds, note) = match self.frame.consts[index] {
            ConstKind::None => (Kinds::NONE, Note::Nothing),
            ConstKind::Str => (Kinds::STR, Note::Nothing),
            ConstKind::Tuple(Some(0)) => (Kinds::TUPLE, Note::Cells(0)),
            ConstKind::Tuple(_) => (Kinds::TUPLE, Note::Nothing),
            ConstKind::Code {
                free,
                generator,
                parameters,
            } => (
                Kinds::CODE,
                Note::Code {
                    free,
                    generator,
                    parameters,
                },
            ),
            ConstKind::Other => (Kinds::OBJECT, Note::Nothing),
        };
        state.stack.pop();
        state.stack.push(Value { kinds, note });
    }

    /// `MAKE_FUNCTION`; before 3.13 with its parts.
    fn make_function(&self, parts: u32, taken: &[Value], state: &mut State) -> Result<(), String> {
        let Some((code, others)) = taken.split_last() else {
            return Ok(());
        };
        let Note::Code { free, .. } = code.note else {
            return Err("it is not known which code the function has".to_owned());
        };
        if parts & 8 != 0 {
            let closure = others.last().map(|closure| closure.note);
            if closure != Some(Note::Cells(free)) {
                return Err(format!("expected a closure of {free} cells"));
            }
        }
        let open = free > 0 && parts & 8 == 0;
        if open && self.code.version() < Version::V3_13 {
            return Err(format!("expected a closure of {free} cells, got none"));
        }
        state.stack.pop();
        state.stack.push(Value {
            kinds: if open {
                Kinds::OPEN_FUNCTION
            } else {
                code.closed_function()
            },
            note: code.note,
        });
        Ok(())
    }

    /// `SET_FUNCTION_ATTRIBUTE`, from 3.13 on.
    fn set_function_attribute(
        &self,
        part: u32,
        taken: &[Value],
        state: &mut State,
    ) -> Result<(), String> {
        let (value, function) = (&taken[0], &taken[1]);
        let mut kinds = function.kinds;
        match part {
            1 | 4 => expect(value, Kinds::TUPLE)?,
            2 => expect(value, Kinds::DICT)?,
            8 => {
                let (Note::Cells(cells), Note::Code { free, .. }) = (value.note, function.note)
                else {
                    return Err("expected a tuple of cells and a function".to_owned());
                };
                if cells != free {
                    return Err(format!("expected a closure of {free} cells, got {cells}"));
                }
                kinds = function.closed_function();
            }
            16 => expect(value, Kinds::FUNCTION)?,
            _ => return Err(format!("a function has no part {part}")),
        }
        state.stack.pop();
        let note = function.note;
        state.stack.push(Value { kinds, note });
        Ok(())
    }
}

fn expect(value: &Value, accepts: Kinds) -> Result<(), String> {
    if value.kinds.is_within(accepts) {
        return Ok(());
    }
    Err(format!("expected {accepts}, got {}", value.kinds))
}

/// Replaces the value on top.
fn leave(state: &mut State, kinds: Kinds) {
    if let Some(top) = state.stack.last_mut() {
        *top = Value::of(kinds);
    }
}
