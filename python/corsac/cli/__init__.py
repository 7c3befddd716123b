"""The ``corsac`` program.

``corsac optimize MODEL --input SHAPE`` captures a model, runs the passes, checks the result against the
original, and reports the gain; ``corsac --help`` lists the other subcommands. Those on model files (``run``,
``bench``, ``generate``, and ``show`` and ``ops`` of ``*.safetensors``) are implemented by the native program, which the
package contains. Each subcommand is a module; torch is imported only when one runs.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

from corsac import _core
from corsac._lazy import torch_is_missing
from corsac.cli.argument_parser import parser
from corsac.cli.commands import CONVERTED, NATIVE
from corsac.cli.failure import Failure

__all__ = ["main"]

#: Exit codes: the result differs from the original; the request cannot be met; interrupted.
DIFFERENT, FAILED, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with ``arguments`` (the command line's by default); return the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if _is_about_a_converted_file(words):
        return _run_converted(words)
    if _is_about_a_file(words):
        sys.stdout.flush()
        return _core.run_program(["corsac", *words])
    if not words:
        parser().print_help(sys.stderr)
        return FAILED
    options = parser().parse_args(words)
    try:
        try:
            _core.check_threads_setting()
        except ValueError as error:
            raise Failure(str(error)) from None
        try:
            command = importlib.import_module(f"corsac.cli.{options.command}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise Failure(str(torch_is_missing(f"corsac {options.command}", error))) from error
        try:
            return 0 if command.run(options) else DIFFERENT
        except SystemExit as error:
            # Of code of the model, or what imports it: the program itself returns.
            raise Failure(
                f"the model's code ended the program: sys.exit({error.code!r})"
            ) from error
    except Failure as failure:
        if options.traceback:
            traceback.print_exception(failure)
        print(f"corsac: error: {failure}", file=sys.stderr)
        if failure.__cause__ is not None and not options.traceback:
            print("corsac: --traceback shows where it comes from", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader of the output has exited, as `head` does: no further output.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        print("corsac: interrupted", file=sys.stderr)
        return INTERRUPTED


def _is_about_a_converted_file(words: Sequence[str]) -> bool:
    """Whether the command runs an ONNX model or a program of ``torch.export``."""
    is_converted = any(word.endswith(CONVERTED) for word in words)
    return words[:1] in (["run"], ["bench"]) and is_converted


def _run_converted(words: Sequence[str]) -> int:
    from corsac.cli.convert import run_model

    try:
        sys.stdout.flush()
        return run_model(words)
    except Failure as failure:
        print(f"corsac: error: {failure}", file=sys.stderr)
        return FAILED


def _is_about_a_file(words: Sequence[str]) -> bool:
    """Whether the command is implemented by the native program."""
    if any(word in NATIVE for word in words[:1]):
        return True
    is_file = any(word.endswith(".safetensors") for word in words)
    # Options that the native program does not have: it uses the file's own shapes, and no Python exceptions.
    own = ("--input", "--sources", "--traceback", "--kwargs", "--seed", "--weights")
    has_own = any(word.split("=")[0] in own for word in words)
    return words[:1] in (["show"], ["ops"]) and is_file and not has_own
