"""``corsac code``."""

from __future__ import annotations

import argparse
import linecache

from corsac import fx
from corsac.cli.json_output import print_json
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the Python code."""
    graph = captured(options.model, options, one_way=True).graph
    if options.verbose:
        _trace_sources(graph)
    code = graph.python_code("self", verbose=options.verbose)
    text = code.src.strip()
    if options.json:
        print_json(
            {"code": text, "globals": {name: _named(it) for name, it in code.globals.items()}}
        )
    else:
        print(text)
    return True


def _trace_sources(graph: fx.Graph) -> None:
    """Give nodes without a stack trace one with their source line, from which comments are made."""
    for node in graph.nodes:
        source = node.source
        if node.stack_trace is None and source is not None:
            text = linecache.getline(source.file, source.line).strip()
            place = f'File "{source.file}", line {source.line}, in {source.function}'
            node.stack_trace = f"{place}\n    {text}"


def _named(value: object) -> str:
    """The object behind a global name of the code, as its qualified name if it has one."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return repr(value)
    module = getattr(value, "__module__", None)
    return f"{module}.{name}" if module else name
