//! Use that the calling instruction makes of a value.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

/// Opcode numbers of the running interpreter.
struct Opcodes {
    unpack_sequence: Option<u8>,
    extended_arg: Option<u8>,
    load_assertion_error: Option<u8>,
    /// Conditional jumps taken when the value is true, as `assert` is compiled.
    jumps_if_true: Vec<u8>,
    /// Instructions without effect on the value, between the test and what follows.
    fillers: Vec<u8>,
}

impl Opcodes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static OPCODES: PyOnceLock<Opcodes> = PyOnceLock::new();
        OPCODES.get_or_try_init(py, || {
            let map = py.import("opcode")?.getattr("opmap")?;
            let map = map.cast::<PyDict>()?;
            let number = |name: &str| -> PyResult<Option<u8>> {
                map.get_item(name)?.map(|n| n.extract()).transpose()
            };
            let numbers = |names: &[&str]| -> PyResult<Vec<u8>> {
                let numbers = names.iter().map(|name| number(name));
                Ok(numbers
                    .collect::<PyResult<Vec<_>>>()?
                    .into_iter()
                    .flatten()
                    .collect())
            };
            Ok(Self {
                unpack_sequence: number("UNPACK_SEQUENCE")?,
                extended_arg: number("EXTENDED_ARG")?,
                load_assertion_error: number("LOAD_ASSERTION_ERROR")?,
                jumps_if_true: numbers(&["POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE"])?,
                fillers: numbers(&["CACHE", "NOT_TAKEN", "EXTENDED_ARG", "NOP", "TO_BOOL"])?,
            })
        })
    }
}

/// The instructions of the innermost Python frame, and the current offset in them.
struct Calling<'py> {
    code: Bound<'py, PyBytes>,
    at: usize,
}

impl<'py> Calling<'py> {
    fn frame(py: Python<'py>) -> PyResult<Option<Self>> {
        let frame = py
            .import(intern!(py, "sys"))?
            .call_method0(intern!(py, "_getframe"))?;
        let code = frame
            .getattr(intern!(py, "f_code"))?
            .getattr(intern!(py, "co_code"))?;
        let at = frame.getattr(intern!(py, "f_lasti"))?.extract::<i64>()?;
        let code = code.cast_into::<PyBytes>()?;
        Ok(usize::try_from(at).ok().map(|at| Self { code, at }))
    }

    fn instruction(&self, at: usize) -> Option<(u8, u8)> {
        let bytes = self.code.as_bytes();
        Some((*bytes.get(at)?, *bytes.get(at + 1)?))
    }
}

/// Number of names that the calling instruction unpacks the value into, if it does.
pub(super) fn unpacked_into(py: Python<'_>) -> PyResult<Option<usize>> {
    let opcodes = Opcodes::get(py)?;
    let Some(calling) = Calling::frame(py)? else {
        return Ok(None);
    };
    let Some((opcode, low)) = calling.instruction(calling.at) else {
        return Ok(None);
    };
    if Some(opcode) != opcodes.unpack_sequence {
        return Ok(None);
    }
    // Higher bytes of the argument come in instructions before.
    let (mut count, mut shift, mut at) = (usize::from(low), 8, calling.at);
    while let Some(before) = at.checked_sub(2)
        && shift < 32
        && let Some((opcode, byte)) = calling.instruction(before)
        && Some(opcode) == opcodes.extended_arg
    {
        count |= usize::from(byte) << shift;
        (shift, at) = (shift + 8, before);
    }
    Ok(Some(count))
}

/// Whether the calling instruction is the test of an `assert` statement: jump over the failure if
/// the value is true, and otherwise load `AssertionError`.
pub(super) fn is_asserted(py: Python<'_>) -> PyResult<bool> {
    let opcodes = Opcodes::get(py)?;
    let Some(calling) = Calling::frame(py)? else {
        return Ok(false);
    };
    let mut at = calling.at;
    let mut jumped = false;
    while let Some((opcode, _)) = calling.instruction(at) {
        if opcodes.jumps_if_true.contains(&opcode) && !jumped {
            jumped = true;
        } else if jumped && Some(opcode) == opcodes.load_assertion_error {
            return Ok(true);
        } else if !opcodes.fillers.contains(&opcode) {
            return Ok(false);
        }
        at += 2;
    }
    Ok(false)
}
