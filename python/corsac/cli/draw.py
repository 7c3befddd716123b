"""``corsac draw``."""

from __future__ import annotations

import argparse

import torch

import corsac
from corsac.analysis import cost, profile, propagate
from corsac.cli.failure import Failure
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.progress import working
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Draw the graph to a file."""
    subject = captured(options.model, options)
    inputs = given_inputs(options.input)
    if options.overlay and not inputs:
        raise Failure(f"--overlay {options.overlay} needs the shapes of the inputs: --input SHAPE")
    report = None
    if inputs:
        module = subject.runnable("shapes")
        with accepted(), working("measuring"), torch.no_grad():
            propagate(module, *inputs)
            report = (profile if options.overlay == "time" else cost)(module, *inputs)
    target = subject.module if subject.module is not None else subject.graph
    try:
        with working(f"drawing {options.out}"):
            corsac.draw(target, options.out, overlay=options.overlay, annotations=report)
    except (ValueError, OSError) as error:
        raise Failure(f"--out {options.out}: {error}") from error
    print(f"written to {options.out}")
    return True
