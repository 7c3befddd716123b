//! State that a program was compiled for, weights and modules, and checks that it is unchanged.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use smallvec::SmallVec;

use super::tensor_layout::Seen;
use super::tensors::{Exchange, requires_grad};
use crate::capture::Stamped;

/// A dictionary, and a name in it.
type Place = (Py<PyDict>, Py<PyString>);

/// A name in a dictionary, with the version of the dictionary.
struct StampedPlace {
    store: Stamped,
    name: Py<PyString>,
}

impl StampedPlace {
    fn new(py: Python<'_>, (store, name): Place) -> Self {
        Self {
            store: Stamped::new(store.into_bound(py)),
            name,
        }
    }

    /// Whether the dictionary has `own` under the name, None for None.
    fn has(&self, py: Python<'_>, own: Option<&Py<PyAny>>) -> PyResult<bool> {
        self.store
            .is_current(py, |store| is_same(store, &self.name, own))
    }
}

/// A parameter, buffer or constant: its place (none if it is in no module), the tensor, its number
/// of writes, the layout of its elements.
struct GuardedTensor {
    place: Option<StampedPlace>,
    tensor: Option<Py<PyAny>>,
    /// Another tensor with its elements, so that no others can take their address. Not in training.
    elements: Option<Py<PyAny>>,
    /// None where writes are not counted: in inference mode.
    version: Option<i64>,
    /// Result of [`Exchange::layout`]; in training, of [`Exchange::form`].
    layout: Option<u64>,
    /// Whether it requires a gradient, where that matters: in training.
    requires_grad: bool,
    /// Its full state, where structures are known. Not in training.
    seen: Option<Seen>,
}

/// A module: its place (none for the model itself), the module, its mode.
struct GuardedModule {
    place: Option<StampedPlace>,
    module: Option<Py<PyAny>>,
    attributes: Option<Stamped>,
    /// The dictionaries of hooks among the attributes; None if one is of another type.
    hooks: Option<Vec<Py<PyDict>>>,
    mode: Mode,
}

/// Training mode of a module, and whether it has hooks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Mode {
    training: bool,
    hooked: bool,
}

/// Most bytes of tensors made in inference mode whose contents are compared in each call.
const MOST_COMPARED: usize = 4 << 20;

/// A tensor that is written to without being counted, as batch norms do with their statistics, and
/// its contents. Writes to tensors made in inference mode are not counted either.
struct GuardedContent {
    tensor: Py<PyAny>,
    shape: Vec<usize>,
    /// Element type and bytes; None if they are not contiguous in memory that is known.
    content: Option<([u8; 2], Vec<u8>)>,
}

impl GuardedContent {
    fn new(tensor: Bound<'_, PyAny>, exchange: Option<&Exchange>) -> PyResult<Self> {
        let shape: Vec<usize> = tensor.getattr(intern!(tensor.py(), "shape"))?.extract()?;
        let described = match exchange {
            Some(exchange) => exchange.described(&tensor)?,
            None => None,
        };
        let content = described.and_then(|own| own.content(&shape));
        Ok(Self {
            content: content.map(|(dtype, bytes)| (dtype, bytes.to_vec())),
            shape,
            tensor: tensor.unbind(),
        })
    }

    /// Whether its contents are unchanged. It is a constant of the program, too, which has checked
    /// that it is the same tensor.
    fn is_current(&self, py: Python<'_>, exchange: Option<&Exchange>) -> bool {
        let tensor = self.tensor.bind(py);
        let described = exchange
            .filter(|own| own.is_tensor(tensor))
            .and_then(|own| own.described_as_stored(tensor));
        let now = described.and_then(|own| own.content(&self.shape));
        match (now, &self.content) {
            (Some((dtype, now)), Some((known, then))) => dtype == *known && now == then,
            _ => false,
        }
    }
}

/// Use of programs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Results: contents of tensors are compiled into the programs.
    Inference,
    /// Gradients too: programs take tensors, which change from step to step, anew each time.
    Training,
}

/// State of a model that programs were compiled for: its tensors, with their numbers of writes, and
/// its modules, with their training modes and hooks.
///
/// It never changes, so that any code of Python may run during a check: a model's own `_version` or
/// truth value, another thread's call. A cycle of references through it goes through the
/// dictionaries and modules that it holds, where the garbage collector can break it.
#[pyclass(name = "ModelGuards", module = "corsac._core", frozen)]
pub(crate) struct PyModelGuards {
    tensors: Vec<GuardedTensor>,
    modules: Vec<GuardedModule>,
    contents: Vec<GuardedContent>,
    /// Tensors of which only sizes, types and strides were read.
    typed: Vec<GuardedTensor>,
    /// Whether all writes to tensors can be detected: not those to large ones made in inference
    /// mode.
    #[pyo3(get)]
    pub(super) counts_writes: bool,
    /// Whether a module has hooks; in training, backward hooks count, too.
    #[pyo3(get)]
    has_hooks: bool,
    purpose: Purpose,
}

