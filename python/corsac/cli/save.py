"""``corsac save``."""

from __future__ import annotations

import argparse
from pathlib import Path

import corsac
from corsac.cli.failure import Failure, first_line
from corsac.cli.inputs import given_inputs
from corsac.cli.progress import working
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Write the model to a file that runs without Python."""
    module = captured(options.model, options).runnable("saving")
    inputs = given_inputs(options.input)
    with working("saving"):
        try:
            corsac.save(module, options.out, inputs)
        except (corsac.CompileError, corsac.ModelFileError, TypeError, OSError) as error:
            raise Failure(f"the model cannot be saved: {first_line(error, 1500)}") from error
    print(f"{options.out}: {Path(options.out).stat().st_size:,} bytes")
    return True
