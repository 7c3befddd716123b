"""``corsac split``."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import corsac
from corsac.cli.failure import Failure, check_file, first_line, written
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.result import check_folder, write
from corsac.cli.subject import captured
from corsac.passes import BalanceError, split_balanced


def run(options: argparse.Namespace) -> bool:
    """Split the model into parts of which the slowest is as fast as possible."""
    if options.draw:
        check_file(options.draw, (".html", ".svg"), "--draw")
    if options.microbatches is not None and options.training is None:
        raise Failure("--microbatches needs --training")
    module = captured(options.model, options).runnable("splitting")
    folder = Path(options.out) if options.out else None
    if folder is not None:
        check_folder(folder)
    inputs = given_inputs(options.input, module, "splitting")
    try:
        with accepted(BalanceError), working("splitting"), warnings.catch_warnings():
            # The report lists the calls.
            warnings.filterwarnings("ignore", "\\d+ of \\d+ calls have no known cost")
            split, report = split_balanced(
                module,
                inputs,
                parts=options.parts,
                memory=options.memory,
                bandwidth=options.bandwidth,
                by=options.by,
                training=options.training,
                microbatches=options.microbatches,
            )
    except BalanceError as error:
        raise Failure(f"the model cannot be split: {first_line(error, 1500)}") from error
    if options.json:
        print_json(report.to_dict())
    else:
        print(report)
    if options.draw:
        with written(f"--draw {options.draw}"):
            corsac.draw(module, options.draw, overlay="part", annotations=report.annotations())
    if folder is not None:
        with working(f"writing {folder}"):
            write(split, folder, type(module).__name__)
    if not options.json:
        if options.draw:
            print(f"written to {options.draw}")
        if folder is not None:
            name = type(module).__name__
            print(f"written to {folder}: module.py ({name}), its weights, graph.txt")
    return True
