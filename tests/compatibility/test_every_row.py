"""Every row of docs/compatibility.md has a test, and the rows named in tests exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kit.known import COMPATIBILITY

TESTS = Path(__file__).resolve().parent.parent


def rows() -> list[str]:
    """The titles of the rows, in the order of the page, without the headers of the tables."""
    lines = COMPATIBILITY.read_text().splitlines()
    titles = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("| ") and not following.startswith("|---"):
            titles.append(line.strip("|").split("|")[0].strip())
    return titles


def marks() -> Iterator[tuple[str, str]]:
    """The marked tests, and the beginnings of the titles of their rows."""
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "@row(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            for decorator in getattr(node, "decorator_list", ()):
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "row":
                    yield (
                        f"{path.relative_to(TESTS)}::{node.name}",
                        ast.literal_eval(decorator.args[0]),
                    )


def test_titles_are_told_apart() -> None:
    assert len(rows()) == len(set(rows()))


def test_every_row_has_a_test() -> None:
    shown = [beginning for _, beginning in marks()]
    missing = [title for title in rows() if not any(title.startswith(own) for own in shown)]
    assert not missing, "rows without a test:\n" + "\n".join(missing)


def test_every_mark_names_one_row() -> None:
    wrong = {
        test: beginning
        for test, beginning in marks()
        if sum(title.startswith(beginning) for title in rows()) != 1
    }
    assert not wrong
