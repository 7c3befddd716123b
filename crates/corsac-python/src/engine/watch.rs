//! What a program was made for: weights and modules, and how to see that they are still so.

use corsac_engine::{Data, Element};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use super::tensors::Exchange;

/// A dictionary, and a name in it.
type Place = (Py<PyDict>, Py<PyString>);

/// A parameter, buffer or constant: the place that it is in (none if it is in no module), itself, how
/// often it was written to, where its elements lie.
struct WatchedTensor {
    place: Option<Place>,
    tensor: Option<Py<PyAny>>,
    /// Another tensor with its elements, so that no others can lie in their place. Not in training.
    elements: Option<Py<PyAny>>,
    /// None where it does not count: in inference mode.
    version: Option<i64>,
    /// As [`Exchange::layout`] says it; in training as [`Exchange::form`] does.
    layout: Option<u64>,
    /// Whether it wants a gradient, where that matters: in training.
    requires_grad: bool,
}

/// A module: the dictionary that it is in (none for the model itself), its name, itself, its mode.
struct WatchedModule {
    place: Option<Place>,
    module: Option<Py<PyAny>>,
    attributes: Option<Py<PyDict>>,
    mode: Mode,
}

/// Whether a module trains, and whether it has hooks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Mode {
    training: bool,
    hooked: bool,
}

/// A tensor that is written to without counting it, as batch norms do with their statistics, and what it held.
struct WatchedContent {
    tensor: Py<PyAny>,
    /// None where its elements do not lie row by row in memory that is known.
    content: Option<Vec<u32>>,
}

impl WatchedContent {
    fn new(tensor: Bound<'_, PyAny>, exchange: Option<&Exchange>) -> PyResult<Self> {
        Ok(Self {
            content: bits(&tensor, exchange)?,
            tensor: tensor.unbind(),
        })
    }

    fn is_current(&self, py: Python<'_>, exchange: Option<&Exchange>) -> PyResult<bool> {
        let Some(then) = &self.content else {
            return Ok(false);
        };
        let tensor = self.tensor.bind(py);
        Ok(with_floats(tensor, exchange, |now| {
            now.len() == then.len()
                && now
                    .iter()
                    .zip(then)
                    .all(|(now, then)| now.to_bits() == *then)
        })? == Some(true))
    }
}

/// Calls `look` with the elements of a tensor of float32 that lie row by row; None for all others.
fn with_floats<T>(
    tensor: &Bound<'_, PyAny>,
    exchange: Option<&Exchange>,
    look: impl FnOnce(&[f32]) -> T,
) -> PyResult<Option<T>> {
    let Some(exchange) = exchange else {
        return Ok(None);
    };
    let shape: Vec<usize> = tensor.getattr(intern!(tensor.py(), "shape"))?.extract()?;
    let Some(described) = exchange.described(tensor)? else {
        return Ok(None);
    };
    Ok(match described.data(Element::F32, &shape) {
        Some(Data::F32(elements)) => Some(look(elements)),
        _ => None,
    })
}

fn bits(tensor: &Bound<'_, PyAny>, exchange: Option<&Exchange>) -> PyResult<Option<Vec<u32>>> {
    with_floats(tensor, exchange, |own| {
        own.iter().map(|own| own.to_bits()).collect()
    })
}

/// What programs are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Results: what tensors hold is in the programs.
    Inference,
    /// Gradients too: programs take tensors anew each time, which change from step to step.
    Training,
}

/// The state of a model that programs were compiled for: its tensors, with how often they were written
/// to, and its modules, with whether they train and have hooks.
///
/// It never changes, so that any code of Python may run while one looks: a model's own `_version` or
/// truth value, another thread's call. A cycle of references through it goes through the dictionaries
/// and modules that it holds, where the collector can break it.
#[pyclass(name = "Watch", module = "corsac._core", frozen)]
pub(crate) struct PyWatch {
    tensors: Vec<WatchedTensor>,
    modules: Vec<WatchedModule>,
    contents: Vec<WatchedContent>,
    /// Whether all tensors count how often they are written to: not those made in inference mode.
    #[pyo3(get)]
    pub(super) counts_writes: bool,
    /// Whether a module has hooks; in training those of the way back, too.
    #[pyo3(get)]
    has_hooks: bool,
    purpose: Purpose,
}

