"""``corsac draw``."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import corsac
from corsac._drawing.pictures import FORMATS
from corsac.analysis import cost, profile, propagate
from corsac.cli.failure import Failure, check_file, file_error
from corsac.cli.inputs import accepted, given_inputs
from corsac.cli.json_output import print_json
from corsac.cli.progress import working
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Draw the graph to a file."""
    check_file(options.out, tuple(FORMATS))
    subject = captured(options.model, options, one_way=True)
    report = None
    if options.input or options.overlay:
        why = f"--overlay {options.overlay}" if options.overlay else "showing shapes"
        module = subject.runnable(why)
        inputs = given_inputs(options.input, module, why)
        with accepted(), working("measuring"), torch.no_grad():
            propagate(module, inputs)
            report = (profile if options.overlay == "time" else cost)(module, inputs)
    target = subject.module if subject.module is not None else subject.graph
    try:
        with working(f"drawing {options.out}"):
            corsac.draw(
                target,
                options.out,
                overlay=options.overlay,
                annotations=report,
                hide_shape_arithmetic=options.hide_shape_arithmetic,
            )
    except OSError as error:
        raise Failure(f"--out {options.out}: {file_error(error)}") from error
    except ValueError as error:
        raise Failure(f"--out {options.out}: {error}") from error
    if options.json:
        out = Path(options.out)
        print_json(
            {
                "file": str(out),
                "format": out.suffix.removeprefix("."),
                "bytes": out.stat().st_size,
                "nodes": len(subject.graph.nodes),
                "overlay": options.overlay,
            }
        )
    else:
        print(f"written to {options.out}")
    return True
