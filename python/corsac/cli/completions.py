"""``corsac completions``: shell completion scripts."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from corsac.cli.argument_parser import COMMAND_PARSERS
from corsac.cli.commands import COMMANDS, NATIVE

#: An option in the text of ``--help``; the next pattern matches the list of values after it.
_OPTION = re.compile(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)
_VALUES = re.compile(r"\[possible\s+values:\s+([^]]*)\]")

#: Values of each option of a command, empty if any value is possible; under an empty name those of the
#: command itself.
Options = dict[str, list[str]]


def run(options: argparse.Namespace) -> bool:
    """Print the script."""
    known = {command.name: _options_of(command.name) for command in COMMANDS}
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](known), end="")
    return True


def _options_of(command: str) -> Options:
    if command in NATIVE:
        program = [sys.executable, "-m", "corsac.cli", command, "--help"]
        text = subprocess.run(program, capture_output=True, text=True, check=True).stdout
        found = list(_OPTION.finditer(text))
        ends = [own.start() for own in found[1:]] + [len(text)]
        values = [
            _VALUES.search(text, own.end(), end) for own, end in zip(found, ends, strict=True)
        ]
        return {
            own[1]: re.split(r",\s+", listed[1]) if listed else []
            for own, listed in zip(found, values, strict=True)
        }
    known: Options = {}
    for action in COMMAND_PARSERS[command]._actions:
        choices = [str(own) for own in action.choices or ()]
        names = [own for own in action.option_strings if own.startswith("--")]
        if choices or names:
            known |= dict.fromkeys(names or [""], choices)
    return known


def _bash(known: dict[str, Options]) -> str:
    cases, values = [], []
    for name, own in known.items():
        cases.append(f"    {name}) words='{' '.join(sorted(filter(None, own)))}' ;;")
        for option, choices in own.items():
            if choices:
                values.append(f"    {name}:{option or name}) values='{' '.join(choices)}' ;;")
    cases_of_commands, cases_of_values = "\n".join(cases), "\n".join(values)
    return f"""\
_corsac() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words= values=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(known)}' -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases_of_commands}
  esac
  case ${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD-1]}} in
{cases_of_values}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "$values" -- "$word")) ;;
  esac
}}
complete -o default -F _corsac corsac
"""


def _zsh(known: dict[str, Options]) -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(known)}"


def _fish(known: dict[str, Options]) -> str:
    lines = []
    for command in COMMANDS:
        summary = command.summary.replace("'", "\\'")
        lines.append(
            f"complete -c corsac -n __fish_use_subcommand -f -a {command.name} -d '{summary}'"
        )
        begins = f"complete -c corsac -n '__fish_seen_subcommand_from {command.name}'"
        for option, choices in known[command.name].items():
            long = f" -l {option.removeprefix('--')}" if option else " -f"
            values = f" {'-x ' if option else ''}-a '{' '.join(choices)}'" if choices else ""
            lines.append(f"{begins}{long}{values}")
    return "\n".join(lines) + "\n"
