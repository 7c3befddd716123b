"""``corsac summary``."""

from __future__ import annotations

import argparse

from corsac.analysis import summary
from corsac.cli.capture import graph_module
from corsac.cli.inputs import accepted, given_inputs, random_inputs
from corsac.cli.json_output import print_json
from corsac.cli.subject import original
from corsac.fx import GraphModule


def run(options: argparse.Namespace) -> bool:
    """Print the modules of a model, without running it."""
    model = original(options.model, options)
    graph = model
    if not isinstance(graph, GraphModule):
        texts = options.input
        graph = graph_module(model, (lambda: random_inputs(texts)) if texts else None)
    inputs = given_inputs(options.input, graph, "a summary")
    with accepted():
        report = summary(model, inputs, depth=options.depth)
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return True
