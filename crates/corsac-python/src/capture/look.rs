//! Analysis of Python instructions: their reads and writes.

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyEllipsis, PyFloat, PyFunction, PyInt, PyNone, PyRange,
    PySlice, PyString, PyTuple, PyType,
};

use super::cpython::{self, Frame, name_in_c};
use super::effects::{Effects, Purpose};
use super::guards::address;
use super::opcode::{self as op, Instruction};
use super::state::{Hosting, State};
use crate::engine::Exchange;

/// Analysis of one instruction, with its context.
pub(super) struct Look<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) effects: &'py Effects,
    pub(super) state: &'a mut State,
    /// Number of operators recorded so far.
    pub(super) recorded: u64,
    /// Whether Python's own code for copies is being executed.
    pub(super) copies: bool,
    /// Opcode of the instruction.
    pub(super) opcode: u8,
    /// Use that C functions make of their arguments, while C code calls a function with unknown
    /// ones.
    pub(super) by_c: Option<Purpose>,
}

pub(super) fn is_atom(own: &Bound<'_, PyAny>) -> bool {
    own.is_exact_instance_of::<PyInt>()
        || own.is_exact_instance_of::<PyFloat>()
        || own.is_exact_instance_of::<PyString>()
        || own.is_exact_instance_of::<PyBool>()
        || own.is_exact_instance_of::<PyNone>()
        || own.is_exact_instance_of::<PyBytes>()
        || own.is_exact_instance_of::<PyComplex>()
        || own.is_exact_instance_of::<PyEllipsis>()
        || own.is_exact_instance_of::<PyRange>()
        || own.is_exact_instance_of::<PySlice>()
}

pub(super) fn is_class(own: &Bound<'_, PyAny>) -> bool {
    own.is_instance_of::<PyType>()
}

/// Fully qualified name of a type.
pub(super) fn full_name(kind: &Bound<'_, PyType>) -> String {
    kind.fully_qualified_name()
        .map_or_else(|_| "?".to_owned(), |own| own.to_string())
}

/// Whether a value is of a class of C whose instances never change.
pub(super) fn is_constant(own: &Bound<'_, PyAny>) -> bool {
    let kind = own.get_type();
    is_atom(own)
        || is_number_class_of_numpy(&kind)
        || matches!(
            &*name_in_c(&kind),
            "torch.dtype"
                | "torch.device"
                | "torch.layout"
                | "torch.memory_format"
                | "torch.finfo"
                | "torch.iinfo"
                | "torch.qscheme"
                | "NotImplementedType"
                | "code"
                | "types.GenericAlias"
                | "types.UnionType"
        )
}

/// Whether a class is one of NumPy's numbers, which never change.
pub(super) fn is_number_class_of_numpy(kind: &Bound<'_, PyType>) -> bool {
    let name = name_in_c(kind);
    name.strip_prefix("numpy.").is_some_and(|name| {
        let kinds = ["float", "int", "uint", "bool", "complex"];
        kinds.iter().any(|own| name.starts_with(own))
    })
}

/// Whether a method is a Python function, so that its instructions are seen.
pub(super) fn is_in_python(found: &Bound<'_, PyAny>) -> bool {
    found.is_instance_of::<PyFunction>()
        || matches!(
            &*name_in_c(&found.get_type()),
            "staticmethod" | "classmethod"
        )
}

pub(super) type Step = PyResult<()>;

impl<'a, 'py> Look<'a, 'py> {
    pub(super) fn new(py: Python<'py>, state: &'a mut State, recorded: u64) -> PyResult<Self> {
        let effects = Effects::get(py)?;
        Ok(Self {
            py,
            effects,
            state,
            recorded,
            copies: false,
            opcode: 0,
            by_c: None,
        })
    }

    /// Whether an object is a tensor by its class, not by `__class__`, which may be code of the
    /// program.
    pub(super) fn is_tensor(&self, own: &Bound<'py, PyAny>) -> bool {
        cpython::is_derived(&own.get_type(), self.effects.tensor.bind(self.py))
    }

    pub(super) fn torch(&mut self, what: impl FnOnce() -> String) {
        self.state.expect_operator(self.recorded, what);
    }

    /// Replaces a call that is about to ask whether the program is being compiled: the answer is
    /// no, since the recorder is invisible to the program.
    pub(super) fn answer_compiling(&self, frame: &Frame<'py>, count: usize) {
        if count == 0
            && frame
                .stack(1)
                .is_some_and(|it| it.is(&self.effects.is_compiling))
        {
            // `bool()`
            frame.replace(1, self.py.get_type::<PyBool>().into_any());
        }
    }

