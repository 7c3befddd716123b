"""The ``corsac`` program.

``corsac optimize MODEL --input SHAPE`` captures a model, runs the passes, checks the result
against the original, and says what was gained; ``corsac --help`` lists the other subcommands. One
subcommand a module; torch is imported only once a subcommand runs.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

from corsac.cli.arguments import parser
from corsac.cli.failure import Failure

__all__ = ["main"]

#: Exit codes: the result differs from the original; the request cannot be met; interrupted.
DIFFERENT, FAILED, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with ``arguments`` (the command line's by default); answers the exit code."""
    options = parser().parse_args(arguments)
    try:
        try:
            command = importlib.import_module(f"corsac.cli.{options.command}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise Failure("torch is missing: pip install torch (2.6 or later)") from error
        return 0 if command.run(options) else DIFFERENT
    except Failure as failure:
        if options.traceback:
            traceback.print_exception(failure)
        print(f"corsac: error: {failure}", file=sys.stderr)
        if failure.__cause__ is not None and not options.traceback:
            print("corsac: --traceback shows where it comes from", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader of the output has gone, as `head` does; nothing else is to be said.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        print("corsac: interrupted", file=sys.stderr)
        return INTERRUPTED
