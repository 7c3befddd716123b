"""The README shows the output of its example."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def block(after: str) -> str:
    """The fenced block after a comment in the README."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"<!-- {re.escape(after)} -->\n```\w+\n(.*?)```", text, re.S)
    assert found is not None
    return found[1]


def lines_and_numbers(text: str) -> tuple[list[str], list[float]]:
    """The text with its decimals blanked out, and the decimals, since they vary with the processor."""
    numbers = [float(number) for number in re.findall(r"\d\.\d{4}", text)]
    blank = re.sub(r"\d\.\d{4}", "#", text)
    return [line.rstrip() for line in blank.splitlines()], numbers


def test_the_example_is_shown_with_what_it_prints():
    program = (ROOT / "examples/first_screen.py").read_text()
    assert program.split('"""', 2)[2].lstrip("\n") == block("example: examples/first_screen.py")
    result = subprocess.run(
        [sys.executable, ROOT / "examples/first_screen.py"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    shown, shown_numbers = lines_and_numbers(block("output"))
    printed, numbers = lines_and_numbers(result.stdout)
    assert printed == shown
    assert all(abs(a - b) < 2e-4 for a, b in zip(numbers, shown_numbers, strict=True))
