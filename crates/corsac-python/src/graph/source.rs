//! Location in the user's program: the innermost frame that is neither PyTorch's nor corsac's.

use std::sync::Mutex;

use corsac_ir::{ExternalId, NodeId, Origin, Source, SourceId};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCode, PyFrame, PyFrameMethods, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use crate::graph::PyGraph;
use crate::graph::node::PyNode;

/// Folders of PyTorch and of this package, and access to the stack.
struct Stack {
    getframe: Py<PyAny>,
    internal: [String; 2],
}

impl Stack {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static STACK: PyOnceLock<Stack> = PyOnceLock::new();
        STACK.get_or_try_init(py, || {
            let folder = |package: &str| -> PyResult<String> {
                let file: String = py.import(package)?.getattr("__file__")?.extract()?;
                Ok(match file.rfind(['/', '\\']) {
                    Some(end) => file[..=end].to_owned(),
                    None => file,
                })
            };
            Ok(Self {
                getframe: py.import("sys")?.getattr("_getframe")?.unbind(),
                internal: [folder("torch")?, folder("corsac")?],
            })
        })
    }

    fn is_internal(&self, file: &str) -> bool {
        self.internal.iter().any(|folder| file.starts_with(folder))
    }

    fn top<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrame>> {
        Ok(self.getframe.bind(py).call0()?.cast_into::<PyFrame>()?)
    }
}

/// Code objects met while tracing, by address; they are kept alive so that an address stands for
/// one of them.
#[derive(Default)]
pub(crate) struct CodeCache {
    codes: FxHashMap<usize, Known>,
}

struct Known {
    code: Py<PyCode>,
    internal: bool,
    /// Its id in the graph being recorded.
    id: Option<ExternalId>,
}

impl CodeCache {
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Py<PyCode>> {
        self.codes.values().map(|known| &known.code)
    }

    /// Forgets everything: ids belong to one graph.
    pub(crate) fn clear(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.codes)
    }

    /// Facts about a code object: whether it is internal, and its id in the graph.
    fn known(&self, code: &Bound<'_, PyCode>) -> Option<(bool, Option<ExternalId>)> {
        let known = self.codes.get(&(code.as_ptr() as usize))?;
        Some((known.internal, known.id))
    }

    fn add(&mut self, code: &Bound<'_, PyCode>, internal: bool) {
        let known = Known {
            code: code.clone().unbind(),
            internal,
            id: None,
        };
        self.codes.insert(code.as_ptr() as usize, known);
    }

    fn set_id(&mut self, code: &Bound<'_, PyCode>, id: ExternalId) {
        if let Some(known) = self.codes.get_mut(&(code.as_ptr() as usize)) {
            known.id = Some(id);
        }
    }
}

/// A place in a code object.
struct Place<'py> {
    code: Bound<'py, PyCode>,
    /// The code object's id in the graph, if it was met before.
    id: Option<ExternalId>,
    offset: i32,
}

impl<'py> Place<'py> {
    /// Current location in the user's program. No graph may be borrowed.
    fn current(py: Python<'py>, codes: &mut CodeCache) -> PyResult<Option<Self>> {
        let stack = Stack::get(py)?;
        let mut frame = Some(stack.top(py)?);
        while let Some(current) = frame {
            let code = current.code();
            let (internal, id) = match codes.known(&code) {
                Some(known) => known,
                None => {
                    let internal = is_internal(stack, &code)?;
                    codes.add(&code, internal);
                    (internal, None)
                }
            };
            if !internal {
                let offset = current.getattr(intern!(py, "f_lasti"))?.extract()?;
                return Ok(Some(Self { code, id, offset }));
            }
            frame = current.outer();
        }
        Ok(None)
    }
}

/// Current location in the user's program, as a source of `graph`, which must not be borrowed;
/// `codes` are the code objects met for it.
pub(crate) fn current_source(
    graph: &Bound<'_, PyGraph>,
    codes: &mut CodeCache,
) -> PyResult<Option<SourceId>> {
    let Some(place) = Place::current(graph.py(), codes)? else {
        return Ok(None);
    };
    let mut borrowed = graph.try_borrow_mut()?;
    let (ir, host) = borrowed.parts_to_extend();
    let code = match place.id {
        Some(id) => id,
        None => {
            let id = host.external(ir, place.code.as_any());
            codes.set_id(&place.code, id);
            id
        }
    };
    Ok(Some(ir.add_source(Source::Host {
        code,
        offset: place.offset,
    })))
}

