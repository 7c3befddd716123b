//! Reads and writes of attributes and variables by programs.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyModule, PyString, PySuper, PyType};

use super::cpython::{self, Frame, Slots, name_in_c};
use super::guards::address;
use super::look::{Look, Step, full_name, is_constant, is_in_python};
impl<'py> Look<'_, 'py> {
    pub(super) fn global(&mut self, frame: &Frame<'py>, name: &Bound<'py, PyAny>) -> Step {
        let (Some(globals), Some(builtins)) = (frame.globals(), frame.builtins()) else {
            self.state.opaque("its variables are no dictionary");
            return Ok(());
        };
        let found = self.state.reads.entry(&globals, name)?;
        if found.is_none() {
            self.state.reads.entry(&builtins, name)?;
        }
        self.number_read(globals.as_any(), name, found.as_ref())?;
        Ok(())
    }

    /// Records a read of `object.name`.
    pub(super) fn attribute(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Step {
        let kind = object.get_type();
        if self.is_tensor(object) {
            let found = self.state.reads.lookup(&kind, name);
            match found {
                Some(found) if name_in_c(&found.get_type()) == "getset_descriptor" => {
                    self.torch(|| format!("Tensor.{name}"));
                }
                Some(_) => {}
                None => {
                    if let Some(own) = cpython::attributes(object, false) {
                        self.state.reads.entry(&own, name.as_any())?;
                    } else {
                        self.state.reads.attribute(object, name);
                    }
                }
            }
            return Ok(());
        }
        if let Ok(class) = object.cast::<PyType>() {
            return self.class_attribute(class, name);
        }
        if cpython::is_of_program(&kind)
            && cpython::lookup(&kind, intern!(self.py, "__del__")).is_some()
        {
            // Its finaliser runs later, when its last owner drops it.
            self.state
                .opaque("it uses an object that does something when it goes away");
            return Ok(());
        }
        let slots = Slots::of(&kind);
        if let Ok(module) = object.cast::<PyModule>()
            && kind.is(self.py.get_type::<PyModule>())
        {
            let dict = module.dict();
            let found = self.state.reads.entry(&dict, name.as_any())?;
            if found.is_none() {
                self.state
                    .reads
                    .entry(&dict, intern!(self.py, "__getattr__").as_any())?;
            }
            self.number_read(dict.as_any(), name.as_any(), found.as_ref())?;
            return Ok(());
        }
        if kind.is(self.py.get_type::<PySuper>()) {
            return self.super_attribute(object, name);
        }
        if name_in_c(&kind) == "method" {
            // Its function and its object never change; all other attributes are the function's.
            return match name == "__self__" || name == "__func__" {
                true => Ok(()),
                false => self.attribute(&object.getattr(intern!(self.py, "__func__"))?, name),
            };
        }
        if !cpython::is_generic(slots) && object.is_instance(self.effects.local.bind(self.py))? {
            return self.attribute_of_thread(object, name);
        }
        let in_python = self.effects.in_python;
        if slots.getattr == in_python.getattr || slots.getattr == in_python.getattribute {
            self.state
                .reads
                .lookup(&kind, intern!(self.py, "__getattr__"));
            let first = self
                .state
                .reads
                .lookup(&kind, intern!(self.py, "__getattribute__"));
            if first.is_some_and(|own| is_in_python(&own)) {
                self.state.reads.kind(object);
                return Ok(());
            }
        } else if object.is_instance_of::<PyModule>() {
            // Derived from modules, which have no other way to look attributes up.
        } else if !cpython::is_generic(slots) && !is_constant(object) {
            self.state
                .opaque(format!("it reads {name} of a {}", full_name(&kind)));
            return Ok(());
        } else if cpython::is_of_program(&kind) && self.state.plain.insert(address(&kind)) {
            for hook in ["__getattr__", "__getattribute__"] {
                let hook = PyString::intern(self.py, hook);
                self.state.reads.lookup(&kind, &hook);
            }
        }
        self.instance_attribute(object, &kind, name)
    }

    /// Records a read of `object.name` of a `threading.local`: each thread has its own.
    fn attribute_of_thread(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Step {
        let kind = object.get_type();
        self.state.reads.kind(object);
        let found = self.state.reads.lookup(&kind, name);
        let is_computed = found.is_some_and(|own| {
            cpython::lookup(&own.get_type(), intern!(self.py, "__get__")).is_some()
        });
        let in_python = self.effects.in_python;
        let getattr = Slots::of(&kind).getattr;
        if is_computed || getattr == in_python.getattr || getattr == in_python.getattribute {
            self.state
                .opaque(format!("it reads {name} of a {}", full_name(&kind)));
            return Ok(());
        }
        self.state.reads.attribute(object, name);
        Ok(())
    }

    pub(super) fn instance_attribute(
        &mut self,
        object: &Bound<'py, PyAny>,
        kind: &Bound<'py, PyType>,
        name: &Bound<'py, PyString>,
    ) -> Step {
        if is_constant(object) {
            return Ok(());
        }
        self.state.reads.kind(object);
        let found = self.state.reads.lookup(kind, name);
        let of_class = found.as_ref().map(|own| name_in_c(&own.get_type()));
        match of_class.as_deref() {
            Some("getset_descriptor" | "member_descriptor") => {
                // Computed by C: read again to check the guard.
                if name == "__dict__" {
                    self.state.attributes(object);
                }
                self.state.reads.attribute(object, name);
                return Ok(());
            }
            Some("property") => {
                let getter = found
                    .map(|own| own.getattr(intern!(self.py, "fget")))
                    .transpose()?;
                return match getter {
                    Some(getter) if getter.is_instance_of::<PyFunction>() => {
                        self.state.reads.function(&getter)
                    }
                    _ => {
                        self.state.opaque(format!("{name} is computed by C"));
                        Ok(())
                    }
                };
            }
            _ => {}
        }
        if let Some(own) = self.state.attributes(object) {
            let content = self.state.reads.entry(&own, name.as_any())?;
            // A descriptor of the class may give another value.
            let is_plain = found.as_ref().is_none_or(|own| {
                cpython::lookup(&own.get_type(), intern!(self.py, "__get__")).is_none()
            });
            self.number_in_place(own.as_any(), name.as_any(), content.as_ref(), is_plain)?;
        }
        if let Some(found) = found {
            self.descriptor(&found, name)?;
        }
        Ok(())
    }

    /// Records the use of an attribute of a class that may be a descriptor.
    pub(super) fn descriptor(
        &mut self,
        found: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Step {
        let kind = found.get_type();
        if cpython::is_of_program(&kind) {
            // It may become one, or one that comes before attributes of the same name.
            self.state.reads.kind(found);
            self.state.reads.lookup(&kind, intern!(self.py, "__get__"));
            self.state.reads.lookup(&kind, intern!(self.py, "__set__"));
        }
        let Some(get) = cpython::lookup(&kind, intern!(self.py, "__get__")) else {
            return Ok(());
        };
        let known = matches!(
            &*name_in_c(&kind),
            "function"
                | "method_descriptor"
                | "wrapper_descriptor"
                | "classmethod"
                | "staticmethod"
                | "classmethod_descriptor"
                | "builtin_function_or_method"
                | "_collections._tuplegetter"
                | "type"
                | "functools._lru_cache_wrapper"
                | "method"
                | "instancemethod"
        );
        if !known && !is_in_python(&get) {
            self.state
                .opaque(format!("{name} is computed by a {}", full_name(&kind)));
        }
        Ok(())
    }

    pub(super) fn class_attribute(
        &mut self,
        class: &Bound<'py, PyType>,
        name: &Bound<'py, PyString>,
    ) -> Step {
        let meta = class.get_type();
        let slots = Slots::of(&meta);
        let plain = Slots::of(&self.py.get_type::<PyType>()).getattr;
        let in_python = self.effects.in_python;
        if slots.getattr == in_python.getattr || slots.getattr == in_python.getattribute {
            self.state
                .reads
                .lookup(&meta, intern!(self.py, "__getattr__"));
            let first = self
                .state
                .reads
                .lookup(&meta, intern!(self.py, "__getattribute__"));
            if first.is_some_and(|own| is_in_python(&own)) {
                return Ok(());
            }
        } else if slots.getattr != plain {
            self.state.opaque(format!(
                "it reads {name} of a class that is a {}",
                full_name(&meta)
            ));
            return Ok(());
        }
        let of_meta = self.state.reads.lookup(&meta, name);
        if let Some(found) = of_meta {
            match &*name_in_c(&found.get_type()) {
                "getset_descriptor" | "member_descriptor" => {
                    self.state.reads.attribute(class.as_any(), name);
                    return Ok(());
                }
                _ => self.descriptor(&found, name)?,
            }
        }
        if let Some(found) = self.state.reads.lookup(class, name) {
            if matches!(
                &*name_in_c(&found.get_type()),
                "getset_descriptor" | "member_descriptor"
            ) {
                // The descriptor itself, as the class has it.
                return Ok(());
            }
            self.descriptor(&found, name)?;
        }
        Ok(())
    }

    /// Records a read of `super().name`, an attribute of the classes after the current one.
    pub(super) fn super_attribute(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Step {
        let (this, kind) = (
            object.getattr(intern!(self.py, "__thisclass__"))?,
            object.getattr(intern!(self.py, "__self_class__"))?,
        );
        let Ok(kind) = kind.cast_into::<PyType>() else {
            self.state.opaque("super() of nothing");
            return Ok(());
        };
        // Its bases are guarded with it.
        self.state
            .reads
            .lookup(&kind, intern!(self.py, "__class__"));
        for class in kind.mro().iter().skip_while(|own| !own.is(&this)).skip(1) {
            let class = class.cast_into::<PyType>()?;
            let Some(dict) = cpython::class_dict(&class) else {
                continue;
            };
            if let Some(found) = self.state.reads.entry(&dict, name.as_any())? {
                if matches!(
                    &*name_in_c(&found.get_type()),
                    "getset_descriptor" | "member_descriptor" | "property"
                ) {
                    self.state
                        .opaque(format!("super().{name} is computed by C"));
                    return Ok(());
                }
                return self.descriptor(&found, name);
            }
        }
        Ok(())
    }

    /// Records a call by C of a special method, such as `__len__` for a length. Returns whether it
    /// is a Python function; None if there is no such method.
    pub(super) fn special(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
    ) -> Option<bool> {
        let kind = object.get_type();
        if Slots::of(&kind).new != 0 && !is_constant(object) {
            self.state.reads.kind(object);
        }
        self.state.reads.lookup(&kind, name)?;
        self.method(&kind, name)
    }

    /// Whether a special method that C calls is a Python function; None if there is no such method.
    pub(super) fn method(
        &mut self,
        kind: &Bound<'py, PyType>,
        name: &Bound<'py, PyString>,
    ) -> Option<bool> {
        let found = cpython::lookup(kind, name)?;
        let is_in_python = is_in_python(&found);
        let of = name_in_c(&found.get_type());
        // Methods of C classes are covered by the tables.
        let is_own = matches!(
            &*of,
            "wrapper_descriptor" | "method_descriptor" | "NoneType" | "classmethod_descriptor"
        );
        if !is_in_python && !is_own {
            self.state.opaque(format!(
                "{name} of a {} is a {}",
                full_name(kind),
                full_name(&found.get_type())
            ));
        }
        Some(is_in_python)
    }

    /// Records that an attribute is set or deleted by the default implementation.
    pub(super) fn write_attribute(
        &mut self,
        owner: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
        deletes: bool,
    ) -> Step {
        if let Ok(class) = owner.cast::<PyType>() {
            self.state.reads.whole_class(class);
            return Ok(());
        }
        if let Ok(module) = owner.cast::<PyModule>() {
            return self.write_entry(&module.dict(), name, deletes);
        }
        let found = self.state.reads.lookup(&owner.get_type(), name);
        let of_class = found.map(|own| name_in_c(&own.get_type()));
        match of_class.as_deref() {
            Some("member_descriptor") if !deletes => self.state.reads.set_attribute(owner, name),
            Some("getset_descriptor" | "member_descriptor") => {
                self.state.reads.attribute(owner, name);
            }
            // A property is set by a function, which is seen where it is a Python function.
            Some("property") => {}
            _ => match self.state.attributes(owner) {
                Some(own) => self.write_entry(&own, name, deletes)?,
                None => self
                    .state
                    .write(owner, "it changes an object without attributes"),
            },
        }
        Ok(())
    }

    /// Records that an entry of a dictionary of attributes is set, or deleted, for which it has to
    /// exist.
    fn write_entry(
        &mut self,
        store: &Bound<'py, PyDict>,
        name: &Bound<'py, PyString>,
        deletes: bool,
    ) -> Step {
        match deletes {
            true => self.state.reads.delete_entry(store, name.as_any())?,
            false => self.state.reads.set_entry(store, name.as_any())?,
        }
        Ok(())
    }

    pub(super) fn attribute_is_written(
        &mut self,
        owner: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
        what: &str,
    ) -> Step {
        let kind = owner.get_type();
        if self.is_tensor(owner) {
            let found = self.state.reads.lookup(&kind, name);
            match found {
                Some(_) => self.torch(|| format!("Tensor.{name} = …")),
                // A hint to Dynamo about dynamic sizes, which does not affect the program.
                None if name.to_str().is_ok_and(|own| own.starts_with("_dynamo_")) => {}
                None => self.state.write(owner, "it sets an attribute of a tensor"),
            }
            return Ok(());
        }
        let deletes = matches!(what, "deletes" | "delattr");
        let is_in_python_class = Slots::of(&kind).setattr == self.effects.in_python.setattr;
        if is_in_python_class || cpython::is_of_program(&kind) {
            let hook = match deletes {
                true => intern!(self.py, "__delattr__"),
                false => intern!(self.py, "__setattr__"),
            };
            let found = self.state.reads.lookup(&kind, hook);
            if found.is_some_and(|own| is_in_python(&own)) {
                return Ok(());
            }
        }
        self.write_attribute(owner, name, deletes)
    }
}
