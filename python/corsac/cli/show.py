"""``corsac show``."""

from __future__ import annotations

import argparse

from corsac.cli.colour import DIM, coloured
from corsac.cli.rows import print_json, rows
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the graph."""
    graph = captured(options.model, options).graph
    if options.json:
        print_json({"nodes": rows(graph)})
    elif options.lossless:
        print(graph.to_lossless(), end="")
    elif options.sources:
        print("graph():")
        for node in graph.nodes:
            source = node.source
            where = f"  # {source.file}:{source.line} in {source.function}" if source else ""
            print(f"    {node.format_node()}{coloured(where, DIM)}")
    else:
        print(graph)
    return True
