//! Functions that C code calls with elements of its other arguments, and the getters of `operator`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::cpython::{self, name_in_c};
use super::effects::Purpose;
use super::iteration::elements_left;
use super::look::{Look, Step, full_name, is_constant, is_in_python};

/// Whether an object is a getter of `operator`, or a `methodcaller`.
pub(super) fn is_getter(own: &Bound<'_, PyAny>) -> bool {
    matches!(
        &*name_in_c(&own.get_type()),
        "operator.itemgetter" | "operator.attrgetter" | "operator.methodcaller"
    )
}

impl<'py> Look<'_, 'py> {
    /// Handles C code that calls the callables among its arguments with the elements of the others,
    /// and compares the results.
    pub(super) fn called_among(&mut self, arguments: &[Bound<'py, PyAny>]) -> Step {
        let (functions, others): (Vec<_>, Vec<_>) =
            arguments.iter().cloned().partition(Bound::is_callable);
        // Other keyword arguments are not elements.
        let positional = match self.names_of_arguments() {
            Some(names) => arguments.get(..arguments.len().saturating_sub(names.len())),
            None => Some(&others[..]),
        };
        let positional = positional.unwrap_or_default();
        for function in &functions {
            if is_getter(function) {
                match positional {
                    [iterable] => self.got(function, iterable, Purpose::Compared)?,
                    several => {
                        for own in several {
                            let own = std::slice::from_ref(own);
                            self.getter(function, own, Purpose::Compared)?;
                        }
                    }
                }
            } else {
                let taken = self.called_by_c(function, Purpose::Compared)?;
                others
                    .iter()
                    .try_for_each(|own| self.elements(own, taken))?;
            }
        }
        Ok(())
    }

    /// Handles calls of a getter for each element of an iterable, with results that are used for
    /// `results`.
    pub(super) fn got(
        &mut self,
        getter: &Bound<'py, PyAny>,
        iterable: &Bound<'py, PyAny>,
        results: Purpose,
    ) -> Step {
        match elements_left(iterable)? {
            Some(all) => all
                .iter()
                .try_for_each(|own| self.getter(getter, std::slice::from_ref(own), results)),
            None => self.getter(getter, &[], results),
        }
    }

    /// Records the use of an item that was read for `purpose`.
    fn item_used(
        &mut self,
        container: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        purpose: Purpose,
    ) -> Step {
        if purpose == Purpose::Moved || self.is_tensor(container) || is_constant(container) {
            return Ok(());
        }
        let is_of_c = container.is_exact_instance_of::<PyTuple>()
            || container.is_exact_instance_of::<PyList>()
            || container.is_exact_instance_of::<PyDict>();
        let getitem = intern!(self.py, "__getitem__");
        match cpython::lookup(&container.get_type(), getitem) {
            // An exception is raised again by the call itself.
            Some(_) if is_of_c => container
                .get_item(key)
                .map_or(Ok(()), |own| self.used(&own, purpose)),
            Some(found) if is_in_python(&found) => self.given_by(&found, purpose, 0),
            // Any of them.
            _ => self.deep(container, 1, purpose.max(Purpose::Compared)),
        }
    }

    /// Records the use of an attribute that was read for `purpose`.
    fn attribute_used(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
        purpose: Purpose,
    ) -> Step {
        if purpose == Purpose::Moved || self.is_tensor(object) {
            return Ok(());
        }
        let own = cpython::attributes(object, false).map(|own| own.get_item(name));
        if let Some(own) = own.transpose()?.flatten() {
            return self.used(&own, purpose);
        }
        let found = cpython::lookup(&object.get_type(), name);
        let is_slot = found
            .as_ref()
            .is_some_and(|own| name_in_c(&own.get_type()) == "member_descriptor");
        match found {
            Some(_) if is_slot => match object.getattr_opt(name)? {
                Some(own) => self.used(&own, purpose),
                None => Ok(()),
            },
            Some(own) if is_constant(&own) => Ok(()),
            _ => {
                self.state
                    .opaque(format!("C code gets {name} of an object"));
                Ok(())
            }
        }
    }

    /// Handles a call of a getter: it reads items or attributes of its argument, or calls a method
    /// of that; the results are used for `results`.
    pub(super) fn getter(
        &mut self,
        getter: &Bound<'py, PyAny>,
        arguments: &[Bound<'py, PyAny>],
        results: Purpose,
    ) -> Step {
        let py = self.py;
        let name = full_name(&getter.get_type());
        let state = getter.call_method0(intern!(py, "__reduce__"))?;
        let (class, given) = (state.get_item(0)?, state.get_item(1)?);
        let given: Vec<_> = given.try_iter()?.collect::<PyResult<_>>()?;
        // With keywords it is made in another way.
        let ([object], true) = (arguments, class.is(getter.get_type())) else {
            self.state.opaque(format!("something else calls a {name}"));
            return Ok(());
        };
        match &*name {
            "operator.itemgetter" => {
                self.symbols_used(&given, false)?;
                for key in &given {
                    self.item_of_any(object, key)?;
                    self.item_used(object, key, results)?;
                }
                Ok(())
            }
            "operator.attrgetter" => {
                for path in &given {
                    let path = path.cast::<PyString>()?;
                    if path.to_cow()?.contains('.') {
                        self.state.opaque("it gets attributes of an attribute");
                        return Ok(());
                    }
                    self.attribute(object, path)?;
                    self.attribute_used(object, path, results)?;
                }
                Ok(())
            }
            _ => {
                let (Some(method), rest) = (given.first(), given.get(1..).unwrap_or_default())
                else {
                    return Ok(());
                };
                let method = method.cast::<PyString>()?;
                self.attribute(object, method)?;
                let own = cpython::attributes(object, false);
                let is_own = own.is_some_and(|own| own.contains(method).unwrap_or(true));
                match cpython::lookup(&object.get_type(), method) {
                    Some(found) if !is_own => {
                        let mut all = vec![object.clone()];
                        all.extend_from_slice(rest);
                        self.call(&found, &all, 1)?;
                        match results {
                            Purpose::Moved => Ok(()),
                            _ if is_in_python(&found) => self.given_by(&found, results, 0),
                            // It may return any part of the object.
                            _ => self.used(object, results.max(Purpose::Compared)),
                        }
                    }
                    _ => {
                        self.state.opaque(format!("it calls {method} by its name"));
                        Ok(())
                    }
                }
            }
        }
    }
}
