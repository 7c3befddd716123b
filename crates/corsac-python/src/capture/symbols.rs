//! Sizes as symbols: integers that are told apart by identity, and the conditions that programs put on them.
//!
//! A size that may be another one in the next call is handed to the program as an integer object of its own, which no
//! other value is. Whatever moves values moves the object: variables, containers, calls of Python functions. What
//! computes with the number is seen here: arithmetic gives another symbol, a comparison becomes a condition, and all
//! else needs the number to be what it is. Operators of PyTorch take symbols as arguments of nodes.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyFrozenSet, PyFunction, PyInt, PyList, PySet, PySlice, PyString, PyTuple, PyType,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cpython::{self, Frame};
use super::guards::{Address, address};
use super::look::{Look, Step, full_name};
use super::opcode::{self as op, Instruction};

/// Functions of Python's `operator` for arithmetic of integers, by the argument of `BINARY_OP`.
const ARITHMETIC: &[(usize, &str)] = &[
    (0, "add"),
    (2, "floordiv"),
    (5, "mul"),
    (6, "mod"),
    (10, "sub"),
];
/// The same for comparisons, by the argument of `COMPARE_OP`.
const COMPARISONS: &[&str] = &["lt", "le", "eq", "ne", "gt", "ge"];
/// How deep containers are searched for symbols, and up to how many elements.
const DEPTH: usize = 6;
/// Containers of C besides tuples, lists, sets and dictionaries.
const CONTAINERS: &[&str] = &[
    "collections.deque",
    "dict_keys",
    "dict_values",
    "dict_items",
    "odict_keys",
    "odict_values",
    "odict_items",
    "mappingproxy",
];
const ELEMENTS: usize = 1000;

