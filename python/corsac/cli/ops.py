"""``corsac ops``."""

from __future__ import annotations

import argparse

from corsac.analysis import cost
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the costs of each call, without running the model."""
    module = captured(options.model, options, one_way=True).runnable("counting operations")
    inputs = given_inputs(options.input, module, "counting operations")
    with accepted():
        report = cost(module, inputs)
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return True