/// Records the locations in the user's program where the nodes of one graph are made.
#[pyclass(module = "corsac._core", name = "SourceNotes", frozen)]
pub(crate) struct PySourceNotes {
    codes: Mutex<CodeCache>,
}

#[pymethods]
impl PySourceNotes {
    #[new]
    fn new() -> Self {
        Self {
            codes: Mutex::default(),
        }
    }

    /// Record that `node`, of the same graph each time, is made by the current line of the program.
    pub(crate) fn note(&self, node: &Bound<'_, PyNode>) -> PyResult<()> {
        let graph = node.get().graph(node.py());
        // Taken out meanwhile: looking at frames may run the garbage collector.
        let mut codes = match self.codes.lock() {
            Ok(mut codes) => std::mem::take(&mut *codes),
            Err(_) => CodeCache::default(),
        };
        let source = current_source(graph, &mut codes);
        if let Ok(mut own) = self.codes.lock() {
            *own = codes;
        }
        let mut borrowed = graph.try_borrow_mut()?;
        let ir = borrowed.parts_to_extend().0;
        let origin = Origin {
            source: source?,
            ..ir.origin(node.get().id())
        };
        ir.set_origin(node.get().id(), origin);
        Ok(())
    }
}

fn is_internal(stack: &Stack, code: &Bound<'_, PyCode>) -> PyResult<bool> {
    let file = code.getattr(intern!(code.py(), "co_filename"))?;
    Ok(stack.is_internal(&file.cast::<PyString>()?.to_string_lossy()))
}

/// The innermost frame of the user's program.
#[pyfunction]
pub(crate) fn user_frame(py: Python<'_>) -> PyResult<Option<Bound<'_, PyFrame>>> {
    let stack = Stack::get(py)?;
    let mut frame = Some(stack.top(py)?);
    while let Some(current) = frame {
        if !is_internal(stack, &current.code())? {
            return Ok(Some(current));
        }
        frame = current.outer();
    }
    Ok(None)
}

/// File, line and function of the current location in the user's program.
#[pyfunction]
pub(crate) fn user_location(py: Python<'_>) -> PyResult<Option<(String, i32, String)>> {
    let Some(frame) = user_frame(py)? else {
        return Ok(None);
    };
    let code = frame.code();
    let text = |name: &Bound<'_, PyString>| -> PyResult<String> {
        let text = code.getattr(name)?;
        Ok(text.cast::<PyString>()?.to_string_lossy().into_owned())
    };
    let file = text(intern!(py, "co_filename"))?;
    let function = text(intern!(py, "co_name"))?;
    Ok(Some((file, frame.line_number(), function)))
}

/// Value of `node.source`: file, line, function and module path, or None where the node was not
/// made by the user's program.
pub(crate) fn node_source<'py>(
    graph: &Bound<'py, PyGraph>,
    id: NodeId,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = graph.py();
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    let origin = ir.origin(id);
    let Some(source) = origin.source else {
        return Ok(None);
    };
    let module = origin
        .scope
        .map_or("", |scope| ir.text(ir.scope(scope).path));
    let module = PyString::new(py, module);
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "corsac.fx._source", "NodeSource")?;
    match ir.source(source) {
        Source::Line {
            file,
            line,
            function,
        } => class
            .call1((ir.text(file), line, ir.text(function), module))
            .map(Some),
        Source::Host { code, offset } => {
            let code = borrowed.host().external_object(py, code);
            drop(borrowed);
            let Some(file) = code.getattr_opt(intern!(py, "co_filename"))? else {
                // The graph was read from text, which does not contain the location.
                return Ok(None);
            };
            let function = code.getattr(intern!(py, "co_qualname"))?;
            let line = line_of(&code, offset)?;
            class.call1((file, line, function, module)).map(Some)
        }
    }
}

/// The line of an instruction; for a negative offset, the line that the function begins in.
fn line_of(code: &Bound<'_, PyAny>, offset: i32) -> PyResult<i64> {
    let py = code.py();
    if offset < 0 {
        return code.getattr(intern!(py, "co_firstlineno"))?.extract();
    }
    let mut last = None;
    for range in code.call_method0(intern!(py, "co_lines"))?.try_iter()? {
        let range = range?.cast_into::<PyTuple>()?;
        let (start, end, line): (i32, i32, Option<i64>) = range.extract()?;
        if line.is_some() {
            last = line;
        }
        if (start..end).contains(&offset) {
            break;
        }
    }
    last.ok_or_else(|| PyRuntimeError::new_err("the code object has no lines"))
}
