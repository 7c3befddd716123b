"""``corsac code``."""

from __future__ import annotations

import argparse

from corsac.cli.rows import print_json
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the Python code."""
    graph = captured(options.model, options).graph
    code = graph.python_code("self", verbose=options.verbose)
    text = code.src.strip()
    if options.json:
        print_json(
            {"code": text, "globals": {name: _named(it) for name, it in code.globals.items()}}
        )
    else:
        print(text)
    return True


def _named(value: object) -> str:
    """What a global name of the code stands for: its qualified name where it has one."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return repr(value)
    module = getattr(value, "__module__", None)
    return f"{module}.{name}" if module else name
