"""``corsac code``."""

from __future__ import annotations

import argparse

from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the Python code."""
    graph = captured(options.model, options).graph
    print(graph.python_code("self", verbose=options.verbose).src.strip("\n"))
    return True
