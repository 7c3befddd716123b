//! Numbers as symbols: sizes and values of tensors that are recognised by identity, and the
//! conditions that programs put on them.
//!
//! A number that may be another one in the next call is passed to the program as an object of its
//! own, which no other value is. Code that moves values moves the object: variables, containers,
//! calls of Python functions. Computations with the number are seen here: arithmetic gives another
//! symbol, a comparison becomes a condition, and all else fixes the number. Operators of PyTorch
//! take symbols as arguments of nodes.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyFloat, PyFrozenSet, PyFunction, PyInt, PyList, PySet, PySlice, PyString, PyTuple,
    PyType,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cpython::{self, Frame, name_in_c};
use super::guards::{Address, address};
use super::iteration::Remaining;
use super::look::{Look, PROXY, Step, full_name};
use super::opcode::{self as op, Instruction};

/// Functions of Python's `operator` for arithmetic of numbers, by the argument of `BINARY_OP`.
const ARITHMETIC: &[(usize, &str)] = &[
    (0, "add"),
    (2, "floordiv"),
    (5, "mul"),
    (6, "mod"),
    (10, "sub"),
    (11, "truediv"),
];
/// Integers up to this are exact as floating-point numbers.
const EXACT: i64 = 1 << 53;
/// The same for comparisons, by the argument of `COMPARE_OP`.
const COMPARISONS: &[&str] = &["lt", "le", "eq", "ne", "gt", "ge"];
/// Deepest nesting and largest size of containers that are searched for symbols.
const DEPTH: usize = 6;
const ELEMENTS: usize = 1000;

/// A comparison that has to give the same result again: the function, two symbols or numbers, and
/// the result.
pub(super) type Condition = (&'static str, Py<PyAny>, Py<PyAny>, bool);
/// The first part of expressions of tensor values.
const VALUE: &str = "value";

/// An integer or a floating-point number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(super) fn of(own: &Bound<'_, PyAny>) -> Option<Self> {
        if own.is_exact_instance_of::<PyInt>() {
            return own.extract().ok().map(Self::Int);
        }
        let float = own.cast_exact::<PyFloat>().ok()?;
        Some(Self::Float(float.value()))
    }

    /// The number as a floating-point number, if that is exact.
    fn as_float(self) -> Option<f64> {
        match self {
            Self::Int(own) if own.abs() <= EXACT => Some(own as f64),
            Self::Int(_) => None,
            Self::Float(own) => Some(own),
        }
    }

    /// Whether programs cannot tell two numbers apart: zero has two signs.
    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(own), Self::Int(other)) => own == other,
            (Self::Float(own), Self::Float(other)) => {
                own.to_bits() == other.to_bits() || (own.is_nan() && other.is_nan())
            }
            _ => false,
        }
    }

    fn into_object(self, py: Python<'_>) -> Bound<'_, PyAny> {
        match self {
            Self::Int(own) => PyInt::new(py, own).into_any(),
            Self::Float(own) => PyFloat::new(py, own).into_any(),
        }
    }

    /// Result of Python's arithmetic; None if it is not followed.
    fn arithmetic(self, name: &str, other: Self) -> Option<Self> {
        if let (Self::Int(a), Self::Int(b)) = (self, other)
            && name != "truediv"
        {
            let value = match name {
                "add" => a.checked_add(b),
                "sub" => a.checked_sub(b),
                "mul" => a.checked_mul(b),
                // Rounded down, as Python does.
                "floordiv" if b > 0 => Some(a.div_euclid(b)),
                "mod" if b > 0 => Some(a.rem_euclid(b)),
                _ => None,
            };
            return value.map(Self::Int);
        }
        let (a, b) = (self.as_float()?, other.as_float()?);
        let value = match name {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            // Python raises an exception.
            "truediv" if b != 0.0 => a / b,
            _ => return None,
        };
        Some(Self::Float(value))
    }

    fn compare(self, name: &str, other: Self) -> Option<bool> {
        let order = match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            _ => self.as_float()?.partial_cmp(&other.as_float()?),
        };
        Some(match name {
            "lt" => order.is_some_and(|own| own.is_lt()),
            "le" => order.is_some_and(|own| own.is_le()),
            "eq" => order.is_some_and(|own| own.is_eq()),
            "ne" => !order.is_some_and(|own| own.is_eq()),
            "gt" => order.is_some_and(|own| own.is_gt()),
            _ => order.is_some_and(|own| own.is_ge()),
        })
    }
}

/// A symbol for the result of the current instruction.
pub(super) struct Pending {
    symbol: Symbol,
    value: Number,
}

impl Pending {
    /// A symbol for the value with this name.
    pub(super) fn value(py: Python<'_>, name: &str, value: Number) -> PyResult<Self> {
        let expression = (VALUE, name, 0).into_pyobject(py)?.into_any().unbind();
        let symbol = Symbol {
            expression,
            of_values: true,
        };
        Ok(Self { symbol, value })
    }
}

