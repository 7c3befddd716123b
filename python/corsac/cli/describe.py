"""``corsac describe``."""

from __future__ import annotations

import argparse

import corsac
from corsac.cli.failure import Failure
from corsac.cli.subject import captured


def run(options: argparse.Namespace) -> bool:
    """Write the configuration of a model."""
    module = captured(options.model, options).runnable("a configuration")
    try:
        text = corsac.describe(module, options.out, format=options.format)
    except (ValueError, OSError) as error:
        raise Failure(str(error)) from error
    if options.out is None:
        print(text, end="")
    return True