    /// The same for calls that ask whether operators of tensors are intercepted.
    pub(super) fn answer_functions(&self, frame: &Frame<'py>, count: usize) -> Step {
        let Some(called) = frame.stack(count + 1).filter(|_| count > 0) else {
            return Ok(());
        };
        let [of_all, of_one, of_several] = &self.effects.has_torch_function;
        let takes_all = count == 1 && called.is(of_all);
        if !(takes_all || called.is(of_one) || called.is(of_several)) {
            return Ok(());
        }
        let mut asked: Vec<_> = (1..=count).filter_map(|depth| frame.stack(depth)).collect();
        if takes_all {
            let Ok(all) = asked[0].cast::<PyTuple>() else {
                return Ok(());
            };
            asked = all.iter().collect();
        }
        let Some(exchange) = Exchange::get(self.py)? else {
            return Ok(());
        };
        let nothing = PyTuple::empty(self.py).into_any();
        let no = self.py.get_type::<PyBool>().into_any();
        if !(asked.iter()).all(|own| own.is_none() || exchange.is_tensor(own) || is_atom(own)) {
            return Ok(());
        }
        match count {
            // `bool(())`
            1 => {
                frame.replace(1, nothing);
                frame.replace(2, no);
            }
            // `isinstance((), bool)`
            2 => {
                frame.replace(1, no);
                frame.replace(2, nothing);
                let builtins = self.py.import(intern!(self.py, "builtins"))?;
                frame.replace(3, builtins.getattr(intern!(self.py, "isinstance"))?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a call that is about to be made of a function that PyTorch has to run as it is,
    /// without being recorded: `host` makes another function of it that does so, and says whether
    /// that becomes nodes as a whole. Returns whether it is such a function.
    pub(super) fn is_hosted(
        &mut self,
        frame: &Frame<'py>,
        own: Instruction,
        host: &Py<PyAny>,
    ) -> PyResult<bool> {
        let depth = match own.opcode {
            op::CALL => own.arg + 1,
            op::CALL_FUNCTION_EX => 2 + (own.arg & 1),
            _ => return Ok(false),
        };
        let Some(called) = frame.stack(depth) else {
            return Ok(false);
        };
        let Ok(function) = called.cast::<PyFunction>() else {
            return Ok(false);
        };
        let mut hosting = self.hosting(function)?;
        if hosting == Hosting::Wrapped {
            let wrapped = intern!(self.py, "_torchdynamo_orig_callable");
            if let Some(own) = function.getattr_opt(wrapped)?
                && let Ok(own) = own.cast::<PyFunction>()
            {
                hosting = self.hosting(own)?;
            }
        }
        let is_hosted = hosting == Hosting::Hosted;
        if is_hosted {
            let hosted = host.bind(self.py).call1((&called,))?;
            let (hosted, becomes_nodes): (Bound<'py, PyAny>, bool) = hosted.extract()?;
            frame.replace(depth, hosted);
            if !becomes_nodes {
                let name = called_name(&called);
                self.state
                    .opaque(format!("it calls {name}, which PyTorch runs"));
            }
        }
        Ok(is_hosted)
    }

    /// Treatment of a function, by its code.
    fn hosting(&mut self, function: &Bound<'py, PyFunction>) -> PyResult<Hosting> {
        // Files, and functions in them; an empty list for all.
        const HOSTED: [(&str, &[&str]); 4] = [
            ("/torch/_higher_order_ops/", &[]),
            (
                "/torch/nn/attention/flex_attention.py",
                &["flex_attention", "create_block_mask", "create_mask"],
            ),
            ("/torch/jit/_trace.py", &["trace", "trace_module"]),
            ("/torch/autograd/functional.py", &[]),
        ];
        let Some(code) = cpython::code_of(function) else {
            return Ok(Hosting::Seen);
        };
        if let Some((known, _)) = self.state.hosting.get(&address(&code)) {
            return Ok(*known);
        }
        let file: String = code.getattr(intern!(self.py, "co_filename"))?.extract()?;
        let name = short_name(function);
        let is_in = |(part, names): &(&str, &[&str])| {
            file.contains(part) && (names.is_empty() || names.contains(&&*name))
        };
        let hosting = if file.contains("/torch/_dynamo/") {
            Hosting::Wrapped
        } else if HOSTED.iter().any(is_in) {
            Hosting::Hosted
        } else {
            Hosting::Seen
        };
        // Kept, so that no other code comes to lie there.
        let known = (hosting, code.clone().unbind());
        self.state.hosting.insert(address(&code), known);
        Ok(hosting)
    }

    pub(super) fn instruction(
        &mut self,
        frame: &Frame<'py>,
        names: &Py<PyTuple>,
        own: Instruction,
    ) -> Step {
        let py = self.py;
        let Instruction { opcode, arg } = own;
        self.opcode = opcode;
        let name = |at: usize| -> PyResult<Bound<'py, PyString>> {
            Ok(names.bind(py).get_item(at)?.cast_into::<PyString>()?)
        };
        let top = |depth: usize| {
            frame
                .stack(depth)
                .ok_or_else(|| PyRuntimeError::new_err("nothing on the stack"))
        };
        if let Some(watched) = self.state.frames.last_mut() {
            watched.moves = matches!(
                opcode,
                op::LOAD_ATTR | op::LOAD_METHOD | op::CALL | op::CALL_FUNCTION_EX
            );
            watched.purpose = match opcode {
                op::CONTAINS_OP => Purpose::Compared,
                _ => Purpose::Moved,
            };
        }
        if !self.state.symbols.is_empty() {
            self.symbols(frame, own)?;
        }
        match opcode {
            op::LOAD_GLOBAL => self.global(frame, name(arg >> 1)?.as_any())?,
            op::LOAD_ATTR | op::LOAD_METHOD | op::IMPORT_FROM => {
                self.attribute(&top(1)?, &name(arg)?)?;
            }
            op::LOAD_DEREF | op::LOAD_CLASSDEREF | op::DELETE_DEREF => {
                if let Some(cell) = frame.value(arg) {
                    self.state.reads.cell(&cell);
                    let content = cpython::cell_content(&cell);
                    self.number_read(&cell, &cell, content.as_ref())?;
                }
            }
            op::STORE_DEREF => {
                if let Some(cell) = frame.value(arg) {
                    self.state.reads.set_cell(&cell);
                }
            }
            op::STORE_GLOBAL => {
                if let Some(globals) = frame.globals() {
                    self.state.reads.set_entry(&globals, name(arg)?.as_any())?;
                }
            }
            op::DELETE_GLOBAL => {
                if let Some(globals) = frame.globals() {
                    self.state
                        .reads
                        .delete_entry(&globals, name(arg)?.as_any())?;
                }
            }
            op::STORE_ATTR => self.attribute_is_written(&top(1)?, &name(arg)?, "sets")?,
            op::DELETE_ATTR => self.attribute_is_written(&top(1)?, &name(arg)?, "deletes")?,
            op::IS_OP => {
                let (left, right) = (top(2)?, top(1)?);
                let is_told = |own: &Bound<'py, PyAny>| is_constant(own) || is_class(own);
                if !is_told(&left) && !is_told(&right) {
                    self.state.compared.push((left.unbind(), right.unbind()));
                }
            }
            op::BINARY_SUBSCR => self.item(&top(2)?, &top(1)?)?,
            op::STORE_SUBSCR | op::DELETE_SUBSCR => {
                let (container, key) = (top(2)?, top(1)?);
                if self.is_tensor(&container) {
                    self.state
                        .reads
                        .lookup(&container.get_type(), intern!(py, "__setitem__"));
                    self.torch(|| "assignment to elements".to_owned());
                    self.contents_of_key(&key)?;
                } else {
                    let hook = match opcode {
                        op::STORE_SUBSCR => intern!(py, "__setitem__"),
                        _ => intern!(py, "__delitem__"),
                    };
                    if self.special(&container, hook) != Some(true) {
                        match container.cast_exact::<PyDict>() {
                            Ok(dict) if self.is_key(&key, 0) => match opcode {
                                op::STORE_SUBSCR => self.state.reads.set_entry(dict, &key)?,
                                _ => self.state.reads.delete_entry(dict, &key)?,
                            },
                            _ => self.write(&container, "sets an item")?,
                        }
                    }
                }
            }
            op::CONTAINS_OP => self.contains(&top(1)?, &top(2)?)?,
            op::COMPARE_OP => self.operator(&[top(2)?, top(1)?], op::methods_of_comparison(arg))?,
            op::BINARY_OP => {
                let (left, right) = (top(2)?, top(1)?);
                // `+=` and its kind change lists, sets and dictionaries.
                let in_place = op::methods_of_arithmetic(arg).get(2);
                if let Some(name) = in_place
                    && !is_constant(&left)
                    && !self.is_tensor(&left)
                    && !left.is_instance_of::<PyTuple>()
                    // Python code is seen, and without such a method another object results.
                    && self.special(&left, &PyString::intern(py, name)) == Some(false)
                {
                    self.write(&left, "computes in place")?;
                }
                if left.is_instance_of::<PyString>() && arg % 13 == 6 {
                    return self.text(&right);
                }
                self.operator(&[left, right], op::methods_of_arithmetic(arg))?;
            }
            op::UNARY_POSITIVE => self.operator(&[top(1)?], &["__pos__"])?,
            op::UNARY_NEGATIVE => self.operator(&[top(1)?], &["__neg__"])?,
            op::UNARY_INVERT => self.operator(&[top(1)?], &["__invert__"])?,
            op::UNARY_NOT
            | op::JUMP_IF_FALSE_OR_POP
            | op::JUMP_IF_TRUE_OR_POP
            | op::POP_JUMP_FORWARD_IF_FALSE
            | op::POP_JUMP_FORWARD_IF_TRUE
            | op::POP_JUMP_BACKWARD_IF_FALSE
            | op::POP_JUMP_BACKWARD_IF_TRUE
            | op::GET_LEN => self.truth(&top(1)?)?,
            op::GET_ITER
            | op::GET_YIELD_FROM_ITER
            | op::UNPACK_SEQUENCE
            | op::UNPACK_EX
            | op::LIST_EXTEND
            | op::SET_UPDATE
            | op::DICT_UPDATE
            | op::DICT_MERGE => {
                let own = top(1)?;
                // Making an iterator of an iterator takes nothing from it yet.
                let is_fetched = opcode == op::GET_ITER || opcode == op::GET_YIELD_FROM_ITER;
                if !(is_fetched && self.is_iterator(&own)) {
                    self.contents(&own)?;
                    if let Some(frame) = self.state.frames.last_mut() {
                        frame.makes_iterator = is_fetched;
                    }
                }
            }
            op::FOR_ITER => self.advance(&top(1)?)?,
            op::SEND => self.advance(&top(2)?)?,
            op::RETURN_VALUE | op::YIELD_VALUE => self.gives(frame, &top(1)?)?,
            op::KW_NAMES => {
                let constants = frame
                    .code()
                    .map(|own| own.getattr(intern!(py, "co_consts")));
                let names = constants.transpose()?.map(|own| own.get_item(arg));
                let names = names.transpose()?.map(Bound::unbind);
                if let Some(watched) = self.state.frames.last_mut() {
                    (watched.keywords, watched.names) = (true, names);
                }
            }
            op::CALL => {
                self.called(frame, arg)?;
                if let Some(watched) = self.state.frames.last_mut() {
                    (watched.keywords, watched.names) = (false, None);
                }
            }
            op::CALL_FUNCTION_EX => self.called_with_all(frame, arg)?,
            op::IMPORT_NAME => self.import(frame, &name(arg)?, &top(2)?)?,
            op::FORMAT_VALUE => {
                let depth = if arg & 4 == 4 { 2 } else { 1 };
                self.text(&top(depth)?)?;
            }
            op::BEFORE_WITH => {
                let manager = top(1)?;
                for hook in [intern!(py, "__enter__"), intern!(py, "__exit__")] {
                    let kind = manager.get_type();
                    self.state.reads.kind(&manager);
                    match self.state.reads.lookup(&kind, hook) {
                        Some(found) if is_in_python(&found) => self.state.reads.function(&found)?,
                        Some(found) => {
                            self.effect(&found, &found, std::slice::from_ref(&manager))?
                        }
                        None => {}
                    }
                }
            }
            op::MATCH_CLASS => {
                let (subject, class, keywords) = (top(3)?, top(2)?, top(1)?);
                self.class_question(&subject, &class)?;
                if arg > 0 || keywords.len()? > 0 {
                    self.state.opaque("it matches the attributes of an object");
                }
            }
            op::MATCH_KEYS => self.contents(&top(2)?)?,
            op::MATCH_MAPPING | op::MATCH_SEQUENCE => {
                let own = top(1)?;
                if !is_atom(&own) && !self.is_tensor(&own) {
                    self.state.reads.kind(&own);
                }
            }
            op::LOAD_NAME | op::STORE_NAME | op::DELETE_NAME | op::LOAD_BUILD_CLASS => {
                self.state.opaque("it defines a class or runs a module");
            }
            op::IMPORT_STAR
            | op::SETUP_ANNOTATIONS
            | op::PRINT_EXPR
            | op::GET_AITER
            | op::GET_ANEXT
            | op::BEFORE_ASYNC_WITH
            | op::END_ASYNC_FOR
            | op::ASYNC_GEN_WRAP
            | op::GET_AWAITABLE
            | op::CHECK_EG_MATCH => {
                self.state
                    .opaque("it waits for something, or matches groups of exceptions");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Type of a read-only view of a dictionary.
pub(super) const PROXY: &str = "mappingproxy";

pub(super) fn short_name(called: &Bound<'_, PyAny>) -> String {
    let name = called
        .getattr("__name__")
        .and_then(|own| own.extract::<String>());
    name.unwrap_or_default()
}

pub(super) fn called_name(called: &Bound<'_, PyAny>) -> String {
    let name = called
        .getattr("__qualname__")
        .and_then(|own| own.extract::<String>());
    let module = called
        .getattr("__module__")
        .and_then(|own| own.extract::<String>());
    match (module, name) {
        (Ok(module), Ok(name)) => format!("{module}.{name}"),
        (_, Ok(name)) => name,
        _ => full_name(&called.get_type()),
    }
}