/// Meaning of a symbol.
struct Symbol {
    expression: Py<PyAny>,
    /// Whether it depends on values of tensors, not only on sizes.
    of_values: bool,
}

/// Symbols, and the conditions on them.
#[derive(Default)]
pub(super) struct Symbols {
    /// The objects, kept alive so that their addresses stay unique, and their meanings.
    known: FxHashMap<Address, (Py<PyAny>, Symbol)>,
    pub(super) conditions: Vec<Condition>,
    /// Symbols that are fixed to their numbers.
    fixed: FxHashSet<Address>,
    /// Code of generators whose values are used in computations.
    consumed: FxHashSet<Address>,
    /// An operation on values that cannot be followed.
    pub(super) lost: Option<String>,
}

impl Symbols {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A new object for a symbol; the value itself if it is a negative or large integer.
    pub(super) fn add<'py>(
        &mut self,
        expression: Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        of_values: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let symbol = Symbol {
            expression: expression.unbind(),
            of_values,
        };
        match Number::of(value) {
            Some(number) => Ok(self.add_number(value.py(), symbol, number)),
            None => Ok(value.clone()),
        }
    }

    fn add_number<'py>(
        &mut self,
        py: Python<'py>,
        symbol: Symbol,
        value: Number,
    ) -> Bound<'py, PyAny> {
        let own = match value {
            Number::Int(value) => cpython::own_integer(py, value),
            Number::Float(value) => Some(PyFloat::new(py, value).into_any()),
        };
        let Some(own) = own else {
            self.is_number(py, symbol.expression, value);
            return value.into_object(py);
        };
        self.known
            .insert(address(&own), (own.clone().unbind(), symbol));
        own
    }

    /// Expression of a value, if it is a symbol.
    pub(super) fn expression<'py>(&self, own: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let (_, symbol) = self.known.get(&address(own))?;
        Some(symbol.expression.bind(own.py()).clone())
    }

    fn is_of_values(&self, own: &Bound<'_, PyAny>) -> bool {
        let known = self.known.get(&address(own));
        known.is_some_and(|(_, symbol)| symbol.of_values)
    }

    /// Whether a value is a symbol, or a tuple with one in it.
    pub(super) fn has(&self, own: &Bound<'_, PyAny>) -> bool {
        !self.is_empty()
            && match own.cast::<PyTuple>() {
                Ok(tuple) => tuple.iter().any(|own| self.has(&own)),
                Err(_) => self.known.contains_key(&address(own)),
            }
    }

    /// Fixes all symbols to their numbers.
    pub(super) fn fix_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let all: Vec<_> = self.known.values().map(|own| own.0.clone_ref(py)).collect();
        all.iter().try_for_each(|own| self.fix(own.bind(py), 0))
    }

    /// Adds the condition that an expression is this number.
    fn is_number(&mut self, py: Python<'_>, expression: Py<PyAny>, number: Number) {
        let plain = number.into_object(py).unbind();
        let name = match number {
            Number::Int(_) => "eq",
            Number::Float(_) => "is_",
        };
        self.condition(name, expression, plain, true);
    }

    /// Removes and returns the conditions on values, or those on sizes.
    pub(super) fn take_conditions(&mut self, py: Python<'_>, of_values: bool) -> Vec<Condition> {
        let all = std::mem::take(&mut self.conditions);
        let (taken, left) = all.into_iter().partition(|(_, first, second, _)| {
            [first, second]
                .iter()
                .any(|own| depends_on_values(own.bind(py)))
                == of_values
        });
        self.conditions = left;
        taken
    }

    fn condition(&mut self, name: &'static str, left: Py<PyAny>, right: Py<PyAny>, result: bool) {
        self.conditions.push((name, left, right, result));
    }

    /// Fixes the symbols in a value to their numbers.
    pub(super) fn fix(&mut self, own: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if let Some(expression) = self.expression(own) {
            if let Some(number) = Number::of(own)
                && self.fixed.insert(address(own))
            {
                self.is_number(own.py(), expression.unbind(), number);
            }
            return Ok(());
        }
        if own.is_exact_instance_of::<PyInt>()
            || own.is_exact_instance_of::<PyFloat>()
            || own.is_instance_of::<PyString>()
        {
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
            || cpython::is_queue(own)
            || cpython::is_view(own)
            || name_in_c(&own.get_type()) == PROXY
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
            // Its instances are seen where Python runs it: generators are not made by an
            // instruction that returns.
            match iter.getattr_opt("__code__")? {
                Some(code) => drop(self.consumed.insert(address(&code))),
                None => self.fix_attributes(own, depth)?,
            }
        } else {
            self.fix_attributes(own, depth)?;
        }
        Ok(())
    }

    /// Fixes the attributes of an object that C may compare or print.
    fn fix_attributes(&mut self, own: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if name_in_c(&own.get_type()) == "types.SimpleNamespace"
            && let Some(store) = cpython::attributes(own, false)
        {
            self.fix(store.as_any(), depth + 1)?;
        }
        Ok(())
    }

    /// Fixes the elements of an iterator, which are used in a computation.
    fn iterator(&mut self, own: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        match &*name_in_c(&own.get_type()) {
            "generator" => {
                self.consumed.insert(address(&own.getattr("gi_code")?));
                Ok(())
            }
            // The elements left in them can be read without being taken.
            "dict_keyiterator"
            | "dict_valueiterator"
            | "dict_itemiterator"
            | "list_iterator"
            | "tuple_iterator"
            | "set_iterator"
            | "enumerate"
            | "zip"
            | "reversed"
            | "list_reverseiterator" => Remaining::of(own)
                .iter()
                .flat_map(|left| &left.given)
                .try_for_each(|given| self.fix(given, depth + 2)),
            "range_iterator" | "str_iterator" | "str_ascii_iterator" => Ok(()),
            _ => {
                self.lose(&full_name(&own.get_type()));
                Ok(())
            }
        }
    }

    /// Notes an operation on values that cannot be followed.
    pub(super) fn lose(&mut self, what: &str) {
        self.lost.get_or_insert_with(|| what.to_owned());
    }

    /// Puts the symbol for the result of the previous instruction on the stack.
    pub(super) fn settle(&mut self, pending: Pending, frame: &Frame<'_>) -> PyResult<()> {
        let Some(top) = frame.stack(1) else {
            return Ok(());
        };
        match Number::of(&top) {
            Some(value) if value.is(pending.value) => {
                let own = self.add_number(top.py(), pending.symbol, value);
                frame.replace(1, own);
                Ok(())
            }
            // Another value was computed.
            Some(_) => {
                self.is_number(top.py(), pending.symbol.expression, pending.value);
                self.fix_all(top.py())
            }
            // It has raised an exception.
            None => Ok(()),
        }
    }
}

