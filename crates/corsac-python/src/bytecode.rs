//! Code objects, for Python: an immutable handle on decoded code.

use corsac_bytecode::{
    Arg, BytecodeError as CodeError, Code, ConstKind, Frame, Handler, Instruction, Label, Listing,
    Location, Names, RawCode, Slot, Version,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCode, PyString, PyTuple};

pyo3::create_exception!(
    corsac._core,
    BytecodeError,
    PyValueError,
    "Invalid bytes of code, instructions that cannot be encoded, or code that the interpreter \
     cannot run.\n\nHas the attribute `offset`, in bytes, or None."
);

/// A place in the source: line, last line, column, last column.
type Place = (Option<i32>, Option<i32>, Option<u32>, Option<u32>);

/// An instruction: opcode, argument, label, place.
type PyInstruction = (String, Option<i64>, Option<u32>, Option<Place>);

/// A row of the exception table: labels of start, end and target; depth; whether the place is
/// pushed.
type PyHandler = (u32, u32, u32, u32, bool);

/// A line of the listing: opcode, number, argument, argument as text, offset, offset of its first
/// `EXTENDED_ARG`, target, whether it starts a line, label, place.
type PyRow = (
    &'static str,
    u8,
    Option<u32>,
    String,
    usize,
    usize,
    Option<usize>,
    bool,
    Option<usize>,
    Place,
);

/// A row of the exception table: start, end and target in bytes, depth, whether the place is
/// pushed.
type PyEntry = (usize, usize, usize, u32, bool);

/// A basic block: first instruction, end (exclusive), blocks that may run next, blocks that handle
/// its exceptions.
type PyBlock = (usize, usize, Vec<usize>, Vec<usize>);

fn bytecode_error(py: Python<'_>, error: &CodeError) -> PyErr {
    let raised = BytecodeError::new_err(error.to_string());
    let offset = match error {
        CodeError::UnknownOpcode { offset, .. }
        | CodeError::Cache { offset, .. }
        | CodeError::ExtendedArg { offset, .. }
        | CodeError::Target { offset, .. }
        | CodeError::Invalid { offset, .. } => Some(*offset),
        _ => None,
    };
    let set = raised.value(py).setattr("offset", offset);
    set.err().unwrap_or(raised)
}

/// Instructions of a code object with labels in place of offsets.
#[pyclass(frozen, module = "corsac._core", name = "Instructions")]
pub(crate) struct PyInstructions {
    code: Code,
}

impl PyInstructions {
    fn shown(&self, py: Python<'_>, names: &ShownNames) -> PyResult<Listing> {
        let (consts, names, locals) = names;
        let names = Names {
            consts,
            names,
            locals,
        };
        let listing = self.code.listing(&names);
        listing.map_err(|error| bytecode_error(py, &error))
    }
}

/// The `repr` of constants, names, local variables.
type ShownNames = (Vec<String>, Vec<String>, Vec<String>);

#[pymethods]
impl PyInstructions {
    /// Read the bytes of a code object.
    ///
    /// Args:
    ///     minor: the minor version of CPython, 11 to 14.
    ///     code, exception_table, line_table, first_line: ``co_code``, ``co_exceptiontable``,
    ///         ``co_linetable``, ``co_firstlineno``.
    #[staticmethod]
    fn decode(
        py: Python<'_>,
        minor: u32,
        code: Vec<u8>,
        exception_table: Vec<u8>,
        line_table: Vec<u8>,
        first_line: i32,
    ) -> PyResult<Self> {
        let raw = RawCode {
            code,
            exception_table,
            line_table,
            first_line,
        };
        let code = Version::from_minor(minor).and_then(|version| Code::disassemble(version, &raw));
        let code = code.map_err(|error| bytecode_error(py, &error))?;
        Ok(Self { code })
    }

