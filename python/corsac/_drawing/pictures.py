"""``corsac.draw`` and ``corsac.draw_diff``: pictures of graphs."""

from __future__ import annotations

import dataclasses
import html
import os
import tempfile
import webbrowser
from pathlib import Path
from typing import Any, Literal

import torch

from corsac import _core
from corsac import fx as corsac_fx
from corsac._drawing.notes import notes_of, shape_and_dtype, text
from corsac._models.example_inputs import ExampleInputs, as_tuple

Overlay = Literal["time", "bytes", "flops", "part"]

FORMATS = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".html": "html", ".htm": "html"}
# The height of a picture in a notebook, in pixels.
_NOTEBOOK_HEIGHT = 640


@dataclasses.dataclass
class _Style:
    format: str
    title: str
    overlay: str | None = None
    depth: int | None = None
    hide_shape_arithmetic: bool = False


def draw(
    graph: Any,
    path: str | os.PathLike[str],
    *,
    overlay: Overlay | None = None,
    annotations: Any = None,
    inputs: ExampleInputs | None = None,
    depth: int | None = None,
    title: str | None = None,
    hide_shape_arithmetic: bool = False,
) -> Path:
    """Draw a graph to a file, in the format of its suffix.

    - ``.html``: one file that opens offline in any browser. Modules open and close; search, pan,
      zoom; a click on a node shows its details.
    - ``.svg``: a static picture, light or dark by the reader's preference.
    - ``.dot``: text for Graphviz and compatible tools.

    Shapes are taken from ``node.meta["tensor_meta"]`` or ``node.meta["val"]``, if present.

    Args:
        graph: a graph module, a graph, or a ``torch.nn.Module``, which is traced.
        path: the file to write.
        overlay: meaning of the colours, instead of the kind of operator: ``"time"``, ``"bytes"`` or
            ``"flops"`` of each node, or the ``"part"`` of the program that it is in, from ``annotations``.
        annotations: data of nodes: a mapping from a node, or its name, to a mapping with
            any of ``flops``, ``bytes`` (read and written), ``time`` (seconds), ``part`` (its number), ``shape``,
            ``dtype``, ``source``; other keys are listed with the node. A report of
            ``corsac.analysis`` will do.
        inputs: a tensor, or a tuple of positional arguments, with which the module is run once,
            without gradients, to find the shapes.
        depth: number of levels of nested modules that are expanded; 0 shows every
            module as one box. By default an SVG shows all, and the HTML page as much as can be
            read.
        title: title above the picture; by default the name of the module's class.
        hide_shape_arithmetic: leave out nodes that read sizes of tensors, or compute numbers from them.

    Returns:
        The path.

    Raises:
        ValueError: if the suffix of the file, or ``overlay``, is none of the above.
        TypeError: if ``graph`` cannot be drawn.
    """
    target = Path(path)
    picture = _written(
        graph,
        _format_of(target),
        overlay,
        annotations,
        inputs,
        depth,
        title,
        hide_shape_arithmetic,
    )
    target.write_text(picture, encoding="utf-8")
    return target


def draw_diff(
    before: Any,
    after: Any,
    path: str | os.PathLike[str],
    *,
    annotations: Any = None,
    depth: int | None = None,
    title: str | None = None,
) -> Path:
    """Draw the difference between two graphs: new, removed and changed nodes.

    Nodes are matched as by ``before.graph.diff(after.graph)``, so that renamed nodes are not shown
    as new. Keep a copy of the module (``copy.deepcopy``) before a pass that changes it in place.

    Args:
        before: a graph module or a graph.
        after: another.
        path: the file to write: ``.html``, ``.svg`` or ``.dot``, as for :func:`draw`.
        annotations: data of the nodes of ``after``, as for :func:`draw`.
        depth: as for :func:`draw`.
        title: title above the picture.

    Returns:
        The path.
    """
    target = Path(path)
    old, new = _graph_of(before), _graph_of(after)
    style = _Style(_format_of(target), text(title or _title_of(after)), None, depth)
    picture = _core.draw_difference(old, notes_of(old), new, notes_of(new, annotations), style)
    target.write_text(picture, encoding="utf-8")
    return target