fn depends_on_values(expression: &Bound<'_, PyAny>) -> bool {
    expression.cast::<PyTuple>().is_ok_and(|own| {
        own.iter()
            .any(|part| part.eq(VALUE).unwrap_or(false) || depends_on_values(&part))
    })
}

/// Two numbers, and their expressions.
struct Operands<'py> {
    expressions: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    numbers: (Number, Number),
    of_values: bool,
}

impl<'py> Look<'_, 'py> {
    fn fix(&mut self, own: &Bound<'py, PyAny>) -> Step {
        self.state.symbols.fix(own, 0)
    }

    /// Expressions and values of two numbers of which one is a symbol.
    fn operands(
        &mut self,
        left: &Bound<'py, PyAny>,
        right: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Operands<'py>>> {
        let symbols = &mut self.state.symbols;
        let (Some(first), Some(second)) = (Number::of(left), Number::of(right)) else {
            return Ok(None);
        };
        let of_values = symbols.is_of_values(left) || symbols.is_of_values(right);
        let mut expressions = Vec::with_capacity(2);
        for own in [left, right] {
            let mut expression = symbols.expression(own);
            if of_values && expression.is_some() && !symbols.is_of_values(own) {
                // Conditions on sizes and on values are checked in different places.
                symbols.fix(own, 0)?;
                expression = None;
            }
            expressions.push(expression);
        }
        let [left_is, right_is] = [0, 1].map(|at| expressions[at].clone());
        if left_is.is_none() && right_is.is_none() {
            return Ok(None);
        }
        Ok(Some(Operands {
            expressions: (
                left_is.unwrap_or_else(|| left.clone()),
                right_is.unwrap_or_else(|| right.clone()),
            ),
            numbers: (first, second),
            of_values,
        }))
    }

    /// Handles an instruction that may use symbols.
    pub(super) fn symbols(&mut self, frame: &Frame<'py>, own: Instruction) -> Step {
        let Instruction { opcode, arg } = own;
        let top = |depth: usize| frame.stack(depth);
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
                let is_integer = |own: &Bound<'py, PyAny>| own.is_exact_instance_of::<PyInt>();
                // Each floating-point number that is computed is an object of its own anyway, and
                // no integer is identical to anything else.
                let are_integers = [1, 2]
                    .into_iter()
                    .all(|at| top(at).is_some_and(|own| is_integer(&own)));
                for depth in [1, 2].into_iter().filter(|_| are_integers) {
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
                if let Some(own) = top(2).filter(|own| !self.is_tensor(own)) {
                    self.fix(&own)?;
                }
                // Keys are fixed already, and values are not read.
                let is_compared = |own: &Bound<'py, PyAny>| {
                    !own.is_instance_of::<PyDict>()
                        && !own.is_instance_of::<PySet>()
                        && !own.is_instance_of::<PyFrozenSet>()
                };
                if let Some(own) = top(1).filter(|own| !self.is_tensor(own) && is_compared(own)) {
                    self.fix(&own)?;
                }
            }
            op::UNARY_NEGATIVE | op::UNARY_POSITIVE | op::UNARY_INVERT | op::SET_UPDATE => {
                if let Some(own) = top(1).filter(|own| !self.is_tensor(own)) {
                    self.fix(&own)?;
                }
            }
            op::LOAD_ATTR | op::LOAD_METHOD => {
                if let Some(own) = top(1).filter(|own| Number::of(own).is_some()) {
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
        if let Some((_, name)) = name
            && let Some(operands) = self.operands(left, right)?
            && let Some(value) = operands.numbers.0.arithmetic(name, operands.numbers.1)
            // What is computed from sizes is a size only if it is an integer.
            && (operands.of_values || matches!(value, Number::Int(_)))
            && let Some(frame) = self.state.frames.last_mut()
        {
            let (first, second) = operands.expressions;
            let expression = (*name, first, second).into_pyobject(self.py)?;
            frame.pending = Some(Pending {
                symbol: Symbol {
                    expression: expression.into_any().unbind(),
                    of_values: operands.of_values,
                },
                value,
            });
            return Ok(());
        }
        for own in [left, right] {
            // Sequences that are concatenated or repeated move their elements.
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
        if let Some(name) = COMPARISONS.get(arg)
            && let Some(operands) = self.operands(left, right)?
            && let Some(result) = operands.numbers.0.compare(name, operands.numbers.1)
        {
            let (first, second) = operands.expressions;
            let symbols = &mut self.state.symbols;
            symbols.condition(name, first.unbind(), second.unbind(), result);
            return Ok(());
        }
        let is_of_equality = matches!(COMPARISONS.get(arg), Some(&("eq" | "ne")));
        if is_of_equality && self.tuples_compared(left, right)? {
            return Ok(());
        }
        self.fix(left)?;
        self.fix(right)
    }

    /// Handles a comparison of two tuples of numbers, which compares them one by one up to the first that differ.
    /// Whether they are such tuples.
    fn tuples_compared(
        &mut self,
        left: &Bound<'py, PyAny>,
        right: &Bound<'py, PyAny>,
    ) -> PyResult<bool> {
        let (Some(left), Some(right)) = (plain_tuple(left), plain_tuple(right)) else {
            return Ok(false);
        };
        let is_equal = |a: &Bound<'py, PyAny>, b: &Bound<'py, PyAny>| {
            Number::of(a)?.compare("eq", Number::of(b)?)
        };
        let pairs = || left.iter().zip(right.iter());
        if pairs().any(|(a, b)| is_equal(&a, &b).is_none()) {
            return Ok(false);
        }
        if left.len() != right.len() {
            return Ok(true);
        }
        for (a, b) in pairs() {
            let result = is_equal(&a, &b) == Some(true);
            if let Some(operands) = self.operands(&a, &b)? {
                let (first, second) = operands.expressions;
                let symbols = &mut self.state.symbols;
                symbols.condition("eq", first.unbind(), second.unbind(), result);
            }
            if !result {
                break;
            }
        }
        Ok(true)
    }

    /// Handles a call of a C function, which may compute with its arguments unless it only `moves`
    /// them.
    pub(super) fn symbols_used(&mut self, arguments: &[Bound<'py, PyAny>], moves: bool) -> Step {
        if moves {
            return Ok(());
        }
        // Python functions that it calls may be the first to make symbols.
        if let Some(watched) = self.state.frames.last_mut() {
            watched.moves = false;
        }
        let none = self.state.symbols.is_empty();
        for own in arguments {
            if !self.is_tensor(own) && (!none || runs_python(own)?) {
                self.fix(own)?;
            }
        }
        Ok(())
    }

    /// Handles a call of a C class whose instances take elements of an iterator, or the results of
    /// a function for them.
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

/// Whether the elements of an iterable are made by code of Python, which may be the first to make symbols.
fn runs_python(own: &Bound<'_, PyAny>) -> PyResult<bool> {
    if name_in_c(&own.get_type()) == "generator" {
        return Ok(true);
    }
    match own.get_type().getattr_opt("__iter__")? {
        Some(iter) => iter.hasattr("__code__"),
        None => Ok(false),
    }
}

/// A tuple or a shape, which Python compares element by element.
fn plain_tuple<'a, 'py>(own: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyTuple>> {
    let tuple = own.cast::<PyTuple>().ok()?;
    let is_plain =
        own.is_exact_instance_of::<PyTuple>() || name_in_c(&own.get_type()) == "torch.Size";
    is_plain.then_some(tuple)
}
