"""The report as a page: the table, and the model's graph if it can be traced."""

from __future__ import annotations

import html
from typing import Any

from corsac._drawing.pictures import notebook_page
from corsac.fx import GraphModule, symbolic_trace
from corsac.quantization.one_call._report import Report, Row

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em;
       color: #1c1e21; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: 2px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid #8883; }
th { position: sticky; top: 0; background: inherit; }
td:first-child, td:nth-child(2), td:last-child, th:first-child, th:nth-child(2) { text-align: left; }
td:last-child { white-space: normal; min-width: 16em; }
tr.float td { opacity: 0.65; }
tr.noisy td:nth-child(3) { color: #c22; font-weight: 600; }
@media (prefers-color-scheme: dark) { body { color: #e4e6eb; background: #18191a; } }
"""
#: Ratios in decibels below which layers stand out.
NOISY = 15.0


def page(report: Report, model: Any = None) -> str:
    """The page as HTML."""
    head, *lines = report.cells()
    cells = "".join(f"<th>{html.escape(text)}</th>" for text in head)
    rows = "".join(
        f'<tr class="{_class(row)}">'
        + "".join(f"<td>{html.escape(text)}</td>" for text in line)
        + "</tr>\n"
        for row, line in zip(report.rows, lines, strict=True)
    )
    totals = "".join(f"<li>{html.escape(text)}</li>\n" for text in report.totals())
    warned = "".join(f"<li>warning: {html.escape(text)}</li>\n" for text in report.warnings)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Quantisation</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>Quantisation</h1>\n<ul>\n{totals}{warned}</ul>\n"
        f"<table><thead><tr>{cells}</tr></thead>\n<tbody>\n{rows}</tbody></table>\n"
        f"{_graph(report, model)}\n</body></html>\n"
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
