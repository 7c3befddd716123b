"""``corsac summary``."""

from __future__ import annotations

import argparse

from corsac.analysis import Summary, cost
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.subject import graph_of, original
from corsac.fx import GraphModule


def run(options: argparse.Namespace) -> bool:
    """Print the modules of a model, without running it."""
    model = original(options.model, options)
    graph = model if isinstance(model, GraphModule) else graph_of(model, options, one_way=True)
    inputs = given_inputs(options.input, graph, "a summary")
    with accepted():
        report = Summary(model, cost(graph, inputs), options.depth)
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return True
