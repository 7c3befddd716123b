"""``corsac show``."""

from __future__ import annotations

import argparse

from corsac.cli.colour import DIM, coloured
from corsac.cli.failure import Failure
from corsac.cli.json_output import print_json
from corsac.cli.rows import rows
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the graph."""
    chosen = [name for name in ("lossless", "sources", "json") if getattr(options, name)]
    chosen += [f"format {options.format}"] if options.format else []
    if len(chosen) > 1:
        raise Failure(f"--{chosen[0]} cannot be used with --{chosen[1]}")
    graph = captured(options.model, options, one_way=True).graph
    if options.format == "table":
        graph.print_tabular()
    elif options.format == "code":
        print(graph.python_code("self").src.strip())
    elif options.json:
        print_json({"nodes": rows(graph)})
    elif options.lossless or options.format == "lossless":
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