/// A comparison that has to come out as it did: the function, two symbols or integers, and the result.
pub(super) type Condition = (&'static str, Py<PyAny>, Py<PyAny>, bool);

/// The result of an instruction that will be a symbol.
pub(super) struct Pending {
    expression: Py<PyAny>,
    value: i64,
}

/// Symbols, and the conditions on them.
#[derive(Default)]
pub(super) struct Symbols {
    /// The objects, which are kept so that no others get their addresses, and what they stand for.
    known: FxHashMap<Address, (Py<PyAny>, Py<PyAny>)>,
    pub(super) conditions: Vec<Condition>,
    /// Symbols that have to be the numbers that they are.
    fixed: FxHashSet<Address>,
    /// Code of generators whose values are computed with.
    consumed: FxHashSet<Address>,
    /// Something that was done with values and cannot be followed.
    pub(super) lost: Option<String>,
}

impl Symbols {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A new object for a symbol; the value itself if it is negative or large.
    pub(super) fn add<'py>(
        &mut self,
        expression: Bound<'py, PyAny>,
        value: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = expression.py();
        let Some(own) = cpython::own_integer(py, value) else {
            let plain = PyInt::new(py, value).into_any();
            self.condition("eq", expression.unbind(), plain.clone().unbind(), true);
            return Ok(plain);
        };
        self.known
            .insert(address(&own), (own.clone().unbind(), expression.unbind()));
        Ok(own)
    }

    /// What a value stands for, if it is a symbol.
    pub(super) fn expression<'py>(&self, own: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let (_, expression) = self.known.get(&address(own))?;
        Some(expression.bind(own.py()).clone())
    }

    fn condition(&mut self, name: &'static str, left: Py<PyAny>, right: Py<PyAny>, result: bool) {
        self.conditions.push((name, left, right, result));
    }

    /// Symbols in a value have to be the numbers that they are.
    pub(super) fn fix(&mut self, own: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if let Some(expression) = self.expression(own) {
            if self.fixed.insert(address(own)) {
                let plain = PyInt::new(own.py(), own.extract::<i64>()?);
                self.condition("eq", expression.unbind(), plain.into_any().unbind(), true);
            }
            return Ok(());
        }
        if own.is_exact_instance_of::<PyInt>() || own.is_instance_of::<PyString>() {
            return Ok(());
        }
        if let Ok(slice) = own.cast::<PySlice>() {
            for name in ["start", "stop", "step"] {
                self.fix(&slice.getattr(name)?, depth)?;
            }
            return Ok(());
        }
        if depth > DEPTH {
            self.lose("a deep container");
            return Ok(());
        }
        if let Ok(dict) = own.cast::<PyDict>() {
            if dict.len() > ELEMENTS {
                self.lose("a large dictionary");
            }
            for (key, value) in dict.iter().take(ELEMENTS) {
                self.fix(&key, depth + 1)?;
                self.fix(&value, depth + 1)?;
            }
        } else if own.is_instance_of::<PyTuple>()
            || own.is_instance_of::<PyList>()
            || own.is_instance_of::<PySet>()
            || own.is_instance_of::<PyFrozenSet>()
            || CONTAINERS.contains(&&*full_name(&own.get_type()))
        {
            if own.len()? > ELEMENTS {
                self.lose("a large container");
            }
            for part in own.try_iter()?.take(ELEMENTS) {
                self.fix(&part?, depth + 1)?;
            }
        } else if own.hasattr("__next__")? {
            self.iterator(own, depth)?;
        } else if own.is_instance_of::<PyBaseException>() {
            self.fix(&own.getattr("args")?, depth + 1)?;
        } else if let Some(iter) = own.get_type().getattr_opt("__iter__")? {
            // Its instances are seen where Python runs it: generators are not made by an instruction that returns.
            match iter.getattr_opt("__code__")? {
                Some(code) => drop(self.consumed.insert(address(&code))),
                None => self.fix_attributes(own, depth)?,
            }
        } else {
            self.fix_attributes(own, depth)?;
        }
        Ok(())
    }

    /// What C may compare or print of an object.
    fn fix_attributes(&mut self, own: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if full_name(&own.get_type()) == "types.SimpleNamespace"
            && let Some(store) = cpython::attributes(own, false)
        {
            self.fix(store.as_any(), depth + 1)?;
        }
        Ok(())
    }

    /// What an iterator gives is computed with.
    fn iterator(&mut self, own: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        match &*full_name(&own.get_type()) {
            "generator" => {
                self.consumed.insert(address(&own.getattr("gi_code")?));
                Ok(())
            }
            // What is left of them can be had without taking it.
            "dict_keyiterator"
            | "dict_valueiterator"
            | "dict_itemiterator"
            | "list_iterator"
            | "tuple_iterator"
            | "set_iterator"
            | "enumerate"
            | "zip"
            | "reversed"
            | "list_reverseiterator" => {
                let parts = own.call_method0("__reduce__")?;
                self.fix(&parts.get_item(1)?, depth + 1)
            }
            "range_iterator" | "str_iterator" | "str_ascii_iterator" => Ok(()),
            name => {
                self.lose(name);
                Ok(())
            }
        }
    }

    /// Something takes values that cannot be followed.
    pub(super) fn lose(&mut self, what: &str) {
        self.lost.get_or_insert_with(|| what.to_owned());
    }

    /// The instruction before was to give a symbol, which lies on the stack now.
    pub(super) fn settle(&mut self, pending: Pending, frame: &Frame<'_>) -> PyResult<()> {
        let value = frame.stack(1).filter(|own| {
            own.is_exact_instance_of::<PyInt>()
                && own.extract::<i64>().is_ok_and(|own| own == pending.value)
        });
        if let Some(value) = value {
            let expression = pending.expression.bind(value.py()).clone();
            let own = self.add(expression, pending.value)?;
            frame.replace(1, own);
        }
        Ok(())
    }
}