    /// Instructions from their parts.
    ///
    /// Args:
    ///     minor: the minor version of CPython, 11 to 14.
    ///     instructions: opcode, argument or None, number of a label or None, place or None.
    ///     labels: the index of the instruction that each label is before.
    ///     handlers: labels of start, end and target, depth, whether the place is pushed.
    #[staticmethod]
    fn from_parts(
        py: Python<'_>,
        minor: u32,
        instructions: Vec<PyInstruction>,
        labels: Vec<usize>,
        handlers: Vec<PyHandler>,
    ) -> PyResult<Self> {
        let raised = |error| bytecode_error(py, &error);
        let version = Version::from_minor(minor).map_err(raised)?;
        let mut code = Code::new(version);
        for (name, arg, label, place) in instructions {
            let op = version.op_named(&name).map_err(raised)?;
            let location = place.map_or(Location::NONE, |(line, end_line, column, end_column)| {
                Location {
                    line,
                    end_line,
                    column,
                    end_column,
                }
            });
            let instruction = match (label, arg) {
                (Some(label), _) => Instruction::jump(op, Label(label)),
                (None, arg) => {
                    let number = u32::try_from(arg.unwrap_or(0));
                    let number = number.map_err(|_| {
                        PyValueError::new_err(format!("{name}: an argument is at least 0"))
                    })?;
                    if op.has_arg() != arg.is_some() && number == 0 {
                        let takes = if op.has_arg() { "an" } else { "no" };
                        let message = format!("{name} takes {takes} argument");
                        return Err(BytecodeError::new_err(message));
                    }
                    Instruction::new(op, number)
                }
            };
            code.push(instruction.at(location));
        }
        for index in labels {
            if index > code.instructions().len() {
                let message = format!("a label before instruction {index}, which is none");
                return Err(BytecodeError::new_err(message));
            }
            let label = code.new_label();
            code.place(label, index);
        }
        for (start, end, target, depth, lasti) in handlers {
            code.handlers_mut().push(Handler {
                start: Label(start),
                end: Label(end),
                target: Label(target),
                depth,
                lasti,
            });
        }
        Ok(Self { code })
    }

    /// The parts that `from_parts` takes, without the version.
    fn parts(&self) -> (Vec<PyInstruction>, Vec<Option<usize>>, Vec<PyHandler>) {
        let instructions = (self.code.instructions().iter()).map(|it| {
            let Location {
                line,
                end_line,
                column,
                end_column,
            } = it.location;
            let (arg, label) = match it.arg {
                Arg::Number(number) => (it.op.has_arg().then_some(i64::from(number)), None),
                Arg::Label(label) => (None, Some(label.0)),
            };
            let place = Some((line, end_line, column, end_column));
            (it.op.name.to_owned(), arg, label, place)
        });
        let labels = (0..self.code.label_count()).map(|number| Label(number as u32));
        let handlers = (self.code.handlers().iter())
            .map(|it| (it.start.0, it.end.0, it.target.0, it.depth, it.lasti));
        (
            instructions.collect(),
            labels.map(|label| self.code.position(label)).collect(),
            handlers.collect(),
        )
    }

    /// The same instructions with jumps in the direction of their labels.
    fn oriented(&self, py: Python<'_>) -> PyResult<Self> {
        let mut code = self.code.clone();
        let done = code.orient_jumps();
        done.map_err(|error| bytecode_error(py, &error))?;
        Ok(Self { code })
    }

