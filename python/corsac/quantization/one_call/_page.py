"""The report as a page: the table, and the model's graph if it can be traced."""

from __future__ import annotations

import html
import math
from typing import Any

from corsac._drawing.pictures import notebook_page
from corsac.fx import GraphModule, symbolic_trace
from corsac.quantization.one_call._report import Report, Row

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em;
       color: #1c1e21; background: #fff; }
.wide { overflow-x: auto; margin-bottom: 1.5em; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 2px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid #8883; }
th { cursor: pointer; user-select: none; }
th[aria-sort="ascending"]::after { content: " ▲"; }
th[aria-sort="descending"]::after { content: " ▼"; }
li.warning { color: #c22; }
td:first-child, td:nth-child(2), td:last-child,
th:first-child, th:nth-child(2), th:last-child { text-align: left; }
td:last-child { white-space: normal; min-width: 16em; }
tr.float td { opacity: 0.65; }
tr.noisy td:nth-child(3) { color: #c22; font-weight: 600; }
@media (prefers-color-scheme: dark) { body { color: #e4e6eb; background: #18191a; } }
"""
#: Explanations of the columns.
_HINTS = (
    "path of the layer; click to sort",
    "form of the weights and, if they are integers, of the inputs",
    "signal-to-noise ratio of the output of the layer on the calibration data, in decibels",
    "part of the numbers of the input that is outside the range",
    "part of the range in which the input is",
    "time of a call of the float layer, on one thread",
    "time of a call of the layer in the form that was tried",
    "bytes of the parameters now",
    "bytes now, as a part of those of the float layer",
    "why the layer is in this form, and what else was done",
)
#: Sorts the rows by the numbers that cells carry, or by their texts.
_SCRIPT = """
for (const head of document.querySelectorAll("th")) head.addEventListener("click", () => {
  const up = head.getAttribute("aria-sort") === "descending" ? 1 : -1, at = head.cellIndex;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up === 1 ? "ascending" : "descending");
  const body = document.querySelector("tbody"), of = (row) => row.cells[at];
  const value = (row) => of(row).dataset.value === undefined ? NaN : Number(of(row).dataset.value);
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (isNaN(x) && isNaN(y)) return of(a).textContent.localeCompare(of(b).textContent, undefined, {numeric: true});
    return isNaN(x) ? up : isNaN(y) ? -up : x - y;
  };
  body.append(...[...body.rows].sort((a, b) => up * compare(a, b)));
});
"""
#: Ratios in decibels below which layers stand out.
NOISY = 15.0


def page(report: Report, model: Any = None) -> str:
    """The page as HTML."""
    head, *lines = report.cells()
    cells = "".join(
        f'<th title="{html.escape(hint)}">{html.escape(text)}</th>'
        for text, hint in zip(head, _HINTS, strict=True)
    )
    rows = "".join(
        f'<tr class="{_class(row)}">{_row(row, line)}</tr>\n'
        for row, line in zip(report.rows, lines, strict=True)
    )
    totals = "".join(f"<li>{html.escape(text)}</li>\n" for text in report.totals())
    warned = "".join(
        f'<li class="warning">warning: {html.escape(text)}</li>\n' for text in report.warnings
    )
    of = "" if model is None else f" of {html.escape(type(model).__name__)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Quantisation{of}</title>\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>Quantisation{of}</h1>\n<ul>\n{totals}{warned}</ul>\n"
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n'
        f"{_graph(report, model)}\n<script>{_SCRIPT}</script>\n</body></html>\n"
    )


def _row(row: Row, line: list[str]) -> str:
    """The cells of a layer, with the numbers by which they are sorted."""
    ratio = row.bytes / max(row.float_bytes, 1)
    numbers = [row.sqnr, row.clipped, row.use, row.float_seconds, row.seconds, row.bytes, ratio]
    values = [None, None, *numbers, None]
    return "".join(
        f"<td>{html.escape(text)}</td>"
        if value is None or not math.isfinite(value)
        else f'<td data-value="{value!r}">{html.escape(text)}</td>'
        for text, value in zip(line, values, strict=True)
    )


def _class(row: Row) -> str:
    noisy = row.sqnr is not None and row.sqnr < NOISY
    return " ".join(["quantised" if row.is_quantised else "float", *(["noisy"] if noisy else [])])


def _graph(report: Report, model: Any) -> str:
    """The model's graph in a frame; nothing for models that cannot be traced for all inputs."""
    if model is None:
        return ""
    try:
        traced = model if isinstance(model, GraphModule) else symbolic_trace(model)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        return f"<p>The graph is not drawn: {html.escape(said)}</p>"
    rows = {row.layer: row for row in report.rows}
    facts = {
        node.name: _facts(rows[node.target])
        for node in traced.graph.nodes
        if node.op == "call_module" and node.target in rows
    }
    return notebook_page(traced, annotations=facts, overlay="time")


def _facts(row: Row) -> dict[str, Any]:
    facts: dict[str, Any] = {"form": row.form}
    if row.sqnr is not None:
        facts["SQNR"] = f"{row.sqnr:.1f} dB"
    seconds = row.seconds if row.is_quantised else row.float_seconds
    if seconds is not None:
        facts["time"] = seconds
    if row.remark:
        facts["remark"] = row.remark
    return facts
