//! PyTorch's code that calls modules and finds their parts: a third of the instructions of a model.
//! Its reads are known, so that its frames are analysed once, as they begin, instead of instruction
//! by instruction.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyString, PyTuple};

use super::cpython::{self, Frame, name_in_c};
use super::look::{Look, is_in_python};

/// A function of `torch.nn.Module` whose code is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KnownCode {
    /// `__getattr__(self, name)`
    Find,
    /// `_wrapped_call_impl(self, *args, **kwargs)`
    Call,
    /// `_call_impl(self, *args, **kwargs)`
    Forward,
}

/// The functions, in the order in which the recorder passes their code.
pub(super) const KNOWN_CODE: [KnownCode; 3] =
    [KnownCode::Find, KnownCode::Call, KnownCode::Forward];

impl<'py> Look<'_, 'py> {
    /// Handles the start of a frame of known code. Returns whether all reads of the frame are
    /// recorded; if it does more than look up or call, its instructions have to be analysed.
    pub(super) fn known_code(
        &mut self,
        frame: &Frame<'py>,
        known_code: KnownCode,
    ) -> PyResult<bool> {
        let Some(module) = frame.value(0) else {
            return Ok(false);
        };
        let kind = module.get_type();
        let looked_up = cpython::lookup(&kind, intern!(self.py, "__getattribute__"));
        if looked_up.is_none_or(|own| is_in_python(&own)) {
            return Ok(false);
        }
        if let Some(watched) = self.state.frames.last_mut() {
            watched.moves = true;
        }
        match known_code {
            KnownCode::Find => self.finds(frame, &module),
            KnownCode::Call => {
                let compiled = intern!(self.py, "_compiled_call_impl");
                if self
                    .plain(&module, compiled)?
                    .is_none_or(|own| !own.is_none())
                {
                    return Ok(false);
                }
                let next = intern!(self.py, "_call_impl");
                let Some(function) = self.method_of(&module, next)? else {
                    return Ok(false);
                };
                self.attribute(&module, compiled)?;
                self.attribute(&module, next)?;
                self.goes_on(frame, &module, &function)
            }
            KnownCode::Forward => {
                let name = intern!(self.py, "forward");
                let Some(function) = self.method_of(&module, name)? else {
                    return Ok(false);
                };
                if !self.is_without_hooks(frame, &module)? {
                    return Ok(false);
                }
                self.attribute(&module, name)?;
                self.goes_on(frame, &module, &function)
            }
        }
    }

    /// Records the reads of `__getattr__`, which finds a parameter, a buffer or a module.
    fn finds(&mut self, frame: &Frame<'py>, module: &Bound<'py, PyAny>) -> PyResult<bool> {
        let name = frame.value(1).map(|own| own.cast_into::<PyString>());
        let Some(Ok(name)) = name else {
            return Ok(false);
        };
        let attributes = intern!(self.py, "__dict__");
        let of_class = cpython::lookup(&module.get_type(), attributes);
        if of_class.is_none_or(|own| name_in_c(&own.get_type()) != "getset_descriptor") {
            return Ok(false);
        }
        let Some(own) = self.state.attributes(module) else {
            return Ok(false);
        };
        let stores = [
            intern!(self.py, "_parameters"),
            intern!(self.py, "_buffers"),
            intern!(self.py, "_modules"),
        ];
        let mut read = Vec::new();
        for store in stores {
            read.push(store);
            match own
                .get_item(store)?
                .map(|own| own.cast_into_exact::<PyDict>())
            {
                Some(Ok(parts)) if parts.contains(&name)? => {
                    self.attribute(module, attributes)?;
                    for store in read {
                        self.contains(own.as_any(), store.as_any())?;
                        self.item(own.as_any(), store)?;
                        if let Some(parts) = own.get_item(store)? {
                            self.contains(&parts, name.as_any())?;
                        }
                    }
                    self.item(parts.as_any(), name.as_any())?;
                    return Ok(true);
                }
                Some(Err(_)) => return Ok(false),
                Some(Ok(_)) | None => {}
            }
        }
        Ok(false)
    }

    /// Whether TorchScript traces nothing, and neither the module nor all modules have hooks;
    /// records the reads.
    fn is_without_hooks(
        &mut self,
        frame: &Frame<'py>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<bool> {
        let py = self.py;
        let Some(globals) = frame.globals() else {
            return Ok(false);
        };
        let is_empty =
            |own: &Bound<'py, PyAny>| own.cast::<PyDict>().is_ok_and(|own| own.is_empty());
        let names = [
            intern!(py, "_backward_hooks"),
            intern!(py, "_backward_pre_hooks"),
            intern!(py, "_forward_hooks"),
            intern!(py, "_forward_pre_hooks"),
        ];
        let names_of_all = [
            intern!(py, "_global_backward_pre_hooks"),
            intern!(py, "_global_backward_hooks"),
            intern!(py, "_global_forward_hooks"),
            intern!(py, "_global_forward_pre_hooks"),
        ];
        let (mut own, mut of_all) = (Vec::new(), Vec::new());
        for (name, name_of_all) in names.into_iter().zip(names_of_all) {
            let (hooks, hooks_of_all) = (self.plain(module, name)?, globals.get_item(name_of_all)?);
            let (Some(hooks), Some(hooks_of_all)) = (hooks, hooks_of_all) else {
                return Ok(false);
            };
            if !is_empty(&hooks) || !is_empty(&hooks_of_all) {
                return Ok(false);
            }
            own.push((name, hooks));
            of_all.push((name_of_all, hooks_of_all));
        }
        if !self.state.knows_hooks_of_all {
            if !self.is_not_traced(frame, &globals)? {
                return Ok(false);
            }
            for (name, hooks) in of_all {
                self.global(frame, name)?;
                self.truth(&hooks)?;
            }
            self.state.knows_hooks_of_all = true;
        }
        for (name, hooks) in own {
            self.attribute(module, name)?;
            self.truth(&hooks)?;
        }
        Ok(true)
    }

    /// Whether TorchScript traces nothing; records the read.
    fn is_not_traced(
        &mut self,
        frame: &Frame<'py>,
        globals: &Bound<'py, PyDict>,
    ) -> PyResult<bool> {
        let torch = intern!(self.py, "torch");
        let Some(library) = globals.get_item(torch)? else {
            return Ok(false);
        };
        let (part, asked) = (intern!(self.py, "_C"), intern!(self.py, "_is_tracing"));
        let core = library.getattr(part)?;
        let is_tracing = core.getattr(asked)?;
        if is_tracing.is_instance_of::<PyFunction>() || is_tracing.call0()?.is_truthy()? {
            return Ok(false);
        }
        self.global(frame, torch)?;
        self.attribute(&library, part)?;
        self.attribute(&core, asked)?;
        self.call(&is_tracing, &[], 0)?;
        Ok(true)
    }

    /// Records the call of a method with the frame's own arguments.
    fn goes_on(
        &mut self,
        frame: &Frame<'py>,
        module: &Bound<'py, PyAny>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<bool> {
        let mut arguments = vec![module.clone()];
        if let Some(given) = frame.value(1)
            && let Ok(given) = given.cast::<PyTuple>()
        {
            arguments.extend(given);
        }
        let mut has_keywords = false;
        if let Some(named) = frame.value(2)
            && let Ok(named) = named.cast::<PyDict>()
        {
            has_keywords = !named.is_empty();
            arguments.extend(named.iter().map(|(_, value)| value));
        }
        if let Some(watched) = self.state.frames.last_mut() {
            watched.keywords = has_keywords;
        }
        self.call(function, &arguments, 0)?;
        if let Some(watched) = self.state.frames.last_mut() {
            watched.keywords = false;
        }
        Ok(true)
    }

    /// Value of an attribute that is not computed; None if it is, or if there is none.
    fn plain(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let of_class = cpython::lookup(&object.get_type(), name);
        let has = |own: &Bound<'py, PyAny>, hook| cpython::lookup(&own.get_type(), hook).is_some();
        if of_class.as_ref().is_some_and(|own| {
            !own.is_instance_of::<PyFunction>()
                && (has(own, intern!(self.py, "__get__")) || has(own, intern!(self.py, "__set__")))
        }) {
            return Ok(None);
        }
        let own = match self.state.attributes(object) {
            Some(own) => own.get_item(name)?,
            None => None,
        };
        Ok(own.or(of_class))
    }

    /// A method that a module has by its class, and not by an attribute of its own.
    fn method_of(
        &mut self,
        module: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let of_class = cpython::lookup(&module.get_type(), name);
        let found = self.plain(module, name)?;
        Ok(found.filter(|own| {
            own.is_instance_of::<PyFunction>() && of_class.is_some_and(|known| known.is(own))
        }))
    }
}