    /// Write the code: ``co_code``, ``co_exceptiontable``, ``co_linetable``.
    fn assemble<'py>(
        &self,
        py: Python<'py>,
        first_line: i32,
    ) -> PyResult<[Bound<'py, PyBytes>; 3]> {
        let raw = self.code.assemble(first_line);
        let raw = raw.map_err(|error| bytecode_error(py, &error))?;
        let tables = [raw.code, raw.exception_table, raw.line_table];
        Ok(tables.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// ``co_stacksize``, as the compiler computes it; ``flags`` is ``co_flags``.
    fn stack_size(&self, py: Python<'_>, flags: u32) -> PyResult<u32> {
        let size = self.code.stack_size(flags);
        size.map_err(|error| bytecode_error(py, &error))
    }

    /// The height of the stack before each instruction; None for those that are never reached.
    fn stack_depths(&self, py: Python<'_>, flags: u32) -> PyResult<Vec<Option<u32>>> {
        let depths = self.code.stack_depths(flags);
        Ok(depths.map_err(|error| bytecode_error(py, &error))?.before)
    }

    /// Check that the interpreter can run the code without crashing; returns ``co_stacksize``.
    ///
    /// Args:
    ///     flags: ``co_flags``.
    ///     parameters: the number of local variables that are parameters.
    ///     consts, names: ``co_consts`` and ``co_names``.
    ///     locals: the local variables, cells and free variables, by slot.
    ///     free: the number of free variables, which come last.
    #[allow(clippy::too_many_arguments)] // the fields of a code object
    fn verify(
        &self,
        py: Python<'_>,
        flags: u32,
        parameters: usize,
        consts: &Bound<'_, PyTuple>,
        names: Vec<String>,
        locals: Vec<String>,
        free: usize,
    ) -> PyResult<u32> {
        let slots = (locals.iter().enumerate()).map(|(index, name)| {
            if index >= locals.len().saturating_sub(free) {
                return Slot::Free;
            }
            match name.as_str() {
                _ if index < parameters => self.code.parameter_slot(name, index as u32),
                ".type_params" => Slot::TupleCell,
                _ => Slot::Unbound,
            }
        });
        let minor = self.code.version().minor();
        let frame = Frame {
            flags,
            consts: (consts.iter())
                .map(|value| const_kind(minor, &value))
                .collect::<PyResult<_>>()?,
            names,
            slots: slots.collect(),
        };
        let size = self.code.verify(&frame);
        size.map_err(|error| bytecode_error(py, &error))
    }

    /// The text that ``dis.dis`` prints for the code.
    fn text(
        &self,
        py: Python<'_>,
        consts: Vec<String>,
        names: Vec<String>,
        locals: Vec<String>,
    ) -> PyResult<String> {
        Ok(self.shown(py, &(consts, names, locals))?.text())
    }

    /// The lines of ``text``: opcode, number, argument, argument as text, offset, offset of its
    /// first ``EXTENDED_ARG``, target or None, whether it starts a line, label or None, place.
    fn rows(
        &self,
        py: Python<'_>,
        consts: Vec<String>,
        names: Vec<String>,
        locals: Vec<String>,
    ) -> PyResult<Vec<PyRow>> {
        let listing = self.shown(py, &(consts, names, locals))?;
        let rows = listing.rows.into_iter().map(|row| {
            let at = row.location;
            (
                row.op.name,
                row.op.code,
                row.arg,
                row.text,
                row.offset,
                row.start_offset,
                row.target,
                row.starts_line.is_some(),
                row.label,
                (at.line, at.end_line, at.column, at.end_column),
            )
        });
        Ok(rows.collect())
    }

    /// The exception table in offsets: start, end, target, depth, whether the place is pushed.
    fn exception_entries(&self, py: Python<'_>) -> PyResult<Vec<PyEntry>> {
        Ok(self.shown(py, &ShownNames::default())?.handlers)
    }

    /// The basic blocks: first instruction, end (exclusive), blocks that may run next, blocks that
    /// handle its exceptions.
    fn blocks(&self, py: Python<'_>) -> PyResult<Vec<PyBlock>> {
        let blocks = self.code.blocks();
        let blocks = blocks.map_err(|error| bytecode_error(py, &error))?;
        let parts = blocks.into_iter().map(|block| {
            let range = block.instructions;
            (range.start, range.end, block.successors, block.handlers)
        });
        Ok(parts.collect())
    }
}

/// Kind of a constant, as far as the verification of code depends on it.
fn const_kind(minor: u8, value: &Bound<'_, PyAny>) -> PyResult<ConstKind> {
    if value.is_none() {
        return Ok(ConstKind::None);
    }
    if value.is_exact_instance_of::<PyString>() {
        return Ok(ConstKind::Str);
    }
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        let strings = tuple.iter().all(|it| it.is_exact_instance_of::<PyString>());
        return Ok(ConstKind::Tuple(strings.then(|| tuple.len())));
    }
    if value.is_instance_of::<PyCode>() {
        let flags: u32 = value.getattr("co_flags")?.extract()?;
        return Ok(ConstKind::Code {
            free: value.getattr("co_freevars")?.len()?,
            generator: flags & 0x20 != 0,
            parameters: parameters(minor, value)?,
        });
    }
    Ok(ConstKind::Other)
}