fn mode(attributes: &Bound<'_, PyDict>, purpose: Purpose) -> PyResult<Mode> {
    let py = attributes.py();
    let training = match attributes.get_item(intern!(py, "training"))? {
        Some(training) => match training.cast_exact::<PyBool>() {
            Ok(flag) => flag.is_true(),
            Err(_) => training.is_truthy()?,
        },
        None => false,
    };
    let mut hooked = false;
    let names = [
        intern!(py, "_forward_hooks"),
        intern!(py, "_forward_pre_hooks"),
        intern!(py, "_backward_hooks"),
        intern!(py, "_backward_pre_hooks"),
    ];
    let names = match purpose {
        Purpose::Inference => &names[..2],
        Purpose::Training => &names[..],
    };
    for name in names {
        if let Some(hooks) = attributes.get_item(name)? {
            hooked |= match hooks.cast::<PyDict>() {
                Ok(hooks) => !hooks.is_empty(),
                Err(_) => hooks.is_truthy()?,
            };
        }
    }
    Ok(Mode { training, hooked })
}

fn attributes<'py>(module: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let attributes = module.getattr(intern!(module.py(), "__dict__"))?;
    Ok(attributes.cast_into::<PyDict>()?)
}

fn is_same(
    store: &Bound<'_, PyDict>,
    name: &Py<PyString>,
    own: Option<&Py<PyAny>>,
) -> PyResult<bool> {
    Ok(match (store.get_item(name)?, own) {
        (Some(found), Some(own)) => found.is(own),
        (Some(found), None) => found.is_none(),
        (None, _) => false,
    })
}

fn requires_grad(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let requires = tensor.getattr(intern!(tensor.py(), "requires_grad"))?;
    requires.is_truthy()
}

/// How often a tensor was written to; None for those made in inference mode.
fn version(tensor: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = tensor.py();
    let inference = tensor.call_method0(intern!(py, "is_inference"))?;
    if inference.is_truthy()? {
        return Ok(None);
    }
    tensor.getattr(intern!(py, "_version"))?.extract().map(Some)
}

impl WatchedTensor {
    /// Takes note of `tensor`, which may be None, in its place.
    fn new(
        place: Option<Place>,
        tensor: Bound<'_, PyAny>,
        purpose: Purpose,
        exchange: Option<&Exchange>,
    ) -> PyResult<Self> {
        if tensor.is_none() {
            return Ok(Self {
                place,
                tensor: None,
                elements: None,
                version: None,
                layout: None,
                requires_grad: false,
            });
        }
        let (layout, requires_grad) = match purpose {
            Purpose::Inference => (exchange.and_then(|own| own.layout(&tensor)), false),
            Purpose::Training => (
                exchange.and_then(|own| own.form(&tensor)),
                requires_grad(&tensor)?,
            ),
        };
        let elements = match purpose {
            Purpose::Inference => Some(
                tensor
                    .call_method0(intern!(tensor.py(), "detach"))?
                    .unbind(),
            ),
            Purpose::Training => None,
        };
        Ok(Self {
            place,
            elements,
            version: version(&tensor)?,
            layout,
            requires_grad,
            tensor: Some(tensor.unbind()),
        })
    }

    /// Whether it counts how often it is written to.
    fn counts_writes(&self) -> bool {
        self.tensor.is_none() || self.version.is_some()
    }

    /// Whether it is still in its place.
    fn is_there(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.place {
            Some((store, name)) => is_same(store.bind(py), name, self.tensor.as_ref()),
            None => Ok(true),
        }
    }

    fn is_current(
        &self,
        py: Python<'_>,
        purpose: Purpose,
        exchange: Option<&Exchange>,
    ) -> PyResult<bool> {
        if !self.is_there(py)? {
            return Ok(false);
        }
        if purpose == Purpose::Training {
            let Some(tensor) = &self.tensor else {
                return Ok(true);
            };
            let tensor = tensor.bind(py);
            return Ok(requires_grad(tensor)? == self.requires_grad
                && exchange.and_then(|own| own.form(tensor)) == self.layout);
        }
        let (Some(tensor), Some(version)) = (&self.tensor, self.version) else {
            return Ok(true);
        };
        let tensor = tensor.bind(py);
        let now = tensor.getattr(intern!(py, "_version"))?;
        // `tensor.data = …` does not count as a write.
        Ok(now.extract::<i64>()? == version
            && exchange.and_then(|own| own.layout(tensor)) == self.layout)
    }
}