impl<'py> Look<'_, 'py> {
    fn fix(&mut self, own: &Bound<'py, PyAny>) -> Step {
        self.state.symbols.fix(own, 0)
    }

    /// Two integers of which one is a symbol; each as what it stands for.
    fn operands(
        &self,
        left: &Bound<'py, PyAny>,
        right: &Bound<'py, PyAny>,
    ) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let symbols = &self.state.symbols;
        let (first, second) = (symbols.expression(left), symbols.expression(right));
        let are_integers =
            left.is_exact_instance_of::<PyInt>() && right.is_exact_instance_of::<PyInt>();
        match (&first, &second) {
            (None, None) => None,
            _ if !are_integers => None,
            _ => Some((
                first.unwrap_or_else(|| left.clone()),
                second.unwrap_or_else(|| right.clone()),
            )),
        }
    }

    /// An instruction that may do something with symbols.
    pub(super) fn symbols(&mut self, frame: &Frame<'py>, own: Instruction) -> Step {
        let Instruction { opcode, arg } = own;
        let top = |depth: usize| frame.stack(depth);
        if let Some(watched) = self.state.frames.last_mut() {
            watched.moves = matches!(
                opcode,
                op::LOAD_ATTR | op::LOAD_METHOD | op::CALL | op::CALL_FUNCTION_EX
            );
        }
        match opcode {
            op::RETURN_VALUE => {
                let callers = self.state.frames.iter().rev().skip(1);
                let moves = callers.take(1).all(|caller| caller.moves);
                if let Some(own) = top(1).filter(|_| frame.is_called_by_c() && !moves) {
                    self.fix(&own)?;
                }
            }
            op::BINARY_OP => {
                if let (Some(left), Some(right)) = (top(2), top(1)) {
                    self.arithmetic(arg % 13, &left, &right)?;
                }
            }
            op::COMPARE_OP => {
                if let (Some(left), Some(right)) = (top(2), top(1)) {
                    self.comparison(arg, &left, &right)?;
                }
            }
            op::POP_JUMP_FORWARD_IF_FALSE
            | op::POP_JUMP_FORWARD_IF_TRUE
            | op::POP_JUMP_BACKWARD_IF_FALSE
            | op::POP_JUMP_BACKWARD_IF_TRUE
            | op::JUMP_IF_FALSE_OR_POP
            | op::JUMP_IF_TRUE_OR_POP
            | op::UNARY_NOT => {
                if let Some(own) = top(1)
                    && let Some(expression) = self.state.symbols.expression(&own)
                {
                    let zero = PyInt::new(self.py, 0).into_any();
                    let result = own.is_truthy()?;
                    let symbols = &mut self.state.symbols;
                    symbols.condition("ne", expression.unbind(), zero.unbind(), result);
                }
            }
            op::IS_OP => {
                for depth in [1, 2] {
                    if let Some(own) = top(depth)
                        && self.state.symbols.expression(&own).is_some()
                    {
                        // Small integers are one object each.
                        self.fix(&own)?;
                        frame.replace(depth, PyInt::new(self.py, own.extract::<i64>()?).into_any());
                    }
                }
            }
            op::CONTAINS_OP => {
                for own in [top(2), top(1)].into_iter().flatten() {
                    if !self.is_tensor(&own) {
                        self.fix(&own)?;
                    }
                }
            }
            op::UNARY_NEGATIVE | op::UNARY_POSITIVE | op::UNARY_INVERT | op::SET_UPDATE => {
                if let Some(own) = top(1).filter(|own| !self.is_tensor(own)) {
                    self.fix(&own)?;
                }
            }
            op::LOAD_ATTR | op::LOAD_METHOD => {
                if let Some(own) = top(1).filter(|own| own.is_exact_instance_of::<PyInt>()) {
                    self.fix(&own)?;
                }
            }
            op::FORMAT_VALUE => {
                if let Some(own) = top(if arg & 4 == 4 { 2 } else { 1 }) {
                    self.fix(&own)?;
                }
            }
            op::BINARY_SUBSCR | op::STORE_SUBSCR | op::DELETE_SUBSCR => {
                if let (Some(container), Some(key)) = (top(2), top(1))
                    && !self.is_tensor(&container)
                {
                    self.fix(&key)?;
                }
            }
            op::BUILD_SET => {
                for own in (1..=arg).filter_map(top) {
                    self.fix(&own)?;
                }
            }
            op::BUILD_MAP => {
                for own in (1..=arg).filter_map(|at| top(2 * at)) {
                    self.fix(&own)?;
                }
            }
            op::SET_ADD | op::MAP_ADD => {
                if let Some(own) = top(if opcode == op::SET_ADD { 1 } else { 2 }) {
                    self.fix(&own)?;
                }
            }
            op::YIELD_VALUE if self.state.symbols.consumed.contains(&frame.code_address()) => {
                if let Some(own) = top(1) {
                    self.fix(&own)?;
                }
            }
            op::MATCH_CLASS | op::MATCH_KEYS => self.state.symbols.lose("a match"),
            _ => {}
        }
        Ok(())
    }

    fn arithmetic(
        &mut self,
        kind: usize,
        left: &Bound<'py, PyAny>,
        right: &Bound<'py, PyAny>,
    ) -> Step {
        if self.is_tensor(left) || self.is_tensor(right) {
            return Ok(());
        }
        let name = ARITHMETIC.iter().find(|own| own.0 == kind);
        if let (Some((_, name)), Some((first, second))) = (name, self.operands(left, right)) {
            let (a, b): (i64, i64) = (left.extract()?, right.extract()?);
            let value = match kind {
                0 => a.checked_add(b),
                10 => a.checked_sub(b),
                5 => a.checked_mul(b),
                // Rounded down, as Python does.
                2 if b > 0 => Some(a.div_euclid(b)),
                6 if b > 0 => Some(a.rem_euclid(b)),
                _ => None,
            };
            if let (Some(value), Some(frame)) = (value, self.state.frames.last_mut()) {
                let expression = (*name, first, second).into_pyobject(self.py)?;
                frame.pending = Some(Pending {
                    expression: expression.into_any().unbind(),
                    value,
                });
                return Ok(());
            }
        }
        for own in [left, right] {
            // Sequences that are put together or repeated move what is in them.
            let is_moved =
                kind != 6 && (own.is_instance_of::<PyTuple>() || own.is_instance_of::<PyList>());
            if !is_moved {
                self.fix(own)?;
            }
        }
        Ok(())
    }

    fn comparison(
        &mut self,
        arg: usize,
        left: &Bound<'py, PyAny>,
        right: &Bound<'py, PyAny>,
    ) -> Step {
        if self.is_tensor(left) || self.is_tensor(right) {
            return Ok(());
        }
        if let (Some(name), Some((first, second))) =
            (COMPARISONS.get(arg), self.operands(left, right))
        {
            let (a, b): (i64, i64) = (left.extract()?, right.extract()?);
            let result = match *name {
                "lt" => a < b,
                "le" => a <= b,
                "eq" => a == b,
                "ne" => a != b,
                "gt" => a > b,
                _ => a >= b,
            };
            let symbols = &mut self.state.symbols;
            symbols.condition(name, first.unbind(), second.unbind(), result);
            return Ok(());
        }
        self.fix(left)?;
        self.fix(right)
    }

    /// A function of C is called, which may compute with its arguments unless it only `moves` them.
    pub(super) fn symbols_used(&mut self, arguments: &[Bound<'py, PyAny>], moves: bool) -> Step {
        if self.state.symbols.is_empty() || moves {
            return Ok(());
        }
        if let Some(watched) = self.state.frames.last_mut() {
            watched.moves = false;
        }
        for own in arguments {
            if !self.is_tensor(own) {
                self.fix(own)?;
            }
        }
        Ok(())
    }

    /// A class of C is called whose instances take what an iterator gives, or what a function makes of that.
    pub(super) fn symbols_taken(&mut self, function: Option<&Bound<'py, PyAny>>) {
        let is_seen = |own: &Bound<'py, PyAny>| match own.cast::<PyType>() {
            Ok(class) => self.effects.makes_of_values(class),
            Err(_) => own.is_instance_of::<PyFunction>(),
        };
        if !self.state.symbols.is_empty() && !function.is_some_and(is_seen) {
            self.state.symbols.lose("a function of C that is mapped");
        }
    }
}
