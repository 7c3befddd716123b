"""``corsac describe``."""

from __future__ import annotations

import argparse
from pathlib import Path

import corsac
from corsac.cli.failure import Failure, check_file, file_error, first_line
from corsac.cli.json_output import print_json
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Write the configuration of a model."""
    if options.json and options.format not in (None, "json"):
        raise Failure(f"--json is --format json, and --format is {options.format}")
    if options.out is not None and options.format is None:
        check_file(options.out, (".graph", ".toml", ".json"))
    module = captured(options.model, options).runnable("a configuration")
    format = "json" if options.json and options.out is None else options.format
    try:
        text = corsac.describe(module, options.out, format=format)
    except OSError as error:
        raise Failure(f"--out {options.out}: {file_error(error)}") from error
    except ValueError as error:
        raise Failure(str(error)) from error
    except RuntimeError as error:
        # Parameters that have no elements yet.
        raise Failure(f"the model cannot be described: {first_line(error)}") from error
    if options.out is None:
        print(text, end="")
    elif options.json:
        print_json({"file": options.out, "bytes": Path(options.out).stat().st_size})
    else:
        print(f"written to {options.out}")
    return True
