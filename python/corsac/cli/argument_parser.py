"""The parser of the command line."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from corsac import __version__
from corsac.cli.commands import COMMANDS


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors that suggest the likely intended word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        # Shapes with a negative size, too, are values, which their option refuses itself.
        self._negative_number_matcher = re.compile(r"-\d[\d.,]*(:\w+)?$")

    def parse_args(
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = COMMAND_PARSERS[options.command]
            near = _meant(unknown[0].split("=")[0], command._option_string_actions)
            command.error(f"unexpected argument {unknown[0]!r}{near}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if action.dest == "command":
            raise argparse.ArgumentError(
                None, f"there is no command {value!r}{_meant(value, action.choices)}"
            )
        known = ", ".join(map(str, action.choices))
        raise argparse.ArgumentError(action, f"expected one of {known}, got {value!r}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"corsac: error: {message} ({self.prog} --help shows how)\n")


def _meant(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, [*known], n=1, cutoff=0.7)
    return f": did you mean {near[0]!r}?" if near else ""


#: Parsers by command.
COMMAND_PARSERS: dict[str, argparse.ArgumentParser] = {}


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    program = Parser(
        prog="corsac",
        description="torch.fx in Rust: capture, transform and run PyTorch programs.",
    )
    program.add_argument("--version", action="version", version=f"corsac {__version__}")
    commands = program.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=command.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        COMMAND_PARSERS[command.name] = subparser
        command.add_arguments(subparser)
        subparser.add_argument(
            "--traceback",
            action="store_true",
            help="on an error, show where it comes from",
        )
    return program