impl WatchedModule {
    fn is_current(&self, py: Python<'_>, purpose: Purpose) -> PyResult<bool> {
        if let Some((store, name)) = &self.place
            && !is_same(store.bind(py), name, self.module.as_ref())?
        {
            return Ok(false);
        }
        match &self.attributes {
            Some(attributes) => Ok(mode(attributes.bind(py), purpose)? == self.mode),
            None => Ok(true),
        }
    }
}

#[pymethods]
impl PyWatch {
    /// Takes note of `root`, a module, and all that is in it; and of other tensors: `constants` has for each the
    /// dictionary and the name that it is found by, or None, and itself. With `trains` tensors may be written to, and have to keep their sizes,
    /// types, strides and whether they want gradients. `contents` are tensors of which elements are compared.
    #[new]
    #[pyo3(signature = (root, constants = Vec::new(), *, trains = false, contents = Vec::new()))]
    fn new(
        root: &Bound<'_, PyAny>,
        constants: Vec<(Option<Place>, Bound<'_, PyAny>)>,
        trains: bool,
        contents: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = root.py();
        let purpose = match trains {
            true => Purpose::Training,
            false => Purpose::Inference,
        };
        let exchange = Exchange::get(py)?;
        let mut tensors = Vec::new();
        for (place, tensor) in constants {
            tensors.push(WatchedTensor::new(place, tensor, purpose, exchange)?);
        }
        let own = attributes(root)?;
        let mut modules = vec![WatchedModule {
            place: None,
            module: Some(root.clone().unbind()),
            mode: mode(&own, purpose)?,
            attributes: Some(own.unbind()),
        }];
        for module in root.call_method0(intern!(py, "modules"))?.try_iter()? {
            let module = module?;
            for store in [intern!(py, "_parameters"), intern!(py, "_buffers")] {
                let store = module.getattr(store)?.cast_into::<PyDict>()?;
                for (name, tensor) in &store {
                    let name = name.cast_into::<PyString>()?;
                    let place = (store.clone().unbind(), name.unbind());
                    tensors.push(WatchedTensor::new(Some(place), tensor, purpose, exchange)?);
                }
            }
            let store = module
                .getattr(intern!(py, "_modules"))?
                .cast_into::<PyDict>()?;
            for (name, child) in &store {
                let own = match child.is_none() {
                    true => None,
                    false => Some(attributes(&child)?),
                };
                modules.push(WatchedModule {
                    place: Some((
                        store.clone().unbind(),
                        name.cast_into::<PyString>()?.unbind(),
                    )),
                    mode: own
                        .as_ref()
                        .map(|own| mode(own, purpose))
                        .transpose()?
                        .unwrap_or_default(),
                    module: own.is_some().then(|| child.unbind()),
                    attributes: own.map(Bound::unbind),
                });
            }
        }
        Ok(Self {
            counts_writes: tensors.iter().all(WatchedTensor::counts_writes),
            has_hooks: modules.iter().any(|module| module.mode.hooked),
            tensors,
            modules,
            contents: contents
                .into_iter()
                .map(|own| WatchedContent::new(own, exchange))
                .collect::<PyResult<_>>()?,
            purpose,
        })
    }

    /// Whether everything is still as it was.
    pub(super) fn is_current(&self, py: Python<'_>) -> PyResult<bool> {
        let exchange = Exchange::get(py)?;
        for tensor in &self.tensors {
            if !tensor.is_current(py, self.purpose, exchange)? {
                return Ok(false);
            }
        }
        for module in &self.modules {
            if !module.is_current(py, self.purpose)? {
                return Ok(false);
            }
        }
        for own in &self.contents {
            if !own.is_current(py, exchange)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all tensors are still in their places, whatever has become of them.
    fn has_same_tensors(&self, py: Python<'_>) -> PyResult<bool> {
        for tensor in &self.tensors {
            if !tensor.is_there(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a tensor wants a gradient.
    pub(super) fn requires_grad(&self, py: Python<'_>) -> PyResult<bool> {
        for tensor in self.tensors.iter().filter_map(|own| own.tensor.as_ref()) {
            if requires_grad(tensor.bind(py))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for own in &self.tensors {
            if let Some((store, _)) = &own.place {
                visit.call(store)?;
            }
            visit.call(&own.tensor)?;
            visit.call(&own.elements)?;
        }
        for own in &self.modules {
            if let Some((store, _)) = &own.place {
                visit.call(store)?;
            }
            visit.call(&own.module)?;
            visit.call(&own.attributes)?;
        }
        for own in &self.contents {
            visit.call(&own.tensor)?;
        }
        Ok(())
    }
}