def show(graph: Any, **options: Any) -> Any:
    """Show a graph: in a notebook as the result of the cell, elsewhere in the browser.

    ``options`` are those of :func:`draw`. Returns an object that a notebook displays, or the path of
    the page.
    """
    if _in_notebook():
        return Picture(notebook_page(graph, **options))
    folder = Path(tempfile.mkdtemp(prefix="corsac-"))
    page = draw(graph, folder / "graph.html", **options)
    webbrowser.open(page.as_uri())
    return page


class Picture:
    """A page for a notebook."""

    def __init__(self, page: str) -> None:
        self._page = page

    def _repr_html_(self) -> str:
        return self._page


def notebook_page(graph: Any, **options: Any) -> str:
    """A picture as HTML for a notebook: a frame of its own, without access to the notebook."""
    names = ("overlay", "annotations", "inputs", "depth", "title")
    page = _written(graph, "html", **(dict.fromkeys(names) | options))
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="graph" srcdoc="{html.escape(page)}" '
        f'style="width:100%;height:{_NOTEBOOK_HEIGHT}px;border:1px solid #8884;border-radius:8px">'
        "</iframe>"
    )


def node_table(node: Any) -> str:
    """The details of a node, as a table for a notebook."""
    shape, dtype = shape_and_dtype(node.meta.get("tensor_meta", node.meta.get("val")))
    source = node.source
    known = {
        "op": node.op,
        "target": node._pretty_print_target(node.target),
        "args": node.args,
        "kwargs": node.kwargs or None,
        "users": ", ".join(user.name for user in node.users),
        "shape": shape,
        "dtype": dtype,
        "source": source and f"{source.file}:{source.line} in {source.function}",
    }
    rows = "".join(
        f'<tr><th style="text-align:left">{key}</th>'
        f'<td style="text-align:left"><code>{html.escape(text(value))}</code></td></tr>'
        for key, value in known.items()
        if value is not None
    )
    return f"<table><caption><code>{html.escape(text(node.name))}</code></caption>{rows}</table>"


def _in_notebook() -> bool:
    try:
        shell = get_ipython()  # type: ignore[name-defined]
    except NameError:
        return False
    return bool(shell.has_trait("kernel"))


def _written(
    graph: Any,
    file_format: str,
    overlay: str | None,
    annotations: Any,
    inputs: ExampleInputs | None,
    depth: int | None,
    title: str | None,
    hide_shape_arithmetic: bool = False,
) -> str:
    module = _traced(graph)
    drawn = _graph_of(module)
    notes = notes_of(drawn, annotations)
    if inputs is not None:
        shapes = _shapes(module, as_tuple(inputs))
        for node, note in notes:
            if node.name in shapes:
                note.shape, note.dtype = shapes[node.name]
    style = _Style(
        file_format, text(title or _title_of(graph)), overlay, depth, hide_shape_arithmetic
    )
    return _core.draw_graph(drawn, notes, style)


def _format_of(path: Path) -> str:
    known = FORMATS.get(path.suffix.lower())
    if known is None:
        raise ValueError(f"a picture is .svg, .dot or .html, not {path.suffix or path.name!r}")
    return known


def _traced(graph: Any) -> Any:
    """``graph`` itself if it is a graph or graph module, or else the graph module traced from it."""
    if isinstance(graph, (_core.Graph, corsac_fx.GraphModule)):
        return graph
    if isinstance(graph, torch.fx.GraphModule):
        return corsac_fx.from_torch(graph)
    if isinstance(graph, torch.nn.Module):
        return corsac_fx.symbolic_trace(graph)
    raise TypeError(
        f"expected a graph module, a graph or a module, got {type(graph).__module__}."
        f"{type(graph).__qualname__}"
    )


def _graph_of(module: Any) -> Any:
    traced = _traced(module)
    return traced if isinstance(traced, _core.Graph) else traced.graph


def _title_of(graph: Any) -> str:
    if isinstance(graph, _core.Graph):
        graph = graph.owning_module
    return "graph" if graph is None else type(graph).__name__


def _shapes(module: Any, inputs: tuple[Any, ...]) -> dict[str, tuple[str | None, str | None]]:
    """Shape and element type of every node's value in one run."""
    if isinstance(module, _core.Graph):
        raise TypeError("a graph alone cannot be run on inputs: pass its graph module")
    shapes: dict[str, tuple[str | None, str | None]] = {}

    class Recorder(corsac_fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            shapes[n.name] = shape_and_dtype(value)
            return value

    with torch.no_grad():
        Recorder(module).run(*inputs)
    return shapes
