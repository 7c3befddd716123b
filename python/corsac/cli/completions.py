"""``corsac completions``: what a shell completes."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from corsac.cli.arguments import COMMAND_PARSERS, COMMANDS

#: An option in the text of ``--help``.
_OPTION = re.compile(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)


def run(options: argparse.Namespace) -> bool:
    """Print the script."""
    known = {command.name: _options_of(command.name) for command in COMMANDS}
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](known), end="")
    return True


def _options_of(command: str) -> list[str]:
    if command in ("run", "bench"):
        # The native program knows its own.
        program = [sys.executable, "-m", "corsac.cli", command, "--help"]
        text = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    else:
        text = COMMAND_PARSERS[command].format_help()
    return sorted(set(_OPTION.findall(text)))


def _bash(known: dict[str, list[str]]) -> str:
    cases = "\n".join(f"    {name}) words='{' '.join(own)}' ;;" for name, own in known.items())
    return f"""\
_corsac() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(known)}' -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=() ;;
  esac
}}
complete -o default -F _corsac corsac
"""


def _zsh(known: dict[str, list[str]]) -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(known)}"


def _fish(known: dict[str, list[str]]) -> str:
    lines = []
    for command in COMMANDS:
        summary = command.summary.replace("'", "\\'")
        lines.append(
            f"complete -c corsac -n __fish_use_subcommand -f -a {command.name} -d '{summary}'"
        )
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        lines += [
            f"complete -c corsac -n {seen} -l {option.removeprefix('--')}"
            for option in known[command.name]
        ]
    return "\n".join(lines) + "\n"
