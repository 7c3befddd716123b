"""``corsac ops``."""

from __future__ import annotations

import argparse

from corsac.analysis import cost
from corsac.cli.failure import Failure, first_line
from corsac.cli.inputs import given_inputs
from corsac.cli.rows import print_json
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print what each call costs, without running the model."""
    module = captured(options.model, options).runnable("counting operations")
    try:
        report = cost(module, *given_inputs(options.input))
    except Exception as error:
        raise Failure(f"the model does not accept the input: {first_line(error)}") from error
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return True