/// Names of the hooks that matter.
fn hooks(py: Python<'_>, purpose: Purpose) -> SmallVec<[&Bound<'_, PyString>; 4]> {
    let names = [
        intern!(py, "_forward_hooks"),
        intern!(py, "_forward_pre_hooks"),
        intern!(py, "_backward_hooks"),
        intern!(py, "_backward_pre_hooks"),
    ];
    let count = match purpose {
        Purpose::Inference => 2,
        Purpose::Training => 4,
    };
    names.into_iter().take(count).collect()
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
    for name in hooks(py, purpose) {
        if let Some(hooks) = attributes.get_item(name)? {
            hooked |= match hooks.cast::<PyDict>() {
                Ok(hooks) => !hooks.is_empty(),
                Err(_) => hooks.is_truthy()?,
            };
        }
    }
    Ok(Mode { training, hooked })
}

/// The dictionaries of hooks; None if one is of another type.
fn hooks_of(attributes: &Bound<'_, PyDict>, purpose: Purpose) -> PyResult<Option<Vec<Py<PyDict>>>> {
    let py = attributes.py();
    let training = attributes.get_item(intern!(py, "training"))?;
    if training.is_some_and(|own| !own.is_exact_instance_of::<PyBool>()) {
        // Its truth value may change while the object stays the same.
        return Ok(None);
    }
    let mut found = Vec::new();
    for name in hooks(py, purpose) {
        let Some(own) = attributes.get_item(name)? else {
            continue;
        };
        match own.cast_into::<PyDict>() {
            Ok(own) => found.push(own.unbind()),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(found))
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

/// Number of writes to a tensor; None if it was made in inference mode.
fn version(tensor: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    let py = tensor.py();
    let inference = tensor.call_method0(intern!(py, "is_inference"))?;
    if inference.is_truthy()? {
        return Ok(None);
    }
    tensor.getattr(intern!(py, "_version"))?.extract().map(Some)
}

impl GuardedTensor {
    /// Records the state of `tensor`, which may be None, in its place.
    fn new(
        place: Option<Place>,
        tensor: Bound<'_, PyAny>,
        purpose: Purpose,
        exchange: Option<&Exchange>,
    ) -> PyResult<Self> {
        let place = place.map(|own| StampedPlace::new(tensor.py(), own));
        if tensor.is_none() {
            return Ok(Self {
                place,
                tensor: None,
                elements: None,
                version: None,
                layout: None,
                requires_grad: false,
                seen: None,
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
        let version = version(&tensor)?;
        let seen = match purpose {
            // Strided tensors of PyTorch itself have a layout.
            Purpose::Inference if layout.is_some() && version.is_some() => Seen::of(&tensor),
            _ => None,
        };
        Ok(Self {
            place,
            elements,
            version,
            layout,
            requires_grad,
            seen,
            tensor: Some(tensor.unbind()),
        })
    }

    /// Whether writes to it are counted.
    fn counts_writes(&self) -> bool {
        self.tensor.is_none() || self.version.is_some()
    }

    /// The tensor, if writes to it are not counted.
    fn uncounted<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let tensor = self.tensor.as_ref().filter(|_| self.version.is_none())?;
        Some(tensor.bind(py).clone())
    }

    /// Whether it is still in its place.
    fn is_there(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.place {
            Some(place) => place.has(py, self.tensor.as_ref()),
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
        if self
            .seen
            .as_ref()
            .is_some_and(|own| own.is_current(tensor, py))
        {
            return Ok(true);
        }
        let tensor = tensor.bind(py);
        let now = match exchange {
            Some(exchange) => exchange.version(tensor)?,
            None => tensor.getattr(intern!(py, "_version"))?.extract()?,
        };
        // `tensor.data = …` does not count as a write.
        Ok(now == version && exchange.and_then(|own| own.layout(tensor)) == self.layout)
    }
}

impl GuardedModule {
    /// Records the state of a module, which may be None, in its place.
    fn new(place: Option<Place>, module: Bound<'_, PyAny>, purpose: Purpose) -> PyResult<Self> {
        let py = module.py();
        let place = place.map(|own| StampedPlace::new(py, own));
        if module.is_none() {
            return Ok(Self {
                place,
                module: None,
                attributes: None,
                hooks: None,
                mode: Mode::default(),
            });
        }
        let own = attributes(&module)?;
        Ok(Self {
            place,
            mode: mode(&own, purpose)?,
            hooks: hooks_of(&own, purpose)?,
            attributes: Some(Stamped::new(own)),
            module: Some(module.unbind()),
        })
    }

    fn is_current(&self, py: Python<'_>, purpose: Purpose) -> PyResult<bool> {
        if let Some(place) = &self.place
            && !place.has(py, self.module.as_ref())?
        {
            return Ok(false);
        }
        let Some(attributes) = &self.attributes else {
            return Ok(true);
        };
        if let Some(hooks) = &self.hooks
            && attributes.is_unchanged(py)
        {
            // Its training mode, and the dictionaries of its hooks, are unchanged.
            let hooked = hooks.iter().any(|own| !own.bind(py).is_empty());
            return Ok(hooked == self.mode.hooked);
        }
        attributes.is_current(py, |own| Ok(mode(own, purpose)? == self.mode))
    }
}

/// Contents of tensors whose writes are not counted; None if they are too large, or unknown.
fn compared<'py>(
    uncounted: impl Iterator<Item = Bound<'py, PyAny>>,
    exchange: Option<&Exchange>,
) -> PyResult<Option<Vec<GuardedContent>>> {
    let (mut left, mut all) = (MOST_COMPARED, Vec::new());
    for own in uncounted {
        let size: usize = own.getattr(intern!(own.py(), "nbytes"))?.extract()?;
        let Some(rest) = left.checked_sub(size) else {
            return Ok(None);
        };
        left = rest;
        let content = GuardedContent::new(own, exchange)?;
        if content.content.is_none() {
            return Ok(None);
        }
        all.push(content);
    }
    Ok(Some(all))
}

#[pymethods]
impl PyModelGuards {
    /// Record the state of `root`, a module, and all that is in it; and of other tensors:
    /// `constants` has for each its place, a dictionary and a name, or None, and the tensor. With
    /// `trains`, tensors may be written to, but have to keep their sizes, types, strides and
    /// `requires_grad`, as have those in `typed`. `contents` are tensors whose elements are compared; `rewritten` those that
    /// may be written to, and only have to stay in their places.
    #[new]
    #[pyo3(signature = (
        root, constants = Vec::new(), *, trains = false, contents = Vec::new(), rewritten = Vec::new(), typed = Vec::new()
    ))]
    fn new(
        root: &Bound<'_, PyAny>,
        constants: Vec<(Option<Place>, Bound<'_, PyAny>)>,
        trains: bool,
        contents: Vec<Bound<'_, PyAny>>,
        rewritten: Vec<Bound<'_, PyAny>>,
        typed: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = root.py();
        let purpose = match trains {
            true => Purpose::Training,
            false => Purpose::Inference,
        };
        let exchange = Exchange::get(py)?;
        let mut tensors = Vec::new();
        for (place, tensor) in constants {
            tensors.push(GuardedTensor::new(place, tensor, purpose, exchange)?);
        }
        let mut modules = vec![GuardedModule::new(None, root.clone(), purpose)?];
        for module in root.call_method0(intern!(py, "modules"))?.try_iter()? {
            let module = module?;
            let parameters = module.getattr(intern!(py, "_parameters"))?;
            if !parameters.is_instance_of::<PyDict>() {
                // A module of TorchScript, whose parts are in C++: PyTorch runs its callers.
                continue;
            }
            for store in [intern!(py, "_parameters"), intern!(py, "_buffers")] {
                let store = module.getattr(store)?.cast_into::<PyDict>()?;
                for (name, tensor) in &store {
                    let name = name.cast_into::<PyString>()?;
                    let place = (store.clone().unbind(), name.unbind());
                    tensors.push(GuardedTensor::new(Some(place), tensor, purpose, exchange)?);
                }
            }
            let store = module
                .getattr(intern!(py, "_modules"))?
                .cast_into::<PyDict>()?;
            for (name, child) in &store {
                let name = name.cast_into::<PyString>()?;
                let place = (store.clone().unbind(), name.unbind());
                modules.push(GuardedModule::new(Some(place), child, purpose)?);
            }
        }
        let is_rewritten = |own: &GuardedTensor| {
            let tensor = own.tensor.as_ref();
            tensor.is_some_and(|own| rewritten.iter().any(|other| other.is(own)))
        };
        let contents = contents.into_iter();
        let contents = contents.map(|own| GuardedContent::new(own, exchange));
        let mut contents: Vec<GuardedContent> = contents.collect::<PyResult<_>>()?;
        let mut counts_writes = true;
        if purpose == Purpose::Inference {
            let read = tensors.iter().filter(|own| !is_rewritten(own));
            let uncounted = read.filter_map(|own| own.uncounted(py));
            match compared(uncounted, exchange)? {
                Some(more) => contents.extend(more),
                None => counts_writes = false,
            }
        } else {
            counts_writes = tensors.iter().all(GuardedTensor::counts_writes);
        }
        for own in &mut tensors {
            if is_rewritten(own) {
                (own.version, own.seen) = (None, None);
                counts_writes = false;
            }
        }
        let typed = typed.into_iter();
        let typed = typed.map(|own| GuardedTensor::new(None, own, Purpose::Training, exchange));
        Ok(Self {
            typed: typed.collect::<PyResult<_>>()?,
            counts_writes,
            has_hooks: modules.iter().any(|module| module.mode.hooked),
            tensors,
            modules,
            contents,
            purpose,
        })
    }

    /// Whether all of this state is unchanged.
    pub(super) fn is_current(&self, py: Python<'_>) -> PyResult<bool> {
        let exchange = Exchange::get(py)?;
        for tensor in &self.tensors {
            if !tensor.is_current(py, self.purpose, exchange)? {
                return Ok(false);
            }
        }
        for tensor in &self.typed {
            if !tensor.is_current(py, Purpose::Training, exchange)? {
                return Ok(false);
            }
        }
        for module in &self.modules {
            if !module.is_current(py, self.purpose)? {
                return Ok(false);
            }
        }
        for own in &self.contents {
            if !own.is_current(py, exchange) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Number of tensors that are guarded.
    #[getter]
    fn count(&self) -> usize {
        self.tensors.len()
    }

    /// The first tensor or module that has changed, and its change; None if none has.
    fn failure<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, &'static str)>> {
        let exchange = Exchange::get(py)?;
        let bound = |own: &Option<Py<PyAny>>| match own {
            Some(own) => own.bind(py).clone(),
            None => py.None().into_bound(py),
        };
        for own in &self.tensors {
            if !own.is_current(py, self.purpose, exchange)? {
                let is_written = match (&own.tensor, own.version) {
                    (Some(tensor), Some(then)) => version(tensor.bind(py))? != Some(then),
                    _ => false,
                };
                let what = match (own.is_there(py)?, is_written) {
                    (false, _) => "was replaced",
                    (true, true) => "was written to",
                    (true, false) => "has other memory, sizes or types",
                };
                return Ok(Some((bound(&own.tensor), what)));
            }
        }
        for own in &self.modules {
            if !own.is_current(py, self.purpose)? {
                return Ok(Some((
                    bound(&own.module),
                    "was replaced, has other hooks or trains",
                )));
            }
        }
        for own in &self.contents {
            if !own.is_current(py, exchange) {
                return Ok(Some((own.tensor.bind(py).clone(), "was updated")));
            }
        }
        Ok(None)
    }

    /// The tensors that were written to, and have kept their places, sizes and types.
    fn written<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let exchange = Exchange::get(py)?;
        let mut found = Vec::new();
        for own in &self.tensors {
            let (Some(tensor), Some(then)) = (&own.tensor, own.version) else {
                continue;
            };
            let tensor = tensor.bind(py);
            if version(tensor)? != Some(then)
                && own.is_there(py)?
                && exchange.and_then(|exchange| exchange.layout(tensor)) == own.layout
            {
                found.push(tensor.clone());
            }
        }
        Ok(found)
    }

    /// Whether all tensors are still in their places, whatever their changes.
    fn has_same_tensors(&self, py: Python<'_>) -> PyResult<bool> {
        for tensor in &self.tensors {
            if !tensor.is_there(py)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a tensor requires a gradient.
    pub(super) fn requires_grad(&self, py: Python<'_>) -> PyResult<bool> {
        for tensor in self.tensors.iter().filter_map(|own| own.tensor.as_ref()) {
            if requires_grad(tensor.bind(py))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for own in self.tensors.iter().chain(&self.typed) {
            if let Some(place) = &own.place {
                visit.call(&place.store.dict)?;
            }
            visit.call(&own.tensor)?;
            visit.call(&own.elements)?;
        }
        for own in &self.modules {
            if let Some(place) = &own.place {
                visit.call(&place.store.dict)?;
            }
            visit.call(&own.module)?;
            if let Some(attributes) = &own.attributes {
                visit.call(&attributes.dict)?;
            }
            for hooks in own.hooks.iter().flatten() {
                visit.call(hooks)?;
            }
        }
        for own in &self.contents {
            visit.call(&own.tensor)?;
        }
        Ok(())
    }
}
