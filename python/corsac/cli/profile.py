"""``corsac profile``."""

from __future__ import annotations

import argparse

import torch

from corsac.analysis import profile
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Print the time of each call."""
    module = captured(options.model, options, one_way=True).runnable("a profile")
    inputs = given_inputs(options.input, module, "a profile")
    progress = working(f"running the model {options.repeat} times")
    with accepted(), progress, torch.inference_mode():
        report = profile(module, inputs, repeats=options.repeat)
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    return True