/// Required kinds of the first two parameters of a code object.
fn parameters(minor: u8, code: &Bound<'_, PyAny>) -> PyResult<[Slot; 2]> {
    let mut slots = [Slot::Argument; 2];
    let names: Vec<String> = code.getattr("co_varnames")?.extract()?;
    let count: usize = code.getattr("co_argcount")?.extract()?;
    if names.iter().take(count).all(|name| !name.starts_with('.')) {
        return Ok(slots);
    }
    let field = |name| code.getattr(name)?.extract::<Vec<u8>>();
    let decoded = PyInstructions::decode(
        code.py(),
        u32::from(minor),
        field("co_code")?,
        field("co_exceptiontable")?,
        field("co_linetable")?,
        code.getattr("co_firstlineno")?.extract()?,
    )?;
    for (index, (slot, name)) in slots.iter_mut().zip(names.iter().take(count)).enumerate() {
        *slot = decoded.code.parameter_slot(name, index as u32);
    }
    Ok(slots)
}

/// The opcodes of CPython 3.``minor``: number, name, kind of argument, cache units.
///
/// The kind of argument is a word: "none", "count", "const", "name", "local", "free", "jump", ...
#[pyfunction]
pub(crate) fn opcode_table(
    py: Python<'_>,
    minor: u32,
) -> PyResult<Vec<(u8, &'static str, String, u8)>> {
    let version = Version::from_minor(minor).map_err(|error| bytecode_error(py, &error))?;
    let rows = version.ops().map(|op| {
        let kind = format!("{:?}", op.arg).to_lowercase();
        (op.code, op.name, kind, op.caches)
    });
    Ok(rows.collect())
}

/// Stack effect of an instruction of CPython 3.``minor``, as ``dis.stack_effect``.
#[pyfunction]
pub(crate) fn opcode_effect(
    py: Python<'_>,
    minor: u32,
    name: &str,
    arg: u32,
    jump: bool,
) -> PyResult<i64> {
    let op = Version::from_minor(minor).and_then(|version| version.op_named(name));
    let op = op.map_err(|error| bytecode_error(py, &error))?;
    Ok(op.stack_effect(arg, jump))
}

/// Argument of an opcode of CPython 3.``minor`` that listings show as ``word``: ``+`` of
/// ``BINARY_OP``; for an index of a name, that index with the flag bits below it.
///
/// Returns None where the opcode has no such word.
#[pyfunction]
pub(crate) fn opcode_operand(
    py: Python<'_>,
    minor: u32,
    name: &str,
    word: &Bound<'_, PyAny>,
    flags: u32,
) -> PyResult<Option<u32>> {
    let op = Version::from_minor(minor).and_then(|version| Ok((version, version.op_named(name)?)));
    let (version, op) = op.map_err(|error| bytecode_error(py, &error))?;
    if let Ok(index) = word.extract::<u32>() {
        return Ok(op.arg.name_arg(index, flags));
    }
    match word.extract::<String>() {
        Ok(word) => Ok(version.operand(op, &word)),
        Err(_) => Err(PyTypeError::new_err("expected a word or an index")),
    }
}

/// Adds the module's classes and functions to `m`.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyInstructions>()?;
    m.add("BytecodeError", m.py().get_type::<BytecodeError>())?;
    m.add_function(wrap_pyfunction!(opcode_table, m)?)?;
    m.add_function(wrap_pyfunction!(opcode_effect, m)?)?;
    m.add_function(wrap_pyfunction!(opcode_operand, m)?)?;
    Ok(())
}
