"""``corsac profile``."""

from __future__ import annotations

import argparse

import torch

from corsac.analysis import profile
from corsac.cli.failure import Failure, first_line
from corsac.cli.inputs import given_inputs
from corsac.cli.progress import working
from corsac.cli.rows import print_json
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print how long each call takes."""
    module = captured(options.model, options).runnable("a profile")
    try:
        with working(f"running the model {options.repeat} times"), torch.inference_mode():
            report = profile(module, *given_inputs(options.input), repeats=options.repeat)
    except Exception as error:
        raise Failure(f"the model does not accept the input: {first_line(error)}") from error
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return True
