//! Pictures of Python's graphs.

use corsac_draw::layout::Opening;
use corsac_draw::{
    HtmlOptions, ModuleCall, Note, Notes, Overlay, Quantities, Record, Scene, SvgOptions, to_dot,
    to_html, to_svg,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::host_text::{with_objects, with_objects_of_both};

/// Facts from Python about a node: `corsac._drawing.notes.Note`.
#[derive(FromPyObject)]
pub(crate) struct NoteObject {
    class_name: Option<String>,
    shape: Option<String>,
    dtype: Option<String>,
    source: Option<String>,
    settings: Option<String>,
    time: Option<f64>,
    bytes: Option<f64>,
    flops: Option<f64>,
    part: Option<u32>,
    modules: Option<Vec<(String, String, u32)>>,
    more: Vec<(String, String)>,
}

impl From<NoteObject> for Note {
    fn from(note: NoteObject) -> Self {
        // JSON and scales have no place for infinities.
        let known = |amount: Option<f64>| amount.filter(|a| a.is_finite());
        let call = |(path, class, call)| ModuleCall { path, class, call };
        let modules = note.modules;
        Self {
            class: note.class_name,
            shape: note.shape,
            dtype: note.dtype,
            source: note.source,
            settings: note.settings,
            quantities: Quantities {
                time: known(note.time),
                bytes: known(note.bytes),
                flops: known(note.flops),
            },
            part: note.part,
            modules: modules.map(|calls| calls.into_iter().map(call).collect()),
            more: note.more,
        }
    }
}

type NoteList<'py> = Vec<(Bound<'py, PyNode>, NoteObject)>;

fn notes_of(list: NoteList<'_>) -> Notes {
    let note = |(node, note): (Bound<'_, PyNode>, NoteObject)| (node.get().id(), note.into());
    list.into_iter().map(note).collect()
}

/// Format and options of a picture.
#[derive(FromPyObject)]
pub(crate) struct Style {
    format: String,
    title: String,
    overlay: Option<String>,
    depth: Option<u32>,
    hide_shape_arithmetic: bool,
}

fn written(py: Python<'_>, mut scene: Scene, style: Style) -> PyResult<String> {
    let named = |name: &str| {
        let found = Overlay::ALL.into_iter().find(|own| own.name() == name);
        found.ok_or_else(|| {
            let names = Overlay::ALL
                .map(|own| format!("'{}'", own.name()))
                .join(", ");
            PyValueError::new_err(format!("overlay is {names} or None, not {name:?}"))
        })
    };
    let overlay = style.overlay.as_deref().map(named).transpose()?;
    scene.title = style.title;
    let depth = style.depth;
    let opening = depth.map_or(Opening::All, Opening::Depth);
    py.detach(|| match style.format.as_str() {
        "svg" => Ok(to_svg(&scene, &SvgOptions { opening, overlay })),
        "dot" => Ok(to_dot(&scene)),
        "html" => Ok(to_html(&scene, &HtmlOptions { overlay, depth })),
        other => {
            let message = format!("a picture is 'svg', 'dot' or 'html', not {other:?}");
            Err(PyValueError::new_err(message))
        }
    })
}

/// Draws `graph`. `notes` are pairs of a node and the facts about it; `style` has the format
/// (`svg`, `dot`, `html`), title, overlay, depth to which modules are open, and whether nodes that
/// compute sizes are left out.
#[pyfunction]
#[pyo3(signature = (graph, notes, style))]
pub(crate) fn draw_graph(
    graph: &Bound<'_, PyGraph>,
    notes: NoteList<'_>,
    style: Style,
) -> PyResult<String> {
    let notes = notes_of(notes);
    let scene = with_objects(graph, |graph, host| match style.hide_shape_arithmetic {
        true => Scene::without_shape_arithmetic(graph, &notes, host),
        false => Scene::with(graph, &notes, host),
    })?;
    written(graph.py(), scene, style)
}

/// A box of text: title, lines, opcode, operator, whether it stands out.
type RecordFields = (String, Vec<String>, String, String, bool);

/// Draws boxes of text as SVG, joined by lines from the first to the second of each pair.
#[pyfunction]
#[pyo3(signature = (title, records, edges))]
pub(crate) fn draw_records(
    py: Python<'_>,
    title: String,
    records: Vec<RecordFields>,
    edges: Vec<(u32, u32)>,
) -> String {
    py.detach(|| {
        let record = |(title, lines, op, operator, marked)| Record {
            title,
            lines,
            op,
            operator,
            marked,
        };
        let mut scene = Scene::of_records(records.into_iter().map(record).collect(), &edges);
        scene.title = title;
        to_svg(&scene, &SvgOptions::default())
    })
}

/// Draws the changes that turn `before` into `after`, as [`draw_graph`] does.
#[pyfunction]
#[pyo3(signature = (before, before_notes, after, after_notes, style))]
pub(crate) fn draw_difference(
    before: &Bound<'_, PyGraph>,
    before_notes: NoteList<'_>,
    after: &Bound<'_, PyGraph>,
    after_notes: NoteList<'_>,
    style: Style,
) -> PyResult<String> {
    let (old, new) = (notes_of(before_notes), notes_of(after_notes));
    let scene = with_objects_of_both(before, after, |before, after| {
        Scene::of_difference_with((before.0, &old, before.1), (after.0, &new, after.1))
    })?;
    written(before.py(), scene, style)
}
