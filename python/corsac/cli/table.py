"""``corsac table``."""

from __future__ import annotations

import argparse

from corsac.cli.json_output import print_json
from corsac.cli.rows import rows
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the nodes in columns."""
    graph = captured(options.model, options, one_way=True).graph
    if options.json:
        print_json(rows(graph))
    else:
        graph.print_tabular()
    return True
